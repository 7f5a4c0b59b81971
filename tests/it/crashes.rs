//! A process is killed (`kill -9`) at each boundary of a charge's way, and at random moments under load; another goes on.
//! Whatever was accepted ends, and money moves once for it.

use std::time::Duration;

use futures_util::future::join_all;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::Value;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::support::books::SHORT_LEASES;
use crate::support::client::Client;
use crate::support::database_proxy::{DatabaseProxy, Fault, INSERT_BATCH};
use crate::support::service::API;
use crate::support::{TestService, charge_body, until};

const WHOLE: &str = "api,worker,reconciler";

/// A charge whose process was killed while the provider held its request of `phase`.
struct Crashed {
    service: TestService,
    id: String,
}

impl Crashed {
    async fn at(phase: &str, when: &str, payment_method: &str) -> Self {
        let service = TestService::new().await;
        service.ledger.hold(phase, when).await;
        let process = service.spawn(WHOLE, &[]).await;
        let accepted = process
            .client
            .charge("order-1", &charge_body(payment_method))
            .await;
        assert_eq!(accepted.status, 202);
        service.ledger.held().await;
        process.kill().await;
        service.leases_run_out().await;
        Self {
            service,
            id: accepted.id(),
        }
    }

    /// Goes on in another process, with the killed one's request still on its way, and lets that land at the end.
    async fn goes_on(self) -> (TestService, Value) {
        let process = self.service.spawn(WHOLE, &[]).await;
        let charge = process.client.terminal(&self.id).await;
        self.service.ledger.release().await;
        self.service.provider_is_quiet().await;
        self.ended(process, charge).await
    }

    /// As [`Crashed::goes_on`], where the killed one's request holds the key that the next one needs.
    async fn goes_on_once_the_key_is_free(self) -> (TestService, Value) {
        let process = self.service.spawn(WHOLE, &[]).await;
        until("the key is found in use", async || {
            let requests = self.service.ledger.requests().await;
            requests
                .iter()
                .any(|request| request["status"] == 409)
                .then_some(())
        })
        .await;
        let waiting = process.client.show(&self.id).await;
        assert_eq!(waiting.body["status"], "in_progress");
        assert_eq!(waiting.body["money"], "not_moved");
        self.service.ledger.release().await;
        let charge = process.client.terminal(&self.id).await;
        self.ended(process, charge).await
    }

    async fn ended(
        self,
        process: crate::support::process::Process,
        charge: Value,
    ) -> (TestService, Value) {
        let body = charge_body(charge["payment_method"].as_str().unwrap());
        let again = process.client.charge("order-1", &body).await;
        assert_eq!((again.status, again.is_replay()), (200, true));
        assert_eq!(again.body, charge);
        assert!(process.terminate().await);
        (self.service, charge)
    }
}

async fn assert_charged_once(service: &TestService, charge: &Value) {
    assert_eq!(charge["status"], "completed", "{charge}");
    let id = charge["id"].as_str().unwrap();
    assert_eq!(service.ledger.times_charged(id).await, 1);
    service.check_books_and_events().await;
}

async fn assert_declined(service: &TestService, charge: &Value) {
    assert_eq!(charge["status"], "failed", "{charge}");
    assert_eq!(charge["failure"]["code"], "card_declined");
    assert!(service.ledger.charges().await.is_empty());
    let objects = service.ledger.objects().await;
    assert!(objects.iter().all(|object| object["status"] == "canceled"));
    service.check_books_and_events().await;
}

#[tokio::test]
async fn a_charge_whose_acceptance_was_the_last_thing_a_process_did_completes() {
    let service = TestService::new().await;
    let process = service.spawn("api", &[]).await;
    let accepted = process
        .client
        .charge("order-1", &charge_body("pm_card_visa"))
        .await;
    process.kill().await;
    assert_eq!(accepted.status, 202);
    let crashed = Crashed {
        service,
        id: accepted.id(),
    };
    let (service, charge) = crashed.goes_on().await;
    assert_charged_once(&service, &charge).await;
}

/// Killed after the claim: the provider has the request and has made nothing yet.
#[tokio::test]
async fn a_process_killed_before_its_object_was_made_leaves_a_charge_that_completes() {
    let crashed = Crashed::at("prepare", "before", "pm_card_visa").await;
    let (service, charge) = crashed.goes_on_once_the_key_is_free().await;
    assert_eq!(service.ledger.objects().await.len(), 1);
    assert_charged_once(&service, &charge).await;
}

#[tokio::test]
async fn a_process_killed_before_it_stored_its_object_leaves_a_charge_that_completes_with_it() {
    let crashed = Crashed::at("prepare", "after", "pm_card_visa").await;
    let (service, charge) = crashed.goes_on_once_the_key_is_free().await;
    assert_eq!(service.ledger.objects().await.len(), 1);
    assert_charged_once(&service, &charge).await;
}

/// Its execute lands after another process has charged.
#[tokio::test]
async fn a_process_killed_before_its_execute_landed_leaves_a_charge_that_completes_once() {
    let crashed = Crashed::at("execute", "before", "pm_card_visa").await;
    let (service, charge) = crashed.goes_on().await;
    assert_eq!(charge["attempts"], 2);
    assert_charged_once(&service, &charge).await;
}

#[tokio::test]
async fn a_process_killed_after_the_money_moved_leaves_a_charge_that_is_not_executed_again() {
    let crashed = Crashed::at("execute", "after", "pm_card_visa").await;
    let (service, charge) = crashed.goes_on().await;
    assert_eq!(charge["attempts"], 1);
    assert_charged_once(&service, &charge).await;
}

#[tokio::test]
async fn a_process_killed_after_a_decline_leaves_a_charge_that_is_canceled_and_failed() {
    let crashed = Crashed::at("execute", "after", "pm_card_chargeDeclined").await;
    let (service, charge) = crashed.goes_on().await;
    assert_eq!(charge["attempts"], 1);
    assert_declined(&service, &charge).await;
}

#[tokio::test]
async fn a_process_killed_before_its_cancel_landed_leaves_a_charge_that_is_canceled_and_failed() {
    let crashed = Crashed::at("cancel", "before", "pm_card_chargeDeclined").await;
    let (service, charge) = crashed.goes_on().await;
    assert_declined(&service, &charge).await;
}

#[tokio::test]
async fn a_process_killed_after_its_cancel_leaves_a_charge_that_fails_for_the_same_reason() {
    let crashed = Crashed::at("cancel", "after", "pm_card_chargeDeclined").await;
    let (service, charge) = crashed.goes_on().await;
    assert_declined(&service, &charge).await;
}

/// The customer's time was over. Nothing in the object says so: the books do.
#[tokio::test]
async fn a_process_killed_after_it_canceled_an_expired_charge_leaves_a_charge_that_says_expired() {
    let service = TestService::new().await;
    service.ledger.hold("cancel", "after").await;
    let settings = [("worker.action_expiry", "300ms")];
    let process = service.spawn(WHOLE, &settings).await;
    let mut body = charge_body("pm_card_authenticationRequired");
    body["return_url"] = serde_json::json!("https://shop.example/back");
    let id = process.client.charge("order-1", &body).await.id();
    service.ledger.held().await;
    process.kill().await;
    service.leases_run_out().await;
    let process = service.spawn(WHOLE, &settings).await;
    let charge = process.client.terminal(&id).await;
    assert_eq!(charge["status"], "failed");
    assert_eq!(charge["failure"]["code"], "authentication_expired");
    assert!(process.terminate().await);
    service.check_books_and_events().await;
}

/// Text of each statement that a worker writes on a charge's way, with one execute that is lost.
const WRITES: [&str; 4] = [
    "attempt = outbox.attempt + 1",
    "'execute_started'",
    "unclear_since = CASE",
    "'second_success'",
];

/// Killed while the statement that accepts has not reached Postgres, or was committed and the answer never read.
#[tokio::test]
async fn a_process_killed_around_the_acceptance_leaves_all_of_it_or_nothing() {
    for (fault, is_stored) in [(Fault::HoldBefore, false), (Fault::HoldAfter, true)] {
        let service = TestService::new().await;
        let proxy = DatabaseProxy::start(&service.database_url).await;
        let mut held = proxy.arm(INSERT_BATCH, fault);
        let process = service.spawn("api", &[("database.url", proxy.url())]).await;
        let client = process.client.clone();
        let body = charge_body("pm_card_visa");
        let sent = body.clone();
        let told = tokio::spawn(async move { client.try_charge("order-1", &sent).await });
        held.struck().await;
        process.kill().await;
        assert!(told.await.unwrap().is_err());
        for rows in [
            "SELECT count(*) FROM idempotent_requests",
            "SELECT count(*) FROM charges",
            "SELECT count(*) FROM outbox",
        ] {
            assert_eq!(service.count(rows).await, i64::from(is_stored), "{rows}");
        }
        let process = service.spawn(WHOLE, &[]).await;
        let again = process.client.charge("order-1", &body).await;
        assert_eq!(again.status, if is_stored { 200 } else { 202 });
        let charge = process.client.terminal(&again.id()).await;
        assert!(process.terminate().await);
        assert_charged_once(&service, &charge).await;
    }
}

/// As above, for each statement of a worker.
#[tokio::test]
async fn a_worker_killed_around_any_of_its_statements_leaves_a_charge_that_completes_once() {
    for statement in WRITES {
        for fault in [Fault::HoldBefore, Fault::HoldAfter] {
            let service = TestService::new().await;
            let api = service.run_with(API, &[]).await;
            let body = charge_body("pm_sim_drop_before_charge");
            let id = api.client.charge("order-1", &body).await.id();
            let proxy = DatabaseProxy::start(&service.database_url).await;
            let mut held = proxy.arm(statement, fault);
            let through = [("database.url", proxy.url())];
            let worker = service.spawn("worker", &through).await;
            held.struck().await;
            worker.kill().await;
            service.check_books_and_events().await;
            service.leases_run_out().await;
            let worker = service.spawn("worker", &[]).await;
            let charge = api.client.terminal(&id).await;
            assert!(worker.terminate().await);
            api.stop().await;
            let executes = service.ledger.executes().await;
            let answers: Vec<_> = executes.into_iter().map(|(_, answer)| answer).collect();
            assert_eq!(answers, ["dropped".into(), Value::from(200)], "{statement}");
            assert_charged_once(&service, &charge).await;
        }
    }
}

/// Executed, and nobody heard of it until the provider had forgotten every key.
#[tokio::test]
async fn a_charge_executed_longer_ago_than_the_provider_remembers_keys_is_not_executed_again() {
    let Crashed { service, id } = Crashed::at("execute", "after", "pm_card_visa").await;
    service.ledger.release().await;
    service.provider_is_quiet().await;
    service.age(&id, 25).await;
    service.ledger.advance(25 * 3600).await;
    let (service, charge) = Crashed { service, id }.goes_on().await;
    assert_eq!(service.ledger.executes().await.len(), 1);
    assert_eq!(service.ledger.objects().await.len(), 1);
    assert_charged_once(&service, &charge).await;
}

/// What a client was told of one charge.
pub(crate) struct Told {
    pub(crate) key: String,
    pub(crate) id: String,
    pub(crate) declined: bool,
}

pub(crate) fn body_of(declined: bool) -> Value {
    charge_body(if declined {
        "pm_card_chargeDeclined"
    } else {
        "pm_card_visa"
    })
}

/// Charges under one key after the other, each sent again until it is accepted, by whichever process is there.
pub(crate) async fn keep_charging(
    client: usize,
    service: watch::Receiver<Client>,
    stop: CancellationToken,
) -> Vec<Told> {
    let mut told = Vec::new();
    while !stop.is_cancelled() {
        let key = format!("client-{client}-{}", told.len());
        let declined = told.len() % 8 == 7;
        let id = until(&format!("{key} is accepted"), async || {
            let now = service.borrow().clone();
            match now.try_charge(&key, &body_of(declined)).await {
                Ok(answer) if matches!(answer.status, 200 | 202) => Some(answer.id()),
                Ok(answer) => {
                    assert_eq!(answer.status, 503, "{answer:?}");
                    None
                }
                Err(_) => None,
            }
        })
        .await;
        told.push(Told { key, id, declined });
        // A client's own pace: enough to have requests everywhere at each moment.
        tokio::time::sleep(Duration::from_millis(60)).await;
    }
    told
}

/// Asks each key again, and compares what was told with the books and with the ledger.
pub(crate) async fn assert_kept(service: &TestService, client: &Client, told: &[Told]) {
    for Told { key, id, declined } in told {
        let again = client.charge_until_accepted(key, &body_of(*declined)).await;
        assert_eq!((again.status, again.id()), (200, id.clone()));
        let expected = if *declined { "failed" } else { "completed" };
        assert_eq!(again.body["status"], expected, "{again:?}");
    }
    let charged = told.iter().filter(|told| !told.declined).count();
    assert_eq!(service.ledger.charges().await.len(), charged);
    let accepted = service.count("SELECT count(*) FROM charges").await;
    assert_eq!(usize::try_from(accepted).unwrap(), told.len());
    service.check_books_and_events().await;
}

/// 16 clients charge while the process is killed and started again, over and over. Clients are told 202 or 200 in the
/// end, for each key; all of it ends, and the ledger has it once.
#[tokio::test]
async fn a_process_killed_at_random_moments_loses_nothing_and_charges_nothing_twice() {
    let moments = if std::env::var_os("PAYONCE_TEST_FULL").is_some() {
        200
    } else {
        20
    };
    let seed = 7;
    let mut random = StdRng::seed_from_u64(seed);
    let service = TestService::new().await;
    // So that there are calls under way to be killed in.
    service
        .ledger
        .settings(serde_json::json!({"latency_ms": 10}))
        .await;
    let mut process = service.spawn(WHOLE, SHORT_LEASES).await;
    let (at, clients_at) = watch::channel(process.client.clone());
    let stop = CancellationToken::new();
    let clients = (0..16).map(|client| keep_charging(client, clients_at.clone(), stop.clone()));
    let killing = async {
        for _ in 0..moments {
            tokio::time::sleep(Duration::from_millis(random.random_range(0..300))).await;
            process.kill().await;
            process = service.spawn(WHOLE, SHORT_LEASES).await;
            at.send_replace(process.client.clone());
        }
        stop.cancel();
        process
    };
    let (process, told) = tokio::join!(killing, join_all(clients));
    let told: Vec<_> = told.into_iter().flatten().collect();
    service.drained().await;
    assert!(told.len() >= moments, "too little was going on");
    assert_kept(&service, &process.client, &told).await;
    assert!(process.terminate().await);
}

/// As above, and it is Postgres that ends connections, in the middle of statements and of commits.
#[tokio::test]
async fn connections_to_postgres_that_end_at_random_moments_lose_nothing_and_charge_nothing_twice()
{
    let mut random = StdRng::seed_from_u64(11);
    let service = TestService::new().await;
    let running = service
        .run_with(payonce::config::Roles::ALL, SHORT_LEASES)
        .await;
    let (_at, clients_at) = watch::channel(running.client.clone());
    let stop = CancellationToken::new();
    let clients = (0..16).map(|client| keep_charging(client, clients_at.clone(), stop.clone()));
    let ending = async {
        for _ in 0..60 {
            tokio::time::sleep(Duration::from_millis(random.random_range(0..100))).await;
            service
                .count(
                    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                     WHERE application_name = 'payonce' AND datname = current_database()",
                )
                .await;
        }
        stop.cancel();
    };
    let ((), told) = tokio::join!(ending, join_all(clients));
    let told: Vec<_> = told.into_iter().flatten().collect();
    service.drained().await;
    assert_kept(&service, &running.client, &told).await;
    running.stop().await;
}
