//! An event lets somebody look, and concludes nothing.

use payonce::config::Roles;
use serde_json::{Value, json};

use super::{TOLD, event, intent, now, pairs, succeeded};
use crate::support::database_proxy::{DatabaseProxy, Fault};
use crate::support::scrape::Scrape;
use crate::support::service::{API, Running};
use crate::support::{TestService, charge_body, until};

const UNKNOWN: &str = "chg_00000000000000000000000000000001";

impl Running {
    /// A charge that waits for its customer, and nobody asks for it before tomorrow.
    async fn waiting(&self, key: &str) -> Value {
        let mut body = charge_body("pm_card_authenticationRequired");
        body["return_url"] = json!("https://shop.example/back");
        let id = self.client.charge(key, &body).await.id();
        self.client.at_stage(&id, "requires_action").await
    }
}

fn object_of(charge: &Value) -> &str {
    charge["provider_charge_id"].as_str().unwrap()
}

#[tokio::test]
async fn an_event_lets_a_charge_go_on_that_waits_for_its_customer() {
    let service = TestService::new().await;
    let running = service.run_with(Roles::ALL, TOLD).await;
    let charge = running.waiting("order-1").await;
    let id = charge["id"].as_str().unwrap();
    service
        .ledger
        .authenticate(object_of(&charge), "success")
        .await;
    assert_eq!(
        running
            .client
            .deliver(&succeeded("evt_1", &charge))
            .await
            .status,
        200
    );
    assert_eq!(running.client.terminal(id).await["status"], "completed");
    assert_eq!(pairs(&service.effects().await), [("evt_1", "nudged")]);
    running.stop().await;
    assert_eq!(service.ledger.times_charged(id).await, 1);
    service.check_books().await;
}

#[tokio::test]
async fn an_event_that_names_its_charge_by_the_object_alone_is_news_too() {
    let service = TestService::new().await;
    let running = service.run_with(Roles::ALL, TOLD).await;
    let charge = running.waiting("order-1").await;
    let object = object_of(&charge);
    service.ledger.authenticate(object, "fail").await;
    let failed = json!({"id": "ch_1", "object": "charge", "created": now(), "payment_intent": object, "metadata": {}});
    running
        .client
        .deliver(&event("evt_1", "charge.failed", &failed))
        .await;
    let id = charge["id"].as_str().unwrap();
    assert_eq!(running.client.terminal(id).await["status"], "failed");
    running.stop().await;
    service.check_books().await;
}

/// It may be forged by whoever has the secret, or be of another moment: only what is read counts.
#[tokio::test]
async fn an_event_that_says_succeeded_completes_nothing_that_has_not() {
    let service = TestService::new().await;
    let running = service.run_with(Roles::ALL, TOLD).await;
    let charge = running.waiting("order-1").await;
    let id = charge["id"].as_str().unwrap();
    let reads = async || {
        let requests = service.ledger.requests().await;
        requests
            .iter()
            .filter(|request| request["method"] == "GET")
            .count()
    };
    let before = reads().await;
    running.client.deliver(&succeeded("evt_1", &charge)).await;
    until("the object was read", async || {
        (reads().await > before).then_some(())
    })
    .await;
    until("the job is given back", async || {
        (service.job(id).await.state == "ready").then_some(())
    })
    .await;
    assert_eq!(
        running.client.show(id).await.body["stage"],
        "requires_action"
    );
    running.stop().await;
    assert!(service.ledger.charges().await.is_empty());
}

/// An event of a refund of this intent.
fn refund_event(id: &str, refund: &str, status: &str, intent: &str, stamp: Option<&str>) -> String {
    let mut about = json!({
        "id": refund, "object": "refund", "created": now(), "status": status, "payment_intent": intent, "metadata": {},
    });
    if let Some(stamp) = stamp {
        about["metadata"]["payonce_refund_id"] = json!(stamp);
    }
    event(id, "refund.updated", &about)
}

/// A charge with a completed refund, both as they are shown, and a service that takes deliveries and runs no jobs.
async fn refunded(service: &TestService) -> (Value, Value, Running) {
    let running = service.run_with(Roles::ALL, TOLD).await;
    let client = &running.client;
    let body = charge_body("pm_card_visa");
    let paid = client.charge_and_wait("order-1", &body, 20).await;
    let part = json!({"amount": 300});
    let back = client.refund_and_wait(&paid.id(), "return-1", &part).await;
    assert_eq!(back.body["status"], "completed", "{back:?}");
    running.stop().await;
    (paid.body, back.body, service.run_with(API, TOLD).await)
}

impl Running {
    async fn tell(&self, service: &TestService, told: String, effect: &str) {
        let answer = self.client.deliver(&told).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let effects = service.effects().await;
        assert_eq!(effects.last().unwrap().1, effect, "{told}");
    }
}

#[tokio::test]
async fn an_event_of_a_refund_lets_somebody_look_only_where_it_says_something_new() {
    let service = TestService::new().await;
    let (charge, refund, api) = refunded(&service).await;
    let (object, stamp) = (object_of(&charge), refund["id"].as_str());
    let ours = refund["provider_refund_id"].as_str().unwrap();
    for (id, status, stamp, effect) in [
        ("evt_1", "succeeded", stamp, "nothing_new"),
        ("evt_2", "succeeded", None, "nothing_new"),
        ("evt_3", "pending", stamp, "nudged"),
        ("evt_4", "failed", None, "nudged"),
    ] {
        let told = refund_event(id, ours, status, object, stamp);
        api.tell(&service, told, effect).await;
    }
    api.stop().await;
}

/// Made outside, under a stamp that the books do not know, a second one under ours; and one that is nobody's here.
#[tokio::test]
async fn an_event_of_a_refund_that_the_books_do_not_have_asks_for_a_sweep() {
    let service = TestService::new().await;
    let (charge, refund, api) = refunded(&service).await;
    let (object, stamp) = (object_of(&charge), refund["id"].as_str());
    let unknown = UNKNOWN.replace("chg_", "rfd_");
    for (id, object, stamp, effect) in [
        ("evt_1", object, None, "sweep_asked"),
        ("evt_2", object, Some(unknown.as_str()), "sweep_asked"),
        ("evt_3", object, stamp, "sweep_asked"),
        ("evt_4", "pi_theirs", None, "not_ours"),
    ] {
        let told = refund_event(id, &id.replace("evt", "re"), "succeeded", object, stamp);
        api.tell(&service, told, effect).await;
    }
    api.stop().await;
}

#[tokio::test]
async fn money_that_moved_for_a_charge_that_was_told_failed_is_compared_at_once() {
    let service = TestService::new().await;
    let running = service.run_with(Roles::ALL, TOLD).await;
    let id = running
        .client
        .charge("order-1", &charge_body("pm_card_chargeDeclined"))
        .await
        .id();
    running.client.terminal(&id).await;
    let paid = service.ledger.make_object(&id, 1000).await;
    service.ledger.execute_object(&paid).await;
    let told = event(
        "evt_1",
        "payment_intent.succeeded",
        &intent(&paid, &id, "succeeded"),
    );
    assert_eq!(running.client.deliver(&told).await.status, 200);
    assert_eq!(pairs(&service.effects().await), [("evt_1", "sweep_asked")]);
    until("it is a discrepancy", async || {
        let open = "SELECT count(*) FROM discrepancies WHERE kind = 'success_after_failed'";
        (service.count(open).await == 1).then_some(())
    })
    .await;
    assert_eq!(running.client.show(&id).await.body["status"], "failed");
    running.stop().await;
}

#[tokio::test]
async fn a_charge_that_the_books_have_lost_is_alerted_and_looked_for() {
    let service = TestService::new().await;
    let process = service.spawn("api,worker,reconciler", TOLD).await;
    let paid = service.ledger.make_object(UNKNOWN, 1000).await;
    service.ledger.execute_object(&paid).await;
    let body = event(
        "evt_1",
        "payment_intent.succeeded",
        &intent(&paid, UNKNOWN, "succeeded"),
    );
    assert_eq!(process.client.deliver(&body).await.status, 200);
    process.alerted("charge_missing").await;
    until("it is a discrepancy", async || {
        let open = "SELECT count(*) FROM discrepancies WHERE kind = 'theirs_only'";
        (service.count(open).await == 1).then_some(())
    })
    .await;
    assert!(process.terminate().await);
}

#[tokio::test]
async fn a_second_object_of_a_charge_is_dealt_with_before_the_routine_sweep() {
    let service = TestService::new().await;
    let running = service.run_with(Roles::ALL, TOLD).await;
    let charge = running.waiting("order-1").await;
    let id = charge["id"].as_str().unwrap();
    let stray = service.ledger.make_object(id, 1000).await;
    let told = event(
        "evt_1",
        "payment_intent.created",
        &intent(&stray, id, "requires_confirmation"),
    );
    running.client.deliver(&told).await;
    until("the stray is canceled", async || {
        (service.ledger.status_of(&stray).await == "canceled").then_some(())
    })
    .await;
    service
        .ledger
        .authenticate(object_of(&charge), "success")
        .await;
    running.client.deliver(&succeeded("evt_2", &charge)).await;
    assert_eq!(running.client.terminal(id).await["status"], "completed");
    running.stop().await;
    assert_eq!(service.ledger.times_charged(id).await, 1);
}

#[tokio::test]
async fn events_of_others_and_of_what_is_done_are_stored_and_change_nothing() {
    let service = TestService::new().await;
    let running = service.run_with(Roles::ALL, TOLD).await;
    let id = running
        .client
        .charge("order-1", &charge_body("pm_card_visa"))
        .await
        .id();
    let charge = running.client.terminal(&id).await;
    let object = object_of(&charge);
    let of_charge = |kind: &str| json!({"id": "x_1", "object": kind, "created": now(), "payment_intent": object});
    let mut live: Value = serde_json::from_str(&succeeded("evt_6", &charge)).unwrap();
    live["livemode"] = json!(true);
    for body in [
        event("evt_1", "charge.dispute.created", &of_charge("dispute")),
        event("evt_2", "charge.refunded", &of_charge("charge")),
        event(
            "evt_3",
            "payment_intent.succeeded",
            &json!({"id": "pi_9", "object": "payment_intent", "metadata": {}}),
        ),
        event(
            "evt_4",
            "x.y.z",
            &json!({"object": "something", "metadata": {"payonce_charge_id": 5}}),
        ),
        event(
            "evt_5",
            "payment_intent.canceled",
            &intent("pi_8", UNKNOWN, "canceled"),
        ),
        live.to_string(),
    ] {
        assert_eq!(running.client.deliver(&body).await.status, 200, "{body}");
    }
    let effects = service.effects().await;
    let told = [
        ("evt_1", "nothing_new"),
        ("evt_2", "nothing_new"),
        ("evt_3", "not_ours"),
        ("evt_4", "not_ours"),
        ("evt_5", "nothing_new"),
        ("evt_6", "other_mode"),
    ];
    assert_eq!(pairs(&effects), told);
    assert_eq!(running.client.show(&id).await.body, charge);
    let scrape = Scrape::of(running.admin.unwrap()).await;
    assert_eq!(
        scrape.count("payonce_provider_events_total{effect=\"not_ours\"}"),
        2
    );
    assert_eq!(
        scrape.count("payonce_provider_events_total{effect=\"other_mode\"}"),
        1
    );
    running.stop().await;
}

#[tokio::test]
async fn an_event_whose_statement_is_lost_is_taken_when_it_is_delivered_again() {
    for fault in [Fault::CutBefore, Fault::CutAfter] {
        let service = TestService::new().await;
        let proxy = DatabaseProxy::start(&service.database_url).await;
        let mut settings = TOLD.to_vec();
        settings.push(("database.url", proxy.url()));
        let running = service.run_with(Roles::ALL, &settings).await;
        let charge = running.waiting("order-1").await;
        service
            .ledger
            .authenticate(object_of(&charge), "success")
            .await;
        let mut met = proxy.arm("INSERT INTO provider_events", fault);
        let body = succeeded("evt_1", &charge);
        let first = running.client.deliver(&body).await;
        met.struck().await;
        assert_eq!(
            (first.status, first.code()),
            (503, "acceptance_unknown"),
            "{fault:?}"
        );
        until("it is taken", async || {
            (running.client.deliver(&body).await.status == 200).then_some(())
        })
        .await;
        let id = charge["id"].as_str().unwrap();
        assert_eq!(running.client.terminal(id).await["status"], "completed");
        running.stop().await;
        assert_eq!(pairs(&service.effects().await), [("evt_1", "nudged")]);
        assert_eq!(service.ledger.times_charged(id).await, 1);
    }
}

/// The provider's own reads may lag behind what it tells.
#[tokio::test]
async fn a_read_that_finds_nothing_right_after_the_event_fails_nothing() {
    let service = TestService::new().await;
    let running = service.run_with(Roles::ALL, TOLD).await;
    let charge = running.waiting("order-1").await;
    let id = charge["id"].as_str().unwrap();
    let absent = json!({"error": {"type": "invalid_request_error", "code": "resource_missing", "message": "No such payment_intent"}});
    let answer = json!({"phase": "read", "status": 404, "body": absent.to_string(), "times": 1});
    service.ledger.dictate(answer).await;
    service
        .ledger
        .authenticate(object_of(&charge), "success")
        .await;
    running.client.deliver(&succeeded("evt_1", &charge)).await;
    service.parked(id).await;
    assert_eq!(running.client.show(id).await.body["status"], "in_progress");
    service.parked_go_on().await;
    assert_eq!(running.client.terminal(id).await["status"], "completed");
    running.stop().await;
    service.check_books().await;
}

#[tokio::test]
async fn events_are_forgotten_after_their_retention() {
    let service = TestService::new().await;
    let running = service.run_with(API, TOLD).await;
    for number in 0..3 {
        let body = event(
            &format!("evt_{number}"),
            "x.y",
            &json!({"object": "balance"}),
        );
        running.client.deliver(&body).await;
    }
    running.stop().await;
    sqlx::query("UPDATE provider_events SET received_at = now() - interval '721 hours' WHERE event_id <> 'evt_1'")
        .execute(&service.books)
        .await
        .unwrap();
    let running = service.run_with(Roles::ALL, TOLD).await;
    until("the old ones are gone", async || {
        (service.effects().await.len() == 1).then_some(())
    })
    .await;
    assert_eq!(pairs(&service.effects().await), [("evt_1", "not_ours")]);
    running.stop().await;
}
