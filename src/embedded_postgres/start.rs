//! Starts Postgres on a port and waits until it answers.

use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::time::Duration;

use sqlx::Connection;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::databases::has_code;
use super::error::io_error;
use super::home::random;
use super::watcher::{Phase, Watcher};
use super::{EmbeddedPostgres, EmbeddedPostgresError, Options, locked};

/// Recovery after a crash may take a while, and so may a machine that runs many tests.
const START_DEADLINE: Duration = Duration::from_mins(2);
/// How long an answer that refuses us may come from a stranger on our port, before our own Postgres gives up on it.
const STRANGER_PATIENCE: Duration = Duration::from_secs(3);
const READY_POLL: Duration = Duration::from_millis(20);
const PORT_ATTEMPTS: u32 = 5;
/// A port that we had before is ours again soon, should somebody have it.
const SAME_PORT_ATTEMPTS: u32 = 50;

impl EmbeddedPostgres {
    pub(super) async fn start_on_a_free_port(&self) -> Result<(), EmbeddedPostgresError> {
        self.start_on(free_port, PORT_ATTEMPTS).await
    }

    pub(super) async fn start_on_port(&self, port: u16) -> Result<(), EmbeddedPostgresError> {
        self.start_on(|| Ok(port), SAME_PORT_ATTEMPTS).await
    }

    /// Tries again when somebody else took the port between our look and the start.
    async fn start_on(
        &self,
        choose: impl Fn() -> Result<u16, EmbeddedPostgresError>,
        attempts: u32,
    ) -> Result<(), EmbeddedPostgresError> {
        let mut attempt = 1;
        loop {
            let port = choose()?;
            *locked(&self.port) = port;
            let watcher = Watcher::start(&self.home, &self.binaries.dir, &self.arguments(port))?;
            let mut phases = watcher.phases();
            if let Some(last) = locked(&self.watcher).replace(watcher) {
                last.leave();
            }
            match self.wait_until_ready(&mut phases).await {
                Err(EmbeddedPostgresError::Exited { log, .. })
                    if attempt < attempts && log.contains("Address already in use") =>
                {
                    attempt += 1;
                    tokio::time::sleep(READY_POLL * 5).await;
                }
                done => return done,
            }
        }
    }

    fn arguments(&self, port: u16) -> Vec<String> {
        let ours = [
            format!("port={port}"),
            "listen_addresses=127.0.0.1".into(),
            "unix_socket_directories=".into(),
        ];
        self.settings
            .iter()
            .cloned()
            .chain(ours)
            .flat_map(|setting| ["-c".to_owned(), setting])
            .collect()
    }

    async fn wait_until_ready(
        &self,
        phases: &mut watch::Receiver<Phase>,
    ) -> Result<(), EmbeddedPostgresError> {
        let log = || self.home.log_tail();
        let started = Instant::now();
        let mut last = None;
        let mut refused_since = None;
        loop {
            let phase = *phases.borrow_and_update();
            match phase {
                Phase::Initialising => {}
                Phase::Running => match timeout(STRANGER_PATIENCE, self.answers()).await {
                    Ok(Ok(())) => return Ok(()),
                    Ok(Err(error)) => {
                        refused_since =
                            is_final(&error).then(|| refused_since.unwrap_or_else(Instant::now));
                        last = Some(error);
                    }
                    Err(_) => last = None,
                },
                Phase::InitdbFailed(status) => {
                    return Err(EmbeddedPostgresError::InitdbFailed { status, log: log() });
                }
                Phase::Exited(status) => {
                    return Err(EmbeddedPostgresError::Exited { status, log: log() });
                }
                Phase::Gone => return Err(EmbeddedPostgresError::WatcherGone),
            }
            let refused = refused_since.is_some_and(|since| since.elapsed() > STRANGER_PATIENCE);
            if refused || started.elapsed() > START_DEADLINE {
                let seconds = started.elapsed().as_secs();
                return Err(EmbeddedPostgresError::NotReady {
                    seconds,
                    log: log(),
                    source: last,
                });
            }
            // Either way there is something to look at.
            let _ = timeout(READY_POLL, phases.changed()).await;
        }
    }

    async fn answers(&self) -> Result<(), sqlx::Error> {
        let mut connection = self.connect().await?;
        connection.ping().await?;
        connection.close().await
    }
}

/// An answer that waiting does not change: anything that a server says but "starting up" and "too many clients".
fn is_final(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Database(_))
        && !["57P03", "53300"].iter().any(|code| has_code(error, code))
}

pub(super) fn settings(options: &Options) -> Vec<String> {
    let switch = if options.durable { "on" } else { "off" };
    let mut settings: Vec<String> = ["fsync", "synchronous_commit", "full_page_writes"]
        .map(|name| format!("{name}={switch}"))
        .into();
    settings.push("max_connections=300".to_owned());
    if !options.durable {
        settings.extend([
            "wal_level=minimal".to_owned(),
            "max_wal_senders=0".to_owned(),
        ]);
    }
    settings.extend(
        options
            .settings
            .iter()
            .map(|(name, value)| format!("{name}={value}")),
    );
    settings
}

/// A port that nobody listens on: below those that systems give to outgoing connections, which would take it from us
/// while Postgres is down, and at random, so that two starts at once hardly ever choose the same.
fn free_port() -> Result<u16, EmbeddedPostgresError> {
    for _ in 0..100 {
        let port = 20_000 + u16::from_be_bytes(random()?) % 12_000;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    let found =
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    found
        .map(|address| address.port())
        .map_err(io_error("find a free port on", Path::new("127.0.0.1")))
}
