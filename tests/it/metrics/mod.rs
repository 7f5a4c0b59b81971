//! The operators' listener: what is measured, and that each alert fires once its condition is made.

mod alerts;
mod files;

use payonce::app::{App, Setup};
use payonce::config::Roles;
use payonce::random::Random;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::support::client::http;
use crate::support::scrape::Scrape;
use crate::support::service::{API, RECONCILER, Running};
use crate::support::{TestService, charge_body, until};

impl Running {
    pub async fn scrape(&self) -> Scrape {
        Scrape::of(self.admin.unwrap()).await
    }

    /// The scrape in which a series has reached `least`.
    pub async fn scrape_with(&self, series: &str, least: f64) -> Scrape {
        until(&format!("{series} is {least} or more"), async || {
            let scrape = self.scrape().await;
            (scrape.value(series) >= least).then_some(scrape)
        })
        .await
    }

    async fn status_at_admin(&self, path: &str) -> u16 {
        let url = format!("http://{}{path}", self.admin.unwrap());
        http().get(url).send().await.unwrap().status().as_u16()
    }
}

/// After one charge, its replay, a reuse of its key, a request that is refused and one to nowhere.
const COUNTED: &[(&str, u64)] = &[
    (
        "payonce_intake_requests_total{result=\"accepted\",code=\"\"}",
        1,
    ),
    (
        "payonce_intake_requests_total{result=\"replayed\",code=\"\"}",
        1,
    ),
    (
        "payonce_intake_requests_total{result=\"reused\",code=\"idempotency_key_reused\"}",
        1,
    ),
    (
        "payonce_intake_requests_total{result=\"refused\",code=\"invalid_request\"}",
        1,
    ),
    (
        "payonce_intake_requests_total{result=\"refused\",code=\"overloaded\"}",
        0,
    ),
    (
        "payonce_http_requests_total{route=\"/v1/charges\",status=\"202\"}",
        1,
    ),
    (
        "payonce_http_requests_total{route=\"/v1/charges\",status=\"200\"}",
        1,
    ),
    (
        "payonce_http_requests_total{route=\"/v1/charges\",status=\"422\"}",
        2,
    ),
    (
        "payonce_http_requests_total{route=\"unknown\",status=\"404\"}",
        1,
    ),
    // The first, the replay and the reuse.
    ("payonce_intake_batch_size_sum", 3),
    ("payonce_intake_wait_seconds_count", 3),
    ("payonce_intake_queue_depth{batcher=\"0\"}", 0),
    ("payonce_intake_queue_capacity{batcher=\"1\"}", 4096),
    ("payonce_worker_claims_total", 1),
    (
        "payonce_provider_calls_total{phase=\"prepare\",answer=\"requires_confirmation\"}",
        1,
    ),
    (
        "payonce_provider_calls_total{phase=\"execute\",answer=\"succeeded\"}",
        1,
    ),
    ("payonce_provider_call_seconds_count{phase=\"execute\"}", 1),
    ("payonce_certainty_seconds_count", 1),
    ("payonce_completion_batch_size_sum", 1),
    ("payonce_breaker_open", 0),
    ("payonce_books_readable", 1),
    ("payonce_jobs{state=\"ready\"}", 0),
    ("payonce_job_oldest_age_seconds{state=\"unclear\"}", 0),
];

#[tokio::test]
async fn what_happens_is_counted() {
    let service = TestService::new().await;
    let running = service.run().await;
    let (client, body) = (&running.client, charge_body("pm_card_visa"));
    let id = client.charge("order-1", &body).await.id();
    client.terminal(&id).await;
    assert!(client.charge("order-1", &body).await.is_replay());
    let other = json!({"amount": 2, "currency": "usd", "payment_method": "pm_card_visa"});
    assert_eq!(client.charge("order-1", &other).await.status, 422);
    let nothing = json!({"amount": 0, "currency": "usd", "payment_method": "pm_card_visa"});
    assert_eq!(client.charge("order-2", &nothing).await.status, 422);
    client.get("/elsewhere").await;

    let runs = "payonce_worker_runs_total{ended=\"applied\"}";
    let scrape = running.scrape_with(runs, 1.0).await;
    for (series, count) in COUNTED {
        assert_eq!(scrape.count(series), *count, "{series}");
    }
    running.stop().await;
    service.check_books().await;
}

#[tokio::test]
async fn jobs_are_told_by_state_and_age() {
    let service = TestService::new().await;
    let api = service.run_with(API, &[]).await;
    for key in ["a", "b", "c", "d"] {
        api.client.charge(key, &charge_body("pm_card_visa")).await;
    }
    for change in [
        "UPDATE outbox SET run_at = now() - interval '100 seconds' WHERE id = (SELECT min(id) FROM outbox)",
        "UPDATE outbox SET run_at = now() + interval '1 hour' WHERE id = (SELECT min(id) + 1 FROM outbox)",
        // Leases are of 12 s here.
        "UPDATE outbox SET state = 'leased', lease_token = gen_random_uuid(), lease_until = now() - interval '38 seconds'
         WHERE id = (SELECT min(id) + 2 FROM outbox)",
        "UPDATE outbox SET state = 'parked', run_at = now() - interval '200 seconds',
             unclear_since = now() - interval '300 seconds'
         WHERE id = (SELECT max(id) FROM outbox)",
    ] {
        sqlx::query(change).execute(&service.books).await.unwrap();
    }
    let scrape = api.scrape().await;
    for state in ["ready", "later", "leased", "parked", "unclear"] {
        let series = format!("payonce_jobs{{state=\"{state}\"}}");
        assert_eq!(scrape.count(&series), 1, "{state}");
    }
    for (state, age) in [
        ("ready", 100.0),
        ("leased", 50.0),
        ("parked", 200.0),
        ("unclear", 300.0),
    ] {
        let series = format!("payonce_job_oldest_age_seconds{{state=\"{state}\"}}");
        let told = scrape.value(&series);
        assert!((age..age + 50.0).contains(&told), "{state}: {told}");
    }
    api.stop().await;
}

/// The execute whose answer was lost had led to the customer's turn.
#[tokio::test]
async fn a_charge_is_unclear_until_the_provider_has_told_where_it_stands() {
    let service = TestService::new().await;
    let running = service.run().await;
    let unclear = "payonce_jobs{state=\"unclear\"}";
    let lost = json!({"phase": "execute", "status": 503, "body": "{}", "effect": true, "times": 1});
    service.ledger.dictate(lost).await;
    service.ledger.hold("read", "before").await;
    let mut body = charge_body("pm_card_authenticationRequired");
    body["return_url"] = "https://shop.example.com/back".into();
    let id = running.client.charge("order-1", &body).await.id();
    service.ledger.held().await;
    assert_eq!(running.scrape().await.count(unclear), 1);
    service.ledger.release().await;
    running.client.at_stage(&id, "requires_action").await;
    assert_eq!(running.scrape().await.count(unclear), 0);
    running.stop().await;
}

#[tokio::test]
async fn a_charge_that_lost_its_job_is_unclear_since_before_that() {
    let service = TestService::new().await;
    let running = service.run().await;
    for phase in ["execute", "read"] {
        let answer =
            json!({"phase": phase, "status": 503, "body": "{}", "effect": false, "times": 100_000});
        service.ledger.dictate(answer).await;
    }
    let body = charge_body("pm_card_visa");
    let id = running.client.charge("order-1", &body).await.id();
    running
        .client
        .at_stage(&id, "requires_reconciliation")
        .await;
    running.stop().await;
    for change in [
        "UPDATE charges SET updated_at = now() - interval '10 minutes'",
        "DELETE FROM outbox",
    ] {
        sqlx::query(change).execute(&service.books).await.unwrap();
    }
    let running = service.run_with(RECONCILER, &[]).await;
    let age = "payonce_job_oldest_age_seconds{state=\"unclear\"}";
    running.scrape_with(age, 600.0).await;
    running.stop().await;
}

#[tokio::test]
async fn every_role_has_the_listener_and_nothing_of_the_merchants_is_on_it() {
    let service = TestService::new().await;
    for (api, worker, reconciler) in [
        (true, false, false),
        (false, true, false),
        (false, false, true),
    ] {
        let roles = Roles {
            api,
            worker,
            reconciler,
        };
        let running = service.run_with(roles, &[]).await;
        let scrape = running.scrape().await;
        assert_eq!(scrape.count("payonce_books_readable"), 1);
        let has = |name| scrape.names().contains(name);
        assert_eq!(has("payonce_http_requests_total"), api);
        assert_eq!(has("payonce_worker_claims_total"), worker);
        assert_eq!(has("payonce_reconciler_pages_total"), reconciler);
        for (path, status) in [
            ("/healthz", 200),
            ("/readyz", 200),
            ("/v1/charges", 404),
            ("/openapi.json", 404),
        ] {
            assert_eq!(running.status_at_admin(path).await, status, "{path}");
        }
        if api {
            assert_eq!(running.client.get("/metrics").await.status, 404);
        }
        running.stop().await;
    }
}

#[tokio::test]
async fn a_listener_that_is_off_leaves_the_service_as_it_is() {
    let service = TestService::new().await;
    let running = service
        .run_with(Roles::ALL, &[("admin.listen", "off")])
        .await;
    assert_eq!(running.admin, None);
    let body = charge_body("pm_card_visa");
    let id = running.client.charge("order-1", &body).await.id();
    assert_eq!(running.client.terminal(&id).await["status"], "completed");
    running.stop().await;
    service.check_books().await;
}

#[tokio::test]
async fn a_second_process_on_the_same_port_is_told_which_key_to_change() {
    let service = TestService::new().await;
    let first = service.run_with(API, &[]).await;
    let taken = first.admin.unwrap().to_string();
    let config = service.config(&[("admin.listen", &taken)]);
    let setup = Setup {
        config: &config,
        roles: API,
        dev: false,
        recovery: None,
        random: Random::from_os(),
    };
    let error = App::start(setup, CancellationToken::new())
        .await
        .err()
        .unwrap();
    assert_eq!(
        error.to_string(),
        format!(
            "admin.listen = {taken} can't be listened on; each process of a host needs a port of its own"
        )
    );
    first.stop().await;
}
