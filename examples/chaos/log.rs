//! Reads what a service logs: where it listens, and what it should never have to say.

use std::fs::File;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::ChildStderr;
use tokio::sync::watch;

use crate::chronicle::Chronicle;

/// Faults of ours, whatever goes wrong around us.
const NEVER: [&str; 6] = [
    "job_panicked",
    "task_panicked",
    "task_ended",
    "internal",
    "books_repaired",
    "job_not_makeable",
];

/// Until the process has ended. Everything is kept in the file.
pub async fn follow(
    number: usize,
    stderr: ChildStderr,
    mut file: File,
    address: watch::Sender<Option<SocketAddr>>,
    chronicle: Arc<Chronicle>,
) {
    let mut lines = BufReader::new(stderr).split(b'\n');
    while let Ok(Some(line)) = lines.next_segment().await {
        // What can't be written is missing where somebody looks, and no reason to end the run.
        let _ = file.write_all(&[&line, &b"\n"[..]].concat());
        let Ok(told) = serde_json::from_slice::<Value>(&line) else {
            let text = String::from_utf8_lossy(&line);
            if text.contains("panicked at") {
                chronicle.breach("nothing panics", None, format!("service {number}: {text}"));
            }
            continue;
        };
        if let Some(at) = told["http.address"].as_str() {
            address.send_replace(at.parse().ok());
        }
        let (level, code) = (&told["level"], told["code"].as_str().unwrap_or("none"));
        if level == "ERROR" {
            chronicle.count(format!("log ERROR {code}"));
        }
        if level == "ERROR" && NEVER.contains(&code) {
            chronicle.breach(
                "no fault of ours is logged",
                told["refund.id"].as_str().or(told["charge.id"].as_str()),
                format!("service {number}: {told}"),
            );
        }
    }
}
