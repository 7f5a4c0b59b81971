//! What becomes of refunds after the first answer: pending at the provider, failing at the bank, made outside payonce.

use serde_json::json;

use super::Charged;
use crate::support::until;

#[tokio::test]
async fn a_refund_that_the_provider_works_on_completes_when_it_does() {
    let shop = Charged::with("pm_card_pendingRefund", &[]).await;
    let refund = shop.refund("return-1", json!({"amount": 350})).await;
    let id = refund["id"].as_str().unwrap();
    let pending = until("it is known at the provider", async || {
        let now = shop.running.client.get(&format!("/v1/refunds/{id}")).await;
        now.body["provider_refund_id"]
            .is_string()
            .then_some(now.body)
    })
    .await;
    assert_eq!(
        (&pending["stage"], &pending["money"]),
        (&json!("processing"), &json!("unknown"))
    );
    assert_eq!(shop.charge_now().await["amount_refunded"], 0);
    let theirs = pending["provider_refund_id"].as_str().unwrap();
    shop.service.ledger.settle(theirs, "succeeded").await;
    assert_eq!(shop.ended(&refund).await["status"], "completed");
    assert_eq!(shop.service.ledger.refund_keys().await.len(), 1);
    shop.close().await;
}

#[tokio::test]
async fn a_refund_that_fails_at_the_provider_frees_what_it_had_reserved() {
    let shop = Charged::with("pm_card_pendingRefund", &[]).await;
    let refund = shop.refund("return-1", json!({})).await;
    let id = refund["id"].as_str().unwrap();
    let pending = shop.running.client.refund_at_stage(id, "processing").await;
    let theirs = until("it is known at the provider", async || {
        let now = shop.running.client.get(&format!("/v1/refunds/{id}")).await;
        now.body["provider_refund_id"].as_str().map(str::to_owned)
    })
    .await;
    assert_eq!(pending["status"], "in_progress");
    shop.service.ledger.settle(&theirs, "failed").await;
    let ended = shop.ended(&refund).await;
    assert_eq!(ended["status"], "failed");
    assert_eq!(ended["failure"]["code"], "refund_not_receivable");
    assert_eq!(
        ended["failure"]["provider_code"],
        "expired_or_canceled_card"
    );
    let again = shop.refund("return-2", json!({"amount": 1000})).await;
    assert_eq!(again["amount"], 1000);
    let theirs = until("it is known at the provider", async || {
        let path = format!("/v1/refunds/{}", again["id"].as_str().unwrap());
        let now = shop.running.client.get(&path).await;
        now.body["provider_refund_id"].as_str().map(str::to_owned)
    })
    .await;
    shop.service.ledger.settle(&theirs, "succeeded").await;
    assert_eq!(shop.ended(&again).await["status"], "completed");
    shop.close().await;
}

/// Weeks later, in the life of a bank: the re-read finds it.
#[tokio::test]
async fn a_completed_refund_that_fails_at_the_bank_is_corrected() {
    let shop = Charged::with(
        "pm_card_visa",
        &[("reconciler.refund_recheck_after", "100ms")],
    )
    .await;
    let refund = shop.refund("return-1", json!({"amount": 350})).await;
    let completed = shop.ended(&refund).await;
    assert_eq!(completed["status"], "completed");
    let before = shop.charge_now().await;
    assert_eq!(before["amount_refunded"], 350);
    let theirs = completed["provider_refund_id"].as_str().unwrap();
    shop.service.ledger.settle(theirs, "failed").await;
    let id = refund["id"].as_str().unwrap();
    let corrected = shop.running.client.refund_at_stage(id, "failed").await;
    assert_eq!(
        (&corrected["status"], &corrected["money"]),
        (&json!("failed"), &json!("not_moved"))
    );
    assert!(corrected["version"].as_i64() > completed["version"].as_i64());
    let after = shop.charge_now().await;
    assert_eq!(after["amount_refunded"], 0);
    assert!(after["version"].as_i64() > before["version"].as_i64());
    assert!(
        shop.service
            .history(&shop.charge)
            .await
            .contains(&"refund_corrected".to_owned())
    );
    let again = shop.refund("return-2", json!({})).await;
    assert_eq!(again["amount"], 1000);
    shop.ended(&again).await;
    shop.close().await;
}

/// Whoever has stood still since knows less than the books.
#[tokio::test]
async fn a_stalled_worker_s_success_does_not_undo_a_later_failure_at_the_bank() {
    let settings = [
        ("reconciler.refund_recheck_after", "100ms"),
        // Longer than the test is.
        ("provider.stripe.timeout", "20s"),
        ("worker.lease", "70s"),
        ("reconciler.sweep_lease", "70s"),
    ];
    let shop = Charged::with("pm_card_visa", &settings).await;
    let ledger = &shop.service.ledger;
    ledger.hold("refund", "after").await;
    let refund = shop.refund("return-1", json!({"amount": 350})).await;
    ledger.held().await;
    shop.service.leases_run_out().await;
    let completed = shop.ended(&refund).await;
    let theirs = completed["provider_refund_id"].as_str().unwrap();
    ledger.settle(theirs, "failed").await;
    let id = refund["id"].as_str().unwrap();
    let failed = shop.running.client.refund_at_stage(id, "failed").await;
    ledger.release().await;
    shop.service.provider_is_quiet().await;
    // It ends by writing what it learned, at the latest.
    shop.running.stop().await;
    let service = &shop.service;
    let disputes = service.count("SELECT count(*) FROM discrepancies").await;
    assert_eq!(disputes, 0);
    let running = service.run().await;
    let now = running.client.get(&format!("/v1/refunds/{id}")).await;
    assert_eq!(now.body, failed);
    let charge = running.client.show(&shop.charge).await;
    assert_eq!(charge.body["amount_refunded"], 0);
    running.stop().await;
    service.check_books().await;
}

/// One that a look sees is counted at once, and the provider's bound is ours.
#[tokio::test]
async fn what_was_refunded_outside_is_counted_by_the_next_look() {
    let shop = Charged::new().await;
    shop.service
        .ledger
        .refund_outside(&shop.object, 600, None)
        .await;
    // Nobody has looked yet: there seems to be room.
    let first = shop.refund("return-1", json!({"amount": 500})).await;
    let ended = shop.ended(&first).await;
    assert_eq!(ended["status"], "failed");
    assert_eq!(ended["failure"]["code"], "refund_exceeds_charge");
    assert_eq!(shop.charge_now().await["amount_refunded"], 600);
    let rest = shop.refund("return-2", json!({})).await;
    assert_eq!(rest["amount"], 400);
    assert_eq!(shop.ended(&rest).await["status"], "completed");
    assert_eq!(shop.charge_now().await["amount_refunded"], 1000);
    assert!(
        shop.service
            .history(&shop.charge)
            .await
            .contains(&"refunded_externally".to_owned())
    );
    shop.close().await;
}

#[tokio::test]
async fn what_was_refunded_outside_is_counted_by_the_sweep_and_what_fails_of_it_no_more() {
    let shop = Charged::new().await;
    let outside = shop
        .service
        .ledger
        .refund_outside(&shop.object, 600, None)
        .await;
    shop.service.want_sweep().await;
    let refunded = async |amount: i64| {
        until(&format!("{amount} is refunded"), async || {
            (shop.charge_now().await["amount_refunded"] == amount).then_some(())
        })
        .await;
    };
    refunded(600).await;
    let more = shop
        .running
        .client
        .refund(&shop.charge, "return-1", &json!({"amount": 401}))
        .await;
    assert_eq!((more.status, more.code()), (422, "refund_exceeds_charge"));
    shop.service.ledger.settle(&outside, "failed").await;
    shop.service.want_sweep().await;
    refunded(0).await;
    shop.close().await;
}

/// Its rows were lost, the sweep has counted it among those made outside; then its client asks again.
#[tokio::test]
async fn a_lost_refund_that_a_sweep_has_counted_is_not_counted_twice() {
    let shop = Charged::new().await;
    let refund = shop.refund("return-1", json!({})).await;
    shop.ended(&refund).await;
    shop.service.lose_refund(&refund).await;
    shop.service.want_sweep().await;
    until("it is counted", async || {
        (shop.charge_now().await["amount_refunded"] == 1000).then_some(())
    })
    .await;
    let told = shop
        .service
        .count("SELECT count(*) FROM discrepancies WHERE kind = 'refund_unknown'")
        .await;
    assert_eq!(told, 1);
    let again = shop.refund("return-1", json!({})).await;
    assert_eq!(again["id"], refund["id"]);
    assert_eq!(shop.ended(&again).await["status"], "completed");
    assert_eq!(shop.charge_now().await["amount_refunded"], 1000);
    // It is known again, and nobody need look.
    let open = "SELECT count(*) FROM discrepancies WHERE resolved_at IS NULL";
    assert_eq!(shop.service.count(open).await, 0);
    assert_eq!(shop.service.ledger.refunds().await.len(), 1);
    shop.close().await;
}

#[tokio::test]
async fn an_open_refund_without_a_job_gets_it_back() {
    let shop = Charged::with(
        "pm_card_pendingRefund",
        &[("reconciler.threshold", "100ms")],
    )
    .await;
    let refund = shop.refund("return-1", json!({"amount": 350})).await;
    let id = refund["id"].as_str().unwrap();
    let theirs = until("it is known at the provider", async || {
        let now = shop.running.client.get(&format!("/v1/refunds/{id}")).await;
        now.body["provider_refund_id"].as_str().map(str::to_owned)
    })
    .await;
    until("nobody holds the job", async || {
        let lost = sqlx::query("DELETE FROM outbox WHERE kind = 'refund' AND state = 'ready'")
            .execute(&shop.service.books)
            .await
            .unwrap();
        (lost.rows_affected() == 1).then_some(())
    })
    .await;
    shop.service.ledger.settle(&theirs, "succeeded").await;
    assert_eq!(shop.ended(&refund).await["status"], "completed");
    shop.close().await;
}

/// No guard of ours lets it come to this; should one fail, a person must hear of it, and no more may go back.
#[tokio::test]
async fn a_second_refund_with_our_stamp_is_counted_and_told_by_the_sweep() {
    let shop = Charged::new().await;
    let refund = shop.refund("return-1", json!({"amount": 300})).await;
    shop.ended(&refund).await;
    let stamp = refund["id"].as_str();
    let second = shop
        .service
        .ledger
        .refund_outside(&shop.object, 300, stamp)
        .await;
    shop.service.want_sweep().await;
    until("it is counted", async || {
        (shop.charge_now().await["amount_refunded"] == 600).then_some(())
    })
    .await;
    let told = shop
        .service
        .count("SELECT count(*) FROM discrepancies WHERE kind = 'second_refund'")
        .await;
    assert_eq!(told, 1);
    shop.service.ledger.settle(&second, "failed").await;
    shop.service.want_sweep().await;
    until("it is counted no more", async || {
        (shop.charge_now().await["amount_refunded"] == 300).then_some(())
    })
    .await;
    shop.running.stop().await;
}

/// The same for one that was called failed before the provider had any.
#[tokio::test]
async fn a_refund_that_went_back_though_it_was_called_failed_is_corrected_by_the_sweep() {
    let shop = Charged::new().await;
    let ledger = &shop.service.ledger;
    let outside = ledger.refund_outside(&shop.object, 600, None).await;
    let refund = shop.refund("return-1", json!({"amount": 500})).await;
    assert_eq!(shop.ended(&refund).await["status"], "failed");
    ledger.settle(&outside, "failed").await;
    let stamp = refund["id"].as_str();
    ledger.refund_outside(&shop.object, 500, stamp).await;
    shop.service.want_sweep().await;
    let id = stamp.unwrap();
    let corrected = shop.running.client.refund_at_stage(id, "succeeded").await;
    assert_eq!(corrected["status"], "completed");
    until("both are counted as they stand", async || {
        (shop.charge_now().await["amount_refunded"] == 500).then_some(())
    })
    .await;
    let told = shop
        .service
        .count("SELECT count(*) FROM discrepancies WHERE kind = 'refund_success_after_failed'")
        .await;
    assert_eq!(told, 1);
    shop.running.stop().await;
}
