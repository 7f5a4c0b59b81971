//! An hour without the provider while five hundred charges wait: nobody is told a failure, it is asked seldom, and all of
//! it drains by itself afterwards.
//!
//! Fifteen seconds stand for the hour: every wait of the service is 240 times shorter than by default (`HOUR`), so what is
//! counted in them is what the defaults make in an hour. What does not shrink with them, the calls under way when it began
//! (`worker.permits`), is as by default.

use std::time::Duration;

use futures_util::future::join_all;
use payonce::config::Roles;
use serde_json::json;
use tokio::time::Instant;

use crate::support::provider_proxy::Closed;
use crate::support::scrape::Scrape;
use crate::support::service::{API, Running, TestSettings};
use crate::support::{TestService, charge_body, until};

const HOUR: Duration = Duration::from_secs(15);
const CHARGES: usize = 500;

/// The defaults of `worker`, 240 times shorter.
const SCALED: [(&str, &str); 5] = [
    ("worker.retry_base", "1ms"),
    ("worker.retry_cap", "1250ms"),
    ("worker.breaker_base", "4ms"),
    ("worker.breaker_cap", "125ms"),
    // As by default: it is short beside all of the above in an hour, and would be nothing here.
    ("worker.breaker_threshold", "10"),
];

/// What may go out in the hour: the calls that were under way when it began, as many again that begin when a good answer from
/// before it comes late and closes the breaker, and probes. Those come after 1, 2, 4, 8, 16 seconds, and every 30 seconds
/// from then on. Without a breaker it were thousands.
const MOST_CALLS: u64 = 2 * 256 + 5 + 120;

fn scaled<'a>(more: &[(&'static str, &'a str)]) -> Vec<(&'static str, &'a str)> {
    SCALED.iter().chain(more).copied().collect()
}

impl Running {
    /// How many calls it made to the provider.
    async fn calls(&self) -> u64 {
        let scrape = Scrape::of(self.admin.unwrap()).await;
        let calls = scrape.text.lines().filter_map(|line| {
            let rest = line.strip_prefix("payonce_provider_calls_total{")?;
            rest.rsplit_once(' ')?.1.parse::<u64>().ok()
        });
        calls.sum()
    }

    /// The charges that were accepted, in their order.
    async fn accept(&self) -> Vec<String> {
        let body = charge_body("pm_card_visa");
        let accepted = (0..CHARGES).map(async |number| {
            let key = format!("order-{number}");
            self.client.charge_until_accepted(&key, &body).await.id()
        });
        join_all(accepted).await
    }
}

impl TestService {
    /// The hour passes. Whatever is asked in it, nobody has been told that a charge failed, and none was given up on.
    async fn an_hour_passes(&self) {
        let began = Instant::now();
        until("the hour is over", async || {
            let given_up = "SELECT
                (SELECT count(*) FROM charges WHERE stage IN ('failed', 'canceled'))
                + (SELECT count(*) FROM outbox WHERE state = 'parked')";
            assert_eq!(self.count(given_up).await, 0);
            (began.elapsed() >= HOUR).then_some(())
        })
        .await;
    }

    async fn all_are_completed_once(&self, ids: &[String], running: &Running) {
        self.drained().await;
        for id in ids {
            let charge = running.client.show(id).await.body;
            assert_eq!(charge["status"], "completed", "{charge}");
        }
        assert_eq!(self.ledger.charges().await.len(), CHARGES);
        self.check_books().await;
    }
}

#[tokio::test]
async fn an_hour_of_refused_connections_uses_up_nothing_and_all_charges_complete_afterwards() {
    let service = TestService::new().await;
    let down = Closed::reserve();
    let base_url = down.base_url();
    let settings = scaled(&[("provider.stripe.base_url", &base_url)]);
    let running = service.run_with(Roles::ALL, &settings).await;
    let ids = running.accept().await;
    service.an_hour_passes().await;
    let calls = running.calls().await;
    assert!((20..=MOST_CALLS).contains(&calls), "{calls} calls");
    // Each claim is a call, so these were none that were not counted.
    let claims = "SELECT sum(attempt)::bigint FROM outbox";
    assert!(service.count(claims).await <= i64::try_from(MOST_CALLS).unwrap());
    let touched = "SELECT count(*) FROM charges WHERE (stage, money, attempts) <> ('pending', 'not_moved', 0)";
    assert_eq!(service.count(touched).await, 0);

    let _proxy = down.open(service.ledger.address);
    service.all_are_completed_once(&ids, &running).await;
    let again = "SELECT count(*) FROM charges WHERE attempts <> 1";
    assert_eq!(service.count(again).await, 0);
    running.stop().await;
}

/// It begins while charges are under way, at each of their steps.
#[tokio::test]
async fn an_hour_of_503_fails_nothing_and_all_charges_complete_afterwards() {
    let service = TestService::new().await;
    let running = service.run_with(Roles::ALL, &scaled(&[])).await;
    service.ledger.settings(json!({"latency_ms": 20})).await;
    let accepting = running.accept();
    let outage = async {
        until("some are done", async || {
            (service.ledger.charges().await.len() >= 50).then_some(())
        })
        .await;
        let down = json!({"rates": {
            "prepare.unavailable": 1.0, "execute.unavailable": 1.0, "read.unavailable": 1.0, "cancel.unavailable": 1.0,
        }});
        service.ledger.settings(down).await;
        service.ledger.requests().await.len()
    };
    let (ids, before) = tokio::join!(accepting, outage);
    service.an_hour_passes().await;
    // Counted by the provider, over what it had answered.
    let calls = u64::try_from(service.ledger.requests().await.len() - before).unwrap();
    assert!((20..=MOST_CALLS).contains(&calls), "{calls} calls");
    let done = service.ledger.charges().await.len();
    assert!(done < CHARGES, "the outage began too late");

    service.ledger.settings(json!({})).await;
    service.all_are_completed_once(&ids, &running).await;
    running.stop().await;
}

/// The key is revoked while charges are at each of their steps. What was executed before is read once it is good again.
async fn credentials_are_refused_with(status: u16) {
    let service = TestService::new().await;
    let api = service.run_with(API, &[]).await;
    let body = charge_body("pm_card_visa");
    let ids = join_all((0..60).map(async |number| {
        let key = format!("order-{number}");
        api.client.charge(&key, &body).await.id()
    }))
    .await;
    api.stop().await;
    // Ten go through prepare, five of them through execute, and the answers of those five are lost.
    let lost = json!({"phase": "execute", "status": 503, "body": "{}", "effect": true, "times": 5});
    service.ledger.dictate(lost).await;
    let refusal = json!({"error": {"type": "invalid_request_error", "message": "no"}}).to_string();
    for phase in ["execute", "read"] {
        let refused = json!({"phase": phase, "status": status, "body": refusal, "times": 100_000});
        service.ledger.dictate(refused).await;
    }
    let settings: TestSettings<'_> = &[("worker.permits", "10")];
    let process = service.spawn("api,worker,reconciler", settings).await;
    process.alerted("provider_denied").await;
    let refused = json!({"phase": "prepare", "status": status, "body": refusal, "times": 100_000});
    service.ledger.dictate(refused).await;
    let before = service.ledger.requests().await.len();
    until("probes went out", async || {
        (service.ledger.requests().await.len() >= before + 5).then_some(())
    })
    .await;
    // One job at a time looks: that many in this time, and not each of the sixty again and again.
    let calls = service.ledger.requests().await.len() - before;
    assert!(calls < 30, "{calls} calls");
    for id in &ids {
        let charge = process.client.show(id).await.body;
        assert_eq!(charge["status"], "in_progress", "{charge}");
        assert_ne!(service.job(id).await.state, "parked");
    }
    service.ledger.dictate_nothing().await;
    process.logged("INFO", "provider_back").await;
    for id in &ids {
        assert_eq!(process.client.terminal(id).await["status"], "completed");
    }
    assert!(process.terminate().await);
    assert_eq!(service.ledger.charges().await.len(), ids.len());
    service.check_books().await;
}

#[tokio::test]
async fn a_key_that_is_revoked_between_two_steps_stops_sending_until_it_is_mended() {
    credentials_are_refused_with(401).await;
}

#[tokio::test]
async fn a_key_that_loses_a_right_between_two_steps_stops_sending_until_it_is_mended() {
    credentials_are_refused_with(403).await;
}
