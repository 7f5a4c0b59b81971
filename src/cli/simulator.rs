//! `payonce simulator`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use clap::Args;
use tokio_util::sync::CancellationToken;

use super::output;
use super::settings::Settings;
use crate::clock::Clock;
use crate::shutdown::Signals;
use crate::simulator::Simulator;
use crate::telemetry;

#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct SimulatorOptions {
    /// The address to listen on. Whoever reaches it may do everything: 0.0.0.0 is for a private network alone.
    #[arg(long, value_name = "IP", default_value_t = Ipv4Addr::LOCALHOST.into())]
    pub host: IpAddr,
    /// The port to listen on; 0 for any free one.
    #[arg(long, value_name = "N", default_value_t = 12111)]
    pub port: u16,
    /// Where its ledger is kept; forgotten at the end if left out.
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
}

pub(super) async fn run(options: SimulatorOptions) -> anyhow::Result<()> {
    telemetry::init(&Settings::default().load()?.log)?;
    let shutdown = CancellationToken::new();
    tokio::spawn(Signals::register()?.watch(shutdown.clone()));
    let at = SocketAddr::from((options.host, options.port));
    let simulator = Simulator::bind(at, options.state_dir, Clock::system()).await?;
    output::data(&format!(
        "The simulator is ready at http://{}; its ledger is at /_sim/charges.\n",
        simulator.local_addr()
    ))?;
    simulator.run(shutdown).await?;
    Ok(())
}
