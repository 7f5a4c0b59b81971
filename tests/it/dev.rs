//! `payonce dev` as a stranger runs it: one process, killed however they like, started again on the same data directory.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::support::client::Client;
use crate::support::ledger::Ledger;
use crate::support::{charge_body, until};

struct Dev {
    child: Child,
    client: Client,
    ledger: Ledger,
    /// What it says must be set for commands.
    exports: Vec<(String, String)>,
}

impl Dev {
    /// Starts it and returns when it says that it is ready.
    async fn start(data_dir: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_payonce"));
        command
            .args(["dev", "--port", "0", "--data-dir"])
            .arg(data_dir);
        command
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut address_of = async |name: &str| loop {
            let line = lines
                .next_line()
                .await
                .unwrap()
                .expect("it is ready before it ends");
            if let Some(rest) = line.strip_prefix(name) {
                let url = rest.split_whitespace().next().unwrap();
                break url.trim_start_matches("http://").parse().unwrap();
            }
        };
        let api = address_of("API").await;
        let simulator = address_of("Simulator").await;
        let mut exports = Vec::new();
        while exports.len() < 3 {
            let line = lines.next_line().await.unwrap().unwrap();
            for word in line.split_whitespace() {
                if let Some((name, value)) = word.split_once('=')
                    && name.chars().all(|c| c.is_ascii_uppercase() || c == '_')
                {
                    exports.push((name.to_owned(), value.trim_matches('\'').to_owned()));
                }
            }
        }
        Self {
            child,
            client: Client::new(api, "po_dev_key"),
            ledger: Ledger::at(simulator),
            exports,
        }
    }

    async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }
}

/// A data directory that is gone when the test is.
struct DataDir(PathBuf);

impl DataDir {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("payonce-test-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    /// The processes of the Postgres in it.
    fn postgres_is_running(&self) -> bool {
        let pid_file = |dir: &Path| std::fs::read_to_string(dir.join("data/postmaster.pid")).ok();
        let home = std::fs::read_to_string(self.0.join("postgres.location")).ok();
        let home = home.and_then(|text| {
            text.lines()
                .rev()
                .find(|line| line.starts_with('/'))
                .map(PathBuf::from)
        });
        let text = pid_file(&home.unwrap_or_else(|| self.0.join("postgres")));
        let pid = text.and_then(|text| text.lines().next().map(str::to_owned));
        pid.is_some_and(|pid| Path::new("/proc").join(pid).exists())
    }
}

impl Drop for DataDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[tokio::test]
async fn the_operators_commands_work_on_dev_with_what_it_says() {
    let dir = DataDir::new("dev-commands");
    let dev = Dev::start(&dir.0).await;
    let body = charge_body("pm_card_visa");
    let id = dev.client.charge("order-1", &body).await.id();
    dev.client.terminal(&id).await;
    let swept = Command::new(env!("CARGO_BIN_EXE_payonce"))
        .args(["reconcile", "--since", "1h"])
        .envs(dev.exports.clone())
        .output()
        .await
        .unwrap();
    let told = String::from_utf8_lossy(&swept.stderr);
    assert!(swept.status.success(), "{told}");
    assert!(told.contains(" 1 object"), "{told}");
    dev.kill().await;
}

#[tokio::test]
async fn dev_killed_at_any_step_and_started_again_charges_once() {
    let dir = DataDir::new("dev");
    let body = charge_body("pm_card_visa");
    let mut accepted: Vec<(String, String)> = Vec::new();
    for (round, (phase, when)) in [
        ("prepare", "before"),
        ("prepare", "after"),
        ("execute", "before"),
        ("execute", "after"),
    ]
    .into_iter()
    .enumerate()
    {
        let dev = Dev::start(&dir.0).await;
        for (key, id) in &accepted {
            let charge = dev.client.terminal(id).await;
            assert_eq!(charge["status"], "completed");
            assert_eq!(charge["idempotency_key"], **key);
        }
        dev.ledger.hold(phase, when).await;
        let key = format!("order-{round}");
        let answer = dev.client.charge(&key, &body).await;
        assert_eq!(answer.status, 202);
        accepted.push((key, answer.id()));
        dev.ledger.held().await;
        dev.kill().await;
        until("the Postgres of a killed dev has ended", async || {
            (!dir.postgres_is_running()).then_some(())
        })
        .await;
    }
    let dev = Dev::start(&dir.0).await;
    for (key, id) in &accepted {
        let charge = dev.client.terminal(id).await;
        assert_eq!(charge["status"], "completed");
        assert_eq!(dev.ledger.times_charged(id).await, 1, "{key}");
        let replay = dev.client.charge(key, &body).await;
        assert_eq!((replay.status, replay.is_replay()), (200, true));
    }
    assert_eq!(dev.ledger.charges().await.len(), accepted.len());
    dev.kill().await;
}
