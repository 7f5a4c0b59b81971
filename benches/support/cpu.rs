//! What processes cost, as Linux tells it in `/proc`; nothing where there is no `/proc`.

use std::fs;
use std::time::Duration;

/// Linux counts CPU time to user space in hundredths of a second on every usual machine.
const TICK: Duration = Duration::from_millis(10);

/// CPU time so far, or within a round.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cpu {
    /// The benchmark itself, with the programs it has waited for.
    pub(crate) client: Duration,
    pub(crate) service: Duration,
    pub(crate) simulator: Duration,
    pub(crate) postgres: Duration,
}

/// Whose time is told.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Processes {
    pub(crate) service: Option<u32>,
    pub(crate) simulator: Option<u32>,
    pub(crate) postmaster: Option<u32>,
}

impl Cpu {
    pub(crate) fn now(of: Processes) -> Self {
        Self {
            client: time(std::process::id()),
            service: of.service.map_or(Duration::ZERO, time),
            simulator: of.simulator.map_or(Duration::ZERO, time),
            postgres: of.postmaster.map_or(Duration::ZERO, with_children),
        }
    }

    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            client: self.client.saturating_sub(before.client),
            service: self.service.saturating_sub(before.service),
            simulator: self.simulator.saturating_sub(before.simulator),
            postgres: self.postgres.saturating_sub(before.postgres),
        }
    }
}

/// The most memory that was resident, in KiB.
pub(crate) fn peak_resident_kib(process: u32) -> Option<u64> {
    fs::read_to_string(format!("/proc/{process}/status"))
        .ok()?
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?
        .trim()
        .strip_suffix(" kB")?
        .parse()
        .ok()
}

/// Of a process and of those it has waited for.
fn time(process: u32) -> Duration {
    stat(process).map_or(Duration::ZERO, |stat| stat.time)
}

/// Of a process, of its children, and of those it has waited for.
fn with_children(parent: u32) -> Duration {
    let children: Duration = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(stat)
        .filter(|stat| stat.parent == parent)
        .map(|stat| stat.time)
        .sum();
    time(parent) + children
}

struct Stat {
    parent: u32,
    time: Duration,
}

fn stat(process: u32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name, in parentheses, may hold anything.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u32>().ok();
    let ticks: u32 = (11..15).filter_map(number).sum();
    Some(Stat {
        parent: number(1)?,
        time: TICK * ticks,
    })
}
