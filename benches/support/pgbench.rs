//! The other side: `pgbench` with the same three inserts in one transaction, prepared, over TCP.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context;
use tokio::process::Command;

use super::books::Books;
use super::cpu::{Cpu, Processes};
use super::report::Sample;

const SCRIPT: &str = include_str!("pgbench.sql");
/// As many as the machine that the figures are told of has cores; more did not make it faster there.
const THREADS: usize = 2;

/// Writes into the service's own tables.
pub(crate) async fn run(
    books: &Books,
    connections: usize,
    seconds: Duration,
) -> anyhow::Result<Sample> {
    run_in(books, "public", connections, seconds).await
}

/// Writes into the tables of this schema.
pub(crate) async fn run_in(
    books: &Books,
    schema: &str,
    connections: usize,
    seconds: Duration,
) -> anyhow::Result<Sample> {
    let folder = Folder::new()?;
    let (script, log) = (folder.path.join("script.sql"), folder.path.join("log"));
    std::fs::write(&script, SCRIPT)?;
    let processes = Processes {
        postmaster: books.postmaster(),
        ..Processes::default()
    };
    let before = Cpu::now(processes);
    let output = Command::new(books.program("pgbench"))
        .args(["--no-vacuum", "--protocol=prepared"])
        .arg(format!("--client={connections}"))
        .arg(format!("--jobs={}", THREADS.min(connections)))
        .arg(format!("--time={}", seconds.as_secs()))
        // A line for each transaction, for the percentiles.
        .arg("--log")
        .arg(format!("--log-prefix={}", log.display()))
        .arg("--file")
        .arg(&script)
        // The address with host, port, account and password in it: TCP, as the service has it.
        .arg(books.url())
        .env("PGOPTIONS", format!("-c search_path={schema}"))
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .context("pgbench can't be run")?;
    anyhow::ensure!(
        output.status.success(),
        "pgbench failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let cpu = Cpu::now(processes).since(before);
    let told = String::from_utf8_lossy(&output.stdout);
    let rate = told
        .lines()
        .find_map(|line| line.strip_prefix("tps = "))
        .and_then(|line| line.split_whitespace().next()?.parse().ok())
        .with_context(|| format!("pgbench told no rate: {told}"))?;
    let latencies = latencies(&folder.path)?;
    Ok(Sample {
        rate,
        cpu,
        ..Sample::of(latencies, seconds)
    })
}

/// The third column of its logs, one a thread: microseconds.
fn latencies(folder: &Path) -> anyhow::Result<Vec<u32>> {
    let mut latencies = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if !path
            .file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with("log."))
        {
            continue;
        }
        for line in std::fs::read_to_string(path)?.lines() {
            let latency = line.split(' ').nth(2).context("a log line of pgbench")?;
            latencies.push(latency.parse()?);
        }
    }
    Ok(latencies)
}

/// A temporary folder that goes with its value.
struct Folder {
    path: std::path::PathBuf,
}

impl Folder {
    fn new() -> anyhow::Result<Self> {
        let path = std::env::temp_dir().join(format!("payonce-bench-{}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(Self { path })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left in a temporary folder harms nobody.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
