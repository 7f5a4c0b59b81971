//! An object of the provider's belongs to one charge, whoever writes to the books.

use payonce::config::Roles;

use crate::refunds;
use crate::support::books::uuid_of;
use crate::support::{TestService, charge_body};

#[tokio::test]
async fn an_object_that_another_charge_stores_is_not_executed_until_that_is_put_right() {
    let service = TestService::new().await;
    let running = service.run_with(Roles::ALL, &[]).await;
    let body = charge_body("pm_card_visa");
    let (first, its_own) = refunds::charge(&running, "pm_card_visa").await;
    service.ledger.hold("prepare", "after").await;
    let second = running.client.charge("order-2", &body).await.id();
    service.ledger.held().await;
    let objects = service.ledger.objects().await;
    let others = objects
        .iter()
        .map(|object| object["id"].as_str().unwrap())
        .find(|object| *object != its_own)
        .unwrap();

    // As by hand, by mistake.
    store(&service, &first, others).await;
    service.ledger.release().await;
    assert_eq!(service.parked(&second).await, "object_refused");
    assert_eq!(service.ledger.executes().await.len(), 1);
    let found = running
        .client
        .get(&format!("/v1/charges?provider_charge_id={others}"))
        .await;
    assert_eq!(found.body["data"][0]["id"], first.as_str());

    store(&service, &first, &its_own).await;
    service.parked_go_on().await;
    assert_eq!(
        running.client.terminal(&second).await["status"],
        "completed"
    );
    assert_eq!(service.ledger.executes().await.len(), 2);
    running.stop().await;
    service.check_books().await;
}

async fn store(service: &TestService, charge: &str, object: &str) {
    sqlx::query("UPDATE charges SET provider_charge_id = $2 WHERE id = $1")
        .bind(uuid_of(charge))
        .bind(object)
        .execute(&service.books)
        .await
        .unwrap();
}

#[tokio::test]
async fn charges_that_are_gone_leave_no_object_behind() {
    let service = TestService::new().await;
    service.fill(service.merchant, 100).await;
    let stored = "SELECT count(*) FROM charge_objects";
    let before = service.count(stored).await;
    assert!(before > 1, "objects are stored: {before}");
    service
        .run_sql(&["DELETE FROM charges WHERE id = (SELECT charge_id FROM charge_objects LIMIT 1)"])
        .await;
    assert_eq!(service.count(stored).await, before - 1);
    service.run_sql(&["TRUNCATE charges"]).await;
    assert_eq!(service.count(stored).await, 0);
}
