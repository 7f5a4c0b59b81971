use std::io;
use std::path::{Path, PathBuf};

use super::binaries::OLDEST_MAJOR;

#[derive(Debug, thiserror::Error)]
pub enum EmbeddedPostgresError {
    #[error(
        "Postgres is not installed (no folder with initdb and postgres was found). Install it with `{command}`, or set PAYONCE_PG_BIN to the folder that has both"
    )]
    NotInstalled { command: String },
    #[error("`{command}` did not install Postgres: {output}")]
    InstallFailed { command: String, output: String },
    #[error("Postgres {major} in {} is too old: payonce needs {OLDEST_MAJOR} or newer", dir.display())]
    TooOld { dir: PathBuf, major: u32 },
    #[error("Postgres in {} cannot be used: {detail}", dir.display())]
    Unusable { dir: PathBuf, detail: String },
    #[error(
        "Postgres does not run as root, and /etc/passwd has neither a `postgres` nor a `nobody` account to run it as"
    )]
    NoAccount,
    #[error(
        "no temporary folder can be written to by the account `{account}` that Postgres runs as"
    )]
    NoTemporaryFolder { account: String },
    #[error("the data directory {} is in use by {holder}", dir.display())]
    InUse { dir: PathBuf, holder: String },
    #[error("the database in {} cannot be reached by the account `{account}` that Postgres runs as: its parent folders must be searchable by others", dir.display())]
    Unreachable { dir: PathBuf, account: String },
    #[error("{} says that the database is in {}, which does not exist. Remove the note to start with an empty database", note.display(), dir.display())]
    Lost { note: PathBuf, dir: PathBuf },
    #[error("{} is missing: without it the database in {} cannot be opened", file.display(), dir.display())]
    PasswordMissing { file: PathBuf, dir: PathBuf },
    #[error("initdb failed with status {status}:\n{log}")]
    InitdbFailed { status: i32, log: String },
    #[error("Postgres ended with status {status}:\n{log}")]
    Exited { status: i32, log: String },
    #[error("the shell that starts and stops Postgres has ended")]
    WatcherGone,
    #[error("Postgres did not answer within {seconds} s:\n{log}")]
    NotReady {
        seconds: u64,
        log: String,
        source: Option<sqlx::Error>,
    },
    #[error("Postgres did not stop within {seconds} s")]
    NotStopped { seconds: u64 },
    #[error(
        "`{0}` is not a name for a database: lower-case letters, digits and underscores, at most 63"
    )]
    InvalidName(String),
    #[error("could not {doing}")]
    Database { doing: String, source: sqlx::Error },
    #[error("could not {doing} {}", path.display())]
    Io {
        doing: &'static str,
        path: PathBuf,
        source: io::Error,
    },
}

/// Names what was being done, and to what, when the operating system said no.
pub(super) fn io_error(
    doing: &'static str,
    path: &Path,
) -> impl FnOnce(io::Error) -> EmbeddedPostgresError {
    let path = path.to_owned();
    move |source| EmbeddedPostgresError::Io {
        doing,
        path,
        source,
    }
}
