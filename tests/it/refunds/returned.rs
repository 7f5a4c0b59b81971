//! Money that moved for a charge that was told failed, and how it goes back.

use payonce::config::Roles;
use serde_json::json;

use crate::operator::payonce;
use crate::support::service::TestSettings;
use crate::support::{TestService, charge_body, until};

const BY_POLICY: TestSettings<'static> = &[("reconciler.success_after_failed", "refund")];

/// A charge that was told failed, and an object with its stamp that moved so much all the same.
async fn failed_and_paid(service: &TestService, amount: i64) -> (String, String) {
    let running = service.run().await;
    let body = charge_body("pm_card_chargeDeclined");
    let failed = running.client.charge_and_wait("order-1", &body, 20).await;
    assert_eq!(failed.body["status"], "failed");
    running.stop().await;
    let object = service.ledger.make_object(&failed.id(), amount).await;
    service.ledger.execute_object(&object).await;
    (failed.id(), object)
}

impl TestService {
    async fn open_discrepancies(&self) -> i64 {
        self.count("SELECT count(*) FROM discrepancies WHERE resolved_at IS NULL")
            .await
    }

    async fn told(&self) {
        self.want_sweep().await;
        until("it is told", async || {
            let told = self.count("SELECT count(*) FROM discrepancies").await;
            (told == 1).then_some(())
        })
        .await;
    }

    /// Everything that moved went back, in one refund, and the discrepancy says so.
    async fn went_back(&self, object: &str) {
        until("it is resolved", async || {
            (self.open_discrepancies().await == 0).then_some(())
        })
        .await;
        let refunds = self.ledger.refunds().await;
        assert_eq!(refunds.len(), 1, "{refunds:?}");
        assert_eq!(refunds[0]["payment_intent"], object);
        assert_eq!(refunds[0]["amount"], 1000);
    }
}

#[tokio::test]
async fn by_policy_it_goes_back_once_and_the_merchant_is_told() {
    let service = TestService::new().await;
    let (charge, object) = failed_and_paid(&service, 1000).await;
    // Two reconcilers find it at once.
    let running = service.run_with(Roles::ALL, BY_POLICY).await;
    let other = service.run_with(Roles::ALL, BY_POLICY).await;
    service.told().await;
    service.went_back(&object).await;
    let now = running.client.show(&charge).await.body;
    assert_eq!(
        (&now["status"], &now["amount_refunded"]),
        (&json!("failed"), &json!(1000))
    );
    let events = until("both ends are told", async || {
        let path = format!("/v1/events?charge_id={charge}");
        let events = running.client.get(&path).await.body["data"].clone();
        (events.as_array().unwrap().len() == 2).then_some(events)
    })
    .await;
    assert_eq!(events[0]["type"], "charge.failed");
    assert_eq!(events[1]["type"], "refund.completed");
    assert_eq!(events[1]["data"]["charge_id"], charge.as_str());
    let history = service.history(&charge).await;
    assert!(
        history.contains(&"refund_accepted".to_owned()),
        "{history:?}"
    );
    service.drained().await;
    running.stop().await;
    other.stop().await;
    service.check_books().await;
}

#[tokio::test]
async fn another_amount_than_was_asked_for_is_held_by_every_policy() {
    let service = TestService::new().await;
    failed_and_paid(&service, 400).await;
    let running = service.run_with(Roles::ALL, BY_POLICY).await;
    service.told().await;
    // Beyond the next pages of the reconciler.
    let pages = async || {
        running
            .scrape()
            .await
            .count("payonce_reconciler_pages_total{result=\"walked\"}")
    };
    let before = pages().await;
    until("it was looked at", async || {
        (pages().await > before + 3).then_some(())
    })
    .await;
    assert_eq!(service.open_discrepancies().await, 1);
    running.stop().await;
    assert!(service.ledger.refunds().await.is_empty());
}

#[tokio::test]
async fn it_is_held_until_an_operator_sends_it_back_and_then_once() {
    let service = TestService::new().await;
    let (_, object) = failed_and_paid(&service, 1000).await;
    let running = service.run().await;
    service.told().await;
    assert_eq!(service.open_discrepancies().await, 1);
    let number = service
        .count("SELECT id FROM discrepancies")
        .await
        .to_string();
    let line = [
        "discrepancies",
        "refund",
        &number,
        "--reason",
        "paid in error",
    ];
    let said = payonce(&service, &line).await;
    assert_eq!(said.code, 0, "{said:?}");
    let again = payonce(&service, &line).await;
    assert_eq!(again.code, 1, "{again:?}");
    assert!(again.err.contains("has a refund"), "{again:?}");
    service.went_back(&object).await;
    service.drained().await;
    running.stop().await;
    service.check_books().await;
}

/// Days later the bank sends it back to us: somebody must know again.
#[tokio::test]
async fn one_that_fails_at_the_bank_is_open_again() {
    let service = TestService::new().await;
    let (_, object) = failed_and_paid(&service, 1000).await;
    let settings = [BY_POLICY, &[("reconciler.refund_recheck_after", "100ms")]].concat();
    let running = service.run_with(Roles::ALL, &settings).await;
    service.told().await;
    service.went_back(&object).await;
    let theirs = service.ledger.refunds().await[0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    service.ledger.settle(&theirs, "failed").await;
    until("it is open again", async || {
        (service.open_discrepancies().await == 1).then_some(())
    })
    .await;
    running.stop().await;
    assert_eq!(service.ledger.refunds().await.len(), 1);
}
