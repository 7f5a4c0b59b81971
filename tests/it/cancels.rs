//! A cancel at every moment of a charge's life: certain before execute, the provider's decision after it.

use payonce::config::Roles;
use serde_json::{Value, json};

use crate::support::{TestService, charge_body, until};

const API_ALONE: Roles = Roles {
    api: true,
    worker: false,
    reconciler: false,
};

fn assert_canceled(charge: &Value) {
    assert_eq!(charge["status"], "failed");
    assert_eq!(charge["stage"], "canceled");
    assert_eq!(charge["money"], "not_moved");
    assert!(charge["finished_at"].is_string());
}

#[tokio::test]
async fn a_cancel_before_the_claim_is_certain_at_once_and_safe_to_repeat() {
    let service = TestService::new().await;
    let api = service.run_with(API_ALONE, &[]).await;
    let id = api
        .client
        .charge("order-1", &charge_body("pm_card_visa"))
        .await
        .id();

    let canceled = api.client.cancel(&id).await;
    assert_eq!(canceled.status, 200);
    assert_canceled(&canceled.body);
    let again = api.client.cancel(&id).await;
    assert_eq!((again.status, &again.body), (200, &canceled.body));
    let replay = api
        .client
        .charge("order-1", &charge_body("pm_card_visa"))
        .await;
    assert_eq!((replay.status, &replay.body), (200, &canceled.body));
    api.stop().await;

    let all = service.run().await;
    service.drained().await;
    assert!(
        service.ledger.requests().await.is_empty(),
        "nothing of a canceled charge is sent"
    );
    all.stop().await;
    service.check_books_and_events().await;
}

#[tokio::test]
async fn a_cancel_between_claim_and_execute_stops_the_execute() {
    let service = TestService::new().await;
    let running = service.run().await;
    let id = service
        .stopped_at(&running.client, "prepare", "after")
        .await;

    let asked = running.client.cancel(&id).await;
    assert_eq!(asked.status, 202);
    assert_eq!(asked.body["status"], "in_progress");
    service.ledger.release().await;
    assert_canceled(&running.client.terminal(&id).await);
    assert!(service.ledger.charges().await.is_empty());
    running.stop().await;
    service.check_books_and_events().await;
}

#[tokio::test]
async fn a_cancel_while_execute_is_under_way_loses_to_the_money_that_moved() {
    let service = TestService::new().await;
    let running = service.run().await;
    let id = service
        .stopped_at(&running.client, "execute", "after")
        .await;

    let asked = running.client.cancel(&id).await;
    assert_eq!(
        (asked.status, &asked.body["money"]),
        (202, &"unknown".into())
    );
    service.ledger.release().await;
    let charge = running.client.terminal(&id).await;
    assert_eq!(charge["status"], "completed");
    let late = running.client.cancel(&id).await;
    assert_eq!((late.status, late.code()), (409, "charge_not_cancelable"));
    assert_eq!(late.body["charge_id"], id.as_str());
    assert_eq!(service.ledger.times_charged(&id).await, 1);
    running.stop().await;
    service.check_books_and_events().await;
}

/// Execute is held before its effect, the service is killed, the client cancels, and the held request is lost: the next
/// run finds the object not executed and must cancel it, not execute it.
#[tokio::test]
async fn a_cancel_after_a_crash_before_execute_cancels_the_object_at_the_provider() {
    let service = TestService::new().await;
    let worker = service.spawn("worker", &[]).await;
    let api = service.run_with(API_ALONE, &[]).await;
    // Refused at the door: nothing happens at the provider.
    service.ledger.dictate(json!({"phase": "execute", "status": 503, "body": "{}", "effect": false, "times": 1000})).await;
    let id = api
        .client
        .charge("order-1", &charge_body("pm_card_visa"))
        .await
        .id();
    api.client.at_stage(&id, "requires_reconciliation").await;
    worker.kill().await;

    assert_eq!(api.client.cancel(&id).await.status, 202);
    let worker = service.spawn("worker", &[]).await;
    assert_canceled(&api.client.terminal(&id).await);
    let objects = service.ledger.objects().await;
    assert_eq!(
        (objects.len(), &objects[0]["status"]),
        (1, &"canceled".into())
    );
    worker.kill().await;
    api.stop().await;
    service.check_books_and_events().await;
}

#[tokio::test]
async fn a_cancel_while_the_customer_is_asked_ends_the_asking() {
    let service = TestService::new().await;
    // A poll so slow that only the cancel's nudge brings the job back in time.
    let running = service
        .run_with(
            Roles::ALL,
            &[("worker.slow_base", "1h"), ("worker.slow_cap", "2h")],
        )
        .await;
    let mut body = charge_body("pm_card_authenticationRequired");
    body["return_url"] = "https://shop.example.com/back".into();
    let id = running.client.charge("order-1", &body).await.id();
    let charge = running.client.at_stage(&id, "requires_action").await;
    assert_eq!(charge["next_action"]["type"], "redirect");

    assert_eq!(running.client.cancel(&id).await.status, 202);
    assert_canceled(&running.client.terminal(&id).await);
    running.stop().await;
    service.check_books_and_events().await;
}

/// The poll has read the object, the client cancels, and the poll goes to sleep for an hour: not before it has looked again.
#[tokio::test]
async fn a_cancel_that_meets_a_poll_under_way_is_taken_up_when_the_poll_ends() {
    let service = TestService::new().await;
    let slow = [("worker.slow_base", "30m"), ("worker.slow_cap", "2h")];
    let running = service.run_with(Roles::ALL, &slow).await;
    let mut body = charge_body("pm_card_authenticationRequired");
    body["return_url"] = "https://shop.example.com/back".into();
    let id = running.client.charge("order-1", &body).await.id();
    running.client.at_stage(&id, "requires_action").await;
    service.ledger.hold("read", "after").await;
    sqlx::query("UPDATE outbox SET run_at = now() WHERE state = 'ready'")
        .execute(&service.books)
        .await
        .unwrap();
    service.ledger.held().await;

    assert_eq!(running.client.cancel(&id).await.status, 202);
    service.ledger.release().await;
    assert_canceled(&running.client.terminal(&id).await);
    running.stop().await;
    service.check_books_and_events().await;
}

#[tokio::test]
async fn the_next_look_is_no_later_than_the_customers_time() {
    let service = TestService::new().await;
    let settings = [
        ("worker.slow_base", "30m"),
        ("worker.slow_cap", "2h"),
        ("worker.action_expiry", "1s"),
    ];
    let running = service.run_with(Roles::ALL, &settings).await;
    let mut body = charge_body("pm_card_authenticationRequired");
    body["return_url"] = "https://shop.example.com/back".into();
    let id = running.client.charge("order-1", &body).await.id();
    let charge = running.client.terminal(&id).await;
    assert_eq!(charge["failure"]["code"], "authentication_expired");
    running.stop().await;
    service.check_books_and_events().await;
}

/// The customer acts at the same moment as the client cancels: whoever the provider hears first has won, and the charge
/// says so.
#[tokio::test]
async fn a_cancel_and_a_customer_at_once_end_in_what_the_provider_says() {
    let service = TestService::new().await;
    let running = service.run().await;
    let mut body = charge_body("pm_card_authenticationRequired");
    body["return_url"] = "https://shop.example.com/back".into();
    for round in 0..8 {
        let id = running
            .client
            .charge(&format!("order-{round}"), &body)
            .await
            .id();
        let charge = running.client.at_stage(&id, "requires_action").await;
        let object = charge["next_action"]["url"].as_str().unwrap().to_owned();
        let http = crate::support::client::http();
        let (canceled, _) = tokio::join!(
            running.client.cancel(&id),
            http.get(format!("{object}?result=success")).send()
        );
        assert!(matches!(canceled.status, 200 | 202 | 409), "{canceled:?}");
        let charge = running.client.terminal(&id).await;
        let moved = service.ledger.times_charged(&id).await;
        if charge["status"] == "completed" {
            assert_eq!(moved, 1);
        } else {
            assert_canceled(&charge);
            assert_eq!(moved, 0);
        }
    }
    running.stop().await;
    service.check_books_and_events().await;
}

#[tokio::test]
async fn cancels_and_workers_in_a_race_leave_true_books() {
    let service = TestService::new().await;
    service.ledger.settings(json!({"latency_ms": 3})).await;
    let one = service.run().await;
    let other = service.run().await;
    let mut ids = Vec::new();
    for round in 0..60 {
        let body = charge_body(if round % 5 == 0 {
            "pm_card_chargeDeclined"
        } else {
            "pm_card_visa"
        });
        let id = one
            .client
            .charge(&format!("order-{round}"), &body)
            .await
            .id();
        tokio::time::sleep(std::time::Duration::from_millis(round % 12)).await;
        let (a, b) = tokio::join!(one.client.cancel(&id), other.client.cancel(&id));
        for answer in [a, b] {
            assert!(matches!(answer.status, 200 | 202 | 409), "{answer:?}");
        }
        ids.push(id);
    }
    for id in &ids {
        one.client.terminal(id).await;
    }
    service.drained().await;
    one.stop().await;
    other.stop().await;
    service.check_books_and_events().await;
}

#[tokio::test]
async fn a_charge_of_another_merchant_can_not_be_canceled() {
    let service = TestService::new().await;
    let api = service.run_with(API_ALONE, &[]).await;
    let id = api
        .client
        .charge("order-1", &charge_body("pm_card_visa"))
        .await
        .id();
    let mut other = api.client.clone();
    other.token = service.make_merchant("other").await.1;
    assert_eq!(other.cancel(&id).await.status, 404);
    until("the charge is as it was", async || {
        (api.client.show(&id).await.body["stage"] == "pending").then_some(())
    })
    .await;
    api.stop().await;
}
