//! What the provider tells by webhook: taken in only from it, once, and never believed.

mod effects;
mod races;
mod simulated;

use futures_util::future::join_all;
use payonce::clock::Clock;
use payonce::config::Roles;
use payonce::provider::stripe::signature::WebhookSecret;
use serde_json::{Value, json};

use crate::support::client::{Answer, Client, answer, http};
use crate::support::service::{API, TestSettings};
use crate::support::{TestService, charge_body};

const SECRET: &str = "whsec_it";

/// Deliveries are taken, and a job that waits for somebody else asks by itself only tomorrow.
const TOLD: TestSettings<'static> = &[
    ("provider.stripe.webhook_secrets", SECRET),
    ("worker.slow_base", "24h"),
    ("worker.slow_cap", "24h"),
];

/// An event as Stripe writes it.
fn event(id: &str, kind: &str, object: &Value) -> String {
    json!({
        "id": id, "object": "event", "api_version": "2025-09-30.clover", "created": now(), "livemode": false,
        "type": kind, "data": {"object": object}, "pending_webhooks": 1,
    })
    .to_string()
}

/// The intent as an event shows it.
fn intent(object: &str, stamp: &str, status: &str) -> Value {
    json!({
        "id": object, "object": "payment_intent", "created": now(), "status": status, "amount": 1000, "currency": "usd",
        "metadata": {"payonce_charge_id": stamp},
    })
}

/// What `payment_intent.succeeded` would say.
fn succeeded(id: &str, charge: &Value) -> String {
    let object = charge["provider_charge_id"].as_str().unwrap();
    let stamp = charge["id"].as_str().unwrap();
    event(
        id,
        "payment_intent.succeeded",
        &intent(object, stamp, "succeeded"),
    )
}

fn now() -> i64 {
    Clock::system().now().unix_timestamp()
}

fn signature(secret: &str, at: i64, body: &str) -> String {
    let secret = WebhookSecret::parse(secret).unwrap();
    format!("t={at},v1={}", secret.sign(at, body.as_bytes()))
}

impl Client {
    /// Delivers as Stripe does.
    async fn deliver(&self, body: &str) -> Answer {
        self.deliver_signed(&[signature(SECRET, now(), body)], body)
            .await
    }

    /// Delivers with these lines of the signature's header.
    async fn deliver_signed(&self, signatures: &[String], body: &str) -> Answer {
        self.deliver_at("/webhooks/stripe", signatures, body).await
    }

    async fn deliver_at(&self, path: &str, signatures: &[String], body: &str) -> Answer {
        let mut request = http()
            .post(format!("{}{path}", self.base))
            .header("content-type", "application/json; charset=utf-8")
            .body(body.to_owned());
        for line in signatures {
            request = request.header("stripe-signature", line);
        }
        answer(request.send().await.unwrap()).await.unwrap()
    }
}

impl TestService {
    /// What was done about each event, by its id.
    async fn effects(&self) -> Vec<(String, String)> {
        sqlx::query_as("SELECT event_id, effect FROM provider_events ORDER BY event_id")
            .fetch_all(&self.books)
            .await
            .unwrap()
    }
}

/// The effects in words, for a comparison.
fn pairs(effects: &[(String, String)]) -> Vec<(&str, &str)> {
    effects
        .iter()
        .map(|(id, effect)| (id.as_str(), effect.as_str()))
        .collect()
}

#[tokio::test]
async fn a_delivery_that_the_provider_did_not_sign_is_refused_and_stores_nothing() {
    let service = TestService::new().await;
    let running = service.run_with(API, TOLD).await;
    let body = event(
        "evt_1",
        "payment_intent.succeeded",
        &intent("pi_1", "", "succeeded"),
    );
    let (right, other) = (
        signature(SECRET, now(), &body),
        event("evt_2", "x", &json!({})),
    );
    let refused: &[&[String]] = &[
        &[],
        &[right.clone(), right.clone()],
        &["t=1,v1=".to_owned()],
        &[right.replace("v1=", "v0=")],
        &[signature("whsec_stranger", now(), &body)],
        &[signature(SECRET, now(), &other)],
        &[signature(SECRET, now() - 310, &body)],
        &[signature(SECRET, now() + 310, &body)],
    ];
    for signatures in refused {
        let answer = running.client.deliver_signed(signatures, &body).await;
        assert_eq!(answer.status, 400, "{signatures:?}");
        assert_eq!(answer.code(), "invalid_signature");
        assert_eq!(answer.body["errors"][0]["header"], "Stripe-Signature");
    }
    assert!(service.effects().await.is_empty());
    assert_eq!(
        running.client.deliver_signed(&[right], &body).await.status,
        200
    );
    running.stop().await;
}

#[tokio::test]
async fn both_secrets_are_taken_while_one_is_replaced() {
    let service = TestService::new().await;
    let both: TestSettings<'_> = &[("provider.stripe.webhook_secrets", "whsec_next,whsec_it")];
    let running = service.run_with(API, both).await;
    for (number, secret) in ["whsec_next", "whsec_it"].into_iter().enumerate() {
        let body = event(
            &format!("evt_{number}"),
            "x.y",
            &json!({"object": "balance"}),
        );
        let signed = [signature(secret, now(), &body)];
        assert_eq!(
            running.client.deliver_signed(&signed, &body).await.status,
            200
        );
    }
    running.stop().await;
}

#[tokio::test]
async fn each_account_has_its_address_and_without_secrets_there_is_none() {
    let service = TestService::new().await;
    let running = service.run_with(API, TOLD).await;
    let body = event("evt_1", "x.y", &json!({"object": "balance"}));
    let signed = [signature(SECRET, now(), &body)];
    for (path, status) in [
        ("/webhooks/stripe/default", 200),
        ("/webhooks/stripe/other", 404),
        ("/webhooks/stripe/", 404),
        ("/webhooks/paypal", 404),
    ] {
        let answer = running.client.deliver_at(path, &signed, &body).await;
        assert_eq!(answer.status, status, "{path}");
    }
    running.stop().await;
    let deaf = service.run_with(API, &[]).await;
    let answer = deaf.client.deliver(&body).await;
    assert_eq!((answer.status, answer.code()), (404, "not_found"));
    assert!(
        answer.body["detail"]
            .as_str()
            .unwrap()
            .contains("webhook_secrets")
    );
    deaf.stop().await;
}

#[tokio::test]
async fn what_is_signed_and_no_event_is_refused_by_its_kind() {
    let service = TestService::new().await;
    let settings: Vec<_> = TOLD
        .iter()
        .chain(&[("provider.stripe.webhook_body_bytes", "1000")])
        .copied()
        .collect();
    let running = service.run_with(API, &settings).await;
    for body in ["", "{", "[]", "{}", "\u{0}", r#"{"id":"evt_1","type":"x"}"#] {
        let answer = running.client.deliver(body).await;
        assert_eq!(
            (answer.status, answer.code()),
            (400, "malformed_json"),
            "{body}"
        );
    }
    let large = event(
        "evt_1",
        "x.y",
        &json!({"object": "balance", "more": "x".repeat(1000)}),
    );
    let answer = running.client.deliver(&large).await;
    assert_eq!((answer.status, answer.code()), (413, "payload_too_large"));
    assert!(service.effects().await.is_empty());
    running.stop().await;
}

#[tokio::test]
async fn an_event_that_is_delivered_again_and_again_is_taken_in_once() {
    let service = TestService::new().await;
    let running = service.run_with(Roles::ALL, TOLD).await;
    let id = running
        .client
        .charge("order-1", &charge_body("pm_card_visa"))
        .await
        .id();
    let charge = running.client.terminal(&id).await;
    let body = succeeded("evt_1", &charge);
    let answers = join_all((0..16).map(async |_| running.client.deliver(&body).await)).await;
    assert!(answers.iter().all(|answer| answer.status == 200));
    assert_eq!(pairs(&service.effects().await), [("evt_1", "nothing_new")]);
    assert_eq!(running.client.show(&id).await.body, charge);
    running.stop().await;
}
