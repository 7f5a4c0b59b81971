//! `payonce simulator`.

use std::path::PathBuf;

use clap::Args;

use super::settings::Settings;
use crate::telemetry;

#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct SimulatorOptions {
    /// The port on 127.0.0.1.
    #[arg(long, value_name = "N", default_value_t = 12111)]
    pub port: u16,
    /// Where its ledger is kept; forgotten at the end if left out.
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
}

pub(super) async fn run(options: SimulatorOptions) -> anyhow::Result<()> {
    telemetry::init(&Settings::default().load()?.log)?;
    simulate(options).await
}

#[expect(clippy::unused_async, reason = "the wiring awaits")]
async fn simulate(options: SimulatorOptions) -> anyhow::Result<()> {
    drop(options);
    anyhow::bail!("not wired: simulator")
}
