//! `payonce dev`.

use std::path::PathBuf;

use clap::Args;

use tokio_util::sync::CancellationToken;

use super::output::{self, Hinted};
use super::settings::Settings;
use crate::app::AppError;
use crate::app::dev::{Addresses, Dev, DevError, DevSetup, SECRET_KEY};
use crate::config::Sources;
use crate::embedded_postgres::EmbeddedPostgresError;
use crate::shutdown::Signals;
use crate::simulator::SimulatorError;
use crate::telemetry;

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
    /// The port of the operators' interface, with the metrics; a free one, not shown, if left out.
    #[arg(long, value_name = "N")]
    pub admin_port: Option<u16>,
}

pub(super) async fn run(options: DevOptions) -> anyhow::Result<()> {
    let sources = Sources::of_process(None);
    telemetry::init(&Settings::default().load()?.log)?;
    let shutdown = CancellationToken::new();
    tokio::spawn(Signals::register()?.watch(shutdown.clone()));
    let setup = DevSetup {
        port: options.port,
        simulator_port: options.simulator_port.unwrap_or(0),
        admin_port: options.admin_port.unwrap_or(0),
        data_dir: options.data_dir.clone(),
        sources,
        notice: |text| output::message(text),
    };
    let Some(dev) = shutdown
        .run_until_cancelled(Dev::start(setup, shutdown.clone()))
        .await
    else {
        return Ok(());
    };
    let dev = dev.map_err(hinted)?;
    output::data(&welcome(&dev.addresses, &options))?;
    if dev.ended(shutdown).await? {
        Ok(())
    } else {
        anyhow::bail!("something ended by itself; the log says what")
    }
}

fn hinted(error: DevError) -> anyhow::Error {
    let hint = match &error {
        DevError::App(AppError::Listen { key, .. }) if *key == "admin.listen" => {
            "choose another port with --admin-port N, or leave it out for a free one"
        }
        DevError::App(AppError::Listen { .. }) => "choose another port with --port N",
        DevError::Simulator(SimulatorError::Listen { .. }) => {
            "choose another port with --simulator-port N, or leave it out for a free one"
        }
        DevError::Postgres(EmbeddedPostgresError::InUse { .. }) => {
            "stop that one, or choose another directory with --data-dir DIR, and another --port N"
        }
        DevError::Postgres(EmbeddedPostgresError::Io { .. }) => {
            "choose a directory that you may write to with --data-dir DIR"
        }
        _ => return error.into(),
    };
    anyhow::Error::from(error).context(Hinted::new("dev can't start", hint))
}

fn welcome(at: &Addresses, options: &DevOptions) -> String {
    let asked = options.admin_port.and(at.admin);
    let admin = asked.map_or_else(String::new, |admin| {
        format!("Operators  http://{admin}   (metrics at /metrics)\n")
    });
    format!(
        "payonce is ready.\n\
         \n\
         API        http://{api}   (document at /openapi.json)\n\
         Simulator  http://{simulator}   (its ledger at /_sim/charges)\n\
         {admin}Database   {database}\n\
         Data       {data}\n\
         \n\
         Try it:\n\
         curl -i http://{api}/v1/charges -H 'Authorization: Bearer po_dev_key' -H 'Idempotency-Key: order-42' \\\n  \
         -H 'Content-Type: application/json' -d '{{\"amount\":1999,\"currency\":\"usd\",\"payment_method\":\"pm_card_visa\"}}'\n\
         \n\
         For the operator's commands, in another shell:\n\
         export DATABASE_URL='{database}' \\\n  \
         PAYONCE__PROVIDER__STRIPE__BASE_URL=http://{simulator} PAYONCE__PROVIDER__STRIPE__SECRET_KEY={SECRET_KEY}\n",
        api = at.api,
        simulator = at.simulator,
        database = at.database,
        data = options.data_dir.display(),
    )
}
