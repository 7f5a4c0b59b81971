//! What the reconciler mends, and what it leaves alone.

use std::time::Duration;

use payonce::db::session::{Durability, Session};
use payonce::meters::Meters;
use payonce::provider::stripe::currency::RULES;
use payonce::random::Random;
use payonce::reconciler::{
    Reconciler, ReconcilerLimits, ReconcilerMeters, SuccessAfterFailed, Swept,
};

use crate::support::books::uuid_of;
use crate::support::database_proxy::{DatabaseProxy, Fault};
use crate::support::service::API;
use crate::support::{PATIENCE, TestService, charge_body, until};

/// A reconciler whose pages are walked by hand. Every charge counts as stuck, whatever its age.
fn by_hand(service: &TestService, seed: u64) -> Reconciler {
    by_hand_at(service, &service.database_url, seed)
}

fn by_hand_at(service: &TestService, database_url: &str, seed: u64) -> Reconciler {
    let mut session_limits = service.config(&[]).database.session_limits();
    // One that stands still must not be given up.
    session_limits.statement_timeout = PATIENCE;
    let limits = ReconcilerLimits {
        threshold: Duration::ZERO,
        interval: Duration::from_secs(1),
        batch: 7,
        retention: Duration::from_hours(720),
        recheck_again: Duration::from_hours(24),
        event_retention: Duration::from_hours(720),
        success_after_failed: SuccessAfterFailed::Hold,
    };
    let options = database_url.parse().unwrap();
    let session = Session::new(&options, session_limits, Durability::Durable);
    let meters = ReconcilerMeters::new(&Meters::none());
    Reconciler::new(session, limits, RULES, Random::from_seed(seed), meters)
}

/// Walks all charges once.
async fn walk(reconciler: &mut Reconciler) -> Swept {
    let mut all = Swept::default();
    while !all.at_the_end {
        let page = reconciler.sweep_page().await.unwrap();
        all.jobs_made += page.jobs_made;
        all.requests_aligned += page.requests_aligned;
        all.requests_purged += page.requests_purged;
        all.at_the_end = page.at_the_end;
    }
    all
}

async fn accept(service: &TestService, count: usize) -> Vec<String> {
    let api = service.run_with(API, &[]).await;
    let mut ids = Vec::new();
    for number in 0..count {
        let key = format!("order-{number}");
        let body = charge_body("pm_card_visa");
        ids.push(api.client.charge(&key, &body).await.id());
    }
    api.stop().await;
    ids
}

async fn lose_the_jobs(service: &TestService) {
    sqlx::query("DELETE FROM outbox")
        .execute(&service.books)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_charge_that_lost_its_job_gets_it_back_and_completes_once() {
    let service = TestService::new().await;
    let id = accept(&service, 1).await.remove(0);
    lose_the_jobs(&service).await;
    let running = service.run().await;
    let charge = running.client.terminal(&id).await;
    assert_eq!(charge["status"], "completed");
    assert_eq!(
        service.history(&id).await,
        ["job_made", "execute_started", "succeeded"]
    );
    assert_eq!(service.ledger.times_charged(&id).await, 1);
    running.stop().await;
    service.check_books().await;
}

/// The money had moved already: the job that is made reads the object first.
#[tokio::test]
async fn a_charge_that_lost_its_job_after_the_money_moved_is_not_executed_again() {
    let service = TestService::new().await;
    let process = service.spawn("api,worker", &[]).await;
    let id = service
        .stopped_at(&process.client, "execute", "after")
        .await;
    process.kill().await;
    lose_the_jobs(&service).await;
    let running = service.run().await;
    let charge = running.client.terminal(&id).await;
    assert_eq!(charge["status"], "completed");
    service.ledger.release().await;
    service.provider_is_quiet().await;
    assert_eq!(service.ledger.executes().await.len(), 1);
    running.stop().await;
    service.check_books().await;
}

#[tokio::test]
async fn two_reconcilers_at_once_make_one_job_a_charge() {
    let service = TestService::new().await;
    let ids = accept(&service, 40).await;
    lose_the_jobs(&service).await;
    let (mut one, mut other) = (by_hand(&service, 1), by_hand(&service, 2));
    let (by_one, by_other) = tokio::join!(walk(&mut one), walk(&mut other));
    assert_eq!(by_one.jobs_made + by_other.jobs_made, 40);
    service.check_books().await;
    let running = service.run().await;
    for id in &ids {
        running.client.terminal(id).await;
    }
    running.stop().await;
    assert_eq!(service.ledger.charges().await.len(), 40);
    service.check_books().await;
}

#[tokio::test]
async fn a_request_row_that_disagrees_is_made_to_say_what_its_charge_says() {
    let service = TestService::new().await;
    let running = service.run().await;
    let mut ids = Vec::new();
    for method in ["pm_card_visa", "pm_card_chargeDeclined"] {
        let id = running
            .client
            .charge(method, &charge_body(method))
            .await
            .id();
        running.client.terminal(&id).await;
        ids.push(id);
    }
    running.stop().await;
    accept(&service, 1).await;
    for wrong in [
        "UPDATE idempotent_requests SET status = 'in_progress'",
        "UPDATE idempotent_requests SET status = 'completed'",
        "UPDATE idempotent_requests SET status = 'failed'",
    ] {
        sqlx::query(wrong).execute(&service.books).await.unwrap();
        let swept = walk(&mut by_hand(&service, 1)).await;
        assert_eq!((swept.requests_aligned, swept.jobs_made), (2, 0), "{wrong}");
        service.check_books().await;
    }
    let again = walk(&mut by_hand(&service, 1)).await;
    assert_eq!(again.requests_aligned, 0);
}

/// Its time over, a request row goes; the charge goes on answering for the key. An open charge keeps its row, however
/// old it is.
#[tokio::test]
async fn the_request_row_of_a_charge_that_ended_long_ago_goes_and_the_charge_goes_on_answering() {
    let service = TestService::new().await;
    let running = service.run().await;
    let body = charge_body("pm_card_visa");
    let old = running.client.charge("old", &body).await.id();
    running.client.terminal(&old).await;
    let fresh = running.client.charge("fresh", &body).await.id();
    running.client.terminal(&fresh).await;
    let open = running
        .client
        .charge("open", &charge_body("pm_sim_processing"))
        .await
        .id();
    running.client.at_stage(&open, "processing").await;
    service.age(&old, 721).await;
    service.age(&open, 721).await;
    until("the old request row is purged", async || {
        let left = service
            .count("SELECT count(*) FROM idempotent_requests")
            .await;
        (left == 2).then_some(())
    })
    .await;
    let swept = walk(&mut by_hand(&service, 1)).await;
    assert_eq!(swept.requests_purged, 0);
    let kept = service
        .count("SELECT count(*) FROM idempotent_requests WHERE client_key IN ('fresh', 'open')")
        .await;
    assert_eq!(kept, 2);
    for _ in 0..2 {
        let again = running.client.charge("old", &body).await;
        assert_eq!((again.status, again.id()), (200, old.clone()));
        assert_eq!(again.body["status"], "completed");
        let other = running
            .client
            .charge("old", &charge_body("pm_card_mastercard"))
            .await;
        assert_eq!(
            (other.status, other.code()),
            (422, "idempotency_key_reused")
        );
    }
    assert_eq!(service.ledger.times_charged(&old).await, 1);
    running.stop().await;
    service.check_books().await;
}

/// However long ago they were accepted: one waits in the queue, one is held by a worker that is slow.
#[tokio::test]
async fn jobs_that_wait_or_are_held_are_left_alone() {
    let service = TestService::new().await;
    let ids = accept(&service, 2).await;
    for id in &ids {
        service.age(id, 24 * 365).await;
    }
    sqlx::query(
        "UPDATE outbox
         SET state = 'leased', attempt = 1, lease_token = gen_random_uuid(), lease_until = now() + interval '1 minute'
         WHERE charge_id = $1",
    )
    .bind(uuid_of(&ids[1]))
    .execute(&service.books)
    .await
    .unwrap();
    let everything = async || {
        let rows: Vec<(String, String)> = sqlx::query_as(
            "SELECT charges::text, outbox::text FROM charges JOIN outbox ON charge_id = charges.id ORDER BY charges.id",
        )
        .fetch_all(&service.books)
        .await
        .unwrap();
        rows
    };
    let before = everything().await;
    let mut reconciler = by_hand(&service, 1);
    for _ in 0..2 {
        let swept = walk(&mut reconciler).await;
        assert_eq!((swept.jobs_made, swept.requests_aligned), (0, 0));
    }
    assert_eq!(everything().await, before);
    service.check_books().await;
}

/// It has found a charge without a job and stands still. Meanwhile another one makes the job, and the charge ends.
#[tokio::test]
async fn a_reconciler_that_stood_still_makes_no_job_for_a_charge_that_ended_meanwhile() {
    let service = TestService::new().await;
    let id = accept(&service, 1).await.remove(0);
    lose_the_jobs(&service).await;
    let proxy = DatabaseProxy::start(&service.database_url).await;
    let mut held = proxy.arm("'job_made'", Fault::HoldBefore);
    let mut stalled = by_hand_at(&service, proxy.url(), 1);
    let walking = tokio::spawn(async move { walk(&mut stalled).await });
    held.struck().await;
    let running = service.run().await;
    let charge = running.client.terminal(&id).await;
    assert_eq!(charge["status"], "completed");
    held.release();
    assert_eq!(walking.await.unwrap().jobs_made, 0);
    assert_eq!(running.client.show(&id).await.body, charge);
    running.stop().await;
    assert_eq!(service.ledger.times_charged(&id).await, 1);
    service.check_books().await;
}

/// Of a later release's making, and its job is lost: it is told, and the others are mended.
#[tokio::test]
async fn a_charge_that_can_not_be_read_keeps_no_other_from_getting_its_job_back() {
    let service = TestService::new().await;
    let mut ids = accept(&service, 5).await;
    // The first that the walk comes to.
    ids.sort();
    lose_the_jobs(&service).await;
    sqlx::query(
        "UPDATE charges
         SET stage = 'requires_action', money = 'unknown', provider_charge_id = 'pi_later',
             provider_account = 'default', next_action = '{\"kind\": \"of a later release\"}'
         WHERE id = $1",
    )
    .bind(uuid_of(&ids[0]))
    .execute(&service.books)
    .await
    .unwrap();
    let process = service.spawn("api,worker,reconciler", &[]).await;
    for id in &ids[1..] {
        assert_eq!(process.client.terminal(id).await["status"], "completed");
    }
    process.alerted("job_not_makeable").await;
    assert!(service.jobs(&ids[0]).await.is_empty());
    sqlx::query(
        "UPDATE charges
         SET stage = 'pending', money = 'not_moved', provider_charge_id = NULL, provider_account = NULL, next_action = NULL
         WHERE id = $1",
    )
    .bind(uuid_of(&ids[0]))
    .execute(&service.books)
    .await
    .unwrap();
    assert_eq!(
        process.client.terminal(&ids[0]).await["status"],
        "completed"
    );
    assert!(process.terminate().await);
    assert_eq!(service.ledger.charges().await.len(), 5);
    service.check_books().await;
}
