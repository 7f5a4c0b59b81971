//! `payonce serve` as a process of its own, from this build.

use std::net::SocketAddr;
use std::process::Stdio;

use anyhow::Context;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, Command};

use super::books::Books;
use super::report;

pub(crate) struct Service {
    child: Child,
    api: Option<SocketAddr>,
}

impl Service {
    /// Returns when all its roles are at work. As in production it measures itself, on a port of its own.
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
            .env("PAYONCE__ADMIN__LISTEN", "127.0.0.1:0")
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
        let has_api = only.split(',').any(|role| role == "api");
        // The last that a process says before it is at work.
        let last = if has_api {
            "http.address"
        } else {
            "admin.address"
        };
        let address = listening(&mut lines, last).await?;
        tokio::spawn(pass_on(lines));
        Ok(Self {
            child,
            api: has_api.then_some(address),
        })
    }

    /// Where its API listens.
    pub(crate) fn api(&self) -> anyhow::Result<SocketAddr> {
        self.api.context("a service without the role api")
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

async fn listening(
    lines: &mut Lines<BufReader<ChildStderr>>,
    last: &str,
) -> anyhow::Result<SocketAddr> {
    while let Some(line) = lines.next_line().await? {
        let told: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
        if let Some(address) = told[last].as_str() {
            return Ok(address.parse()?);
        }
        tell(&line);
    }
    anyhow::bail!("serve ended before it listened")
}

/// Reads on, so that the service never waits for us.
async fn pass_on(mut lines: Lines<BufReader<ChildStderr>>) {
    while let Ok(Some(line)) = lines.next_line().await {
        tell(&line);
    }
}

/// A service that is well says nothing that belongs between the figures.
fn tell(line: &str) {
    if !line.contains("\"level\":\"INFO\"") {
        report::line(line);
    }
}
