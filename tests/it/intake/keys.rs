//! What a key may be, as it comes over the wire.

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{API, body};
use crate::support::client::Client;
use crate::support::{TestService, charge_body};

/// Sends a charge with these header lines in the place of the key's, and returns the status and the code.
async fn charge_with(client: &Client, lines: &str) -> (u16, String) {
    let request = client.raw_charge("THE KEY", &body(1000));
    let request = request.replace("idempotency-key: THE KEY\r\n", lines);
    let request = request.replace(
        "host: payonce\r\n",
        "host: payonce\r\nconnection: close\r\n",
    );
    let mut stream = client.connect().await;
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let status = answer[9..12].parse().unwrap();
    let code = answer.split_once("\"code\":\"").map(|(_, rest)| rest);
    let code = code.and_then(|rest| rest.split('"').next());
    (status, code.unwrap_or_default().to_owned())
}

#[tokio::test]
async fn a_key_that_is_missing_blank_doubled_or_no_key_stores_nothing() {
    let service = TestService::new().await;
    let api = service.run_with(API, &[]).await;
    let long = |length: usize| format!("Idempotency-Key: {}\r\n", "a".repeat(length));
    let (missing, invalid) = ("idempotency_key_missing", "idempotency_key_invalid");
    for (lines, code) in [
        (String::new(), missing),
        ("X-Idempotency-Key: k1\r\n".to_owned(), missing),
        ("Idempotency_Key: k1\r\n".to_owned(), missing),
        ("Idempotency-Key:\r\n".to_owned(), invalid),
        ("Idempotency-Key: \t \r\n".to_owned(), invalid),
        ("Idempotency-Key: \"\"\r\n".to_owned(), invalid),
        (
            "Idempotency-Key: a\r\nidempotency-key: b\r\n".to_owned(),
            invalid,
        ),
        (
            "Idempotency-Key: a\r\nIdempotency-Key: a\r\n".to_owned(),
            invalid,
        ),
        ("Idempotency-Key: \"k2\r\n".to_owned(), invalid),
        ("Idempotency-Key: \"k\\\"2\"\r\n".to_owned(), invalid),
        ("Idempotency-Key: \"k2\";p=1\r\n".to_owned(), invalid),
        ("Idempotency-Key: a\"b\r\n".to_owned(), invalid),
        ("Idempotency-Key: a\\b\r\n".to_owned(), invalid),
        (
            "Idempotency-Key: x' OR metadata['k']:'y\r\n".to_owned(),
            invalid,
        ),
        (long(256), invalid),
        (long(2700), invalid),
        (long(10_000), invalid),
    ] {
        let told = charge_with(&api.client, &lines).await;
        assert_eq!(
            told,
            (400, code.to_owned()),
            "{}",
            &lines[..lines.len().min(80)]
        );
    }
    assert_eq!(service.stored().await, 0);
    api.stop().await;
}

/// The server gives up on a head beyond its buffer, before there is a request to route.
#[tokio::test]
async fn a_key_beyond_what_a_head_may_hold_is_refused_by_the_server_itself() {
    let service = TestService::new().await;
    let api = service.run_with(API, &[]).await;
    let request = api.client.raw_charge(&"a".repeat(300_000), &body(1000));
    let mut stream = api.client.connect().await;
    // It may close while this is still being sent.
    let _ = stream.write_all(request.as_bytes()).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 431"));
    assert_eq!(service.stored().await, 0);
    api.stop().await;
}

/// And the provider gets a key of its own, which is never longer than it takes.
#[tokio::test]
async fn the_longest_key_and_odd_ones_are_charged_once_and_found_after_a_lost_answer() {
    let service = TestService::new().await;
    let running = service.run().await;
    let longest = "k".repeat(255);
    for key in [
        "a'b",
        "%27;--",
        "{\"",
        "metadata['k']:'y'",
        longest.as_str(),
    ] {
        let lost = charge_body("pm_sim_charge_then_drop");
        let accepted = running.client.charge(key, &lost).await;
        if key.contains('"') {
            assert_eq!(
                (accepted.status, accepted.code()),
                (400, "idempotency_key_invalid")
            );
            continue;
        }
        assert_eq!(accepted.status, 202, "{accepted:?}");
        let charge = running.client.terminal(&accepted.id()).await;
        assert_eq!(
            (&charge["status"], &charge["idempotency_key"]),
            (&json!("completed"), &json!(key))
        );
        assert_eq!(service.ledger.times_charged(&accepted.id()).await, 1);
        let keys = service.ledger.prepare_keys_of(&accepted.id()).await;
        assert!(!keys.is_empty() && keys.iter().all(|key| key.len() <= 255));
    }
    running.stop().await;
    service.check_books().await;
    assert_eq!(service.ledger.charges().await.len(), 4);
}

/// Only the caller knows whether two like purchases are one.
#[tokio::test]
async fn two_keys_are_two_charges_however_alike_their_bodies_are() {
    let service = TestService::new().await;
    let api = service.run_with(API, &[]).await;
    let (one, other) = (
        api.client.charge("k1", &body(1000)).await,
        api.client.charge("k2", &body(1000)).await,
    );
    assert_eq!((one.status, other.status), (202, 202));
    assert_ne!(one.id(), other.id());
    api.stop().await;
    service.finish().await;
}
