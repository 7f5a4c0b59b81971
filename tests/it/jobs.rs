//! Jobs that a worker can't run now, or not at all: they fail nothing and hold up nobody.

use payonce::config::Roles;
use serde_json::json;

use crate::support::books::{SHORT_LEASES, uuid_of};
use crate::support::service::{API, WORKER};
use crate::support::{TestService, charge_body, until};

const WHOLE: &str = "api,worker,reconciler";

/// Accepts charges with nobody there to run them.
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

/// Written by a release that is gone, or by a fault of ours.
#[tokio::test]
async fn a_job_whose_payload_can_not_be_read_is_parked_and_the_others_go_on() {
    let service = TestService::new().await;
    let ids = accept(&service, 5).await;
    sqlx::query(
        "UPDATE outbox SET payload = jsonb_build_object('was', payload) WHERE charge_id = $1",
    )
    .bind(uuid_of(&ids[0]))
    .execute(&service.books)
    .await
    .unwrap();
    let process = service.spawn(WHOLE, &[]).await;
    assert_eq!(service.parked(&ids[0]).await, "payload_unreadable");
    process.alerted("payload_unreadable").await;
    for id in &ids[1..] {
        assert_eq!(process.client.terminal(id).await["status"], "completed");
    }
    let charge = process.client.show(&ids[0]).await.body;
    assert_eq!(charge["status"], "in_progress");
    service.check_books().await;
    sqlx::query("UPDATE outbox SET payload = payload -> 'was'")
        .execute(&service.books)
        .await
        .unwrap();
    service.parked_go_on().await;
    assert_eq!(
        process.client.terminal(&ids[0]).await["status"],
        "completed"
    );
    assert!(process.terminate().await);
    service.check_books().await;
}

/// A newer release wrote it, during a deploy: that one knows what it says.
#[tokio::test]
async fn a_job_of_a_version_that_is_not_known_is_left_as_it_is() {
    let service = TestService::new().await;
    let ids = accept(&service, 5).await;
    sqlx::query("UPDATE outbox SET payload_version = payload_version + 9 WHERE charge_id = $1")
        .bind(uuid_of(&ids[0]))
        .execute(&service.books)
        .await
        .unwrap();
    let running = service.run().await;
    for id in &ids[1..] {
        running.client.terminal(id).await;
    }
    let job = service.job(&ids[0]).await;
    assert_eq!((job.state.as_str(), job.attempt), ("ready", 0));
    service.check_books().await;
    sqlx::query("UPDATE outbox SET payload_version = payload_version - 9")
        .execute(&service.books)
        .await
        .unwrap();
    running.client.terminal(&ids[0]).await;
    running.stop().await;
    assert_eq!(service.ledger.charges().await.len(), 5);
    service.check_books().await;
}

/// The object is in an account that this process has no key for.
#[tokio::test]
async fn a_charge_of_another_account_waits_for_a_worker_that_has_it() {
    let service = TestService::new().await;
    let process = service.spawn(WHOLE, &[]).await;
    let id = service
        .stopped_at(&process.client, "execute", "before")
        .await;
    process.kill().await;
    service.leases_run_out().await;
    let calls = service.ledger.requests().await.len();
    let another = [
        ("provider.account", "another"),
        ("provider.stripe.secret_key", "sk_test_another"),
    ];
    let stranger = service.run_with(WORKER, &another).await;
    until("the stranger has given it back", async || {
        let job = service.job(&id).await;
        (job.state == "ready" && job.last_error.as_deref() == Some("account_not_configured"))
            .then_some(())
    })
    .await;
    assert_eq!(service.ledger.requests().await.len(), calls);
    // From then on it passes it by: other jobs are done, and this one is not claimed again.
    let attempt = service.job(&id).await.attempt;
    service.ledger.release().await;
    let other = accept(&service, 1).await.remove(0);
    until("another is done", async || {
        service.jobs(&other).await.is_empty().then_some(())
    })
    .await;
    assert_eq!(service.job(&id).await.attempt, attempt);
    stranger.stop().await;
    let running = service.run().await;
    assert_eq!(running.client.terminal(&id).await["status"], "completed");
    service.provider_is_quiet().await;
    running.stop().await;
    service.check_books().await;
}

/// Somebody's transaction holds one charge's row: every step of the others goes on around it.
#[tokio::test]
async fn a_charge_whose_row_is_locked_holds_up_no_other() {
    let service = TestService::new().await;
    let ids = accept(&service, 30).await;
    let mut somebody = service.books.begin().await.unwrap();
    sqlx::query("SELECT FROM charges WHERE id = $1 FOR UPDATE")
        .bind(uuid_of(&ids[0]))
        .execute(&mut *somebody)
        .await
        .unwrap();
    let running = service.run_with(Roles::ALL, &[]).await;
    for id in &ids[1..] {
        assert_eq!(running.client.terminal(id).await["status"], "completed");
    }
    let locked = running.client.show(&ids[0]).await.body;
    assert_eq!(locked["status"], "in_progress");
    assert_eq!(service.ledger.times_charged(&ids[0]).await, 0);
    somebody.rollback().await.unwrap();
    assert_eq!(
        running.client.terminal(&ids[0]).await["status"],
        "completed"
    );
    running.stop().await;
    assert_eq!(service.ledger.charges().await.len(), 30);
    service.check_books().await;
}

/// A release that knows more kinds of action wrote it: the row alone is unreadable here, not the batch that it is in.
#[tokio::test]
async fn a_charge_that_can_not_be_read_is_parked_and_costs_its_neighbours_nothing() {
    let service = TestService::new().await;
    let ids = accept(&service, 4).await;
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
    let process = service.spawn(WHOLE, &[]).await;
    for id in &ids[1..] {
        assert_eq!(process.client.terminal(id).await["status"], "completed");
    }
    assert_eq!(service.parked(&ids[0]).await, "job_unreadable");
    process.alerted("job_unreadable").await;
    // Its duplicate is answered, and a new request in the same breath is accepted.
    let body = charge_body("pm_card_visa");
    let (duplicate, new) = tokio::join!(
        process.client.charge("order-0", &body),
        process.client.charge("order-new", &body)
    );
    assert_eq!((duplicate.status, duplicate.code()), (500, "internal"));
    assert_eq!(new.status, 202);
    process.client.terminal(&new.id()).await;
    process.kill().await;
    service.check_books().await;
}

/// Days at a customer's or a bank's hands are no fault of the job's. Hours without an answer are.
#[tokio::test]
async fn a_job_is_stuck_that_nobody_has_the_turn_of() {
    let service = TestService::new().await;
    // Whose turn it is is not asked again meanwhile.
    let seldom = [("worker.slow_base", "1h"), ("worker.slow_cap", "1h")];
    let running = service.run_with(Roles::ALL, &seldom).await;
    let charge = async |key: &str, method: &str| {
        let mut body = charge_body(method);
        body["return_url"] = "https://shop.example.com/back".into();
        running.client.charge(key, &body).await.id()
    };
    let customers = charge("customer", "pm_card_authenticationRequired").await;
    running.client.at_stage(&customers, "requires_action").await;
    let banks = charge("bank", "pm_sim_processing").await;
    until("the bank has its turn", async || {
        (service.job(&banks).await.state == "ready"
            && running.client.show(&banks).await.body["attempts"] == 1)
            .then_some(())
    })
    .await;
    let lost =
        json!({"phase": "execute", "status": 503, "body": "{}", "effect": false, "times": 1});
    service.ledger.dictate(lost).await;
    let unread = json!({"phase": "read", "status": 503, "body": "{}", "times": 100_000});
    service.ledger.dictate(unread).await;
    let unclear = charge("unclear", "pm_card_visa").await;
    running
        .client
        .at_stage(&unclear, "requires_reconciliation")
        .await;
    let unmade = json!({"phase": "prepare", "status": 503, "body": "{}", "times": 100_000});
    service.ledger.dictate(unmade).await;
    let unprepared = charge("unprepared", "pm_card_visa").await;
    until("it was tried again", async || {
        (service.job(&unprepared).await.attempt > 1).then_some(())
    })
    .await;
    running.stop().await;
    let waiting = accept(&service, 1).await.remove(0);

    let stuck = async |change: &'static str| {
        let mut connection = service.books.acquire().await.unwrap();
        sqlx::query(change).execute(&mut *connection).await.unwrap();
        let hour = std::time::Duration::from_hours(1);
        let backlog = payonce::db::reconcile::backlog(&mut connection, hour).await;
        backlog.unwrap().stuck
    };
    assert_eq!(stuck("SELECT").await, 0, "none of them is old");
    let old = "UPDATE outbox SET created_at = created_at - interval '3 days'";
    assert_eq!(stuck(old).await, 1, "the unprepared one");
    let old = "UPDATE outbox SET unclear_since = unclear_since - interval '3 days'";
    assert_eq!(stuck(old).await, 2, "and the unclear one");
    // However long it waited for its first run.
    let first = "UPDATE outbox SET state = 'leased', attempt = attempt + 1, lease_token = gen_random_uuid(),
                     lease_until = now() + interval '1 minute'
                 WHERE attempt = 0";
    assert_eq!(stuck(first).await, 2, "but not {waiting}");
}

/// Postgres takes the charge's last transition and not the event that belongs to it: none of it is written, and none of it
/// is reported.
#[tokio::test]
async fn an_end_that_postgres_refuses_in_part_is_not_written_at_all_and_is_read_again() {
    let service = TestService::new().await;
    for statement in [
        "CREATE FUNCTION obstruct() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN RAISE EXCEPTION 'obstructed' USING ERRCODE = '23505'; END $$",
        "CREATE TRIGGER obstruct BEFORE INSERT ON charge_events
         FOR EACH ROW WHEN (NEW.kind = 'succeeded') EXECUTE FUNCTION obstruct()",
    ] {
        sqlx::query(statement)
            .execute(&service.books)
            .await
            .unwrap();
    }
    let process = service.spawn(WHOLE, SHORT_LEASES).await;
    let body = charge_body("pm_card_visa");
    let id = process.client.charge("order-1", &body).await.id();
    process.alerted("completion_unwritten").await;
    until("it was tried again", async || {
        (service.job(&id).await.attempt >= 2).then_some(())
    })
    .await;
    let charge = process.client.show(&id).await.body;
    assert_eq!(
        (&charge["status"], &charge["money"]),
        (&json!("in_progress"), &json!("unknown"))
    );
    service.check_books().await;
    sqlx::query("DROP TRIGGER obstruct ON charge_events")
        .execute(&service.books)
        .await
        .unwrap();
    let charge = process.client.terminal(&id).await;
    assert_eq!(charge["status"], "completed");
    assert!(process.terminate().await);
    assert_eq!(service.ledger.executes().await.len(), 1);
    assert_eq!(service.ledger.times_charged(&id).await, 1);
    service.check_books().await;
}
