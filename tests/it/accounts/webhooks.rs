//! What the provider tells of one account, at that account's address and under its secret alone.

use payonce::clock::Clock;
use payonce::provider::stripe::signature::WebhookSecret;
use serde_json::{Value, json};

use crate::support::client::http;
use crate::support::service::{API, Running, TestSettings};
use crate::support::{TestService, charge_body};

const BOTH: TestSettings<'static> = &[
    ("provider.stripe.webhook_secrets", "whsec_it"),
    ("provider.stripe.accounts.acme.secret_key", "sk_test_acme"),
    (
        "provider.stripe.accounts.acme.webhook_secrets",
        "whsec_acme,whsec_next",
    ),
    ("provider.stripe.accounts.deaf.secret_key", "sk_test_deaf"),
];

fn event(id: &str, kind: &str, about: &Value) -> String {
    json!({
        "id": id, "object": "event", "api_version": "2025-09-30.clover",
        "created": Clock::system().now().unix_timestamp(), "livemode": false, "type": kind,
        "data": {"object": about}, "pending_webhooks": 1,
    })
    .to_string()
}

/// The status that a delivery is answered with.
async fn deliver(running: &Running, path: &str, secret: &str, body: String) -> u16 {
    let now = Clock::system().now().unix_timestamp();
    let secret = WebhookSecret::parse(secret).unwrap();
    let signature = secret.sign(now, body.as_bytes());
    http()
        .post(format!("{}{path}", running.client.base))
        .header("content-type", "application/json; charset=utf-8")
        .header("stripe-signature", format!("t={now},v1={signature}"))
        .body(body)
        .send()
        .await
        .unwrap()
        .status()
        .as_u16()
}

#[tokio::test]
async fn an_accounts_deliveries_are_taken_at_its_address_under_its_own_secrets() {
    let service = TestService::new().await;
    let running = service.run_with(API, BOTH).await;
    for (number, (path, secret, status)) in [
        ("/webhooks/stripe", "whsec_it", 200),
        ("/webhooks/stripe/default", "whsec_it", 200),
        ("/webhooks/stripe/acme", "whsec_acme", 200),
        ("/webhooks/stripe/acme", "whsec_next", 200),
        // Another account's secret proves nothing here.
        ("/webhooks/stripe", "whsec_acme", 400),
        ("/webhooks/stripe/default", "whsec_acme", 400),
        ("/webhooks/stripe/acme", "whsec_it", 400),
        ("/webhooks/stripe/deaf", "whsec_it", 404),
        ("/webhooks/stripe/nobody", "whsec_it", 404),
    ]
    .into_iter()
    .enumerate()
    {
        let about = json!({"object": "balance"});
        let body = event(&format!("evt_{number}"), "x.y", &about);
        let answer = deliver(&running, path, secret, body).await;
        assert_eq!(answer, status, "{path} {secret}");
    }
    let told: Vec<(String, String)> =
        sqlx::query_as("SELECT event_id, provider_account FROM provider_events ORDER BY event_id")
            .fetch_all(&service.books)
            .await
            .unwrap();
    let told: Vec<(&str, &str)> = told
        .iter()
        .map(|(id, account)| (id.as_str(), account.as_str()))
        .collect();
    assert_eq!(
        told,
        [
            ("evt_0", "default"),
            ("evt_1", "default"),
            ("evt_2", "acme"),
            ("evt_3", "acme"),
        ]
    );
    running.stop().await;
}

/// The charge has no object yet, and its job would make one where it is to be: what another account has is looked at first.
#[tokio::test]
async fn what_another_account_tells_of_a_charge_without_an_object_is_swept_there() {
    let service = TestService::new().await;
    let (_, at_acme) = service.make_merchant_on("acme", "acme").await;
    let running = service.run_with(API, BOTH).await;
    for (number, (token, path, secret, effect)) in [
        (&service.token, "/webhooks/stripe", "whsec_it", "nudged"),
        (
            &service.token,
            "/webhooks/stripe/acme",
            "whsec_acme",
            "sweep_asked",
        ),
        (&at_acme, "/webhooks/stripe/acme", "whsec_acme", "nudged"),
        (&at_acme, "/webhooks/stripe", "whsec_it", "sweep_asked"),
    ]
    .into_iter()
    .enumerate()
    {
        let body = charge_body("pm_card_visa");
        let client = running.client.with_token(token);
        let key = format!("order-{number}");
        let id = client.charge(&key, &body).await.id();
        let object = json!({
            "id": format!("pi_{number}"), "object": "payment_intent", "status": "succeeded",
            "created": Clock::system().now().unix_timestamp(), "metadata": {"payonce_charge_id": id},
        });
        let told = event(
            &format!("evt_{number}"),
            "payment_intent.succeeded",
            &object,
        );
        assert_eq!(deliver(&running, path, secret, told).await, 200);
        let effects: Vec<String> =
            sqlx::query_scalar("SELECT effect FROM provider_events WHERE event_id = $1")
                .bind(format!("evt_{number}"))
                .fetch_all(&service.books)
                .await
                .unwrap();
        assert_eq!(effects, [effect], "{path}");
    }
    let asked: Vec<String> = sqlx::query_scalar(
        "SELECT provider_account FROM sweeps WHERE reason = 'event' ORDER BY provider_account",
    )
    .fetch_all(&service.books)
    .await
    .unwrap();
    assert_eq!(asked, ["acme", "default"]);
    running.stop().await;
}
