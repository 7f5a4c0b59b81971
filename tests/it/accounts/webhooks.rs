//! What the provider tells of one account, at that account's address and under its secret alone.

use payonce::clock::Clock;
use payonce::provider::stripe::signature::WebhookSecret;
use serde_json::json;

use crate::support::TestService;
use crate::support::client::http;
use crate::support::service::{API, TestSettings};

const BOTH: TestSettings<'static> = &[
    ("provider.stripe.webhook_secrets", "whsec_it"),
    ("provider.stripe.accounts.acme.secret_key", "sk_test_acme"),
    (
        "provider.stripe.accounts.acme.webhook_secrets",
        "whsec_acme,whsec_next",
    ),
    ("provider.stripe.accounts.deaf.secret_key", "sk_test_deaf"),
];

#[tokio::test]
async fn an_accounts_deliveries_are_taken_at_its_address_under_its_own_secrets() {
    let service = TestService::new().await;
    let running = service.run_with(API, BOTH).await;
    let now = Clock::system().now().unix_timestamp();
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
        let body = json!({
            "id": format!("evt_{number}"), "object": "event", "api_version": "2025-09-30.clover", "created": now,
            "livemode": false, "type": "x.y", "data": {"object": {"object": "balance"}}, "pending_webhooks": 1,
        })
        .to_string();
        let signature = WebhookSecret::parse(secret)
            .unwrap()
            .sign(now, body.as_bytes());
        let answer = http()
            .post(format!("{}{path}", running.client.base))
            .header("content-type", "application/json; charset=utf-8")
            .header("stripe-signature", format!("t={now},v1={signature}"))
            .body(body)
            .send()
            .await
            .unwrap();
        assert_eq!(answer.status(), status, "{path} {secret}");
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
