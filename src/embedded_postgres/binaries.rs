//! Finds an installed Postgres: `PAYONCE_PG_BIN`, PATH, `pg_config`, then the folders that packages use.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::account::Account;
use super::error::EmbeddedPostgresError;

/// The oldest major version whose SQL payonce's statements use.
pub(super) const OLDEST_MAJOR: u32 = 14;

/// A parent folder, how the names in it begin, and what follows below.
const USUAL_FOLDERS: [(&str, &str, &str); 11] = [
    ("/usr/lib/postgresql", "", "bin"),
    ("/usr", "pgsql-", "bin"),
    ("/usr/libexec", "postgresql", ""),
    ("/usr/lib", "postgresql", "bin"),
    ("/usr/lib64", "postgresql", "bin"),
    ("/opt/homebrew/opt", "postgresql", "bin"),
    ("/usr/local/opt", "postgresql", "bin"),
    ("/home/linuxbrew/.linuxbrew/opt", "postgresql", "bin"),
    ("/Applications/Postgres.app/Contents/Versions", "", "bin"),
    ("/Library/PostgreSQL", "", "bin"),
    ("/usr/local", "pgsql", "bin"),
];

#[derive(Clone, Debug)]
pub(super) struct Binaries {
    pub(super) dir: PathBuf,
    pub(super) major: u32,
}

/// The binaries in `named` (or `PAYONCE_PG_BIN`) and nowhere else; or without it the first usable ones; or none.
pub(super) fn find(
    named: Option<&Path>,
    account: &Account,
) -> Result<Option<Binaries>, EmbeddedPostgresError> {
    let named = named
        .map(Path::to_owned)
        .or_else(|| env::var_os("PAYONCE_PG_BIN").map(PathBuf::from));
    if let Some(dir) = named.filter(|dir| !dir.as_os_str().is_empty()) {
        return inspect(&dir, account).map(Some);
    }
    let mut refused = None;
    for dir in candidates() {
        match inspect(&dir, account) {
            Ok(found) => return Ok(Some(found)),
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    refused.map_or(Ok(None), Err)
}

/// Where a program is, by PATH.
pub(super) fn on_path(program: &str) -> Option<PathBuf> {
    path_folders()
        .into_iter()
        .map(|dir| dir.join(program))
        .find(|path| path.is_file())
}

fn path_folders() -> Vec<PathBuf> {
    env::var_os("PATH")
        .map(|path| env::split_paths(&path).collect())
        .unwrap_or_default()
}

fn candidates() -> impl Iterator<Item = PathBuf> {
    let by_config = Command::new("pg_config").arg("--bindir").output().ok();
    let by_config =
        by_config.map(|output| PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()));
    let usual = USUAL_FOLDERS
        .into_iter()
        .flat_map(|(parent, prefix, below)| newest_first(parent, prefix, below));
    path_folders()
        .into_iter()
        .map(|dir| behind_links(&dir))
        .chain(by_config)
        .chain(usual)
        .filter(|dir| is_complete(dir))
}

/// `initdb` on PATH may be a link into the folder that has psql and pgbench too.
fn behind_links(dir: &Path) -> PathBuf {
    let real = fs::canonicalize(dir.join("initdb"))
        .ok()
        .and_then(|path| Some(path.parent()?.to_owned()));
    real.filter(|real| is_complete(real))
        .unwrap_or_else(|| dir.to_owned())
}

fn is_complete(dir: &Path) -> bool {
    dir.is_absolute() && dir.join("initdb").is_file() && dir.join("postgres").is_file()
}

fn newest_first(parent: &str, prefix: &str, below: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let mut found: Vec<(u32, PathBuf)> = entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix))
        .map(|entry| {
            (
                first_number(&entry.file_name().to_string_lossy()).unwrap_or(0),
                entry.path().join(below),
            )
        })
        .collect();
    found.sort_by(|a, b| b.cmp(a));
    found.into_iter().map(|(_, dir)| dir).collect()
}

fn inspect(dir: &Path, account: &Account) -> Result<Binaries, EmbeddedPostgresError> {
    let unusable = |detail| EmbeddedPostgresError::Unusable {
        dir: dir.to_owned(),
        detail,
    };
    if !is_complete(dir) {
        return Err(unusable("it has no initdb and postgres".to_owned()));
    }
    let output = account
        .command(dir.join("postgres"))
        .arg("--version")
        .output();
    let output = output.map_err(|error| {
        unusable(format!(
            "the account `{}` cannot run it: {error}",
            account.name
        ))
    })?;
    let version = String::from_utf8_lossy(&output.stdout);
    let major = version
        .split_once(") ")
        .and_then(|(_, number)| first_number(number));
    let major =
        major.ok_or_else(|| unusable(format!("its version cannot be told from {version:?}")))?;
    if major < OLDEST_MAJOR {
        return Err(EmbeddedPostgresError::TooOld {
            dir: dir.to_owned(),
            major,
        });
    }
    Ok(Binaries {
        dir: dir.to_owned(),
        major,
    })
}

fn first_number(text: &str) -> Option<u32> {
    let start = text.find(|c: char| c.is_ascii_digit())?;
    let digits = &text[start..];
    digits[..digits
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(digits.len())]
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_what_postgres_prints_and_from_the_names_of_folders() {
        assert_eq!(first_number("15.18 (Debian 15.18-0+deb12u1)"), Some(15));
        assert_eq!(first_number("18beta1"), Some(18));
        assert_eq!(first_number("postgresql@17"), Some(17));
        assert_eq!(first_number("pgsql"), None);
    }

    #[test]
    fn a_named_folder_without_the_programs_is_refused_whatever_else_is_installed() {
        let refused = find(
            Some(Path::new("/etc")),
            &Account {
                name: "tests".to_owned(),
                ids: None,
            },
        );
        assert!(
            matches!(refused, Err(EmbeddedPostgresError::Unusable { dir, .. }) if dir == Path::new("/etc"))
        );
    }
}
