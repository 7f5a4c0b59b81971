//! `payonce serve` as a real process that can be killed, stopped and woken up.

use std::process::Stdio;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use super::client::Client;
use super::service::{TestService, TestSettings};

pub struct Process {
    child: Child,
    /// What it has logged.
    log: Arc<Mutex<Vec<serde_json::Value>>>,
    /// Speaks to its API, if it has that role.
    pub client: Client,
    /// Its API is there.
    listens: bool,
}

impl Process {
    /// Starts a process and returns when its API listens, or at once if it has none.
    #[expect(clippy::print_stderr, reason = "its log is shown when asked for")]
    pub async fn serve(service: &TestService, only: &str, settings: TestSettings<'_>) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_payonce"));
        command
            .args(["serve", "--only", only])
            .env_clear()
            .stderr(Stdio::piped())
            .stdin(Stdio::null());
        command.env("PAYONCE__LOG__FORMAT", "json");
        let all = service.defaults().into_iter().chain(
            settings
                .iter()
                .map(|(key, value)| (*key, (*value).to_owned())),
        );
        for (key, value) in all {
            command.env(
                format!("PAYONCE__{}", key.to_uppercase().replace('.', "__")),
                value,
            );
        }
        let mut child = command.kill_on_drop(true).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut address = "127.0.0.1:9".parse().unwrap();
        let mut begun = Vec::new();
        if only.contains("api") {
            loop {
                let line = lines
                    .next_line()
                    .await
                    .unwrap()
                    .expect("the service listens before it ends");
                let Ok(line) = serde_json::from_str::<serde_json::Value>(&line) else {
                    continue;
                };
                let at = line["http.address"].as_str().map(str::to_owned);
                begun.push(line);
                if let Some(at) = at {
                    address = at.parse().unwrap();
                    break;
                }
            }
        }
        // Read on, so that the service never waits for us; shown with `--nocapture` when asked for.
        let show = std::env::var_os("PAYONCE_TEST_LOG").is_some();
        let log = Arc::new(Mutex::new(begun));
        let kept = log.clone();
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                if show {
                    eprintln!("{line}");
                }
                if let Ok(line) = serde_json::from_str(&line) {
                    kept.lock().unwrap().push(line);
                }
            }
        });
        Self {
            child,
            log,
            client: Client::new(address, &service.token),
            listens: only.contains("api"),
        }
    }

    /// `kill -9`, and waits for the end.
    pub async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }

    /// SIGTERM, and waits for the end. Returns whether it ended well.
    pub async fn terminate(mut self) -> bool {
        self.begun().await;
        self.signal("TERM").await;
        self.child.wait().await.unwrap().success()
    }

    /// Waits until it has started: before that, a signal kills it.
    async fn begun(&self) {
        if self.listens {
            return;
        }
        let started =
            |log: &Vec<serde_json::Value>| log.iter().any(|line| line["admin.address"].is_string());
        let deadline = tokio::time::Instant::now() + super::PATIENCE;
        while !started(&self.log.lock().unwrap()) {
            assert!(tokio::time::Instant::now() < deadline, "it does not start");
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    }

    /// Waits until it ends by itself. Returns whether it ended well.
    pub async fn ended(mut self) -> bool {
        let ended = tokio::time::timeout(super::PATIENCE, self.child.wait()).await;
        ended.expect("it ends").unwrap().success()
    }

    /// SIGSTOP: the process stands still, mid-step.
    pub async fn stop(&self) {
        self.signal("STOP").await;
    }

    /// SIGCONT.
    pub async fn wake(&self) {
        self.signal("CONT").await;
    }

    /// Returns when it has raised the alert with this code.
    pub async fn alerted(&self, code: &str) {
        self.logged("ERROR", code).await;
    }

    /// Returns the line with this code, once it is logged.
    pub async fn logged(&self, level: &str, code: &str) -> serde_json::Value {
        super::until(&format!("{level} {code}"), async || {
            let log = self.log.lock().unwrap();
            log.iter()
                .find(|line| line["code"] == code && line["level"] == level)
                .cloned()
        })
        .await
    }

    /// Returns the line with this code about this account, once it is logged.
    pub async fn logged_of(&self, code: &str, account: &str) -> serde_json::Value {
        super::until(&format!("{code} of {account}"), async || {
            let log = self.log.lock().unwrap();
            log.iter()
                .find(|line| line["code"] == code && line["account"] == account)
                .cloned()
        })
        .await
    }

    /// How many lines with this code it has logged.
    pub fn times_logged(&self, code: &str) -> usize {
        let log = self.log.lock().unwrap();
        log.iter().filter(|line| line["code"] == code).count()
    }

    pub fn id(&self) -> u32 {
        self.child.id().expect("it has not ended")
    }

    async fn signal(&self, name: &str) {
        let sent = Command::new("kill")
            .args([format!("-{name}"), self.id().to_string()])
            .status()
            .await
            .unwrap();
        assert!(sent.success());
    }
}
