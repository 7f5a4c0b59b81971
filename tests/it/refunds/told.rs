//! Who hears of refunds: merchants of every end, and payonce from the provider.

use serde_json::{Value, json};

use super::Charged;
use crate::support::service::TestSettings;
use crate::support::until;

const SECRET: &str = "whsec_it";

/// Deliveries are taken, and nothing is looked at again by itself before tomorrow.
const TOLD: TestSettings<'static> = &[
    ("provider.stripe.webhook_secrets", SECRET),
    ("worker.slow_base", "24h"),
    ("worker.slow_cap", "24h"),
    ("reconciler.sweep_interval", "24h"),
];

impl Charged {
    /// The provider tells what happens there.
    async fn told(payment_method: &str) -> Self {
        let shop = Self::with(payment_method, TOLD).await;
        let url = format!("{}/webhooks/stripe", shop.running.client.base);
        let endpoint = json!({"url": url, "secret": SECRET, "twice": 0.5, "seed": 7});
        shop.service.ledger.deliver_to(endpoint).await;
        shop
    }

    /// The charge's events, once there are so many.
    async fn events(&self, count: usize) -> Vec<Value> {
        let path = format!("/v1/events?charge_id={}", self.charge);
        until(&format!("{count} events"), async || {
            let page = self.running.client.get(&path).await.body;
            let events = page["data"].as_array().unwrap().clone();
            (events.len() >= count).then_some(events)
        })
        .await
    }
}

fn types(events: &[Value]) -> Vec<&str> {
    events
        .iter()
        .map(|event| event["type"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn a_refund_that_fails_at_the_bank_is_corrected_as_soon_as_the_provider_tells() {
    let shop = Charged::told("pm_card_visa").await;
    let refund = shop.refund("return-1", json!({"amount": 350})).await;
    let completed = shop.ended(&refund).await;
    let theirs = completed["provider_refund_id"].as_str().unwrap();
    shop.service.ledger.settle(theirs, "failed").await;
    let id = refund["id"].as_str().unwrap();
    let failed = shop.running.client.refund_at_stage(id, "failed").await;
    let events = shop.events(3).await;
    assert_eq!(
        types(&events),
        ["charge.completed", "refund.completed", "refund.corrected"]
    );
    // Each as it was then, and the last as it is.
    assert_eq!(events[1]["data"], completed);
    assert_eq!(events[2]["data"], failed);
    assert_eq!(events[0]["data"]["amount_refunded"], 0);
    shop.close().await;
}

#[tokio::test]
async fn a_refund_that_the_provider_works_on_ends_as_soon_as_it_tells() {
    let shop = Charged::told("pm_card_pendingRefund").await;
    for (key, result, kind) in [
        ("return-1", "failed", "refund.failed"),
        ("return-2", "succeeded", "refund.completed"),
    ] {
        let refund = shop.refund(key, json!({})).await;
        let id = refund["id"].as_str().unwrap();
        let theirs = until("it is known at the provider", async || {
            let now = shop.running.client.get(&format!("/v1/refunds/{id}")).await;
            now.body["provider_refund_id"].as_str().map(str::to_owned)
        })
        .await;
        shop.service.ledger.settle(&theirs, result).await;
        let ended = shop.ended(&refund).await;
        let events = shop.events(if key == "return-1" { 2 } else { 3 }).await;
        let told = events.last().unwrap();
        assert_eq!((&told["type"], &told["data"]), (&json!(kind), &ended));
    }
    shop.close().await;
}

/// What was read of it before is not the last word.
#[tokio::test]
async fn a_refund_that_fails_while_its_success_is_still_to_be_written_is_corrected_at_once() {
    let shop = Charged::told("pm_card_pendingRefund").await;
    let refund = shop.refund("return-1", json!({})).await;
    let id = refund["id"].as_str().unwrap();
    let theirs = until("it is known at the provider", async || {
        let now = shop.running.client.get(&format!("/v1/refunds/{id}")).await;
        now.body["provider_refund_id"].as_str().map(str::to_owned)
    })
    .await;
    shop.service.ledger.hold("read_refunds", "after").await;
    shop.service.ledger.settle(&theirs, "succeeded").await;
    shop.service.ledger.held().await;
    shop.service.ledger.settle(&theirs, "failed").await;
    until("it is told that it failed", async || {
        let told = "SELECT count(*) FROM provider_events WHERE kind = 'refund.failed'";
        (shop.service.count(told).await > 0).then_some(())
    })
    .await;
    shop.service.ledger.release().await;
    let failed = shop.running.client.refund_at_stage(id, "failed").await;
    let events = shop.events(3).await;
    assert_eq!(
        types(&events),
        ["charge.completed", "refund.completed", "refund.corrected"]
    );
    assert_eq!(events[2]["data"], failed);
    shop.close().await;
}

#[tokio::test]
async fn a_refund_made_outside_is_counted_as_soon_as_the_provider_tells_and_its_merchant_is_told() {
    let shop = Charged::told("pm_card_visa").await;
    let ledger = &shop.service.ledger;
    let outside = ledger.refund_outside(&shop.object, 600, None).await;
    let refunded = async |amount: i64| {
        until(&format!("{amount} is refunded"), async || {
            let now = shop.charge_now().await;
            (now["amount_refunded"] == amount).then_some(now)
        })
        .await
    };
    let now = refunded(600).await;
    let events = shop.events(2).await;
    assert_eq!(types(&events), ["charge.completed", "charge.corrected"]);
    assert_eq!(events[1]["data"], now);
    assert_eq!(events[0]["data"]["amount_refunded"], 0);
    ledger.settle(&outside, "failed").await;
    let now = refunded(0).await;
    let events = shop.events(3).await;
    assert_eq!(events[2]["type"], "charge.corrected");
    assert_eq!(events[2]["data"], now);
    shop.close().await;
}
