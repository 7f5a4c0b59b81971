//! One merchant's backlog, and others who have a job each: nobody waits for somebody else's.

use std::time::Duration;

use futures_util::future::join_all;
use payonce::config::Roles;
use serde_json::json;
use tokio::time::Instant;

use crate::support::service::{API, Running, TestSettings};
use crate::support::{TestService, charge_body, until};

/// A provider that takes 50 calls a second, by our own budget: 25 charges.
const BUDGET: TestSettings<'static> = &[
    ("provider.stripe.calls_per_second", "50"),
    ("worker.permits", "32"),
    ("worker.fair_after", "100ms"),
];
/// The same by its own pace: five calls at once that take 100 ms each.
const SLOW: TestSettings<'static> = &[("worker.permits", "5"), ("worker.fair_after", "100ms")];

/// `count` charges of the shop wait, some of them have been sent, and the service runs.
async fn busy(count: i32, settings: TestSettings<'_>) -> (TestService, Running) {
    let service = TestService::new().await;
    let api = service.run_with(API, &[]).await;
    let body = charge_body("pm_card_visa");
    let id = api.client.charge("order-1", &body).await.id();
    service.backlog(&id, count - 1).await;
    api.stop().await;
    service.ledger.settings(json!({"latency_ms": 100})).await;
    let running = service.run_with(Roles::ALL, settings).await;
    until("the backlog is worked on", async || {
        (completed(&service).await >= 10).then_some(())
    })
    .await;
    (service, running)
}

async fn completed(service: &TestService) -> i64 {
    service
        .count("SELECT count(*) FROM charges WHERE stage = 'succeeded'")
        .await
}

/// One charge of another merchant. Returns how long it took.
async fn one_of_another(service: &TestService, running: &Running, name: &str) -> Duration {
    let (_, token) = service.make_merchant(name).await;
    let client = running.client.with_token(&token);
    let began = Instant::now();
    let id = client
        .charge("order-1", &charge_body("pm_card_visa"))
        .await
        .id();
    assert_eq!(client.terminal(&id).await["status"], "completed");
    began.elapsed()
}

/// In the order of their age it would be the last of twenty thousand, a quarter of an hour later.
async fn goes_on_beside_a_backlog(settings: TestSettings<'_>) {
    let (service, running) = busy(20_000, settings).await;
    let before = completed(&service).await;
    for name in ["early", "late"] {
        let took = one_of_another(&service, &running, name).await;
        assert!(took < Duration::from_secs(4), "{name}: {took:?}");
    }
    until("the backlog goes on", async || {
        (completed(&service).await > before + 10).then_some(())
    })
    .await;
    running.stop().await;
    service.check_books().await;
}

#[tokio::test]
async fn a_charge_does_not_wait_for_another_merchants_backlog_at_a_bounded_rate() {
    goes_on_beside_a_backlog(BUDGET).await;
}

#[tokio::test]
async fn a_charge_does_not_wait_for_another_merchants_backlog_at_a_slow_provider() {
    goes_on_beside_a_backlog(SLOW).await;
}

#[tokio::test]
async fn many_merchants_with_a_charge_each_are_served_before_much_of_one_backlog() {
    let (service, running) = busy(5000, SLOW).await;
    let before = completed(&service).await;
    let names: Vec<String> = (0..20).map(|number| format!("small-{number}")).collect();
    join_all(
        names
            .iter()
            .map(|name| one_of_another(&service, &running, name)),
    )
    .await;
    let meanwhile = completed(&service).await - before - 20;
    // Half of the claims are turns, in which the backlog's merchant has one of twenty-one.
    assert!(meanwhile < 150, "{meanwhile} of the backlog");
    running.stop().await;
    service.check_books().await;
}

/// Written by a release before: nobody's turn, and the oldest of all.
#[tokio::test]
async fn jobs_that_name_no_merchant_are_claimed_by_their_age_while_others_take_turns() {
    let (service, running) = busy(5000, SLOW).await;
    let old = "WITH oldest AS (
            SELECT id FROM outbox WHERE state = 'ready' ORDER BY run_at, id LIMIT 20
        )
        UPDATE outbox SET merchant_id = NULL FROM oldest WHERE outbox.id = oldest.id";
    sqlx::query(old).execute(&service.books).await.unwrap();
    until("they are done", async || {
        let left = service
            .count("SELECT count(*) FROM outbox WHERE merchant_id IS NULL")
            .await;
        (left == 0).then_some(())
    })
    .await;
    running.stop().await;
    service.check_books().await;
}
