//! `payonce simulator` as a process of its own, and what its ledger says.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::process::Stdio;

use anyhow::Context;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use super::http::{self, Connection};

pub(crate) const SECRET_KEY: &str = "sk_test_bench";

/// Ends when it is dropped.
pub(crate) struct Simulator {
    child: Child,
    pub(crate) address: SocketAddr,
    base_url: String,
}

impl Simulator {
    /// Returns when it listens.
    pub(crate) async fn start() -> anyhow::Result<Self> {
        let mut child = Command::new(env!("CARGO_BIN_EXE_payonce"))
            .args(["simulator", "--port", "0"])
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        let mut lines = BufReader::new(child.stdout.take().context("its stdout")?).lines();
        let line = lines.next_line().await?.unwrap_or_default();
        let address = line
            .split_once("http://")
            .and_then(|(_, rest)| rest.split([';', ' ', '/']).next()?.parse().ok())
            .with_context(|| format!("the simulator told no address: {line}"))?;
        Ok(Self {
            child,
            address,
            base_url: format!("http://{address}"),
        })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id().unwrap_or_default()
    }

    /// What makes a service talk to it.
    pub(crate) fn settings(&self) -> [(&str, &str); 2] {
        [
            ("PAYONCE__PROVIDER__STRIPE__BASE_URL", &self.base_url),
            ("PAYONCE__PROVIDER__STRIPE__SECRET_KEY", SECRET_KEY),
        ]
    }

    /// The stamps of all charges that moved money. Two for one stamp is an error, and so is one without.
    pub(crate) async fn ledger(&self) -> anyhow::Result<HashSet<String>> {
        let mut connection = Connection::open(self.address).await?;
        let request = http::request("GET /_sim/charges", "", "");
        let charges = connection.call(&request).await?.expect(200)?.json()?;
        let mut stamps = HashSet::new();
        for charge in charges.as_array().context("the ledger is no list")? {
            let stamp = charge["metadata"]["payonce_charge_id"].as_str();
            let stamp = stamp.with_context(|| format!("no stamp: {charge}"))?;
            anyhow::ensure!(
                charge["amount"].as_i64() == Some(1999) && stamps.insert(stamp.to_owned()),
                "moved twice, or another amount: {charge}"
            );
        }
        Ok(stamps)
    }
}
