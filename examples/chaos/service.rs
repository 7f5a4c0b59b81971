//! One `payonce serve` behind proxies of its own, kept running by a supervisor that also kills, stops and ends it.

use std::net::SocketAddr;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tokio::process::Child;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{sleep, timeout};

use crate::chronicle::Chronicle;
use crate::settings::SETTINGS;
use crate::shared::database_proxy::DatabaseProxy;
use crate::shared::provider_proxy::ProviderProxy;
use crate::{log, program};

/// How it is started.
const SERVE: &[&str] = &["serve"];
/// How it is started on books that were restored.
const SERVE_RESTORED: &[&str] = &["serve", "--recovery"];
/// Longer than an orderly end takes while everything else goes wrong.
const END_LIMIT: Duration = Duration::from_secs(30);
/// As a supervisor waits before it tries again.
const RESTART_PAUSE: Duration = Duration::from_millis(200);

pub struct Service {
    pub database: DatabaseProxy,
    pub provider: ProviderProxy,
    address: watch::Receiver<Option<SocketAddr>>,
    orders: mpsc::UnboundedSender<Order>,
}

pub enum Order {
    /// `kill -9`, and nothing for as long.
    Kill(Duration),
    /// SIGSTOP for as long; and then `kill -9` in place of SIGCONT.
    Stop { span: Duration, killed: bool },
    /// SIGTERM, and nothing for as long after its end.
    Terminate(Duration),
    /// `kill -9`; tells when it is gone, and nothing runs until the other side of `up` is gone too.
    Down {
        gone: oneshot::Sender<()>,
        up: oneshot::Receiver<()>,
    },
    /// SIGTERM, for good.
    End,
}

impl Service {
    pub async fn start(
        number: usize,
        database_url: &str,
        provider: SocketAddr,
        directory: &std::path::Path,
        chronicle: Arc<Chronicle>,
    ) -> Self {
        let database = DatabaseProxy::start(database_url).await;
        let provider = ProviderProxy::start(provider);
        let (at, address) = watch::channel(None);
        let (orders, taken) = mpsc::unbounded_channel();
        let supervisor = Supervisor {
            number,
            environment: vec![
                ("DATABASE_URL".to_owned(), database.url().to_owned()),
                (
                    "PAYONCE__PROVIDER__STRIPE__BASE_URL".to_owned(),
                    provider.base_url(),
                ),
            ],
            file: directory.join(format!("service-{number}.log")),
            address: at,
            chronicle,
        };
        tokio::spawn(supervisor.run(taken));
        Self {
            database,
            provider,
            address,
            orders,
        }
    }

    /// Tells where its API listens, each time that it is elsewhere.
    pub fn addresses(&self) -> watch::Receiver<Option<SocketAddr>> {
        self.address.clone()
    }

    /// Where its API listens, or did last.
    pub fn address(&self) -> Option<SocketAddr> {
        *self.address.borrow()
    }

    pub fn order(&self, order: Order) {
        // An error means that it has ended for good.
        let _ = self.orders.send(order);
    }

    /// Both networks are well again, and what is held goes on.
    pub fn calm(&self) {
        for network in [&self.database.network, &self.provider.network] {
            network.recover();
            network.delay_replies(Duration::ZERO);
        }
        self.provider.release();
    }

    /// Returns when a process of it listens and has nothing else to do first.
    pub async fn ready(&self) {
        let mut address = self.address.clone();
        let _ = address.wait_for(Option::is_some).await;
    }

    /// Ends it in order.
    pub async fn end(&self) {
        self.order(Order::End);
        let mut address = self.address.clone();
        // The supervisor has the other side of it.
        while address.changed().await.is_ok() {}
    }
}

enum Next {
    Start,
    StartRestored,
    End,
}

struct Supervisor {
    number: usize,
    environment: Vec<(String, String)>,
    /// What it logs.
    file: std::path::PathBuf,
    address: watch::Sender<Option<SocketAddr>>,
    chronicle: Arc<Chronicle>,
}

impl Supervisor {
    async fn run(self, mut orders: mpsc::UnboundedReceiver<Order>) {
        let mut arguments = SERVE;
        loop {
            let child = match self.start(arguments) {
                Ok(child) => child,
                Err(error) => {
                    let what = format!("service {} can't be started: {error:#}", self.number);
                    self.chronicle.breach("services run", None, what);
                    return;
                }
            };
            match self.look_after(child, &mut orders).await {
                Next::Start => arguments = SERVE,
                Next::StartRestored => arguments = SERVE_RESTORED,
                Next::End => return,
            }
        }
    }

    /// Until the process has ended, and as long after that as nothing may run.
    async fn look_after(
        &self,
        mut child: Child,
        orders: &mut mpsc::UnboundedReceiver<Order>,
    ) -> Next {
        loop {
            let order = tokio::select! {
                ended = child.wait() => {
                    self.ended_by_itself(ended);
                    sleep(RESTART_PAUSE).await;
                    return Next::Start;
                }
                order = orders.recv() => order.unwrap_or(Order::End),
            };
            match order {
                Order::Kill(down) => {
                    self.kill(&mut child).await;
                    sleep(down).await;
                    return Next::Start;
                }
                Order::Stop { span, killed } => {
                    self.signal(&child, "STOP").await;
                    sleep(span).await;
                    if killed {
                        self.kill(&mut child).await;
                        return Next::Start;
                    }
                    self.signal(&child, "CONT").await;
                }
                Order::Terminate(down) => {
                    self.terminate(&mut child).await;
                    sleep(down).await;
                    return Next::Start;
                }
                Order::Down { gone, up } => {
                    self.kill(&mut child).await;
                    let _ = gone.send(());
                    let _ = up.await;
                    return Next::StartRestored;
                }
                Order::End => {
                    self.terminate(&mut child).await;
                    return Next::End;
                }
            }
        }
    }

    fn start(&self, arguments: &[&str]) -> anyhow::Result<Child> {
        self.address.send_replace(None);
        let mut child = program::payonce(arguments)?
            .envs(SETTINGS)
            .envs(self.environment.iter().cloned())
            .env("PAYONCE__LOG__FORMAT", "json")
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        if let Some(stderr) = child.stderr.take() {
            let (chronicle, address) = (self.chronicle.clone(), self.address.clone());
            let file = std::fs::OpenOptions::new()
                .create(true)
                .append(true)
                .open(&self.file)?;
            tokio::spawn(log::follow(self.number, stderr, file, address, chronicle));
        }
        Ok(child)
    }

    /// A start that fails because the database is away is the supervisor's daily bread; the end of one that ran is not.
    fn ended_by_itself(&self, ended: std::io::Result<ExitStatus>) {
        let ran = self.address.borrow().is_some();
        match ended {
            Ok(status) if !ran && status.code() == Some(1) => {
                self.chronicle.count("starts without a database");
            }
            ended => {
                let what = format!("service {} ended by itself: {ended:?}", self.number);
                self.chronicle.breach("services run", None, what);
            }
        }
    }

    async fn kill(&self, child: &mut Child) {
        let _ = child.kill().await;
    }

    async fn terminate(&self, child: &mut Child) {
        let was_ready = self.address.borrow().is_some();
        self.signal(child, "TERM").await;
        match timeout(END_LIMIT, child.wait()).await {
            Ok(Ok(status)) if status.success() || !was_ready => {}
            Ok(ended) => {
                let what = format!("service {} ended on SIGTERM with {ended:?}", self.number);
                self.chronicle.breach("SIGTERM ends in order", None, what);
            }
            Err(_) => {
                let what = format!(
                    "service {} runs {END_LIMIT:?} after its SIGTERM",
                    self.number
                );
                self.chronicle.breach("SIGTERM ends in order", None, what);
                self.kill(child).await;
            }
        }
    }

    async fn signal(&self, child: &Child, name: &str) {
        if let Some(id) = child.id()
            && let Err(error) = program::signal(name, id).await
        {
            // It has just ended, which is told where its end is met.
            self.chronicle
                .tell(&format!("service {}: {error:#}", self.number));
        }
    }
}
