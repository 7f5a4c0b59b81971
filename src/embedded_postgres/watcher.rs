//! Holds the pipe that keeps a Postgres alive.
//!
//! Postgres runs beneath a small shell (`watcher.sh`) that reads from a pipe. When this side closes it, on purpose, by
//! a drop, or because the process was killed, the shell stops Postgres and tidies up. The pipe's end is not inherited
//! by other children: the standard library opens it close-on-exec. Plain threads and processes rather than tokio's,
//! so that a cluster may outlive the runtime it was started in.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::thread;

use tokio::sync::watch;

use super::error::{EmbeddedPostgresError, io_error};
use super::home::Home;

const SCRIPT: &str = include_str!("watcher.sh");

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Phase {
    Initialising,
    Running,
    InitdbFailed(i32),
    /// Postgres has ended; the watcher waits for what we want next.
    Exited(i32),
    /// The watcher has ended too, and has tidied up.
    Gone,
}

#[derive(Debug)]
pub(super) struct Watcher {
    pipe: ChildStdin,
    phase: watch::Receiver<Phase>,
}

impl Watcher {
    /// Makes the cluster if there is none, and starts Postgres with these options.
    pub(super) fn start(
        home: &Home,
        bin_dir: &Path,
        options: &[String],
    ) -> Result<Self, EmbeddedPostgresError> {
        let (kind, initdb_option) = if home.is_temporary() {
            ("temporary", "--no-sync")
        } else {
            ("kept", "--no-instructions")
        };
        let mut command = home.account.command("sh");
        command
            .args(["-c", SCRIPT, "payonce-postgres"])
            .arg(&home.path)
            .arg(bin_dir)
            .args([kind, initdb_option]);
        command
            .args(options)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        // Ctrl-C in a terminal goes to the whole group: payonce drains first and stops Postgres after that.
        command.process_group(0);
        let failed = || io_error("start `sh` for Postgres in", &home.path);
        let mut child = command.spawn().map_err(failed())?;
        let (Some(mut pipe), Some(events)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(EmbeddedPostgresError::WatcherGone);
        };
        let (sender, phase) = watch::channel(Phase::Initialising);
        let listener = thread::Builder::new().name("embedded-postgres".to_owned());
        listener
            .spawn(move || follow(child, events, &sender))
            .map_err(failed())?;
        writeln!(pipe, "{}", home.password).map_err(failed())?;
        Ok(Self { pipe, phase })
    }

    pub(super) fn phases(&self) -> watch::Receiver<Phase> {
        self.phase.clone()
    }

    /// Ends Postgres as a crash would: at once, without a checkpoint.
    pub(super) fn crash(&mut self) -> Result<(), EmbeddedPostgresError> {
        self.pipe
            .write_all(b"crash\n")
            .map_err(|_| EmbeddedPostgresError::WatcherGone)
    }

    /// Ends the watcher of a Postgres that has ended, and leaves the folder to the next one.
    pub(super) fn leave(mut self) {
        // It can only fail when the watcher has ended already.
        let _ = self.pipe.write_all(b"leave\n");
    }
}

fn follow(mut child: Child, events: ChildStdout, phase: &watch::Sender<Phase>) {
    for line in BufReader::new(events).lines().map_while(Result::ok) {
        let (event, status) = line.split_once(' ').unwrap_or((&line, ""));
        let status = status.parse().unwrap_or(-1);
        phase.send_replace(match event {
            "initdb-failed" => Phase::InitdbFailed(status),
            "exited" => Phase::Exited(status),
            _ => Phase::Running,
        });
    }
    // Its status says nothing that the lines have not said.
    let _ = child.wait();
    phase.send_replace(Phase::Gone);
}
