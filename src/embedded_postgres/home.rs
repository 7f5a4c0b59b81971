//! Where a cluster lives: in the data directory, or elsewhere when the account that Postgres runs as cannot get there.
//!
//! Beside the folder `postgres` lie `postgres.lock`, held while a payonce uses it, and `postgres.password`. A data
//! directory under, say, /root is closed to that account: then the three are in /var/lib/payonce under a name derived
//! from the directory, and `postgres.location` in the directory says where. If payonce dies between the two, the next
//! start derives the same name. A cluster there that no note leads to belonged to a data directory that was deleted to
//! begin anew: it goes too, or the books would remember charges that the simulator has forgotten.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use super::account::Account;
use super::error::{EmbeddedPostgresError, io_error};

pub(super) const STATE_FOLDER: &str = "/var/lib/payonce";
const NOTE: &str = "postgres.location";

/// How long a lock may seem taken: a process that is just being killed lets go a moment later.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);

pub(super) struct Home {
    pub(super) path: PathBuf,
    pub(super) account: Account,
    pub(super) password: String,
    /// Held for as long as the home is in use; none for a temporary one, which nobody else knows.
    lock: Option<File>,
    /// Where to note that the home is elsewhere, if the data directory does not say so yet.
    note: Option<PathBuf>,
}

impl Home {
    pub(super) fn is_temporary(&self) -> bool {
        self.lock.is_none()
    }

    /// Only a name: the folder is made by the watcher, which also removes it.
    pub(super) fn temporary(account: Account) -> Result<Self, EmbeddedPostgresError> {
        for parent in [
            std::env::temp_dir(),
            PathBuf::from("/tmp"),
            PathBuf::from("/var/tmp"),
        ] {
            if account.can_write(&parent)? {
                let path = parent.join(format!("payonce-postgres-{}", random_hex::<8>()?));
                return Ok(Self {
                    path,
                    account,
                    password: random_hex::<16>()?,
                    lock: None,
                    note: None,
                });
            }
        }
        Err(EmbeddedPostgresError::NoTemporaryFolder {
            account: account.name,
        })
    }

    pub(super) fn in_data_dir(
        data_dir: &Path,
        account: Account,
    ) -> Result<Self, EmbeddedPostgresError> {
        let open_to_others = account.ids.is_some();
        let permissions = if open_to_others { 0o755 } else { 0o700 };
        let made = DirBuilder::new()
            .recursive(true)
            .mode(permissions)
            .create(data_dir);
        made.map_err(io_error("create", data_dir))?;
        let data_dir = data_dir
            .canonicalize()
            .map_err(io_error("find", data_dir))?;
        let path = locate(&data_dir, &account)?;
        let lock = lock(&path.with_extension("lock"), &data_dir)?;
        let account = account.or_owner_of(&path);
        if !path.exists() {
            DirBuilder::new()
                .mode(0o700)
                .create(&path)
                .map_err(io_error("create", &path))?;
        }
        if let Some((uid, gid)) = account.ids {
            chown(&path, Some(uid), Some(gid)).map_err(io_error("change the owner of", &path))?;
        }
        let note =
            Some(data_dir.join(NOTE)).filter(|note| !path.starts_with(&data_dir) && !note.exists());
        let password = password(&path)?;
        Ok(Self {
            path,
            account,
            password,
            lock: Some(lock),
            note,
        })
    }

    /// Notes where a new home is, without what an earlier data directory of that name left there. Nothing may run in it.
    pub(super) fn settle(&self) -> Result<(), EmbeddedPostgresError> {
        let Some(note) = &self.note else {
            return Ok(());
        };
        let data = self.path.join("data");
        match fs::remove_dir_all(&data) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(io_error("remove", &data)(error));
            }
            Ok(()) | Err(_) => {}
        }
        fs::write(note, format!("{}\n", self.path.display())).map_err(io_error("write", note))
    }

    /// The end of what Postgres (or initdb) logged last.
    pub(super) fn log_tail(&self) -> String {
        let log = fs::read(self.path.join("postgres.log")).unwrap_or_default();
        String::from_utf8_lossy(&log[log.len().saturating_sub(2000)..])
            .trim()
            .to_owned()
    }
}

fn locate(data_dir: &Path, account: &Account) -> Result<PathBuf, EmbeddedPostgresError> {
    let note = data_dir.join(NOTE);
    if note.exists() {
        let text = fs::read_to_string(&note).map_err(io_error("read", &note))?;
        let dir = PathBuf::from(text.trim());
        return if dir.is_dir() {
            Ok(dir)
        } else {
            Err(EmbeddedPostgresError::Lost { note, dir })
        };
    }
    let inside = data_dir.join("postgres");
    let account = account.clone().or_owner_of(&inside);
    if account.ids.is_none() || account.can_enter(data_dir)? {
        return Ok(inside);
    }
    if inside.exists() {
        return Err(EmbeddedPostgresError::Unreachable {
            dir: inside,
            account: account.name,
        });
    }
    let parent = Path::new(STATE_FOLDER);
    let made = DirBuilder::new().recursive(true).mode(0o755).create(parent);
    made.map_err(io_error("create", parent))?;
    let digest = Sha256::digest(data_dir.as_os_str().as_encoded_bytes());
    Ok(parent.join(hex(&digest[..8])))
}

fn lock(path: &Path, data_dir: &Path) -> Result<File, EmbeddedPostgresError> {
    let file = File::options()
        .create(true)
        .read(true)
        .write(true)
        .truncate(false)
        .open(path);
    let mut file = file.map_err(io_error("open", path))?;
    let started = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => break,
            Err(TryLockError::WouldBlock) if started.elapsed() < LOCK_PATIENCE => {
                std::thread::sleep(Duration::from_millis(50));
            }
            Err(TryLockError::WouldBlock) => {
                let mut pid = String::new();
                file.read_to_string(&mut pid)
                    .map_err(io_error("read", path))?;
                let holder = format!("the payonce with pid {}", pid.trim());
                return Err(EmbeddedPostgresError::InUse {
                    dir: data_dir.to_owned(),
                    holder,
                });
            }
            Err(TryLockError::Error(error)) => return Err(io_error("lock", path)(error)),
        }
    }
    file.set_len(0).map_err(io_error("write", path))?;
    file.write_all(format!("{}\n", std::process::id()).as_bytes())
        .map_err(io_error("write", path))?;
    Ok(file)
}

/// Written before the cluster is made, so that a cluster never has a password that nobody knows.
fn password(home: &Path) -> Result<String, EmbeddedPostgresError> {
    let path = home.with_extension("password");
    let stored = if path.exists() {
        fs::read_to_string(&path).map_err(io_error("read", &path))?
    } else {
        String::new()
    };
    if !stored.trim().is_empty() {
        return Ok(stored.trim().to_owned());
    }
    if home.join("data").exists() {
        return Err(EmbeddedPostgresError::PasswordMissing {
            file: path,
            dir: home.to_owned(),
        });
    }
    let password = random_hex::<16>()?;
    let file = File::options()
        .create(true)
        .write(true)
        .truncate(true)
        .mode(0o600)
        .open(&path);
    let mut file = file.map_err(io_error("create", &path))?;
    file.write_all(password.as_bytes())
        .and_then(|()| file.sync_all())
        .map_err(io_error("write", &path))?;
    Ok(password)
}

/// The operating system's randomness, in hexadecimal.
fn random_hex<const BYTES: usize>() -> Result<String, EmbeddedPostgresError> {
    Ok(hex(&random::<BYTES>()?))
}

pub(super) fn random<const BYTES: usize>() -> Result<[u8; BYTES], EmbeddedPostgresError> {
    let source = Path::new("/dev/urandom");
    let mut bytes = [0; BYTES];
    let read = File::open(source).and_then(|mut file| file.read_exact(&mut bytes));
    read.map_err(io_error("read", source))?;
    Ok(bytes)
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for digit in bytes.iter().flat_map(|byte| [byte >> 4, byte & 0xf]) {
        text.extend(char::from_digit(digit.into(), 16));
    }
    text
}
