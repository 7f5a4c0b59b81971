//! A private Postgres for `payonce dev` and the tests.
//!
//! Finds the installed programs or installs them, makes a cluster in the data directory or in a temporary folder, and
//! runs it on a free port of the loopback interface. As root it runs as another account, since Postgres refuses root.
//!
//! If the process dies, however it dies, a small shell beneath it notices, stops Postgres within seconds and removes
//! a temporary folder. A cluster in a data directory is found again by the next start, which waits for what is left of
//! the last one. Two processes never share a data directory: the second is told who has it.

mod account;
mod binaries;
mod databases;
mod error;
mod home;
mod install;
mod start;
mod vacancy;
mod watcher;

#[cfg(test)]
mod tests;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::timeout;

pub use self::error::EmbeddedPostgresError;

use self::account::Account;
use self::binaries::Binaries;
use self::home::Home;
use self::watcher::{Phase, Watcher};

/// What the watcher takes in the worst case, and something more.
const STOP_DEADLINE: Duration = Duration::from_secs(30);

#[derive(Clone, Debug)]
pub struct Options {
    /// Where the cluster is kept; none for a temporary folder that is removed in the end.
    pub data_dir: Option<PathBuf>,
    /// Whether it survives a crash of the machine; not needed for what is thrown away.
    pub durable: bool,
    /// Further settings of Postgres, which override the ones from `durable`.
    pub settings: Vec<(String, String)>,
    /// The folder of the programs, instead of `PAYONCE_PG_BIN` and a search.
    pub bin_dir: Option<PathBuf>,
    /// Is told what takes time or changes the machine.
    pub notice: fn(&str),
}

impl Options {
    /// For tests: temporary, fast, and lost with the machine.
    pub fn throw_away() -> Self {
        Self {
            data_dir: None,
            durable: false,
            settings: Vec::new(),
            bin_dir: None,
            notice: |_| {},
        }
    }

    /// For `dev`: kept, and as safe as a production database.
    pub fn kept_in(data_dir: impl Into<PathBuf>) -> Self {
        Self {
            data_dir: Some(data_dir.into()),
            durable: true,
            ..Self::throw_away()
        }
    }
}

/// A running Postgres. Dropping it stops it without waiting; [`stop`](Self::stop) waits.
pub struct EmbeddedPostgres {
    binaries: Binaries,
    home: Home,
    settings: Vec<String>,
    port: Mutex<u16>,
    watcher: Mutex<Option<Watcher>>,
    creating: tokio::sync::Mutex<()>,
}

impl EmbeddedPostgres {
    pub async fn start(options: Options) -> Result<Self, EmbeddedPostgresError> {
        let (binaries, account) = find_or_install(&options).await?;
        let home = match &options.data_dir {
            None => Home::temporary(account)?,
            Some(dir) => Home::in_data_dir(dir, account)?,
        };
        if !home.is_temporary() {
            vacancy::wait(&home.path, &home.account, options.notice).await?;
            home.settle()?;
        }
        let settings = start::settings(&options);
        let (port, watcher, creating) =
            (Mutex::new(0), Mutex::new(None), tokio::sync::Mutex::new(()));
        let postgres = Self {
            binaries,
            home,
            settings,
            port,
            watcher,
            creating,
        };
        postgres.start_on_a_free_port().await?;
        Ok(postgres)
    }

    /// The address of a database in this cluster, with the password in it.
    pub fn url(&self, database: &str) -> String {
        format!(
            "postgres://payonce:{}@127.0.0.1:{}/{database}",
            self.home.password,
            self.port()
        )
    }

    pub fn port(&self) -> u16 {
        *locked(&self.port)
    }

    /// Where psql, pgbench and the other programs are.
    pub fn bin_dir(&self) -> &Path {
        &self.binaries.dir
    }

    pub fn major_version(&self) -> u32 {
        self.binaries.major
    }

    /// The folder with the cluster (`data`) and its log (`postgres.log`).
    pub fn home(&self) -> &Path {
        &self.home.path
    }

    /// Stops it, in the order Postgres calls fast, and waits until all of it has ended.
    pub async fn stop(self) -> Result<(), EmbeddedPostgresError> {
        let Some(watcher) = locked(&self.watcher).take() else {
            return Ok(());
        };
        let mut phases = watcher.phases();
        drop(watcher);
        let gone = timeout(
            STOP_DEADLINE,
            phases.wait_for(|phase| *phase == Phase::Gone),
        )
        .await;
        gone.map(|_| ())
            .map_err(|_| EmbeddedPostgresError::NotStopped {
                seconds: STOP_DEADLINE.as_secs(),
            })
    }

    /// Ends Postgres as a crash would, and waits until it has ended. [`restart_after_kill`](Self::restart_after_kill)
    /// brings it back.
    pub async fn kill(&self) -> Result<(), EmbeddedPostgresError> {
        locked(&self.watcher)
            .as_mut()
            .ok_or(EmbeddedPostgresError::WatcherGone)?
            .crash()?;
        match timeout(STOP_DEADLINE, self.ended()).await {
            Ok(()) => Ok(()),
            Err(_) => Err(EmbeddedPostgresError::NotStopped {
                seconds: STOP_DEADLINE.as_secs(),
            }),
        }
    }

    /// Starts it again on the same port, where it recovers what was committed.
    pub async fn restart_after_kill(&self) -> Result<(), EmbeddedPostgresError> {
        let running = locked(&self.watcher)
            .as_ref()
            .is_some_and(|watcher| *watcher.phases().borrow() == Phase::Running);
        if running {
            self.kill().await?;
        }
        let port = self.port();
        self.start_on_port(port).await
    }

    /// Returns when Postgres has ended, for whatever reason.
    pub async fn ended(&self) {
        let phases = locked(&self.watcher).as_ref().map(Watcher::phases);
        if let Some(mut phases) = phases {
            // An error means that the listener has ended, and Postgres with it.
            let _ = phases
                .wait_for(|phase| !matches!(phase, Phase::Initialising | Phase::Running))
                .await;
        }
    }
}

impl fmt::Debug for EmbeddedPostgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedPostgres")
            .field("port", &self.port())
            .field("home", &self.home.path)
            .finish_non_exhaustive()
    }
}

async fn find_or_install(options: &Options) -> Result<(Binaries, Account), EmbeddedPostgresError> {
    let find = || {
        // Chosen anew each time: installing Postgres makes an account for it.
        let account = Account::choose()?;
        let found = binaries::find(options.bin_dir.as_deref(), &account)?;
        Ok(found.map(|binaries| (binaries, account)))
    };
    if let Some(found) = find()? {
        return Ok(found);
    }
    install::install(options.notice, || Ok(find()?.is_some())).await?;
    find()?.ok_or_else(|| EmbeddedPostgresError::InstallFailed {
        command: "the package manager".to_owned(),
        output: "it succeeded, but there is still no folder with initdb and postgres".to_owned(),
    })
}

/// What a panic left behind is still whole: each is one assignment.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
