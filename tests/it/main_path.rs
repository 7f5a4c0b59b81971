//! A charge that nothing goes wrong with.

use serde_json::json;

use crate::support::{TestService, charge_body};

/// The README's promise: 202, then 200 with the same id, and one charge at the provider.
#[tokio::test]
async fn a_charge_is_accepted_once_completed_and_replayed() {
    let service = TestService::new().await;
    let running = service.run().await;
    let body = charge_body("pm_card_visa");

    let first = running.client.charge("order-42", &body).await;
    assert_eq!(first.status, 202);
    assert!(!first.is_replay());
    let charge = running.client.terminal(&first.id()).await;
    assert_eq!(charge["status"], "completed");
    assert_eq!(charge["stage"], "succeeded");
    assert_eq!(charge["money"], "moved");
    assert_eq!(charge["attempts"], 1);
    let again = running.client.charge("order-42", &body).await;
    assert_eq!((again.status, again.is_replay()), (200, true));
    assert_eq!(again.body, charge);

    let ledger = service.ledger.charges().await;
    assert_eq!(ledger.len(), 1);
    assert_eq!(ledger[0]["id"], charge["provider_charge_id"]);
    assert_eq!(ledger[0]["metadata"]["payonce_charge_id"], charge["id"]);
    running.stop().await;
    service.check_books().await;
}

#[tokio::test]
async fn a_declined_charge_fails_with_its_reason_and_its_object_is_canceled() {
    let service = TestService::new().await;
    let running = service.run().await;

    let accepted = running
        .client
        .charge("order-43", &charge_body("pm_card_chargeDeclined"))
        .await;
    let charge = running.client.terminal(&accepted.id()).await;
    assert_eq!(
        (&charge["status"], &charge["stage"], &charge["money"]),
        (&"failed".into(), &"failed".into(), &"not_moved".into())
    );
    assert_eq!(charge["failure"]["code"], "card_declined");
    let objects = service.ledger.objects().await;
    assert_eq!(objects.len(), 1);
    assert_eq!(objects[0]["status"], "canceled");
    assert!(service.ledger.charges().await.is_empty());
    running.stop().await;
    service.check_books().await;
}

/// In minor units of its own currency, to the last digit; what does not fit is refused and never cut.
#[tokio::test]
async fn an_amount_reaches_the_ledger_in_its_own_currency_as_it_was_asked_for() {
    let service = TestService::new().await;
    let running = service.run().await;
    let asked = [
        (1000, "jpy"),
        (500, "clp"),
        (35_200, "bhd"),
        (99_999_999, "vnd"),
    ];
    for (amount, currency) in asked {
        let body =
            json!({"amount": amount, "currency": currency, "payment_method": "pm_card_visa"});
        let id = running.client.charge(currency, &body).await.id();
        let charge = running.client.terminal(&id).await;
        assert_eq!(
            (&charge["status"], &charge["amount"], &charge["currency"]),
            (&json!("completed"), &json!(amount), &json!(currency))
        );
        let ledger = service.ledger.charges().await;
        let moved = ledger
            .iter()
            .find(|moved| moved["metadata"]["payonce_charge_id"] == id.as_str())
            .unwrap();
        assert_eq!(
            (&moved["amount"], &moved["currency"]),
            (&json!(amount), &json!(currency))
        );
    }
    for amount in [2_147_483_648_i64, 4_999_000_000, i64::MAX] {
        let body = json!({"amount": amount, "currency": "vnd", "payment_method": "pm_card_visa"});
        let refused = running.client.charge("too-much", &body).await;
        assert_eq!((refused.status, refused.code()), (422, "invalid_request"));
        assert_eq!(refused.body["errors"][0]["pointer"], "#/amount");
    }
    running.stop().await;
    assert_eq!(service.ledger.charges().await.len(), asked.len());
    service.check_books().await;
}
