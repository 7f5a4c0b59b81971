//! What a run is made of, from the environment.

use std::time::Duration;

use anyhow::Context;

pub(crate) struct Plan {
    pub(crate) seconds: Duration,
    pub(crate) rounds: usize,
    only: Option<String>,
}

impl Plan {
    /// `PAYONCE_BENCH_SECONDS`, `PAYONCE_BENCH_ROUNDS` and, for the names of the parts to run, `PAYONCE_BENCH_ONLY`.
    pub(crate) fn of_environment(seconds: u64, rounds: u64) -> anyhow::Result<Self> {
        Ok(Self {
            seconds: Duration::from_secs(number("PAYONCE_BENCH_SECONDS", seconds)?.max(1)),
            rounds: usize::try_from(number("PAYONCE_BENCH_ROUNDS", rounds)?.max(1))?,
            only: std::env::var_os("PAYONCE_BENCH_ONLY")
                .map(|text| text.to_string_lossy().into_owned()),
        })
    }

    pub(crate) fn has(&self, part: &str) -> bool {
        self.only
            .as_ref()
            .is_none_or(|only| only.split(',').any(|name| name.trim() == part))
    }
}

pub(crate) fn number(name: &str, default: u64) -> anyhow::Result<u64> {
    match std::env::var_os(name) {
        None => Ok(default),
        Some(text) => text
            .to_string_lossy()
            .parse()
            .with_context(|| format!("{name} is no whole number")),
    }
}

/// Whether this is `cargo bench`: `cargo test --all-targets` runs benchmarks too, unoptimised.
pub(crate) fn is_bench() -> bool {
    std::env::args().any(|argument| argument == "--bench")
}
