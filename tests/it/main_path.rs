//! A charge that nothing goes wrong with.

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
