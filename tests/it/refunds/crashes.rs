//! A process is killed at each step of a refund; another goes on, and one refund comes of it.

use serde_json::{Value, json};

use super::charge;
use crate::support::TestService;
use crate::support::books::SHORT_LEASES;
use crate::support::database_proxy::{DatabaseProxy, Fault};
use crate::support::service::{API, Running, WORKER};

const WHOLE: &str = "api,worker,reconciler";

/// Kills a process while the provider holds its request of `phase`, and lets another one go on.
async fn killed_at(phase: &str, when: &str) -> (TestService, Value) {
    let service = TestService::new().await;
    let running = service.run().await;
    let (charge, _) = charge(&running, "pm_card_visa").await;
    running.stop().await;
    service.ledger.hold(phase, when).await;
    let process = service.spawn(WHOLE, &[]).await;
    let body = json!({"amount": 600});
    let accepted = process.client.refund(&charge, "return-1", &body).await;
    assert_eq!(accepted.status, 202);
    service.ledger.held().await;
    process.kill().await;
    service.leases_run_out().await;
    let process = service.spawn(WHOLE, &[]).await;
    // The killed one's request lands while the next one is at it.
    service.ledger.release().await;
    let refund = process.client.refund_ended(&accepted.id()).await;
    service.provider_is_quiet().await;
    let again = process.client.refund(&charge, "return-1", &body).await;
    assert_eq!((again.status, again.is_replay()), (200, true));
    assert_eq!(again.body, refund);
    assert_eq!(
        process.client.show(&charge).await.body["amount_refunded"],
        600
    );
    assert!(process.terminate().await);
    (service, refund)
}

async fn refunded_once(service: &TestService, refund: &Value) {
    assert_eq!(refund["status"], "completed", "{refund}");
    let id = refund["id"].as_str().unwrap();
    assert_eq!(service.ledger.refunds_of(id).await.len(), 1);
    service.check_books().await;
}

#[tokio::test]
async fn a_process_killed_while_it_looks_leaves_a_refund_that_completes_once() {
    for when in ["before", "after"] {
        let (service, refund) = killed_at("read_refunds", when).await;
        refunded_once(&service, &refund).await;
    }
}

#[tokio::test]
async fn a_process_killed_before_its_refund_landed_leaves_a_refund_that_completes_once() {
    let (service, refund) = killed_at("refund", "before").await;
    refunded_once(&service, &refund).await;
    let keys = service.ledger.refund_keys().await;
    assert!(keys.iter().all(|key| *key == keys[0]), "{keys:?}");
}

#[tokio::test]
async fn a_process_killed_after_the_money_went_back_leaves_a_refund_that_completes_once() {
    let (service, refund) = killed_at("refund", "after").await;
    refunded_once(&service, &refund).await;
}

#[tokio::test]
async fn a_refund_whose_acceptance_was_the_last_thing_a_process_did_completes() {
    let service = TestService::new().await;
    let running = service.run().await;
    let (charge, _) = charge(&running, "pm_card_visa").await;
    running.stop().await;
    let process = service.spawn("api", &[]).await;
    let accepted = process.client.refund(&charge, "return-1", &json!({})).await;
    process.kill().await;
    assert_eq!(accepted.status, 202);
    let running = service.run().await;
    let refund = running.client.refund_ended(&accepted.id()).await;
    running.stop().await;
    refunded_once(&service, &refund).await;
}

/// One stands still with its refund on the way, the other goes on; then the first wakes up.
#[tokio::test]
async fn two_workers_on_one_refund_make_one() {
    let service = TestService::new().await;
    let running = service.run().await;
    let (charge, _) = charge(&running, "pm_card_visa").await;
    running.stop().await;
    service.ledger.hold("refund", "before").await;
    let first = service.spawn(WHOLE, SHORT_LEASES).await;
    let accepted = first
        .client
        .refund(&charge, "return-1", &json!({"amount": 300}))
        .await;
    service.ledger.held().await;
    first.stop().await;
    service.leases_run_out().await;
    let second = service.spawn(WHOLE, SHORT_LEASES).await;
    service.ledger.release().await;
    let refund = second.client.refund_ended(&accepted.id()).await;
    first.wake().await;
    service.drained().await;
    assert!(first.terminate().await);
    assert!(second.terminate().await);
    service.provider_is_quiet().await;
    refunded_once(&service, &refund).await;
}

/// Texts of the statements that accept a refund, say that it is about to be sent, put it off, and end it.
const ACCEPT: &str = "INSERT INTO refunds";
const WRITES: [&str; 3] = [
    "first_attempted_at = CASE WHEN $6",
    "first_attempted_at = CASE WHEN $10",
    "recheck_at = CASE $5",
];

#[tokio::test]
async fn a_process_killed_around_the_acceptance_of_a_refund_leaves_all_of_it_or_nothing() {
    for (fault, is_stored) in [(Fault::HoldBefore, false), (Fault::HoldAfter, true)] {
        let service = TestService::new().await;
        let running = service.run().await;
        let (charge, _) = charge(&running, "pm_card_visa").await;
        running.stop().await;
        let proxy = DatabaseProxy::start(&service.database_url).await;
        let mut held = proxy.arm(ACCEPT, fault);
        let process = service.spawn("api", &[("database.url", proxy.url())]).await;
        let client = process.client.clone();
        let (of, body) = (charge.clone(), json!({"amount": 600}));
        let sent = body.clone();
        let told = tokio::spawn(async move { client.try_refund(&of, "return-1", &sent).await });
        held.struck().await;
        process.kill().await;
        assert!(told.await.unwrap().is_err());
        service.check_books().await;
        let stored = service.count("SELECT count(*) FROM refunds").await;
        assert_eq!(stored, i64::from(is_stored));
        let process = service.spawn(WHOLE, &[]).await;
        let again = process.client.refund(&charge, "return-1", &body).await;
        assert_eq!(again.status, if is_stored { 200 } else { 202 });
        let refund = process.client.refund_ended(&again.id()).await;
        assert!(process.terminate().await);
        refunded_once(&service, &refund).await;
    }
}

/// The first send is lost before it takes effect, so that each of the statements is met.
#[tokio::test]
async fn a_worker_killed_around_any_of_its_statements_leaves_a_refund_that_completes_once() {
    for statement in WRITES {
        for fault in [Fault::HoldBefore, Fault::HoldAfter] {
            let (service, api, refund) = lost_once().await;
            let proxy = DatabaseProxy::start(&service.database_url).await;
            let mut held = proxy.arm(statement, fault);
            let through = [("database.url", proxy.url())];
            let worker = service.spawn("worker", &through).await;
            held.struck().await;
            worker.kill().await;
            service.check_books().await;
            service.leases_run_out().await;
            let worker = service.spawn("worker", &[]).await;
            let refund = api.client.refund_ended(&refund).await;
            assert!(worker.terminate().await);
            api.stop().await;
            refunded_once(&service, &refund).await;
        }
    }
}

/// The same worker goes on: it knows its own rows again.
#[tokio::test]
async fn a_lost_reply_of_the_database_sends_no_refund_twice() {
    for statement in WRITES {
        for fault in [Fault::CutBefore, Fault::CutAfter] {
            let (service, api, refund) = lost_once().await;
            let proxy = DatabaseProxy::start(&service.database_url).await;
            let mut cut = proxy.arm(statement, fault);
            let through = [("database.url", proxy.url())];
            let worker = service.run_with(WORKER, &through).await;
            cut.struck().await;
            let refund = api.client.refund_ended(&refund).await;
            worker.stop().await;
            api.stop().await;
            refunded_once(&service, &refund).await;
        }
    }
}

/// An accepted refund whose first send the provider drops, and nobody to send it yet.
async fn lost_once() -> (TestService, Running, String) {
    let service = TestService::new().await;
    let running = service.run().await;
    let (charge, _) = charge(&running, "pm_card_visa").await;
    running.stop().await;
    let api = service.run_with(API, &[]).await;
    let accepted = api
        .client
        .refund(&charge, "return-1", &json!({"amount": 600}))
        .await;
    service
        .ledger
        .dictate(json!({"phase": "refund", "status": 503, "body": "", "times": 1}))
        .await;
    (service, api, accepted.id())
}
