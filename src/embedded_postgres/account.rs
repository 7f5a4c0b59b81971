//! The account that Postgres runs as. Postgres refuses root, so as root it runs as `postgres`, or as `nobody`, or as
//! whoever owns the cluster already.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use super::error::{EmbeddedPostgresError, io_error};

#[derive(Clone, Debug)]
pub(super) struct Account {
    pub(super) name: String,
    /// User and group to change to; none for the account that payonce runs as.
    pub(super) ids: Option<(u32, u32)>,
}

impl Account {
    pub(super) fn choose() -> Result<Self, EmbeddedPostgresError> {
        if !is_root()? {
            return Ok(Self {
                name: "of this process".to_owned(),
                ids: None,
            });
        }
        let path = Path::new("/etc/passwd");
        let passwd = fs::read_to_string(path).map_err(io_error("read", path))?;
        ["postgres", "nobody"]
            .into_iter()
            .find_map(|name| {
                Some(Self {
                    name: name.to_owned(),
                    ids: Some(ids_of(&passwd, name)?),
                })
            })
            .ok_or(EmbeddedPostgresError::NoAccount)
    }

    /// The account that owns `folder`, when it exists, belongs to somebody else, and we may change to that account.
    pub(super) fn or_owner_of(self, folder: &Path) -> Self {
        match fs::metadata(folder) {
            Ok(found) if self.ids.is_some() && found.uid() != 0 => Self {
                name: format!("with the id {}", found.uid()),
                ids: Some((found.uid(), found.gid())),
            },
            _ => self,
        }
    }

    /// A command that runs as this account, in `/` because the folder payonce was started in may be closed to it.
    pub(super) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir("/")
            .stdin(Stdio::null())
            .env("LC_ALL", "C");
        for inherited in [
            "PGDATA",
            "PGPORT",
            "PGDATESTYLE",
            "PGTZ",
            "PGOPTIONS",
            "PGCLIENTENCODING",
        ] {
            command.env_remove(inherited);
        }
        if let Some((uid, gid)) = self.ids {
            command.uid(uid).gid(gid);
        }
        command
    }

    /// What a shell script prints when this account runs it with `path` as its `$1`; none when it fails.
    pub(super) fn ask(&self, script: &str, path: &Path) -> io::Result<Option<String>> {
        let output = self
            .command("sh")
            .arg("-c")
            .arg(script)
            .arg("sh")
            .arg(path)
            .output()?;
        Ok(output
            .status
            .success()
            .then(|| String::from_utf8_lossy(&output.stdout).into_owned()))
    }

    pub(super) fn can_enter(&self, folder: &Path) -> Result<bool, EmbeddedPostgresError> {
        self.can(r#"cd -- "$1""#, folder)
    }

    pub(super) fn can_write(&self, folder: &Path) -> Result<bool, EmbeddedPostgresError> {
        self.can(r#"cd -- "$1" && [ -w . ]"#, folder)
    }

    fn can(&self, script: &str, folder: &Path) -> Result<bool, EmbeddedPostgresError> {
        let answer = self
            .ask(script, folder)
            .map_err(io_error("run `sh` to look at", folder))?;
        Ok(answer.is_some())
    }
}

/// Asks `id`, because the standard library does not tell and `unsafe` is forbidden.
pub(super) fn is_root() -> Result<bool, EmbeddedPostgresError> {
    let output = Command::new("id")
        .arg("-u")
        .output()
        .map_err(io_error("run", Path::new("id")))?;
    Ok(output.stdout.trim_ascii() == b"0")
}

fn ids_of(passwd: &str, name: &str) -> Option<(u32, u32)> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        if fields.next() != Some(name) {
            return None;
        }
        let mut ids = fields.skip(1).map(str::parse::<u32>);
        Some((ids.next()?.ok()?, ids.next()?.ok()?)).filter(|(uid, _)| *uid != 0)
    })
}

#[cfg(test)]
mod tests {
    use super::ids_of;

    #[test]
    fn an_account_is_found_by_its_whole_name_and_never_with_the_id_of_root() {
        let passwd = "root:x:0:0::/root:/bin/sh\npostgres2:x:7:7:::\npostgres:x:101:104:a,,,:/var/lib:/bin/bash\n";
        assert_eq!(ids_of(passwd, "postgres"), Some((101, 104)));
        assert_eq!(ids_of(passwd, "root"), None);
        assert_eq!(ids_of(passwd, "nobody"), None);
    }
}
