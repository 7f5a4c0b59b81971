//! An operator's commands, run as the real binary against the books and the simulator of one test.

mod keys;
mod pause;
mod resolve;
mod retry;
mod shows;

use std::process::Stdio;

use payonce::config::Roles;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::support::service::TestSettings;
use crate::support::{TestService, charge_body, until};

const API_ALONE: Roles = Roles {
    api: true,
    worker: false,
    reconciler: false,
};

/// What a command said.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap()
    }
}

/// Runs `payonce` with the service's settings.
pub(crate) async fn payonce(service: &TestService, arguments: &[&str]) -> Said {
    payonce_typing(service, arguments, "").await
}

/// As [`payonce`], with further settings.
pub(crate) async fn payonce_with(
    service: &TestService,
    settings: TestSettings<'_>,
    arguments: &[&str],
) -> Said {
    run(service, settings, arguments, "").await
}

async fn payonce_typing(service: &TestService, arguments: &[&str], typed: &str) -> Said {
    run(service, &[], arguments, typed).await
}

async fn run(
    service: &TestService,
    settings: TestSettings<'_>,
    arguments: &[&str],
    typed: &str,
) -> Said {
    let mut command = Command::new(env!("CARGO_BIN_EXE_payonce"));
    command.args(arguments).env_clear();
    let settings = settings
        .iter()
        .map(|(key, value)| (*key, (*value).to_owned()));
    for (key, value) in service.defaults().into_iter().chain(settings) {
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

async fn resolve(service: &TestService, id: &str, wanted: &str) -> Said {
    let arguments = [
        "charges", "resolve", id, "--as", wanted, "--reason", "ticket 7", "--yes",
    ];
    payonce(service, &arguments).await
}

/// What `charges show` says of a charge.
async fn shown(service: &TestService, id: &str) -> Value {
    payonce(service, &["charges", "show", id, "--json"])
        .await
        .json()
}

/// The kinds of a charge's events that an operator wrote, oldest first.
fn by_operator(charge: &Value) -> Vec<&str> {
    let events = charge["events"].as_array().unwrap().iter();
    events
        .filter(|event| event["actor"] == "operator")
        .map(|event| event["kind"].as_str().unwrap())
        .collect()
}

/// Accepts a charge and parks it: its execute is lost, with or without its effect, and the provider does not know its
/// object when it is read. No worker runs when this returns.
async fn parked(service: &TestService, payment_method: &str, executed: bool) -> String {
    let lost = json!({"phase": "execute", "status": 503, "body": "{}", "effect": executed});
    service.ledger.dictate(lost).await;
    let unknown = json!({"error": {
        "type": "invalid_request_error", "code": "resource_missing", "param": "intent", "message": "No such payment_intent",
    }});
    let unknown = json!({"phase": "read", "status": 404, "body": unknown.to_string()});
    service.ledger.dictate(unknown).await;
    let running = service.run().await;
    let mut body = charge_body(payment_method);
    body["return_url"] = "https://shop.example.com/back".into();
    body["reference"] = "parked".into();
    let id = running.client.charge("parked", &body).await.id();
    until("the job is parked", async || {
        let parked = service.count("SELECT count(*) FROM outbox WHERE state = 'parked'");
        (parked.await == 1).then_some(())
    })
    .await;
    running.stop().await;
    id
}

async fn accepted(service: &TestService, key: &str) -> String {
    let api = service.run_with(API_ALONE, &[]).await;
    let id = api
        .client
        .charge(key, &charge_body("pm_card_visa"))
        .await
        .id();
    api.stop().await;
    id
}
