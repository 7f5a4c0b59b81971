//! Each alert of `docs/alerts.yml`: its condition is made for real, and the rules are asked what they say to it.

use payonce::config::Roles;
use serde_json::json;

use super::API;
use crate::support::books::SHORT_LEASES;
use crate::support::database_proxy::{DatabaseProxy, Fault, INSERT_BATCH};
use crate::support::receiver::{Does, Receiver};
use crate::support::scrape::{Course, Scrape};
use crate::support::service::Running;
use crate::support::{TestService, charge_body, until};

fn course<'a>(before: &'a Scrape, after: &'a Scrape) -> Course<'a> {
    Course { before, after }
}

impl TestService {
    async fn change(&self, sql: &'static str) {
        let changed = sqlx::query(sql).execute(&self.books).await.unwrap();
        assert!(changed.rows_affected() > 0, "{sql}");
    }
}

impl Running {
    async fn charge(&self) -> String {
        let body = charge_body("pm_card_visa");
        self.client.charge("order-1", &body).await.id()
    }
}

#[tokio::test]
async fn a_healthy_service_fires_nothing() {
    let service = TestService::new().await;
    let running = service.run().await;
    let walked = "payonce_reconciler_pages_total{result=\"walked\"}";
    let before = running.scrape_with(walked, 1.0).await;
    let id = running.charge().await;
    running.client.terminal(&id).await;
    let after = running
        .scrape_with(walked, before.value(walked) + 1.0)
        .await;
    course(&before, &after).fires_nothing();
    running.stop().await;
}

#[tokio::test]
async fn a_stopped_process_fires_down_and_absent() {
    let service = TestService::new().await;
    let running = service.run().await;
    let before = running.scrape().await;
    running.stop().await;
    let nothing = Scrape::default();
    course(&before, &nothing).fires("PayonceDown");
    course(&before, &nothing).fires("PayonceAbsent");
}

#[tokio::test]
async fn a_database_that_is_gone_fires_books_unreadable_and_server_errors() {
    let service = TestService::new().await;
    let proxy = DatabaseProxy::start(&service.database_url).await;
    let settings = &[
        ("database.url", proxy.url()),
        ("database.statement_timeout", "500ms"),
        ("database.connect_timeout", "500ms"),
        ("intake.give_up_after", "1s"),
    ];
    let api = service.run_with(API, settings).await;
    api.charge().await;
    let before = api.scrape().await;
    proxy.network.refuse();
    let answer = api
        .client
        .charge("order-2", &charge_body("pm_card_visa"))
        .await;
    assert_eq!(answer.status, 503);
    assert_eq!(api.status_at_admin("/readyz").await, 503);
    let after = until("the books are not readable", async || {
        let scrape = api.scrape().await;
        (scrape.count("payonce_books_readable") == 0).then_some(scrape)
    })
    .await;
    assert!(after.value("payonce_jobs{state=\"ready\"}").is_nan());
    course(&before, &after).fires("PayonceBooksUnreadable");
    course(&before, &after).fires("PayonceServerErrors");
    proxy.network.recover();
    api.scrape_with("payonce_books_readable", 1.0).await;
    api.stop().await;
}

#[tokio::test]
async fn a_queue_that_fills_fires_queue_near_full_and_overloaded() {
    let service = TestService::new().await;
    let proxy = DatabaseProxy::start(&service.database_url).await;
    let settings = &[
        ("database.url", proxy.url()),
        ("intake.batchers", "1"),
        ("intake.queue", "2"),
        ("intake.batch_items", "2"),
    ];
    let api = service.run_with(API, settings).await;
    let before = api.scrape().await;
    let mut blocked = proxy.arm(INSERT_BATCH, Fault::HoldBefore);
    let mut requests = tokio::task::JoinSet::new();
    let mut post = |key: String| {
        let client = api.client.clone();
        requests.spawn(async move { client.charge(&key, &charge_body("pm_card_visa")).await });
    };
    post("first".to_owned());
    blocked.struck().await;
    for n in 0..4 {
        post(format!("k{n}"));
    }
    let overloaded = "payonce_intake_requests_total{result=\"refused\",code=\"overloaded\"}";
    let after = api.scrape_with(overloaded, 2.0).await;
    assert_eq!(after.count("payonce_intake_queue_depth{batcher=\"0\"}"), 2);
    course(&before, &after).fires("PayonceOverloaded");
    course(&before, &after).fires("PayonceQueueNearFull");
    blocked.release();
    requests.join_all().await;
    api.stop().await;
}

#[tokio::test]
async fn connections_that_are_held_open_fire_connections_near_full() {
    let service = TestService::new().await;
    let api = service
        .run_with(API, &[("http.max_connections", "10")])
        .await;
    let before = api.scrape().await;
    let mut held = Vec::new();
    for _ in 0..9 {
        held.push(api.client.connect().await);
    }
    let after = api.scrape_with("payonce_http_connections", 9.0).await;
    course(&before, &after).fires("PayonceConnectionsNearFull");
    drop(held);
    api.stop().await;
}

#[tokio::test]
async fn work_that_nobody_takes_fires_backlog_and_reconciler_stopped() {
    let service = TestService::new().await;
    let api = service.run_with(API, &[]).await;
    let before = api.scrape().await;
    api.charge().await;
    service
        .change("UPDATE outbox SET run_at = now() - interval '10 minutes'")
        .await;
    let after = api.scrape().await;
    course(&before, &after).fires("PayonceBacklog");
    course(&before, &after).fires("PayonceReconcilerStopped");
    api.stop().await;
}

#[tokio::test]
async fn books_that_nobody_compared_with_the_provider_fire_sweep_stale() {
    let service = TestService::new().await;
    let api = service.run_with(API, &[]).await;
    let before = api.scrape().await;
    service
        .change("UPDATE sweeps SET began_at = now() - interval '5 hours'")
        .await;
    let after = api.scrape().await;
    course(&before, &after).fires("PayonceSweepStale");
    api.stop().await;
}

#[tokio::test]
async fn a_pause_that_nobody_ends_fires_paused() {
    let service = TestService::new().await;
    let api = service.run_with(API, &[]).await;
    let before = api.scrape().await;
    assert_eq!(before.count("payonce_paused{kind=\"operator\"}"), 0);
    service
        .change("INSERT INTO pauses (kind, reason) VALUES ('operator', 'x')")
        .await;
    let after = api.scrape().await;
    assert_eq!(after.count("payonce_paused{kind=\"operator\"}"), 1);
    assert_eq!(after.count("payonce_paused{kind=\"recovery\"}"), 0);
    course(&before, &after).fires("PayoncePaused");
    api.stop().await;
}

#[tokio::test]
async fn a_charge_that_stays_unclear_fires_unclear() {
    let service = TestService::new().await;
    let running = service.run().await;
    let before = running.scrape().await;
    for phase in ["execute", "read"] {
        let answer =
            json!({"phase": phase, "status": 503, "body": "{}", "effect": false, "times": 100_000});
        service.ledger.dictate(answer).await;
    }
    let id = running.charge().await;
    running
        .client
        .at_stage(&id, "requires_reconciliation")
        .await;
    running
        .scrape_with("payonce_jobs{state=\"unclear\"}", 1.0)
        .await;
    service
        .change("UPDATE outbox SET unclear_since = unclear_since - interval '20 minutes'")
        .await;
    // Through further runs that learn nothing.
    let reads = "payonce_provider_calls_total{phase=\"read\",answer=\"server_error\"}";
    let now = running.scrape().await.value(reads);
    let after = running.scrape_with(reads, now + 2.0).await;
    course(&before, &after).fires("PayonceUnclear");
    running.stop().await;
}

#[tokio::test]
async fn a_request_that_the_provider_rejects_fires_jobs_parked() {
    let service = TestService::new().await;
    let running = service.run().await;
    let before = running.scrape().await;
    let refusal = json!({"error": {"type": "invalid_request_error", "code": "parameter_unknown", "message": "no"}});
    let answer = json!({"phase": "prepare", "status": 400, "body": refusal.to_string(), "effect": false, "times": 1});
    service.ledger.dictate(answer).await;
    running.charge().await;
    let after = running
        .scrape_with("payonce_jobs{state=\"parked\"}", 1.0)
        .await;
    course(&before, &after).fires("PayonceJobsParked");
    running.stop().await;
}

/// The provider answers with an object that does not carry our stamp.
#[tokio::test]
async fn an_object_that_is_not_ours_fires_discrepancies_open() {
    let service = TestService::new().await;
    let running = service.run().await;
    let before = running.scrape().await;
    let object = json!({
        "id": "pi_of_someone_else", "object": "payment_intent", "status": "requires_confirmation",
        "amount": 1000, "amount_received": 0, "currency": "usd", "metadata": {}, "created": 1, "livemode": false,
    });
    let answer = json!({"phase": "prepare", "status": 200, "body": object.to_string(), "effect": false, "times": 1});
    service.ledger.dictate(answer).await;
    running.charge().await;
    let after = running.scrape_with("payonce_discrepancies_open", 1.0).await;
    course(&before, &after).fires("PayonceDiscrepanciesOpen");
    running.stop().await;
}

#[tokio::test]
async fn a_key_that_the_provider_refuses_fires_denied_and_breaker_open() {
    let service = TestService::new().await;
    let settings = &[
        ("worker.breaker_base", "10m"),
        ("worker.breaker_cap", "10m"),
    ];
    let running = service.run_with(Roles::ALL, settings).await;
    let before = running.scrape().await;
    let answer =
        json!({"phase": "prepare", "status": 401, "body": "{}", "effect": false, "times": 1});
    service.ledger.dictate(answer).await;
    running.charge().await;
    let after = running.scrape_with("payonce_breaker_open", 1.0).await;
    course(&before, &after).fires("PayonceProviderDenied");
    course(&before, &after).fires("PayonceBreakerOpen");
    running.stop().await;
}

#[tokio::test]
async fn a_lease_that_runs_out_fires_leases_expiring() {
    let service = TestService::new().await;
    let running = service.run().await;
    let before = running.scrape().await;
    service.ledger.hold("prepare", "before").await;
    let id = running.charge().await;
    service.ledger.held().await;
    service.leases_run_out().await;
    let after = running
        .scrape_with("payonce_leases_expired_total", 1.0)
        .await;
    course(&before, &after).fires("PayonceLeasesExpiring");
    service.ledger.release().await;
    running.client.terminal(&id).await;
    running.stop().await;
    service.check_books().await;
}

#[tokio::test]
async fn a_lease_that_nobody_takes_back_fires_leases_not_taken_back() {
    let service = TestService::new().await;
    let api = service.run_with(API, &[]).await;
    let before = api.scrape().await;
    api.charge().await;
    service
        .change(
            "UPDATE outbox SET state = 'leased', lease_token = gen_random_uuid(), lease_until = now() - interval '1 hour'",
        )
        .await;
    let after = api.scrape().await;
    course(&before, &after).fires("PayonceLeasesNotTakenBack");
    api.stop().await;
}

/// Somebody holds the charge's row locked until the lease is over.
#[tokio::test]
async fn an_outcome_that_can_t_be_written_fires_completion_unwritten() {
    let service = TestService::new().await;
    let running = service.run_with(Roles::ALL, SHORT_LEASES).await;
    let before = running.scrape().await;
    service.ledger.hold("execute", "after").await;
    let id = running.charge().await;
    service.ledger.held().await;
    let mut locking = service.books.begin().await.unwrap();
    sqlx::query("SELECT FROM charges FOR UPDATE")
        .execute(&mut *locking)
        .await
        .unwrap();
    service.ledger.release().await;
    let unwritten = "payonce_worker_runs_total{ended=\"unwritten\"}";
    let after = running.scrape_with(unwritten, 1.0).await;
    locking.rollback().await.unwrap();
    course(&before, &after).fires("PayonceCompletionUnwritten");
    assert_eq!(running.client.terminal(&id).await["status"], "completed");
    running.stop().await;
    service.check_books().await;
}

#[tokio::test]
async fn a_job_that_was_lost_fires_books_repaired() {
    let service = TestService::new().await;
    let roles = Roles {
        worker: false,
        ..Roles::ALL
    };
    let running = service.run_with(roles, &[]).await;
    let before = running.scrape().await;
    running.charge().await;
    service.change("DELETE FROM outbox").await;
    let made = "payonce_reconciler_repairs_total{repair=\"job_made\"}";
    let after = running.scrape_with(made, 1.0).await;
    course(&before, &after).fires("PayonceBooksRepaired");
    running.stop().await;
    service.check_books().await;
}

#[tokio::test]
async fn events_that_nobody_sends_fire_webhooks_behind() {
    let service = TestService::new().await;
    let mute = &[("webhooks.deliver", "false")];
    let running = service.run_with(Roles::ALL, mute).await;
    let before = running.scrape().await;
    let receiver = Receiver::start().await;
    running.client.make_endpoint(&receiver).await;
    let id = running.charge().await;
    running.client.terminal(&id).await;
    service
        .change("UPDATE webhook_deliveries SET run_at = now() - interval '10 minutes'")
        .await;
    let after = running.scrape().await;
    course(&before, &after).fires("PayonceWebhooksBehind");
    running.stop().await;
}

#[tokio::test]
async fn an_endpoint_that_is_gone_fires_webhook_endpoint_disabled() {
    let service = TestService::new().await;
    let running = service.run().await;
    let before = running.scrape().await;
    let receiver = Receiver::start().await;
    receiver.always(Does::Status(410));
    running.client.make_endpoint(&receiver).await;
    running.charge().await;
    let disabled = "payonce_webhook_endpoints_disabled_total";
    let after = running.scrape_with(disabled, 1.0).await;
    course(&before, &after).fires("PayonceWebhookEndpointDisabled");
    running.stop().await;
}
