//! Events against our own commit: before, during and after it, in every order, and without it.

use payonce::config::Roles;
use serde_json::{Value, json};

use super::{TOLD, event, intent, now};
use crate::support::{TestService, until};

/// The two events of one fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    OfCharge,
    OfIntent,
    OurOwn,
}

fn told(step: Step, object: &str, stamp: &str) -> String {
    let of_charge = json!({
        "id": "ch_1", "object": "charge", "created": now(), "payment_intent": object,
        "metadata": {"payonce_charge_id": stamp},
    });
    match step {
        Step::OfCharge => event("evt_1", "charge.succeeded", &of_charge),
        Step::OfIntent | Step::OurOwn => event(
            "evt_2",
            "payment_intent.succeeded",
            &intent(object, stamp, "succeeded"),
        ),
    }
}

async fn executed(service: &TestService) -> Value {
    until("the object has succeeded", async || {
        service.ledger.charges().await.pop()
    })
    .await
}

#[tokio::test]
async fn two_events_and_our_own_end_in_any_order_are_one_transition() {
    use Step::{OfCharge, OfIntent, OurOwn};
    for order in [
        [OfCharge, OfIntent, OurOwn],
        [OfIntent, OfCharge, OurOwn],
        [OfCharge, OurOwn, OfIntent],
        [OfIntent, OurOwn, OfCharge],
        [OurOwn, OfCharge, OfIntent],
        [OurOwn, OfIntent, OfCharge],
    ] {
        let service = TestService::new().await;
        let running = service.run_with(Roles::ALL, TOLD).await;
        let id = service
            .stopped_at(&running.client, "execute", "after")
            .await;
        let object = executed(&service).await["id"].as_str().unwrap().to_owned();
        for step in order {
            match step {
                OurOwn => {
                    service.ledger.release().await;
                    running.client.terminal(&id).await;
                }
                OfCharge | OfIntent => {
                    let body = told(step, &object, &id);
                    assert_eq!(running.client.deliver(&body).await.status, 200, "{order:?}");
                }
            }
        }
        let charge = running.client.terminal(&id).await;
        assert_eq!(charge["status"], "completed", "{order:?}");
        running.stop().await;
        let history = service.history(&id).await;
        let ends = history.iter().filter(|kind| *kind == "succeeded").count();
        assert_eq!(ends, 1, "{order:?}: {history:?}");
        // What its merchant is told.
        let told = "SELECT count(*) FROM events WHERE type = 'charge.completed'";
        assert_eq!(service.count(told).await, 1, "{order:?}");
        assert_eq!(service.count("SELECT count(*) FROM events").await, 1);
        assert_eq!(service.effects().await.len(), 2, "{order:?}");
        assert_eq!(service.ledger.times_charged(&id).await, 1, "{order:?}");
        service.check_books().await;
    }
}

/// The worker dies while it waits for the reply; its lease runs out, and the event has let the job run as soon as it has.
#[tokio::test]
async fn a_charge_whose_worker_died_before_the_reply_is_completed_after_its_event() {
    let service = TestService::new().await;
    let process = service.spawn("api,worker,reconciler", TOLD).await;
    let id = service
        .stopped_at(&process.client, "execute", "after")
        .await;
    let object = executed(&service).await["id"].as_str().unwrap().to_owned();
    let body = told(Step::OfIntent, &object, &id);
    assert_eq!(process.client.deliver(&body).await.status, 200);
    process.kill().await;
    service.ledger.release().await;
    service.leases_run_out().await;
    let running = service.run_with(Roles::ALL, TOLD).await;
    assert_eq!(running.client.terminal(&id).await["status"], "completed");
    running.stop().await;
    assert_eq!(service.ledger.times_charged(&id).await, 1);
    service.check_books().await;
}

/// Its object is being made: the charge stores none yet, and the stamp names it.
#[tokio::test]
async fn an_event_that_overtakes_the_reply_to_prepare_changes_nothing() {
    let service = TestService::new().await;
    let running = service.run_with(Roles::ALL, TOLD).await;
    let id = service
        .stopped_at(&running.client, "prepare", "after")
        .await;
    let made = until("the object is made", async || {
        service.ledger.objects().await.pop()
    })
    .await;
    let object = made["id"].as_str().unwrap();
    let body = event(
        "evt_1",
        "payment_intent.created",
        &intent(object, &id, "requires_confirmation"),
    );
    assert_eq!(running.client.deliver(&body).await.status, 200);
    let body = event(
        "evt_2",
        "payment_intent.updated",
        &intent(object, &id, "requires_confirmation"),
    );
    assert_eq!(running.client.deliver(&body).await.status, 200);
    service.ledger.release().await;
    assert_eq!(running.client.terminal(&id).await["status"], "completed");
    running.stop().await;
    assert_eq!(
        super::pairs(&service.effects().await),
        [("evt_1", "nothing_new"), ("evt_2", "nudged")]
    );
    assert_eq!(service.ledger.objects().await.len(), 1);
    assert_eq!(service.ledger.executes().await.len(), 1);
    service.check_books().await;
}
