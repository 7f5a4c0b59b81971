//! How a run is asked for.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

/// Runs payonce under every fault at once and checks what came of it. Exits with 1 if a promise was broken.
#[derive(Debug, Parser)]
#[command(name = "chaos")]
pub struct Options {
    /// Decides what goes wrong and when, and what clients ask for.
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// How long faults are injected.
    #[arg(long, value_name = "M", default_value_t = 3.0, value_parser = minutes)]
    pub minutes: f64,
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..))]
    pub clients: u32,
    /// How many `payonce serve` run.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=16))]
    pub services: u32,
    /// Copy the database in the middle of the run, and put the copy back later, under live clients. The provider forgets
    /// no keys in such a run. Without a recovery mode promises are broken in it: a numbered key of a prepare is forgotten
    /// with the books, and a second object is made.
    #[arg(long)]
    pub restore: bool,
    /// Where books and logs are kept: for the length of the run, and after it if a promise was broken.
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
}

impl Options {
    pub fn length(&self) -> Duration {
        Duration::from_secs_f64(self.minutes * 60.0)
    }

    pub fn directory(&self) -> PathBuf {
        self.data_dir.clone().unwrap_or_else(|| {
            let name = format!("payonce-chaos-{}-{}", self.seed, std::process::id());
            std::env::temp_dir().join(name)
        })
    }
}

fn minutes(text: &str) -> Result<f64, String> {
    let minutes: f64 = text.parse().map_err(|_| "it is no number".to_owned())?;
    if (0.05..=100_000.0).contains(&minutes) {
        Ok(minutes)
    } else {
        Err("it must be 0.05 or more".to_owned())
    }
}
