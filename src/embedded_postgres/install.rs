//! Installs the distribution's Postgres where that asks no question, and otherwise names the command.
//!
//! If payonce dies meanwhile the package manager goes on by itself, as it would for anyone: stopping it half-way is worse.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use super::account::is_root;
use super::binaries::on_path;
use super::error::{EmbeddedPostgresError, io_error};
use super::home::STATE_FOLDER;

const LOCK_POLL: Duration = Duration::from_millis(200);

const APT_INSTALL: &str = "apt-get install -y --no-install-recommends postgresql";
/// Keeps the file that stops Debian from making a cluster, should the package bring another version of it.
const APT_INSTALL_QUIETLY: &str =
    "apt-get install -y --no-install-recommends -o Dpkg::Options::=--force-confold postgresql";

/// What can be done on this machine.
#[derive(Debug, PartialEq)]
enum Plan {
    Run(&'static [&'static str]),
    Tell(&'static str),
}

fn plan(root: bool, has: impl Fn(&str) -> bool) -> Plan {
    match root {
        true if has("apt-get") => Plan::Run(&["apt-get update", APT_INSTALL_QUIETLY]),
        true if has("apk") => Plan::Run(&["apk add --no-cache postgresql"]),
        true if has("dnf") => Plan::Run(&["dnf install -y postgresql-server postgresql-contrib"]),
        false if has("brew") => Plan::Run(&["brew install postgresql@17"]),
        false if has("apt-get") => {
            Plan::Tell("sudo apt-get install -y --no-install-recommends postgresql")
        }
        false if has("apk") => Plan::Tell("sudo apk add postgresql"),
        false if has("dnf") => {
            Plan::Tell("sudo dnf install -y postgresql-server postgresql-contrib")
        }
        true if has("pacman") => Plan::Tell("pacman -S postgresql"),
        false if has("pacman") => Plan::Tell("sudo pacman -S postgresql"),
        true if has("zypper") => Plan::Tell("zypper install postgresql-server"),
        false if has("zypper") => Plan::Tell("sudo zypper install postgresql-server"),
        _ => Plan::Tell(
            "the package manager of this system (the package is usually called postgresql)",
        ),
    }
}

/// Installs Postgres, unless `installed` says that another process has done so while we waited for it.
pub(super) async fn install(
    notice: fn(&str),
    installed: impl Fn() -> Result<bool, EmbeddedPostgresError>,
) -> Result<(), EmbeddedPostgresError> {
    let root = is_root()?;
    let commands = match plan(root, |program| on_path(program).is_some()) {
        Plan::Run(commands) => commands,
        Plan::Tell(command) => {
            return Err(EmbeddedPostgresError::NotInstalled {
                command: command.to_owned(),
            });
        }
    };
    let _lock = wait_for_other_installs(root, notice).await?;
    if installed()? {
        return Ok(());
    }
    if commands
        .iter()
        .any(|command| command.starts_with("apt-get"))
    {
        keep_debian_from_starting_its_own()?;
    }
    for command in commands {
        notice(&format!("Postgres is not installed: running `{command}`"));
        run(command).await?;
    }
    Ok(())
}

async fn run(command: &str) -> Result<(), EmbeddedPostgresError> {
    let failed = |output: String| {
        let command = if command.ends_with("--force-confold postgresql") {
            APT_INSTALL
        } else {
            command
        };
        EmbeddedPostgresError::InstallFailed {
            command: command.to_owned(),
            output,
        }
    };
    let mut words = command.split(' ');
    let output = Command::new(words.next().unwrap_or_default())
        .args(words)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .env("HOMEBREW_NO_AUTO_UPDATE", "1")
        .stdin(Stdio::null())
        .output()
        .await
        .map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    let text = [output.stdout, output.stderr].concat();
    let tail = &text[text.len().saturating_sub(2000)..];
    Err(failed(format!(
        "{}\n{}",
        output.status,
        String::from_utf8_lossy(tail)
    )))
}

/// Two processes that both find nothing must not both run the package manager, which fails the second.
async fn wait_for_other_installs(
    root: bool,
    notice: fn(&str),
) -> Result<File, EmbeddedPostgresError> {
    let folder = if root {
        PathBuf::from(STATE_FOLDER)
    } else {
        std::env::temp_dir()
    };
    fs::create_dir_all(&folder).map_err(io_error("create", &folder))?;
    let path = folder.join("payonce-install.lock");
    let lock = File::options()
        .create(true)
        .write(true)
        .truncate(false)
        .open(&path);
    let lock = lock.map_err(io_error("open", &path))?;
    let mut told = false;
    loop {
        match lock.try_lock() {
            Ok(()) => return Ok(lock),
            Err(fs::TryLockError::WouldBlock) if !told => {
                notice("another process is installing Postgres: waiting for it");
                told = true;
            }
            Err(fs::TryLockError::WouldBlock) => {}
            Err(fs::TryLockError::Error(error)) => return Err(io_error("lock", &path)(error)),
        }
        tokio::time::sleep(LOCK_POLL).await;
    }
}

/// Debian's package makes and starts a cluster on port 5432 unless it is told not to.
fn keep_debian_from_starting_its_own() -> Result<(), EmbeddedPostgresError> {
    let folder = Path::new("/etc/postgresql-common");
    let main = folder.join("createcluster.conf");
    let file = if main.exists() {
        folder.join("createcluster.d/payonce.conf")
    } else {
        main
    };
    if file.exists() {
        return Ok(());
    }
    let parent = file.parent().unwrap_or(folder);
    fs::create_dir_all(parent).map_err(io_error("create", parent))?;
    fs::write(&file, "create_main_cluster = false\n").map_err(io_error("write", &file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_installs_and_others_are_told_the_command() {
        let debian = |program: &str| program == "apt-get";
        assert!(matches!(plan(true, debian), Plan::Run(commands) if commands.len() == 2));
        assert!(
            matches!(plan(false, debian), Plan::Tell(command) if command.starts_with("sudo apt-get install"))
        );
        assert!(matches!(
            plan(true, |program| program == "apk"),
            Plan::Run(_)
        ));
        assert!(matches!(
            plan(true, |program| program == "dnf"),
            Plan::Run(_)
        ));
        assert!(matches!(
            plan(false, |program| program == "brew"),
            Plan::Run(_)
        ));
        assert!(matches!(plan(true, |_| false), Plan::Tell(_)));
    }
}
