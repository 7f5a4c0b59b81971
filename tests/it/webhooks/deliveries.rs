//! An event on its way, with nothing wrong or with what goes wrong between one receiver and us.

use std::time::Duration;

use payonce::config::Roles;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::receiver::{Does, Got, Receiver};
use crate::support::{TestService, charge_body, until};

fn with_return(payment_method: &str) -> Value {
    let mut body = charge_body(payment_method);
    body["return_url"] = "https://shop.example.com/back".into();
    body
}

#[tokio::test]
async fn a_charge_is_told_as_it_is_shown_once_and_under_its_events_name() {
    let service = TestService::new().await;
    let running = service.run().await;
    let client = &running.client;
    let (all, failures) = (Receiver::start().await, Receiver::start().await);
    let endpoint = client.make_endpoint(&all).await;
    client
        .make_endpoint_with(json!({"url": failures.url(), "events": ["charge.failed"]}))
        .await;

    let paid = client
        .charge("order-1", &charge_body("pm_card_visa"))
        .await
        .id();
    let paid = client.terminal(&paid).await;
    let declined = client
        .charge("order-2", &charge_body("pm_card_chargeDeclined"))
        .await
        .id();
    let declined = client.terminal(&declined).await;

    let got = all.has(2).await;
    for (charge, kind) in [(&paid, "charge.completed"), (&declined, "charge.failed")] {
        let one = got
            .iter()
            .find(|one| one.json()["data"]["id"] == charge["id"])
            .unwrap();
        let told = one.json();
        assert_eq!(told["type"], kind);
        assert_eq!(&told["data"], charge);
        assert_eq!(told["timestamp"], charge["finished_at"]);
        assert_eq!(told.as_object().unwrap().len(), 3);
        assert_eq!(one.header("content-type"), "application/json");
        assert_eq!(one.header("payonce-delivery-attempt"), "1");
        let path = format!("/v1/events?charge_id={}", charge["id"].as_str().unwrap());
        let event = until("the event is settled", async || {
            let events = client.get(&path).await;
            events.body["data"].get(0).cloned()
        })
        .await;
        assert_eq!(event["id"], one.id());
        assert_eq!(event["data"], told["data"]);
    }
    let wanted = failures.has(1).await;
    assert_eq!(wanted[0].kind(), "charge.failed");
    let delivery = client.delivery_is(&endpoint, "delivered").await;
    assert_eq!(
        (&delivery["last_status"], &delivery["attempts"]),
        (&json!(200), &json!(1))
    );
    running.stop().await;
    assert_eq!((all.got().len(), failures.got().len()), (2, 1));
    service.check_books().await;
}

/// Case 104.
#[tokio::test]
async fn every_attempt_has_the_same_id_and_bytes_whatever_came_of_the_one_before() {
    let service = TestService::new().await;
    let running = service
        .run_with(Roles::ALL, &[("webhooks.timeout", "500ms")])
        .await;
    let receiver = Receiver::start().await;
    receiver.next([
        Does::Status(500),
        Does::Hangs,
        Does::Redirects("http://127.0.0.1:9/".to_owned()),
    ]);
    let endpoint = running.client.make_endpoint(&receiver).await;
    running
        .client
        .charge("order-1", &charge_body("pm_card_visa"))
        .await;
    let got = receiver.has(4).await;
    for (index, one) in got.iter().enumerate() {
        assert_eq!((one.id(), &one.body), (got[0].id(), &got[0].body));
        assert_eq!(
            one.header("payonce-delivery-attempt"),
            (index + 1).to_string()
        );
    }
    let delivery = running.client.delivery_is(&endpoint, "delivered").await;
    assert_eq!(delivery["attempts"], 4);
    assert_eq!(delivery["event_id"], got[0].id());
    running.stop().await;
    assert_eq!(receiver.got().len(), 4);
}

/// Case 107.
#[tokio::test]
async fn what_is_told_late_is_how_it_was_then_and_the_version_tells_the_newer() {
    let service = TestService::new().await;
    let settings = &[("webhooks.retry_delays", "1s,1s")];
    let running = service.run_with(Roles::ALL, settings).await;
    let receiver = Receiver::start().await;
    running.client.make_endpoint(&receiver).await;
    receiver.next([Does::Status(503)]);
    let body = with_return("pm_card_authenticationRequired");
    let id = running.client.charge("order-1", &body).await.id();
    let asking = running.client.at_stage(&id, "requires_action").await;
    let object = asking["provider_charge_id"].as_str().unwrap();
    service.ledger.authenticate(object, "success").await;
    let paid = running.client.terminal(&id).await;
    let got = receiver.has(3).await;
    let kinds: Vec<String> = got.iter().map(Got::kind).collect();
    assert_eq!(
        kinds,
        [
            "charge.requires_action",
            "charge.completed",
            "charge.requires_action"
        ]
    );
    assert_eq!(got[0].body, got[2].body);
    assert_eq!(got[2].json()["data"], asking);
    assert_eq!(got[1].json()["data"], paid);
    assert!(got[1].json()["data"]["version"].as_i64() > got[2].json()["data"]["version"].as_i64());
    running.stop().await;
    assert_eq!(receiver.got().len(), 3, "one transition, one event");
}

/// Case 106.
#[tokio::test]
async fn an_endpoint_that_never_answers_costs_fifty_others_nothing() {
    let service = TestService::new().await;
    let running = service
        .run_with(
            Roles::ALL,
            &[("webhooks.timeout", "5s"), ("webhooks.lease", "20s")],
        )
        .await;
    let silent = Receiver::start().await;
    silent.always(Does::Hangs);
    running.client.make_endpoint(&silent).await;
    let mut receivers = Vec::new();
    for _ in 0..50 {
        let receiver = Receiver::start().await;
        running.client.make_endpoint(&receiver).await;
        receivers.push(receiver);
    }
    // More than the silent one may have at once.
    for n in 0..12 {
        let body = charge_body("pm_card_visa");
        let id = running
            .client
            .charge(&format!("order-{n}"), &body)
            .await
            .id();
        running.client.terminal(&id).await;
        let done = Instant::now();
        for receiver in &receivers {
            let got = receiver.has(n + 1).await;
            let took = got[n].at.saturating_duration_since(done);
            assert!(
                took < Duration::from_secs(1),
                "order-{n} was told after {took:?}"
            );
        }
    }
    assert!(!silent.got().is_empty());
    running.stop().await;
    for receiver in receivers {
        assert_eq!(receiver.got().len(), 12);
    }
}

#[tokio::test]
async fn a_receiver_that_is_gone_is_disabled_at_once_and_its_merchants_others_are_told() {
    let service = TestService::new().await;
    let running = service.run().await;
    let client = &running.client;
    let (gone, other) = (Receiver::start().await, Receiver::start().await);
    let endpoint = client.make_endpoint(&gone).await;
    client.make_endpoint(&other).await;
    gone.always(Does::Status(410));
    let id = client
        .charge("order-1", &charge_body("pm_card_visa"))
        .await
        .id();
    client.terminal(&id).await;
    let got = other.has(2).await;
    let notice = got
        .iter()
        .find(|one| one.kind() == "webhook_endpoint.disabled")
        .unwrap()
        .json();
    assert_eq!(notice["data"]["id"], endpoint.id);
    assert_eq!(notice["data"]["disabled_reason"], "gone");
    let shown = client.get(&endpoint.path).await.body;
    assert_eq!(
        (&shown["enabled"], &shown["disabled_reason"]),
        (&json!(false), &json!("gone"))
    );
    // The whole object, as the API shows it.
    assert_eq!(notice["data"], shown);

    // What happens now is not on its way there; what was, goes on when it is enabled again.
    let id = client
        .charge("order-2", &charge_body("pm_card_visa"))
        .await
        .id();
    client.terminal(&id).await;
    other.has(3).await;
    assert_eq!(gone.got().len(), 1);
    gone.always(Does::Status(200));
    let enabled = client
        .send("PATCH", &endpoint.path, Some(json!({"enabled": true})))
        .await;
    assert_eq!(enabled.status, 200);
    assert_eq!(enabled.body.get("disabled_reason"), None);
    let got = gone.has(2).await;
    assert_eq!((got[0].id(), &got[0].body), (got[1].id(), &got[1].body));
    running.stop().await;
    assert_eq!(gone.got().len(), 2);
}

#[tokio::test]
async fn a_receiver_that_fails_for_days_is_disabled_and_one_success_begins_anew() {
    let service = TestService::new().await;
    let running = service.run().await;
    let client = &running.client;
    let receiver = Receiver::start().await;
    let endpoint = client.make_endpoint(&receiver).await;
    receiver.next([Does::Status(500)]);
    client.charge("order-1", &charge_body("pm_card_visa")).await;
    receiver.has(2).await;
    client.delivery_is(&endpoint, "delivered").await;
    assert_eq!(
        client.get(&endpoint.path).await.body.get("failing_since"),
        None
    );

    receiver.always(Does::Status(500));
    client.charge("order-2", &charge_body("pm_card_visa")).await;
    let delivery = client.delivery_is(&endpoint, "failed").await;
    assert_eq!(
        (&delivery["attempts"], &delivery["last_status"]),
        (&json!(6), &json!(500))
    );
    let shown = client.get(&endpoint.path).await.body;
    assert!(shown["failing_since"].is_string());
    assert_eq!(shown["enabled"], true);
    sqlx::query("UPDATE webhook_endpoints SET failing_since = now() - interval '121 hours'")
        .execute(&service.books)
        .await
        .unwrap();
    let path = format!("{}/test", endpoint.path);
    assert_eq!(client.send("POST", &path, None).await.status, 202);
    until("it is disabled", async || {
        let shown = client.get(&endpoint.path).await.body;
        (shown["disabled_reason"] == "failing").then_some(())
    })
    .await;
    let disabled = "payonce_webhook_endpoints_disabled_total";
    assert_eq!(
        running
            .scrape_with(disabled, 1.0)
            .await
            .count("payonce_webhook_endpoints_disabled"),
        1
    );
    running.stop().await;
}

#[tokio::test]
async fn what_was_given_up_or_delivered_is_sent_again_when_asked_for() {
    let service = TestService::new().await;
    let running = service
        .run_with(Roles::ALL, &[("webhooks.retry_delays", "10ms")])
        .await;
    let client = &running.client;
    let receiver = Receiver::start().await;
    let endpoint = client.make_endpoint(&receiver).await;
    receiver.next([Does::Status(500), Does::Status(404)]);
    client.charge("order-1", &charge_body("pm_card_visa")).await;
    let failed = client.delivery_is(&endpoint, "failed").await;
    assert_eq!(failed["last_status"], 404);
    let path = format!(
        "{}/deliveries/{}/retry",
        endpoint.path,
        failed["id"].as_str().unwrap()
    );
    for count in [3, 4] {
        assert_eq!(client.send("POST", &path, None).await.status, 202);
        let got = receiver.has(count).await;
        assert_eq!(
            (got[0].id(), &got[0].body),
            (got[count - 1].id(), &got[count - 1].body)
        );
        client.delivery_is(&endpoint, "delivered").await;
    }
    running.stop().await;
}

#[tokio::test]
async fn an_answer_without_an_end_is_read_no_further_than_its_bound() {
    let service = TestService::new().await;
    let running = service
        .run_with(
            Roles::ALL,
            &[("webhooks.timeout", "30s"), ("webhooks.lease", "1m")],
        )
        .await;
    let receiver = Receiver::start().await;
    receiver.always(Does::Floods);
    let endpoint = running.client.make_endpoint(&receiver).await;
    running
        .client
        .charge("order-1", &charge_body("pm_card_visa"))
        .await;
    let began = Instant::now();
    running.client.delivery_is(&endpoint, "delivered").await;
    assert!(began.elapsed() < Duration::from_secs(20));
    running.stop().await;
    assert_eq!(receiver.got().len(), 1);
}

/// A slow one is no dead one.
#[tokio::test]
async fn an_answer_that_is_late_but_in_time_counts() {
    let service = TestService::new().await;
    let running = service.run().await;
    let receiver = Receiver::start().await;
    receiver.always(Does::Late(Duration::from_secs(1)));
    let endpoint = running.client.make_endpoint(&receiver).await;
    running
        .client
        .charge("order-1", &charge_body("pm_card_visa"))
        .await;
    let delivery = running.client.delivery_is(&endpoint, "delivered").await;
    assert_eq!(delivery["attempts"], 1);
    running.stop().await;
    assert_eq!(receiver.got().len(), 1);
}
