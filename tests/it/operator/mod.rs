//! An operator's commands, run as the real binary against the books and the simulator of one test.

mod keys;

use std::process::Stdio;

use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::support::TestService;

/// What a command said.
#[derive(Debug)]
struct Said {
    code: i32,
    out: String,
    err: String,
}

/// Runs `payonce` with the service's settings.
async fn payonce(service: &TestService, arguments: &[&str]) -> Said {
    payonce_typing(service, arguments, "").await
}

async fn payonce_typing(service: &TestService, arguments: &[&str], typed: &str) -> Said {
    let mut command = Command::new(env!("CARGO_BIN_EXE_payonce"));
    command.args(arguments).env_clear();
    for (key, value) in service.defaults() {
        let key = key.to_uppercase().replace('.', "__");
        command.env(format!("PAYONCE__{key}"), value);
    }
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // A command that reads nothing may have ended by now.
    let _ = stdin.write_all(typed.as_bytes()).await;
    drop(stdin);
    let output = child.wait_with_output().await.unwrap();
    Said {
        code: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}
