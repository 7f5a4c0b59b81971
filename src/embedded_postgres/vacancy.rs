//! Waits until no process of an earlier run is left in a cluster, so that a start right after a kill -9 works.
//!
//! The earlier run's watcher stops its Postgres within seconds. Should the watcher have been killed as well, Postgres
//! is asked to stop from here: we hold the lock, so no payonce uses it.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::time::{Duration, Instant};

use super::account::Account;
use super::error::{EmbeddedPostgresError, io_error};

/// Longer than a fast shutdown takes as a rule.
const UNTIL_ASKED: Duration = Duration::from_secs(5);
/// Longer than the watcher takes for the worst case.
const UNTIL_REFUSED: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(50);

/// The watchers, initdbs and Postgres processes that work in the home `$1`, known by their working directory, since the
/// pid file comes late and may name a stranger; without /proc the one it names. Run as the account that owns them, since
/// root in a container may not look at others' processes.
const OCCUPANTS: &str = r#"
if [ -d /proc/self/fd ]; then
    for process in /proc/[0-9]*; do
        [ "$process/cwd" -ef "$1" ] || [ "$process/cwd" -ef "$1/data" ] || [ "$process/cwd" -ef "$1/new" ] || continue
        read -r name <"$process/comm" || continue
        case $name in
            postgres | initdb) ;;
            *) tr '\000' '\n' <"$process/cmdline" | grep -qx payonce-postgres || continue ;;
        esac
        echo "${process#/proc/}"
    done
else
    read -r pid <"$1/data/postmaster.pid" && kill -0 "$pid" && echo "$pid"
fi
exit 0"#;

const STOP: &str = r#"read -r pid <"$1/data/postmaster.pid" && kill -INT "$pid""#;

pub(super) async fn wait(
    home: &Path,
    account: &Account,
    notice: fn(&str),
) -> Result<(), EmbeddedPostgresError> {
    let started = Instant::now();
    let mut asked = false;
    while let Some(pid) = an_occupant(home, account)? {
        if !asked && started.elapsed() > UNTIL_ASKED {
            notice("a Postgres of an earlier run is still there: stopping it");
            account
                .ask(STOP, home)
                .map_err(io_error("stop Postgres in", home))?;
            asked = true;
        }
        if started.elapsed() > UNTIL_REFUSED {
            let holder = format!("a Postgres of an earlier run with pid {pid}");
            return Err(EmbeddedPostgresError::InUse {
                dir: home.to_owned(),
                holder,
            });
        }
        tokio::time::sleep(POLL).await;
    }
    // Left by a crash. Its pid may belong to another process by now, which Postgres would take for itself.
    let pid_file = home.join("data/postmaster.pid");
    match fs::remove_file(&pid_file) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(io_error("remove", &pid_file)(error))
        }
        _ => Ok(()),
    }
}

fn an_occupant(home: &Path, account: &Account) -> Result<Option<String>, EmbeddedPostgresError> {
    let pids = account
        .ask(OCCUPANTS, home)
        .map_err(io_error("look for processes in", home))?;
    Ok(pids.and_then(|pids| Some(pids.lines().next()?.to_owned())))
}
