//! What is sent, judged by the official library of Standard Webhooks.

use std::path::Path;
use std::process::Stdio;

use payonce::config::Roles;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::support::receiver::{Got, Receiver};
use crate::support::{TestService, charge_body};

const PROGRAM: &str = r#"
import json, sys
from standardwebhooks.webhooks import Webhook, WebhookVerificationError
given = json.load(sys.stdin)
try:
    print(json.dumps(Webhook(given["secret"]).verify(given["body"], given["headers"])))
except WebhookVerificationError as error:
    print(json.dumps(f"refused: {error}"))
"#;

/// A Python with the library. `None`, said on stderr, where it can't be had; in CI that is a failure.
async fn python() -> Option<String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join(".ci/standardwebhooks");
    let ran = Command::new(script).output().await.unwrap();
    if ran.status.success() {
        return Some(String::from_utf8(ran.stdout).unwrap().trim().to_owned());
    }
    let why = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(std::env::var_os("CI").is_none(), "{why}");
    #[expect(clippy::print_stderr, reason = "what is left out is said")]
    {
        eprintln!("left out: {why}");
    }
    None
}

/// What the library says: the payload, or why not.
async fn verified(python: &str, secret: &str, got: &Got) -> serde_json::Value {
    let headers: serde_json::Map<_, _> = ["webhook-id", "webhook-timestamp", "webhook-signature"]
        .map(|name| (name.to_owned(), got.header(name).into()))
        .into_iter()
        .collect();
    let body = String::from_utf8(got.body.to_vec()).unwrap();
    let given = json!({"secret": secret, "headers": headers, "body": body});
    let mut child = Command::new(python)
        .args(["-c", PROGRAM])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(given.to_string().as_bytes())
        .await
        .unwrap();
    let said = child.wait_with_output().await.unwrap();
    serde_json::from_slice(&said.stdout).unwrap()
}

#[tokio::test]
async fn the_official_library_takes_what_is_sent_with_either_secret_while_one_is_replaced() {
    let Some(python) = python().await else { return };
    let service = TestService::new().await;
    let running = service.run_with(Roles::ALL, &[]).await;
    let client = &running.client;
    let receiver = Receiver::start().await;
    let endpoint = client.make_endpoint(&receiver).await;
    // Not ASCII alone: what is signed are bytes.
    let mut body = charge_body("pm_card_visa");
    body["description"] = "Zwei Bücher – 2 冊".into();
    client.charge("order-1", &body).await;
    let got = receiver.has(1).await;
    assert_eq!(
        verified(&python, &endpoint.secret, &got[0]).await,
        got[0].json()
    );
    let mut changed = got[0].clone();
    changed.body = String::from_utf8(got[0].body.to_vec())
        .unwrap()
        .replace("1000", "9000")
        .into();
    let said = verified(&python, &endpoint.secret, &changed).await;
    assert!(said.as_str().unwrap().starts_with("refused"), "{said}");

    let path = format!("{}/rotate_secret", endpoint.path);
    let rotated = client.send("POST", &path, None).await;
    let newer = rotated.body["secret"].as_str().unwrap();
    client.charge("order-2", &charge_body("pm_card_visa")).await;
    let got = receiver.has(2).await;
    assert_eq!(got[1].header("webhook-signature").split(' ').count(), 2);
    for secret in [endpoint.secret.as_str(), newer] {
        assert_eq!(verified(&python, secret, &got[1]).await, got[1].json());
    }

    sqlx::query("UPDATE webhook_endpoints SET previous_secret_until = now()")
        .execute(&service.books)
        .await
        .unwrap();
    client.charge("order-3", &charge_body("pm_card_visa")).await;
    let got = receiver.has(3).await;
    assert_eq!(verified(&python, newer, &got[2]).await, got[2].json());
    let said = verified(&python, &endpoint.secret, &got[2]).await;
    assert!(said.as_str().unwrap().starts_with("refused"), "{said}");
    running.stop().await;
}
