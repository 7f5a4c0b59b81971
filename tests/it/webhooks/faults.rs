//! Processes that die, race or may not send: a transition is one event, and an event is delivered.

use payonce::config::Roles;
use serde_json::json;

use super::Endpoint;
use crate::support::receiver::{Does, Receiver};
use crate::support::service::{API, WORKER};
use crate::support::{TestService, charge_body, until};

#[tokio::test]
async fn a_process_that_is_killed_between_row_and_send_leaves_nothing_untold() {
    let service = TestService::new().await;
    let receiver = Receiver::start().await;
    let mute = service
        .spawn("api,worker", &[("webhooks.deliver", "false")])
        .await;
    mute.client.make_endpoint(&receiver).await;
    let id = mute
        .client
        .charge("order-1", &charge_body("pm_card_visa"))
        .await
        .id();
    mute.client.terminal(&id).await;
    mute.kill().await;
    assert_eq!(
        service
            .count("SELECT count(*) FROM webhook_deliveries WHERE state = 'due'")
            .await,
        1
    );

    let worker = service.run_with(WORKER, &[]).await;
    let got = receiver.has(1).await;
    assert_eq!(got[0].json()["data"]["id"], id);
    worker.stop().await;
}

#[tokio::test]
async fn a_process_that_is_killed_while_it_sends_is_followed_by_one_that_sends_the_same() {
    let service = TestService::new().await;
    let receiver = Receiver::start().await;
    receiver.next([Does::Hangs]);
    let first = service.spawn("api,worker", &[]).await;
    first.client.make_endpoint(&receiver).await;
    let id = first
        .client
        .charge("order-1", &charge_body("pm_card_visa"))
        .await
        .id();
    receiver.has(1).await;
    first.kill().await;
    assert_eq!(
        service
            .count("SELECT count(*) FROM webhook_deliveries WHERE state = 'leased'")
            .await,
        1
    );

    let second = service.run().await;
    let got = receiver.has(2).await;
    assert_eq!((got[0].id(), &got[0].body), (got[1].id(), &got[1].body));
    assert_eq!(got[1].json()["data"]["id"], id);
    second.stop().await;
    assert_eq!(receiver.got().len(), 2);
}

/// Several workers with reconcilers that find everything stuck at once: who loses writes no event.
#[tokio::test]
async fn one_transition_is_one_event_also_while_workers_and_reconcilers_race() {
    let service = TestService::new().await;
    let hasty = &[
        ("reconciler.threshold", "1ms"),
        ("reconciler.interval", "10ms"),
        ("worker.permits", "4"),
    ];
    let receiver = Receiver::start().await;
    let (one, other) = (
        service.run_with(Roles::ALL, hasty).await,
        service.run_with(Roles::ALL, hasty).await,
    );
    one.client.make_endpoint(&receiver).await;
    // Lost replies, so that the provider's objects are read and each success is learned several times.
    service
        .ledger
        .settings(
            json!({"rates": {"charge_then_drop": 0.3, "error_500_after_charge": 0.3}, "seed": 7}),
        )
        .await;
    let mut ids = Vec::new();
    for n in 0..30 {
        let method = if n % 3 == 0 {
            "pm_card_chargeDeclined"
        } else {
            "pm_card_visa"
        };
        let client = if n % 2 == 0 {
            &one.client
        } else {
            &other.client
        };
        ids.push(
            client
                .charge_until_accepted(&format!("order-{n}"), &charge_body(method))
                .await
                .id(),
        );
        sqlx::query("DELETE FROM outbox WHERE state = 'ready'")
            .execute(&service.books)
            .await
            .unwrap();
    }
    for id in &ids {
        one.client.terminal(id).await;
    }
    receiver.has(ids.len()).await;
    one.stop().await;
    other.stop().await;
    let got = receiver.got();
    assert_eq!(got.len(), ids.len());
    for id in &ids {
        assert_eq!(
            got.iter()
                .filter(|got| got.json()["data"]["id"] == **id)
                .count(),
            1,
            "{id}"
        );
    }
    let events = "SELECT count(*) FROM events";
    assert_eq!(service.count(events).await, 30);
    service.check_books().await;
}

#[tokio::test]
async fn a_cancel_before_the_claim_is_told_once_however_often_it_is_asked_for() {
    let service = TestService::new().await;
    let api = service.run_with(API, &[]).await;
    let receiver = Receiver::start().await;
    api.client.make_endpoint(&receiver).await;
    let id = api
        .client
        .charge("order-1", &charge_body("pm_card_visa"))
        .await
        .id();
    api.client.cancel(&id).await;
    let canceled = api.client.cancel(&id).await.body;
    let worker = service.run_with(WORKER, &[]).await;
    let got = receiver.has(1).await;
    assert_eq!(got[0].kind(), "charge.failed");
    assert_eq!(got[0].json()["data"], canceled);
    worker.stop().await;
    api.stop().await;
    assert_eq!(service.count("SELECT count(*) FROM events").await, 1);
}

/// Whatever stands in the books, and however it came there.
#[tokio::test]
async fn nothing_is_sent_to_an_address_that_may_not_be_reached() {
    let service = TestService::new().await;
    let receiver = Receiver::start().await;
    let lenient = service.run_with(API, &[]).await;
    let endpoint: Endpoint = lenient.client.make_endpoint(&receiver).await;
    lenient.stop().await;
    let strict = service
        .run_with(Roles::ALL, &[("webhooks.allow_loopback", "false")])
        .await;
    strict
        .client
        .charge("order-1", &charge_body("pm_card_visa"))
        .await;
    let delivery = strict.client.delivery_is(&endpoint, "failed").await;
    assert_eq!(delivery["last_error"], "address_refused");
    strict.stop().await;
    assert!(receiver.got().is_empty());
}

#[tokio::test]
async fn what_is_older_than_the_retention_is_forgotten_and_nothing_else() {
    let service = TestService::new().await;
    let receiver = Receiver::start().await;
    let running = service.run().await;
    let endpoint = running.client.make_endpoint(&receiver).await;
    let body = charge_body("pm_card_visa");
    for key in ["order-1", "order-2"] {
        running.client.charge(key, &body).await;
    }
    receiver.has(2).await;
    running.client.delivery_is(&endpoint, "delivered").await;
    running.stop().await;
    for age in [
        "UPDATE events SET at = now() - interval '721 hours' WHERE id = (SELECT min(id) FROM events)",
        "UPDATE webhook_deliveries SET created_at = now() - interval '721 hours'
         WHERE event_id = (SELECT min(id) FROM events)",
    ] {
        sqlx::query(age).execute(&service.books).await.unwrap();
    }
    let worker = service.run_with(WORKER, &[]).await;
    until("they are forgotten", async || {
        let left = service.count("SELECT count(*) FROM events").await
            + service
                .count("SELECT count(*) FROM webhook_deliveries")
                .await;
        (left == 2).then_some(())
    })
    .await;
    worker.stop().await;
    assert_eq!(receiver.got().len(), 2);
}
