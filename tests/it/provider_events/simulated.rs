//! The simulator's own deliveries, with everything that a network does to them.

use futures_util::future::join_all;
use payonce::config::Roles;
use serde_json::json;

use super::{SECRET, TOLD};
use crate::support::{TestService, charge_body, until};

const CHARGES: usize = 60;

#[tokio::test]
async fn deliveries_that_are_late_doubled_and_out_of_order_complete_each_charge_once() {
    let service = TestService::new().await;
    let running = service.run_with(Roles::ALL, TOLD).await;
    let endpoint = json!({
        "url": format!("{}/webhooks/stripe", running.client.base), "secret": SECRET, "seed": 7, "twice": 0.5, "late_ms": 300,
    });
    service.ledger.deliver_to(endpoint).await;
    let ids = join_all((0..CHARGES).map(async |number| {
        let method = [
            "pm_card_visa",
            "pm_card_chargeDeclined",
            "pm_card_authenticationRequired",
        ][number % 3];
        let mut body = charge_body(method);
        body["return_url"] = json!("https://shop.example/back");
        let id = running
            .client
            .charge(&format!("order-{number}"), &body)
            .await
            .id();
        if number % 3 == 2 {
            let waiting = running.client.at_stage(&id, "requires_action").await;
            let object = waiting["provider_charge_id"].as_str().unwrap();
            let result = if number % 2 == 0 { "success" } else { "fail" };
            service.ledger.authenticate(object, result).await;
        }
        id
    }))
    .await;
    for id in &ids {
        running.client.terminal(id).await;
    }
    // Made, and ended twice: of the intent and of its charge.
    until("what was delivered is stored", async || {
        (service.effects().await.len() >= CHARGES * 3).then_some(())
    })
    .await;
    running.stop().await;
    service.check_books().await;
    assert_eq!(
        service.ledger.charges().await.len(),
        CHARGES / 3 + CHARGES / 6
    );
}
