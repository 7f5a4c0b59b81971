//! The wiring: the one place that knows every part, and the only one that spawns.

use crate::cli::{DevOptions, ServeOptions};
use crate::config::Config;

/// Everything in one process, on an embedded Postgres and the simulator.
#[expect(clippy::unused_async, reason = "the wiring awaits")]
pub async fn dev(options: DevOptions) -> anyhow::Result<()> {
    drop(options);
    anyhow::bail!("not wired: dev")
}

/// A production process.
#[expect(clippy::unused_async, reason = "the wiring awaits")]
pub async fn serve(config: Config, options: ServeOptions) -> anyhow::Result<()> {
    drop((config, options));
    anyhow::bail!("not wired: serve")
}
