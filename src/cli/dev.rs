//! `payonce dev`.

use std::path::PathBuf;

use clap::Args;

use super::settings::Settings;
use crate::{app, telemetry};

#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct DevOptions {
    /// The port of the public interface, on 127.0.0.1.
    #[arg(long, value_name = "N", default_value_t = 8080)]
    pub port: u16,
    /// Where the database and the simulator keep their state; delete it to begin anew.
    #[arg(long, value_name = "DIR", default_value = ".payonce")]
    pub data_dir: PathBuf,
    /// The port of the simulator; a free one if left out.
    #[arg(long, value_name = "N")]
    pub simulator_port: Option<u16>,
}

pub(super) async fn run(options: DevOptions) -> anyhow::Result<()> {
    telemetry::init(&Settings::default().load()?.log)?;
    app::dev(options).await
}
