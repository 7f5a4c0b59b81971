//! One account whose key is refused, and others that know nothing of it.

use std::time::Duration;

use payonce::config::Roles;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{ACME, AT_ACME, HERE, backlog, completed_of};
use crate::support::{TestService, charge_body, until};

/// How many of its charges wait when it is seen that nobody else does.
const BACKLOG: i32 = 2000;

/// Calls that were made with this secret key.
async fn calls_with(service: &TestService, key: &str) -> usize {
    let requests = service.ledger.all_requests().await;
    let with = |request: &&Value| {
        let header = request["headers"]["authorization"].as_str();
        header.is_some_and(|header| header.ends_with(key))
    };
    requests.iter().filter(with).count()
}

/// The account with the revoked key, and the one that goes on.
async fn a_revoked_key_stops_nobody_else(revoked: (&str, &str), other: (&str, &str)) {
    let service = TestService::new().await;
    let (_, at_acme) = service.make_merchant_on("acme", "acme").await;
    let token_of = |key: &str| {
        if key == "sk_test_acme" {
            at_acme.clone()
        } else {
            service.token.clone()
        }
    };
    let (ailing, well) = (token_of(revoked.0), token_of(other.0));
    backlog(&service, &ailing, "pm_card_visa", BACKLOG).await;
    service
        .ledger
        .settings(json!({"latency_ms": 20, "revoked": [revoked.0]}))
        .await;
    let running = service.run_with(Roles::ALL, ACME).await;
    let client = running.client.with_token(&well);
    let body = charge_body("pm_card_visa");
    for number in 0..30 {
        let began = Instant::now();
        let id = client.charge(&format!("order-{number}"), &body).await.id();
        assert_eq!(client.terminal(&id).await["status"], "completed");
        let took = began.elapsed();
        assert!(took < Duration::from_secs(4), "{number}: {took:?}");
    }
    assert_eq!(completed_of(&service, other.1).await, 30);
    assert_eq!(completed_of(&service, revoked.1).await, 0);
    // One job at a time asks, and not all that wait.
    let calls = calls_with(&service, revoked.0).await;
    assert!(
        (1..400).contains(&calls),
        "{calls} calls with the revoked key"
    );
    // Nothing failed, and all of it goes on by itself once the key is taken again.
    service.ledger.settings(json!({})).await;
    until("the backlog is done", async || {
        let done = completed_of(&service, revoked.1).await;
        (done == usize::try_from(BACKLOG).unwrap()).then_some(())
    })
    .await;
    service.drained().await;
    running.stop().await;
    service.check_books().await;
}

#[tokio::test]
async fn a_named_accounts_revoked_key_delays_nobody_of_the_default_one() {
    a_revoked_key_stops_nobody_else(("sk_test_acme", AT_ACME), ("sk_test_it", HERE)).await;
}

#[tokio::test]
async fn the_default_accounts_revoked_key_delays_nobody_of_a_named_one() {
    a_revoked_key_stops_nobody_else(("sk_test_it", HERE), ("sk_test_acme", AT_ACME)).await;
}
