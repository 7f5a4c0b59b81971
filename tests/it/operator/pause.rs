//! `pause` and `resume`: intake goes on and sending stops, for every process and over restarts.

use payonce::config::Roles;

use super::{payonce, shown};
use crate::support::books::uuid_of;
use crate::support::service::{TestSettings, WORKER};
use crate::support::{TestService, charge_body, until};

const PAUSE: &[&str] = &["pause", "--reason", "the provider moves house"];

/// The recovery of another release holds sending too.
async fn a_recovery_begins(service: &TestService) {
    sqlx::query("INSERT INTO pauses (kind, reason) VALUES ('recovery', 'restored')")
        .execute(&service.books)
        .await
        .unwrap();
}

impl TestService {
    /// Returns when the only worker has surely tried to claim, after this was called.
    async fn worker_has_looked(&self, worker: &crate::support::service::Running) {
        // The loop takes expired leases back, looks for pauses and claims, in this order: with this lease taken back twice,
        // it has claimed in between.
        for _ in 0..2 {
            let before = worker.leases_taken_back().await;
            sqlx::query(
                "INSERT INTO outbox (kind, charge_id, payload_version, payload, state, lease_token, lease_until)
                 VALUES ('charge', gen_random_uuid(), 32000, '{}', 'leased', gen_random_uuid(), now() - interval '1 hour')",
            )
            .execute(&self.books)
            .await
            .unwrap();
            until("the lease was taken back", async || {
                (worker.leases_taken_back().await > before).then_some(())
            })
            .await;
        }
        sqlx::query("DELETE FROM outbox WHERE payload_version = 32000")
            .execute(&self.books)
            .await
            .unwrap();
    }
}

impl crate::support::service::Running {
    async fn leases_taken_back(&self) -> u64 {
        let scrape = crate::support::scrape::Scrape::of(self.admin.unwrap()).await;
        scrape.count("payonce_leases_expired_total")
    }
}

#[tokio::test]
async fn while_sending_is_paused_charges_are_accepted_and_nothing_is_sent_by_any_process() {
    let service = TestService::new().await;
    let running = service.run().await;
    let said = payonce(&service, PAUSE).await;
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.out.contains("the provider moves house"), "{said:?}");

    let mut ids = Vec::new();
    for key in ["a", "b", "c"] {
        let body = charge_body("pm_card_visa");
        let accepted = running.client.charge(key, &body).await;
        assert_eq!(accepted.status, 202);
        ids.push(accepted.id());
    }
    service.worker_has_looked(&running).await;
    running.stop().await;
    // It outlives every process.
    let another = service.run_with(WORKER, &[]).await;
    service.worker_has_looked(&another).await;
    let running = service.run().await;
    assert!(service.ledger.requests().await.is_empty());
    for id in &ids {
        let job = service.job(id).await;
        assert_eq!((job.state.as_str(), job.attempt), ("ready", 0));
    }
    // What nobody has executed can be canceled, now as ever.
    let canceled = running.client.cancel(&ids[0]).await;
    assert_eq!(canceled.body["stage"], "canceled");

    let said = payonce(&service, &["resume"]).await;
    assert_eq!(said.code, 0, "{said:?}");
    for id in &ids[1..] {
        assert_eq!(running.client.terminal(id).await["status"], "completed");
    }
    another.stop().await;
    running.stop().await;
    assert_eq!(service.ledger.charges().await.len(), 2);
    service.check_books().await;
}

/// A call that is held for as long as a test needs on a busy machine.
const PATIENT: &[(&str, &str)] = &[
    ("provider.stripe.timeout", "20s"),
    ("worker.lease", "90s"),
    ("reconciler.sweep_lease", "90s"),
];

/// A pause comes while prepare is under way. `settings` say whether the process has looked for pauses by the time that it
/// would execute, or finds out by the gate alone.
async fn paused_between_prepare_and_execute(settings: TestSettings<'_>, looks: bool) {
    let service = TestService::new().await;
    let settings = [PATIENT, settings].concat();
    let running = service.run_with(Roles::ALL, &settings).await;
    let id = service
        .stopped_at(&running.client, "prepare", "after")
        .await;
    let said = payonce(&service, PAUSE).await;
    assert!(said.err.contains("1 job is at a worker"), "{said:?}");
    if looks {
        service.worker_has_looked(&running).await;
    }
    service.ledger.release().await;
    until("the run gave its job back", async || {
        let job = service.job(&id).await;
        (job.state == "ready" && job.last_error.as_deref() == Some("paused")).then_some(())
    })
    .await;
    let charge = running.client.show(&id).await.body;
    assert_eq!(
        (&charge["stage"], &charge["money"]),
        (&"pending".into(), &"not_moved".into())
    );
    assert!(service.ledger.executes().await.is_empty());

    payonce(&service, &["resume"]).await;
    assert_eq!(running.client.terminal(&id).await["status"], "completed");
    assert_eq!(service.ledger.objects().await.len(), 1);
    running.stop().await;
    service.check_books().await;
}

#[tokio::test]
async fn a_run_that_is_under_way_when_sending_is_paused_executes_nothing_new() {
    paused_between_prepare_and_execute(&[], true).await;
}

#[tokio::test]
async fn a_process_that_has_not_heard_of_a_pause_executes_nothing_all_the_same() {
    paused_between_prepare_and_execute(&[("worker.take_back_interval", "10m")], false).await;
}

/// The execute's reply is lost, and what became of it must be read: reading moves nothing.
#[tokio::test]
async fn what_was_executed_before_a_pause_is_written_down_during_it() {
    let service = TestService::new().await;
    let running = service.run_with(Roles::ALL, PATIENT).await;
    let id = service
        .stopped_at(&running.client, "execute", "after")
        .await;
    payonce(&service, PAUSE).await;
    service.worker_has_looked(&running).await;
    service.ledger.release().await;
    assert_eq!(running.client.terminal(&id).await["status"], "completed");
    let told = payonce(&service, &["pause", "--status"]).await;
    assert!(told.err.contains("no job is at a worker"), "{told:?}");
    running.stop().await;
    service.check_books().await;
}

#[tokio::test]
async fn pause_and_resume_say_what_they_did_and_are_safe_to_repeat() {
    let service = TestService::new().await;
    let status = async || {
        payonce(&service, &["pause", "--status", "--json"])
            .await
            .json()
    };
    let none = status().await;
    assert_eq!(
        (&none["paused"], &none["jobs"]["held"]),
        (&false.into(), &0.into())
    );
    let told = payonce(&service, &["pause", "--status"]).await;
    assert_eq!(
        (told.code, told.out.as_str()),
        (0, "sending is not paused\n")
    );

    let first = payonce(&service, PAUSE).await;
    let paused = status().await;
    let again = payonce(&service, &["pause", "--reason", "another"]).await;
    assert_eq!((again.code, &again.out), (0, &first.out));
    assert!(again.err.contains("paused already"), "{again:?}");
    assert_eq!(status().await, paused, "the first one stands");
    assert_eq!(paused["pauses"][0]["kind"], "operator");
    assert_eq!(paused["pauses"][0]["reason"], "the provider moves house");

    a_recovery_begins(&service).await;
    let resumed = payonce(&service, &["resume"]).await;
    assert_eq!(resumed.code, 0, "{resumed:?}");
    assert!(
        resumed.out.contains("the provider moves house"),
        "{resumed:?}"
    );
    assert!(resumed.err.contains("(recovery): restored"), "{resumed:?}");
    let again = payonce(&service, &["resume"]).await;
    assert_eq!(
        (again.code, again.out.as_str()),
        (0, "no operator had paused sending\n")
    );
    assert_eq!(status().await["pauses"][0]["kind"], "recovery");
}

#[tokio::test]
async fn sending_goes_on_only_when_no_pause_of_any_kind_is_left() {
    let service = TestService::new().await;
    a_recovery_begins(&service).await;
    payonce(&service, PAUSE).await;
    let process = service.spawn("api,worker", &[]).await;
    let body = charge_body("pm_card_visa");
    let id = process.client.charge("order-1", &body).await.id();
    let line = process.logged("WARN", "sending_paused").await;
    assert_eq!(line["pause.kind"], "operator");
    payonce(&service, &["resume"]).await;
    let line = process.logged("INFO", "sending_resumed").await;
    assert_eq!(line["still_paused"], true);
    assert_eq!(service.job(&id).await.attempt, 0);
    sqlx::query("DELETE FROM pauses")
        .execute(&service.books)
        .await
        .unwrap();
    assert_eq!(process.client.terminal(&id).await["status"], "completed");
    assert!(process.terminate().await);
    service.check_books().await;
}

/// An operator ends a charge by hand: its object is looked for, stored and canceled, and nothing is executed.
#[tokio::test]
async fn a_charge_can_be_resolved_while_sending_is_paused() {
    let service = TestService::new().await;
    let process = service.spawn("api,worker,reconciler", &[]).await;
    let id = service
        .stopped_at(&process.client, "prepare", "after")
        .await;
    process.kill().await;
    service.ledger.release().await;
    service.provider_is_quiet().await;
    service.leases_run_out().await;
    payonce(&service, PAUSE).await;
    sqlx::query("UPDATE outbox SET state = 'ready', lease_token = NULL, lease_until = NULL WHERE charge_id = $1")
        .bind(uuid_of(&id))
        .execute(&service.books)
        .await
        .unwrap();
    let resolved = super::resolve(&service, &id, "failed").await;
    assert_eq!(resolved.code, 0, "{resolved:?}");
    assert_eq!(shown(&service, &id).await["status"], "failed");
    assert_eq!(service.ledger.objects().await[0]["status"], "canceled");
    assert!(service.ledger.charges().await.is_empty());
    service.check_books().await;
}
