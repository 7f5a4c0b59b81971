//! This executable as the program `payonce`: whatever is tested is of this very build.

use std::ffi::OsStr;
use std::process::Stdio;

use anyhow::Context;
use tokio::process::Command;

use crate::settings::SETTINGS;

/// As the first argument, it makes this executable payonce.
pub const NAME: &str = "payonce";

pub fn payonce(arguments: &[&str]) -> anyhow::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .arg(NAME)
        .args(arguments)
        .env_clear()
        .stdin(Stdio::null())
        .kill_on_drop(true);
    Ok(command)
}

/// With the configuration of the services.
pub fn configured(arguments: &[&str], database_url: &str) -> anyhow::Result<Command> {
    let mut command = payonce(arguments)?;
    command.envs(SETTINGS).env("DATABASE_URL", database_url);
    Ok(command)
}

/// Runs a command to its end and returns what it printed.
pub async fn output(arguments: &[&str], database_url: &str) -> anyhow::Result<String> {
    let mut command = payonce(arguments)?;
    let output = command.env("DATABASE_URL", database_url).output().await?;
    anyhow::ensure!(
        output.status.success(),
        "payonce {arguments:?} ended with {}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    );
    String::from_utf8(output.stdout).context("it printed no text")
}

/// Sends a signal by its name, without the SIG.
pub async fn signal(name: &str, process: u32) -> anyhow::Result<()> {
    let process = process.to_string();
    let arguments = [OsStr::new("-s"), OsStr::new(name), OsStr::new(&process)];
    let sent = Command::new("kill")
        .args(arguments)
        .stderr(Stdio::null())
        .status()
        .await?;
    anyhow::ensure!(sent.success(), "no signal could be sent to {process}");
    Ok(())
}
