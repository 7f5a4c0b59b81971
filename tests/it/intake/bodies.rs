//! What a body may be, as it comes over the wire: what is refused stores nothing, what is accepted reaches the provider.

use serde_json::{Value, json};

use super::{API, WORKER, body};
use crate::support::TestService;
use crate::support::client::{Answer, Client, answer, http};

async fn send(client: &Client, text: String, content_type: &str) -> Answer {
    let request = http()
        .post(format!("{}/v1/charges", client.base))
        .bearer_auth(&client.token)
        .header("idempotency-key", "k1")
        .header("content-type", content_type)
        .body(text);
    answer(request.send().await.unwrap()).await.unwrap()
}

type Case = (String, &'static str, u16, &'static str);

const JSON: &str = "application/json";

fn with(field: &str) -> String {
    format!(r#"{{"amount":1000,"currency":"usd","payment_method":"pm_1",{field}}}"#)
}

fn amount(amount: &str) -> String {
    format!(r#"{{"amount":{amount},"currency":"usd","payment_method":"pm_1"}}"#)
}

/// What can't be read as a body at all.
fn unreadable() -> Vec<Case> {
    vec![
        (" ".repeat(3_000_000), JSON, 413, ""),
        ("{".to_owned(), JSON, 400, ""),
        (
            "amount=1000".to_owned(),
            "application/x-www-form-urlencoded",
            415,
            "",
        ),
        (
            format!("{}{}", "[".repeat(200), "]".repeat(200)),
            JSON,
            400,
            "",
        ),
        (amount("01"), JSON, 400, ""),
        (amount("NaN"), JSON, 400, ""),
    ]
}

/// What is JSON and breaks a rule, and where.
fn refused() -> Vec<Case> {
    vec![
        (amount("19.99"), JSON, 422, "#/amount"),
        (amount("100.0"), JSON, 422, "#/amount"),
        (amount("1e3"), JSON, 422, "#/amount"),
        (amount("1E400"), JSON, 422, "#/amount"),
        (amount("\"1000\""), JSON, 422, "#/amount"),
        (amount("-0"), JSON, 422, "#/amount"),
        (amount("0"), JSON, 422, "#/amount"),
        (amount("-1"), JSON, 422, "#/amount"),
        (amount("-9223372036854775808"), JSON, 422, "#/amount"),
        (with(r#""amount":100000"#), JSON, 422, "#/amount"),
        (with(r#""\u0061mount":100000"#), JSON, 422, "#/amount"),
        (
            with(r#""metadata":{"order":"1","order":"2"}"#),
            JSON,
            422,
            "#/metadata/order",
        ),
        (
            with(r#""metadata":{"note":"a\u0000b"}"#),
            JSON,
            422,
            "#/metadata/note",
        ),
        (
            with(r#""metadata":{"a\u0000b":"note"}"#),
            JSON,
            422,
            "#/metadata",
        ),
        (with(r#""customer":"a\u0000b""#), JSON, 422, "#/customer"),
        (with(r#""curency":"eur""#), JSON, 422, "#/curency"),
        (with(r#""Amount":100000"#), JSON, 422, "#/Amount"),
        (with(r#""capture":false"#), JSON, 422, "#/capture"),
        (
            r#"{"amount":18605,"currency":"kwd","payment_method":"pm_1"}"#.to_owned(),
            JSON,
            422,
            "#/amount",
        ),
    ]
}

#[tokio::test]
async fn every_refusal_of_a_body_is_a_problem_and_stores_nothing() {
    let service = TestService::new().await;
    let api = service.run_with(API, &[]).await;
    for (text, content_type, status, at) in unreadable().into_iter().chain(refused()) {
        let told = &text[..text.len().min(90)];
        let refused = send(&api.client, text.clone(), content_type).await;
        assert_eq!(refused.status, status, "{told}");
        assert_eq!(refused.headers["content-type"], "application/problem+json");
        if !at.is_empty() {
            assert_eq!(
                refused.body["errors"][0]["pointer"], at,
                "{told}: {}",
                refused.body
            );
        }
    }
    assert_eq!(service.stored().await, 0);
    // And the key of all of them is free.
    assert_eq!(
        send(&api.client, body(1000).to_string(), JSON).await.status,
        202
    );
    api.stop().await;
}

#[tokio::test]
async fn metadata_is_taken_up_to_its_limits_and_never_in_the_place_of_our_stamp() {
    let service = TestService::new().await;
    let api = service.run_with(API, &[]).await;
    let entries = |count: usize| {
        let entries = (0..count).map(|n| (format!("k{n}"), json!("v")));
        Value::Object(entries.collect())
    };
    let cases = [
        (json!({"a": "x".repeat(500)}), 202),
        (json!({"a": "x".repeat(501)}), 422),
        (json!({"a": "\u{1f375}".repeat(500)}), 202),
        (json!({"a": "\u{1f375}".repeat(501)}), 422),
        (json!({"k".repeat(40): "v"}), 202),
        (json!({"k".repeat(41): "v"}), 422),
        (entries(20), 202),
        (entries(21), 422),
        (json!({"idempotency_key": "victim"}), 202),
        (
            json!({"payonce_charge_id": "chg_00000000000000000000000000000000"}),
            422,
        ),
        (json!({"payonce_": "v"}), 422),
    ];
    let mut accepted = Vec::new();
    for (number, (metadata, status)) in cases.into_iter().enumerate() {
        let mut asked = body(1000);
        asked["metadata"] = metadata.clone();
        let told = api.client.charge(&format!("m{number}"), &asked).await;
        assert_eq!(told.status, status, "{metadata}");
        if status == 202 {
            accepted.push((told.id(), metadata));
        } else {
            let pointer = told.body["errors"][0]["pointer"].as_str().unwrap();
            assert!(pointer.starts_with("#/metadata"), "{}", told.body);
        }
    }
    api.stop().await;
    let worker = service.run_with(WORKER, &[]).await;
    service.drained().await;
    worker.stop().await;
    let ledger = service.ledger.charges().await;
    assert_eq!(ledger.len(), accepted.len());
    for (id, metadata) in accepted {
        let stamped = |moved: &&Value| moved["metadata"]["payonce_charge_id"] == id.as_str();
        let moved = ledger.iter().find(stamped).unwrap();
        for (name, value) in metadata.as_object().unwrap() {
            assert_eq!(&moved["metadata"][name], value, "{name}");
        }
    }
    service.check_books().await;
}
