//! A real shell for the commands of a document.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use payonce::random::Random;
use tokio::process::Command;

/// A folder of one test with the programs that a document names, and what its shell remembers from block to block.
pub(super) struct Shell {
    pub(super) folder: PathBuf,
    pub(super) environment: BTreeMap<String, String>,
    addresses: Vec<(&'static str, String)>,
}

impl Shell {
    pub(super) fn new(programs: &Path, addresses: Vec<(&'static str, String)>) -> Self {
        let folder =
            std::env::temp_dir().join(format!("payonce-shell-{}", Random::from_os().uuid()));
        let bin = folder.join("bin");
        std::fs::create_dir_all(&bin).unwrap();
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_payonce"), bin.join("payonce")).unwrap();
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = format!(
            "{}:{}:{}",
            bin.display(),
            programs.display(),
            path.to_str().unwrap()
        );
        let home = folder.to_str().unwrap().to_owned();
        let environment = [("PATH".to_owned(), path), ("HOME".to_owned(), home)];
        Self {
            folder,
            environment: environment.into(),
            addresses,
        }
    }

    pub(super) fn set(&mut self, name: &str, value: impl Into<String>) {
        self.environment.insert(name.to_owned(), value.into());
    }

    /// What package managers need of the environment, and a cache that outlives the test.
    pub(super) fn keep_registries(&mut self) {
        let cache = concat!(env!("CARGO_MANIFEST_DIR"), "/target/registries");
        for (name, value) in std::env::vars_os() {
            let Ok(name) = name.into_string() else {
                continue;
            };
            let plain = name.to_ascii_lowercase();
            if ["pip_", "npm_config_", "ssl_", "node_extra_"]
                .iter()
                .any(|prefix| plain.starts_with(prefix))
                || plain.ends_with("_proxy")
            {
                self.set(&name, value.into_string().unwrap_or_default());
            }
        }
        self.set("PIP_CACHE_DIR", format!("{cache}/pip"));
        self.set("npm_config_cache", format!("{cache}/npm"));
    }

    /// Whether its PATH has a program.
    pub(super) fn has(&self, program: &str) -> bool {
        let path = &self.environment["PATH"];
        path.split(':')
            .any(|folder| Path::new(folder).join(program).is_file())
    }

    pub(super) fn program(&self, name: &str, text: &str) {
        let path = self.folder.join("bin").join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Runs a block, which must end well, and returns what it wrote to stdout. What it exports is there for the next.
    pub(super) async fn run(&mut self, block: &str) -> String {
        match self.try_run(block).await {
            Ok(out) => out,
            Err(why) => panic!("{why}"),
        }
    }

    pub(super) async fn try_run(&mut self, block: &str) -> Result<String, String> {
        let mut text = block.to_owned();
        for (written, actual) in &self.addresses {
            text = text.replace(written, actual);
        }
        let kept = self.folder.join("environment");
        let script = format!("set -euo pipefail\n{text}\nenv -0 >{}\n", kept.display());
        let run = Command::new("bash")
            .arg("-c")
            .arg(&script)
            .env_clear()
            .envs(&self.environment)
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            // What goes on in the background would keep a pipe open.
            .stdout(std::fs::File::create(self.folder.join("out")).unwrap())
            .stderr(std::fs::File::create(self.folder.join("err")).unwrap())
            .kill_on_drop(true)
            .status();
        let status = tokio::time::timeout(crate::support::PATIENCE * 2, run).await;
        let said = |name| std::fs::read_to_string(self.folder.join(name)).unwrap();
        let (out, err) = (said("out"), said("err"));
        match status {
            Ok(status) if status.as_ref().unwrap().success() => {}
            ended => return Err(format!("{ended:?} of\n{text}\n{out}\n{err}")),
        }
        let exported = said("environment");
        self.environment = exported
            .split_terminator('\0')
            .filter_map(|pair| pair.split_once('='))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        Ok(out)
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // Whatever its services are: they end with it.
        let _ = std::process::Command::new(self.folder.join("bin/systemctl"))
            .args(["stop", "payonce"])
            .status();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Starts, stops and restarts one `payonce serve` with the settings of its environment file.
pub(super) fn systemctl(folder: &Path, settings: &[(&str, String)]) -> String {
    let folder = folder.display();
    let settings: Vec<String> = settings
        .iter()
        .map(|(name, value)| format!("{name}='{value}'"))
        .collect();
    format!(
        "#!/bin/sh\n\
         cd {folder}\n\
         stop() {{\n\
             [ -e pid ] || return 0\n\
             kill \"$(cat pid)\" 2>/dev/null\n\
             while kill -0 \"$(cat pid)\" 2>/dev/null; do sleep 0.1; done\n\
             rm -f pid\n\
         }}\n\
         start() {{\n\
             env -i {} {folder}/bin/payonce serve </dev/null >>log 2>&1 &\n\
             echo $! >pid\n\
         }}\n\
         [ \"$2\" = payonce ] || exit 1\n\
         case $1 in start) start ;; stop) stop ;; restart) stop; start ;; *) exit 1 ;; esac\n",
        settings.join(" ")
    )
}

/// Whether a program is there. One that is not is said past the capture of a test's output, and fails in CI.
pub(super) fn has(program: &str) -> bool {
    let found = std::process::Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok();
    assert!(
        found || std::env::var_os("CI").is_none(),
        "{program} is not installed"
    );
    if !found {
        tell_left_out(&[program]);
    }
    found
}

/// Says what a test has left out, past the capture of its output.
pub(super) fn tell_left_out(programs: &[&str]) {
    for program in programs {
        let _ = writeln!(std::io::stderr(), "LEFT OUT: {program} is not installed");
    }
}
