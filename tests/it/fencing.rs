//! A worker stands still (SIGSTOP) or loses its lease, another takes its job over, and the first goes on. Whatever it
//! still sends or writes, money moves once at most, and never for a charge that says failed.

use std::time::Duration;

use payonce::batch::Statement;
use payonce::completion::{Ending, Hold, Settle, Settled, Settlement};
use payonce::config::Roles;
use payonce::db::claim;
use payonce::db::claimed::{self, Claimed};
use payonce::domain::charge::{Advice, Failure, Progress, StoredObject};
use payonce::domain::ids::{LeaseToken, ProviderChargeId};
use payonce::domain::outcome::{
    self, Alert, Answer, Asked, Context, Object, ObjectStatus, Phase, Reason, Step,
};
use payonce::domain::request::Instruction;
use payonce::provider::Provider;
use payonce::provider::stripe::{SecretKey, Stripe, StripeSettings};
use payonce::random::Random;
use payonce::worker::stored::{Start, Started, StoreObject};
use serde_json::{Value, json};

use crate::support::books::{SHORT_LEASES, uuid_of};
use crate::support::process::Process;
use crate::support::provider_proxy::{Interference, ProviderProxy};
use crate::support::service::{API, Running, TestSettings, WORKER};
use crate::support::{TestService, charge_body, until};

/// A worker process that was stopped in the middle of its only job.
struct Stalled {
    service: TestService,
    api: Running,
    proxy: ProviderProxy,
    worker: Process,
    id: String,
}

impl Stalled {
    /// Stopped while the proxy interferes with its request whose path ends in `suffix`. Its lease still holds.
    async fn at(
        suffix: &'static str,
        what: Interference,
        body: &Value,
        settings: TestSettings<'_>,
    ) -> Self {
        let service = TestService::new().await;
        let proxy = ProviderProxy::start(service.ledger.address);
        proxy.interfere(suffix, what);
        let base_url = proxy.base_url();
        let mut all = settings.to_vec();
        all.push(("provider.stripe.base_url", &base_url));
        let worker = service.spawn("worker", &all).await;
        let api = service.run_with(API, &[]).await;
        let accepted = api.client.charge("order-1", body).await;
        assert_eq!(accepted.status, 202);
        proxy.held().await;
        worker.stop().await;
        Self {
            service,
            api,
            proxy,
            worker,
            id: accepted.id(),
        }
    }

    async fn at_execute(body: &Value) -> Self {
        Self::at("/confirm", Interference::HoldRequest, body, &[]).await
    }

    async fn another_worker(&self, settings: TestSettings<'_>) -> Running {
        self.service.leases_run_out().await;
        self.service.run_with(WORKER, settings).await
    }

    /// The stopped worker goes on, what it had sent arrives, and its run ends. Returns the charge as it is then.
    async fn wakes_up(self) -> (TestService, Value) {
        self.worker.wake().await;
        self.proxy.release();
        assert!(self.worker.terminate().await);
        self.service.provider_is_quiet().await;
        let charge = self.api.client.show(&self.id).await.body;
        self.api.stop().await;
        (self.service, charge)
    }
}

#[tokio::test]
async fn an_execute_that_arrives_after_another_worker_completed_the_charge_moves_nothing() {
    let stalled = Stalled::at_execute(&charge_body("pm_card_visa")).await;
    let other = stalled.another_worker(&[]).await;
    let completed = stalled.api.client.terminal(&stalled.id).await;
    assert_eq!(completed["status"], "completed");
    let (service, charge) = stalled.wakes_up().await;
    other.stop().await;
    assert_eq!(charge, completed);
    assert_eq!(
        service.ledger.executes().await,
        [("x2".to_owned(), json!(200)), ("x1".to_owned(), json!(400))]
    );
    assert_eq!(service.ledger.charges().await.len(), 1);
    service.check_books().await;
}

/// The lease runs out by itself, with the other worker waiting for it.
#[tokio::test]
async fn a_stopped_workers_lease_runs_out_and_another_completes_the_charge() {
    let body = charge_body("pm_card_visa");
    let stalled = Stalled::at("/confirm", Interference::HoldRequest, &body, SHORT_LEASES).await;
    let other = stalled.service.run_with(WORKER, SHORT_LEASES).await;
    let completed = stalled.api.client.terminal(&stalled.id).await;
    assert_eq!(completed["status"], "completed");
    let (service, charge) = stalled.wakes_up().await;
    other.stop().await;
    assert_eq!(charge, completed);
    assert_eq!(service.ledger.charges().await.len(), 1);
    service.check_books().await;
}

/// The second execute is declined where the first would have succeeded.
#[tokio::test]
async fn an_execute_that_arrives_after_another_worker_failed_the_charge_moves_nothing() {
    let stalled = Stalled::at_execute(&charge_body("pm_card_visa")).await;
    let declining = json!({"rates": {"execute.decline_then_drop": 1.0}});
    stalled.service.ledger.settings(declining).await;
    let other = stalled.another_worker(&[]).await;
    let failed = stalled.api.client.terminal(&stalled.id).await;
    assert_eq!(failed["status"], "failed");
    assert_eq!(failed["failure"]["code"], "card_declined");
    stalled.service.ledger.settings(json!({})).await;
    let (service, charge) = stalled.wakes_up().await;
    other.stop().await;
    assert_eq!(charge, failed);
    assert_eq!(
        service.ledger.executes().await,
        [
            ("x2".to_owned(), json!("dropped")),
            ("x1".to_owned(), json!(400))
        ]
    );
    assert!(service.ledger.charges().await.is_empty());
    service.check_books().await;
}

/// The customer's time is over, and the object is canceled for that.
#[tokio::test]
async fn an_execute_that_arrives_after_another_worker_canceled_the_charge_moves_nothing() {
    let mut body = charge_body("pm_card_authenticationRequired");
    body["return_url"] = json!("https://shop.example/back");
    let stalled = Stalled::at_execute(&body).await;
    let other = stalled
        .another_worker(&[("worker.action_expiry", "300ms")])
        .await;
    let failed = stalled.api.client.terminal(&stalled.id).await;
    assert_eq!(failed["status"], "failed");
    assert_eq!(failed["failure"]["code"], "authentication_expired");
    let (service, charge) = stalled.wakes_up().await;
    other.stop().await;
    assert_eq!(charge, failed);
    let objects = service.ledger.objects().await;
    assert_eq!(objects[0]["status"], "canceled");
    service.check_books().await;
}

/// The decline is known, the object is not yet canceled, and the first execute arrives right then.
#[tokio::test]
async fn an_execute_that_arrives_between_another_workers_decline_and_cancel_moves_nothing() {
    let stalled = Stalled::at_execute(&charge_body("pm_card_visa")).await;
    let ledger = &stalled.service.ledger;
    ledger
        .settings(json!({"rates": {"execute.decline_then_drop": 1.0}}))
        .await;
    ledger.hold("cancel", "before").await;
    let other = stalled.another_worker(&[]).await;
    ledger.held().await;
    ledger.settings(json!({})).await;
    stalled.worker.wake().await;
    stalled.proxy.release();
    until("the first execute has arrived", async || {
        (stalled.service.ledger.executes().await.len() == 2).then_some(())
    })
    .await;
    ledger.release().await;
    let failed = stalled.api.client.terminal(&stalled.id).await;
    assert_eq!(failed["status"], "failed");
    let (service, charge) = stalled.wakes_up().await;
    other.stop().await;
    assert_eq!(charge, failed);
    assert!(service.ledger.charges().await.is_empty());
    service.check_books().await;
}

/// Stopped with the reply to prepare on its way. It wakes up while another worker executes the same object.
#[tokio::test]
async fn a_worker_that_learns_of_its_object_after_its_lease_ran_out_executes_nothing() {
    let stalled = Stalled::at(
        "/payment_intents",
        Interference::HoldReply,
        &charge_body("pm_card_visa"),
        &[],
    )
    .await;
    stalled.service.ledger.hold("execute", "before").await;
    let other = stalled.another_worker(&[]).await;
    stalled.service.ledger.held().await;
    let open = stalled.api.client.show(&stalled.id).await.body;
    assert_eq!(
        (&open["status"], &open["money"]),
        (&json!("in_progress"), &json!("unknown"))
    );
    let Stalled {
        service,
        api,
        proxy,
        worker,
        id,
    } = stalled;
    worker.wake().await;
    proxy.release();
    assert!(worker.terminate().await);
    assert_eq!(service.ledger.executes().await.len(), 1);
    service.ledger.release().await;
    let charge = api.client.terminal(&id).await;
    assert_eq!(charge["status"], "completed");
    other.stop().await;
    api.stop().await;
    assert_eq!(service.ledger.objects().await.len(), 1);
    service.check_books().await;
}

const OURS: claimed::Ours<'_> = claimed::Ours {
    account: "default",
    key_window: Duration::from_hours(23),
};

/// A worker's steps by hand.
struct Hand {
    stripe: Stripe,
    random: Random,
}

/// A claimed job and what its holder knows.
#[derive(Clone)]
struct Held {
    hold: Hold,
    progress: Progress,
    instruction: Instruction<'static>,
}

impl Hand {
    fn new(service: &TestService) -> Self {
        let settings = StripeSettings {
            account: "default".to_owned(),
            base_url: service.ledger.base_url(),
            secret_key: SecretKey::parse("sk_test_it").unwrap(),
            api_version: "2025-09-30.clover".to_owned(),
            timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(5),
            pool_idle: 1,
            key_window: Duration::from_hours(24),
        };
        Self {
            stripe: Stripe::new(settings).unwrap(),
            random: Random::from_seed(1),
        }
    }

    /// Claims all that is due, under one lease each.
    async fn claim(&self, service: &TestService) -> Vec<Held> {
        let mut connection = service.books.acquire().await.unwrap();
        claim::take_back_expired(&mut connection, 10).await.unwrap();
        let token = LeaseToken::from_uuid(self.random.uuid());
        let terms = claim::Terms {
            limit: 10,
            due_within: None,
            accounts: claim::Most::default(),
            token,
            lease: Duration::from_mins(1),
            payload_versions: &[Instruction::VERSION],
            refund_payload_versions: &[],
            ours: OURS,
            shares: None,
        };
        let claimed = claim::claim(&mut connection, terms).await;
        claimed
            .unwrap()
            .into_iter()
            .map(|job| match job.unwrap() {
                claimed::Job::Charge(job) => held(*job),
                claimed::Job::Refund(job) => panic!("{job:?}"),
            })
            .collect()
    }

    async fn prepare(&self, held: &Held, key: &str) -> StoredObject {
        let reply = self
            .stripe
            .prepare(held.hold.charge, key, &held.instruction)
            .await;
        let Answer::Object { object, .. } = reply.answer else {
            panic!("{reply:?}")
        };
        StoredObject {
            id: object.id,
            account: "default".to_owned(),
        }
    }

    async fn execute(&self, held: &Held, object: &StoredObject) -> Object {
        let reply = self
            .stripe
            .execute(&object.id, "by-hand", &held.instruction)
            .await;
        let Answer::Object { object, .. } = reply.answer else {
            panic!("{reply:?}")
        };
        object
    }

    async fn start(&self, service: &TestService, starts: &[Start]) -> Vec<Started> {
        let mut connection = service.books.acquire().await.unwrap();
        StoreObject
            .run(&mut connection, starts, false)
            .await
            .unwrap()
    }

    async fn settle(&self, service: &TestService, settlements: &[Settlement]) -> Vec<Settled> {
        let mut connection = service.books.acquire().await.unwrap();
        Settle::new(&payonce::watches::Waits::none().charges)
            .run(&mut connection, settlements, false)
            .await
            .unwrap()
    }
}

fn held(job: Claimed) -> Held {
    Held {
        hold: Hold {
            charge: job.charge,
            outbox_id: job.outbox_id,
            lease: job.lease,
            version: job.progress.version,
        },
        progress: job.progress,
        instruction: serde_json::from_value(job.payload).unwrap(),
    }
}

impl Held {
    /// After `object` was stored by this holder.
    fn started(mut self, object: &StoredObject) -> Self {
        self.progress = self.progress.start_execute(object.clone()).unwrap();
        self.hold = self.hold.at(&self.progress);
        self
    }

    fn succeeds(&self, object: &StoredObject) -> Settlement {
        self.finish(self.progress.clone().succeed(object.clone()).unwrap())
    }

    fn fails(&self) -> Settlement {
        let failure = Failure {
            code: "card_declined".to_owned(),
            message: "The card was declined.".to_owned(),
            provider_code: None,
            advice: Advice::UseAnotherPaymentMethod,
        };
        let asked = Asked {
            amount: 1000,
            currency: "usd".to_owned(),
            stamp: self.hold.charge.to_string(),
        };
        let canceled = Object {
            id: self.progress.object.clone().unwrap().id,
            status: ObjectStatus::Canceled,
            amount: 1000,
            amount_received: 0,
            currency: "usd".to_owned(),
            stamp: Some(asked.stamp.clone()),
            failure: None,
            next_url: None,
        };
        let answer = Answer::Object {
            object: canceled,
            replayed: false,
        };
        let reason = Reason::Failed(failure);
        let context = Context {
            asked: &asked,
            canceling: Some(&reason),
            cancel_requested: false,
            action_expired: false,
            looked: false,
        };
        let Step::Fail(failure, proof) = outcome::decide(Phase::Cancel, answer, context) else {
            panic!("a canceled object fails")
        };
        self.finish(self.progress.clone().fail(failure, proof).unwrap())
    }

    fn finish(&self, progress: Progress) -> Settlement {
        Settlement {
            hold: self.hold,
            ending: Ending::Finish {
                progress,
                detail: json!({}),
            },
        }
    }

    fn disputes(&self, object: &StoredObject) -> Settlement {
        let object = Object {
            id: object.id.clone(),
            status: ObjectStatus::Succeeded,
            amount: 1000,
            amount_received: 900,
            currency: "usd".to_owned(),
            stamp: Some(self.hold.charge.to_string()),
            failure: None,
            next_url: None,
        };
        Settlement {
            hold: self.hold,
            ending: Ending::Dispute {
                provider: "stripe",
                account: "default".to_owned(),
                alert: Alert::AmountDiffers,
                object: Box::new(object),
            },
        }
    }

    fn start(&self, object: &StoredObject) -> Start {
        Start {
            hold: self.hold,
            object: object.clone(),
            executes: true,
        }
    }
}

async fn accepted(service: &TestService) -> String {
    let api = service.run_with(API, &[]).await;
    let accepted = api
        .client
        .charge("order-1", &charge_body("pm_card_visa"))
        .await;
    api.stop().await;
    accepted.id()
}

async fn duplicate_the_job(service: &TestService) {
    sqlx::query(
        "INSERT INTO outbox (kind, charge_id, payload_version, payload)
         SELECT kind, charge_id, payload_version, payload FROM outbox",
    )
    .execute(&service.books)
    .await
    .unwrap();
}

#[tokio::test]
async fn a_stalled_workers_success_is_written_and_its_failure_is_not() {
    let service = TestService::new().await;
    let (id, hand) = (accepted(&service).await, Hand::new(&service));
    let first = hand.claim(&service).await.remove(0);
    let object = hand.prepare(&first, &id).await;
    assert_eq!(
        hand.start(&service, &[first.start(&object)]).await,
        [Started::Yes]
    );
    let first = first.started(&object);
    hand.execute(&first, &object).await;
    service.leases_run_out().await;
    let second = hand.claim(&service).await.remove(0);

    assert_eq!(
        hand.settle(&service, &[first.fails()]).await,
        [Settled::LeaseLost]
    );
    assert_eq!(
        hand.start(&service, &[first.start(&object)]).await,
        [Started::No]
    );
    assert_eq!(service.history(&id).await, ["execute_started"]);
    assert_eq!(service.jobs(&id).await[0].state, "leased");
    assert_eq!(
        hand.settle(&service, &[first.succeeds(&object)]).await,
        [Settled::Applied]
    );
    assert!(service.jobs(&id).await.is_empty());
    assert_eq!(
        hand.settle(&service, &[second.succeeds(&object)]).await,
        [Settled::AlreadySettled]
    );
    assert_eq!(
        hand.settle(&service, &[second.fails()]).await,
        [Settled::LeaseLost]
    );
    assert_eq!(service.history(&id).await, ["execute_started", "succeeded"]);
    service.check_books().await;
}

/// Two jobs of one charge, in one statement, each with an object of its own: one object is stored, and only its holder
/// may execute.
#[tokio::test]
async fn of_two_objects_for_one_charge_in_one_batch_only_the_stored_one_may_be_executed() {
    let service = TestService::new().await;
    let (id, hand) = (accepted(&service).await, Hand::new(&service));
    duplicate_the_job(&service).await;
    let jobs = hand.claim(&service).await;
    let objects = [
        hand.prepare(&jobs[0], &id).await,
        hand.prepare(&jobs[1], &format!("{id}-p1")).await,
    ];
    let starts = [jobs[0].start(&objects[0]), jobs[1].start(&objects[1])];
    let started = hand.start(&service, &starts).await;
    let yes = started
        .iter()
        .position(|started| *started == Started::Yes)
        .unwrap();
    assert_eq!(started[1 - yes], Started::No);
    let stored: String = sqlx::query_scalar("SELECT provider_charge_id FROM charges WHERE id = $1")
        .bind(uuid_of(&id))
        .fetch_one(&service.books)
        .await
        .unwrap();
    assert_eq!(stored, objects[yes].id.as_str());
    let winner = jobs[yes].clone().started(&objects[yes]);
    hand.execute(&winner, &objects[yes]).await;
    let late = Settlement {
        hold: jobs[1 - yes].hold,
        ending: Ending::Discard,
    };
    hand.settle(&service, &[winner.succeeds(&objects[yes]), late])
        .await;
    service.check_books().await;
}

/// Both holders of a doubled job learn of the same success, and it is written by one statement.
#[tokio::test]
async fn two_jobs_of_one_charge_that_end_in_one_batch_are_both_gone() {
    let service = TestService::new().await;
    let (id, hand) = (accepted(&service).await, Hand::new(&service));
    duplicate_the_job(&service).await;
    let jobs = hand.claim(&service).await;
    let object = hand.prepare(&jobs[0], &id).await;
    hand.start(&service, &[jobs[0].start(&object)]).await;
    let started: Vec<_> = jobs.into_iter().map(|job| job.started(&object)).collect();
    hand.execute(&started[0], &object).await;
    let settlements = [started[0].succeeds(&object), started[1].succeeds(&object)];
    assert_eq!(
        hand.settle(&service, &settlements).await,
        [Settled::Applied, Settled::AlreadySettled]
    );
    service.check_books().await;
}

/// Somebody executed a second one by hand.
#[tokio::test]
async fn of_two_objects_that_moved_money_in_one_batch_the_second_is_a_discrepancy() {
    let service = TestService::new().await;
    let (id, hand) = (accepted(&service).await, Hand::new(&service));
    duplicate_the_job(&service).await;
    let mut jobs = hand.claim(&service).await;
    let (stalled, first) = (jobs.remove(1), jobs.remove(0));
    let object = hand.prepare(&first, &id).await;
    hand.start(&service, &[first.start(&object)]).await;
    let first = first.started(&object);
    hand.execute(&first, &object).await;
    let other = StoredObject {
        id: ProviderChargeId::parse("pi_3ByHand").unwrap(),
        ..object.clone()
    };
    let settlements = [first.succeeds(&object), stalled.succeeds(&other)];
    assert_eq!(
        hand.settle(&service, &settlements).await,
        [Settled::Applied, Settled::Disputed]
    );
    let told = "SELECT count(*) FROM discrepancies
                WHERE kind = 'second_success' AND provider_charge_id = 'pi_3ByHand'";
    assert_eq!(service.count(told).await, 1);
    service.check_books().await;
}

#[tokio::test]
async fn a_job_that_was_doubled_charges_once_and_both_rows_go() {
    let service = TestService::new().await;
    let id = accepted(&service).await;
    duplicate_the_job(&service).await;
    let (one, other) = (
        service.run_with(WORKER, SHORT_LEASES).await,
        service.run_with(WORKER, SHORT_LEASES).await,
    );
    service.drained().await;
    one.stop().await;
    other.stop().await;
    assert_eq!(service.ledger.times_charged(&id).await, 1);
    service.check_books().await;
}

#[tokio::test]
async fn a_job_of_a_charge_that_has_ended_goes_without_a_call_to_the_provider() {
    let service = TestService::new().await;
    let api = service.run_with(API, &[]).await;
    let mut ids = Vec::new();
    for method in ["pm_card_visa", "pm_card_chargeDeclined"] {
        ids.push(api.client.charge(method, &charge_body(method)).await.id());
    }
    sqlx::query(
        "CREATE TABLE delivered AS SELECT kind, charge_id, payload_version, payload FROM outbox",
    )
    .execute(&service.books)
    .await
    .unwrap();
    let worker = service.run_with(WORKER, &[]).await;
    let mut ended = Vec::new();
    for id in &ids {
        ended.push(api.client.terminal(id).await);
    }
    let calls = service.ledger.requests().await.len();
    sqlx::query(
        "INSERT INTO outbox (kind, charge_id, payload_version, payload) SELECT * FROM delivered",
    )
    .execute(&service.books)
    .await
    .unwrap();
    service.drained().await;
    worker.stop().await;
    assert_eq!(service.ledger.requests().await.len(), calls);
    for (id, ended) in ids.iter().zip(&ended) {
        assert_eq!(&api.client.show(id).await.body, ended);
    }
    api.stop().await;
    service.check_books().await;
}

/// What it found is a fact and is written, once. The job is another's.
#[tokio::test]
async fn a_stalled_workers_discrepancy_is_written_once_and_parks_nothing() {
    let service = TestService::new().await;
    let (id, hand) = (accepted(&service).await, Hand::new(&service));
    let first = hand.claim(&service).await.remove(0);
    let object = hand.prepare(&first, &id).await;
    service.leases_run_out().await;
    let second = hand.claim(&service).await.remove(0);

    assert_eq!(
        hand.settle(&service, &[first.disputes(&object)]).await,
        [Settled::Disputed]
    );
    assert_eq!(service.history(&id).await, ["discrepancy"]);
    assert_eq!(service.job(&id).await.state, "leased");
    assert_eq!(
        hand.settle(&service, &[second.disputes(&object)]).await,
        [Settled::Disputed]
    );
    assert_eq!(service.job(&id).await.state, "parked");
    let history = service.history(&id).await;
    // Whatever it says again is known.
    assert_eq!(
        hand.settle(&service, &[first.disputes(&object)]).await,
        [Settled::LeaseLost]
    );
    assert_eq!(service.history(&id).await, history);
    assert_eq!(service.count("SELECT count(*) FROM discrepancies").await, 1);
    service.check_books().await;
}

/// It believes the charge has ended, and it has not: a job of an open charge is never thrown away.
#[tokio::test]
async fn a_stalled_worker_throws_no_job_of_an_open_charge_away() {
    let service = TestService::new().await;
    let (id, hand) = (accepted(&service).await, Hand::new(&service));
    let first = hand.claim(&service).await.remove(0);
    service.leases_run_out().await;
    hand.claim(&service).await;
    let discard = Settlement {
        hold: first.hold,
        ending: Ending::Discard,
    };
    hand.settle(&service, &[discard]).await;
    assert_eq!(service.job(&id).await.state, "leased");
    service.check_books().await;
}

/// Its execute hangs, within its lease. Another worker and a reconciler are there all the while, and at work.
#[tokio::test]
async fn a_job_under_a_lease_that_holds_is_left_to_its_holder() {
    let service = TestService::new().await;
    service.ledger.hold("execute", "before").await;
    let slow = [
        ("provider.stripe.timeout", "60s"),
        ("worker.lease", "5m"),
        ("reconciler.sweep_lease", "6m"),
    ];
    let holder = service.run_with(Roles::ALL, &slow).await;
    let body = charge_body("pm_card_visa");
    let id = holder.client.charge("held", &body).await.id();
    service.ledger.held().await;
    let other = service.run_with(Roles::ALL, &slow).await;
    for number in 0..6 {
        let key = format!("order-{number}");
        let id = other.client.charge(&key, &body).await.id();
        other.client.terminal(&id).await;
    }
    let job = service.job(&id).await;
    assert_eq!((job.state.as_str(), job.attempt), ("leased", 1));
    let requests = service.ledger.requests().await;
    let hanging = requests
        .iter()
        .filter(|request| request["status"].is_null())
        .count();
    assert_eq!(hanging, 1);
    service.ledger.release().await;
    let charge = holder.client.terminal(&id).await;
    assert_eq!(
        (&charge["status"], &charge["attempts"]),
        (&json!("completed"), &json!(1))
    );
    let prepares = service.ledger.prepare_keys_of(&id).await;
    assert_eq!(prepares.len(), 1);
    other.stop().await;
    holder.stop().await;
    assert_eq!(service.ledger.executes().await.len(), 7);
    service.check_books().await;
}
