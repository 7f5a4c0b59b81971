//! `payonce serve` and `payonce simulator` as processes of their own, from this build.

use std::net::SocketAddr;
use std::process::Stdio;

use anyhow::Context;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, Command};

use super::books::Books;
use super::report;

pub(crate) struct Service {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Service {
    /// Returns when it listens.
    pub(crate) async fn start(
        books: &Books,
        only: &str,
        settings: &[(&str, &str)],
    ) -> anyhow::Result<Self> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_payonce"));
        command
            .args(["serve", "--only", only])
            .env_clear()
            .env("DATABASE_URL", books.url())
            .env("PAYONCE__HTTP__LISTEN", "127.0.0.1:0")
            .env("PAYONCE__PROVIDER__MODE", "test")
            .env("PAYONCE__LOG__FORMAT", "json")
            .envs(settings.iter().copied());
        // For experiments: PAYONCE_BENCH_SERVE="PAYONCE__INTAKE__BATCHERS=1 …".
        if let Some(more) = std::env::var_os("PAYONCE_BENCH_SERVE") {
            command.envs(
                more.to_string_lossy()
                    .split_whitespace()
                    .filter_map(|setting| setting.split_once('=')),
            );
        }
        let mut child = command
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let stderr = child.stderr.take().context("its log")?;
        let mut lines = BufReader::new(stderr).lines();
        let address = listening(&mut lines).await?;
        tokio::spawn(pass_on(lines));
        Ok(Self { child, address })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id().unwrap_or_default()
    }

    /// As an operator stops it.
    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        Command::new("kill")
            .arg(self.id().to_string())
            .status()
            .await?;
        let status = self.child.wait().await?;
        anyhow::ensure!(status.success(), "serve ended with {status}");
        Ok(())
    }
}

async fn listening(lines: &mut Lines<BufReader<ChildStderr>>) -> anyhow::Result<SocketAddr> {
    while let Some(line) = lines.next_line().await? {
        let told: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
        if let Some(address) = told["http.address"].as_str() {
            return Ok(address.parse()?);
        }
        report::line(&line);
    }
    anyhow::bail!("serve ended before it listened")
}

/// Reads on, so that the service never waits for us. A service that is well says nothing from here on.
async fn pass_on(mut lines: Lines<BufReader<ChildStderr>>) {
    while let Ok(Some(line)) = lines.next_line().await {
        if !line.contains("\"level\":\"INFO\"") {
            report::line(&line);
        }
    }
}
