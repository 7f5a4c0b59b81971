//! Each way in which the provider goes wrong on a refund: one refund comes of it, or a person is asked.

use payonce::domain::ids::RefundId;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Postgres, Transaction};

use super::{Charged, charge};
use crate::operator::payonce;
use crate::provider_faults::{IMPATIENT, rates};
use crate::support::client::Answer;
use crate::support::service::{API, Running, WORKER};
use crate::support::{TestService, charge_body, until};

/// Every fault that passes by itself.
const PASSING: [&str; 15] = [
    "charge_then_drop",
    "drop_before_charge",
    "slow",
    "land_late",
    "error_500_after_charge",
    "error_500_before_charge",
    "key_in_use",
    "rate_limited",
    "unavailable",
    "unauthorized",
    "html",
    "truncated",
    "unknown_status",
    "trickle",
    "forget_keys",
];

/// The fault meets every send until it has met three, if the first one is not the last.
#[tokio::test]
async fn whatever_meets_a_refund_delays_it_and_no_more() {
    for fault in PASSING {
        let shop = Charged::with("pm_card_visa", &IMPATIENT).await;
        let name = format!("refund.{fault}");
        shop.service
            .ledger
            .settings(rates(&json!({ &name: 1.0 })))
            .await;
        let refund = shop.refund("return-1", json!({"amount": 350})).await;
        let id = refund["id"].as_str().unwrap();
        let ledger = &shop.service.ledger;
        until(&format!("{fault} was met"), async || {
            (!ledger.refund_keys().await.is_empty()).then_some(())
        })
        .await;
        ledger.settings(rates(&json!({}))).await;
        let ended = shop.ended(&refund).await;
        assert_eq!(ended["status"], "completed", "{fault}: {ended}");
        shop.service.provider_is_quiet().await;
        assert_eq!(ledger.refunds_of(id).await.len(), 1, "{fault}");
        shop.close().await;
    }
}

#[tokio::test]
async fn whatever_meets_the_look_delays_the_refund_and_no_more() {
    for fault in [
        "html",
        "unavailable",
        "truncated",
        "unauthorized",
        "rate_limited",
        "slow",
    ] {
        let shop = Charged::with("pm_card_visa", &IMPATIENT).await;
        let name = format!("read_refunds.{fault}");
        let ledger = &shop.service.ledger;
        ledger.settings(rates(&json!({ &name: 1.0 }))).await;
        let refund = shop.refund("return-1", json!({"amount": 350})).await;
        until(&format!("{fault} was met"), async || {
            let requests = ledger.requests().await;
            requests
                .iter()
                .any(|request| request["path"].as_str().unwrap().starts_with("/v1/refunds"))
                .then_some(())
        })
        .await;
        assert!(
            ledger.refund_keys().await.is_empty(),
            "{fault}: sent without a look"
        );
        ledger.settings(rates(&json!({}))).await;
        assert_eq!(shop.ended(&refund).await["status"], "completed", "{fault}");
        shop.close().await;
    }
}

#[tokio::test]
async fn whatever_goes_wrong_at_once_all_refunds_end_once_it_stops() {
    let shop = Charged::with("pm_card_visa", &IMPATIENT).await;
    let ledger = &shop.service.ledger;
    let each: serde_json::Map<String, Value> = PASSING
        .iter()
        // What a key that is remembered guards against, a key that is forgotten lets through: a send that lands late.
        .filter(|fault| **fault != "forget_keys")
        .map(|fault| (format!("refund.{fault}"), json!(0.05)))
        .chain([("read_refunds.html".to_owned(), json!(0.2))])
        .collect();
    ledger.settings(rates(&Value::Object(each))).await;
    let mut refunds = Vec::new();
    for number in 0..40 {
        refunds.push(
            shop.refund(&format!("return-{number}"), json!({"amount": 20}))
                .await,
        );
    }
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    ledger.settings(rates(&json!({}))).await;
    for refund in &refunds {
        assert_eq!(shop.ended(refund).await["status"], "completed");
    }
    shop.service.provider_is_quiet().await;
    assert_eq!(ledger.refunds().await.len(), 40);
    assert_eq!(shop.charge_now().await["amount_refunded"], 800);
    shop.close().await;
}

/// A restricted key may have the right to charges alone.
#[tokio::test]
async fn a_key_without_the_right_to_refunds_makes_refunds_wait_and_no_charge() {
    let shop = Charged::with("pm_card_visa", &IMPATIENT).await;
    let ledger = &shop.service.ledger;
    let body = json!({"error": {"type": "invalid_request_error", "message": "no"}}).to_string();
    for phase in ["refund", "read_refunds"] {
        ledger
            .dictate(json!({"phase": phase, "status": 403, "body": body, "times": 1_000_000}))
            .await;
    }
    let refund = shop.refund("return-1", json!({"amount": 350})).await;
    let refused = async || {
        let requests = ledger.requests().await;
        let refused = requests.iter().filter(|request| request["status"] == 403);
        refused.count()
    };
    until("it was refused twice", async || {
        (refused().await >= 2).then_some(())
    })
    .await;
    let scrape = shop.running.scrape().await;
    assert_eq!(scrape.count("payonce_breaker_open"), 0);
    let body = charge_body("pm_card_visa");
    let other = shop
        .running
        .client
        .charge_and_wait("order-2", &body, 20)
        .await;
    assert_eq!(other.body["status"], "completed");
    ledger.dictate_nothing().await;
    assert_eq!(shop.ended(&refund).await["status"], "completed");
    assert_eq!(ledger.refunds().await.len(), 1);
    shop.close().await;
}

/// A stored error is replayed for as long as the key lives: the key has run to its end, and another one is taken.
#[tokio::test]
async fn an_error_replayed_under_the_key_leads_to_another_key_once_a_look_has_found_nothing() {
    let shop = Charged::new().await;
    let ledger = &shop.service.ledger;
    ledger
        .settings(json!({"rates": {"refund.error_500_before_charge": 1.0}}))
        .await;
    let refund = shop.refund("return-1", json!({"amount": 350})).await;
    until("the error was met", async || {
        (!ledger.refund_keys().await.is_empty()).then_some(())
    })
    .await;
    ledger.settings(json!({})).await;
    let ended = shop.ended(&refund).await;
    assert_eq!(ended["status"], "completed");
    let id = refund["id"].as_str().unwrap();
    let keys = ledger.refund_keys().await;
    assert_eq!(keys.first().unwrap(), id);
    assert!(
        keys.last().unwrap().starts_with(&format!("{id}-k")),
        "{keys:?}"
    );
    assert_eq!(ledger.refunds_of(id).await.len(), 1);
    shop.close().await;
}

#[tokio::test]
async fn a_refusal_fails_the_refund_and_frees_what_it_had_reserved() {
    let shop = Charged::new().await;
    let ledger = &shop.service.ledger;
    ledger
        .dictate(json!({"phase": "refund", "status": 400, "times": 1, "body": json!({"error": {
            "type": "invalid_request_error", "code": "balance_insufficient", "message": "x"}}).to_string()}))
        .await;
    let refund = shop.refund("return-1", json!({})).await;
    let ended = shop.ended(&refund).await;
    assert_eq!(
        (&ended["status"], &ended["money"]),
        (&json!("failed"), &json!("not_moved"))
    );
    assert_eq!(ended["failure"]["code"], "insufficient_funds");
    assert_eq!(ended["failure"]["advice"], "try_again_later");
    assert!(ledger.refunds().await.is_empty());
    assert_eq!(shop.charge_now().await["amount_refunded"], 0);
    let again = shop.refund("return-2", json!({})).await;
    assert_eq!(again["amount"], 1000);
    assert_eq!(shop.ended(&again).await["status"], "completed");
    shop.close().await;
}

/// The first send may still land, so a refusal of the second proves nothing until it is a replay.
#[tokio::test]
async fn a_refusal_after_a_lost_reply_is_not_believed_before_it_is_replayed() {
    let shop = Charged::with("pm_card_visa", &IMPATIENT).await;
    let ledger = &shop.service.ledger;
    ledger
        .settings(rates(&json!({"refund.drop_before_charge": 1.0})))
        .await;
    let refund = shop.refund("return-1", json!({"amount": 350})).await;
    until("it was sent", async || {
        (!ledger.refund_keys().await.is_empty()).then_some(())
    })
    .await;
    shop.service.pause("operator").await;
    until("its run is over", async || {
        let leased = "SELECT count(*) FROM outbox WHERE state = 'leased'";
        (shop.service.count(leased).await == 0).then_some(())
    })
    .await;
    ledger.settings(rates(&json!({}))).await;
    // From outside all of it is refunded: the next send is refused for good.
    ledger.refund_outside(&shop.object, 1000, None).await;
    shop.service.resume().await;
    let sent = ledger.refund_keys().await.len();
    let ended = shop.ended(&refund).await;
    assert_eq!(ended["status"], "failed", "{ended}");
    // The refusal itself, and its replay.
    assert!(ledger.refund_keys().await.len() >= sent + 2);
    shop.service.provider_is_quiet().await;
    shop.close().await;
}

#[tokio::test]
async fn a_decline_whose_reply_was_lost_fails_once_it_is_replayed() {
    let shop = Charged::with("pm_card_visa", &IMPATIENT).await;
    let ledger = &shop.service.ledger;
    ledger
        .settings(rates(&json!({"refund.decline_then_drop": 1.0})))
        .await;
    let refund = shop.refund("return-1", json!({"amount": 350})).await;
    until("it was sent", async || {
        (!ledger.refund_keys().await.is_empty()).then_some(())
    })
    .await;
    ledger.settings(rates(&json!({}))).await;
    let ended = shop.ended(&refund).await;
    assert_eq!(ended["status"], "failed");
    assert_eq!(ended["failure"]["code"], "insufficient_funds");
    assert!(ledger.refunds().await.is_empty());
    shop.close().await;
}

#[tokio::test]
async fn a_parameter_that_the_provider_refuses_parks_the_refund_and_an_operator_lets_it_go_on() {
    let shop = Charged::new().await;
    let ledger = &shop.service.ledger;
    ledger
        .settings(json!({"rates": {"refund.unsaved_400": 1.0}}))
        .await;
    let refund = shop.refund("return-1", json!({"amount": 350})).await;
    let why = shop.service.refund_parked(&refund).await;
    assert_eq!(why, "request_rejected");
    ledger.settings(json!({})).await;
    shop.service.parked_go_on().await;
    assert_eq!(shop.ended(&refund).await["status"], "completed");
    shop.close().await;
}

/// A refund of 350 that was sent and lost, and then nobody was there until the provider had forgotten the key. With its
/// charge.
async fn sent_and_forgotten(service: &TestService) -> (Running, String, Answer) {
    let running = service
        .run_with(payonce::config::Roles::ALL, &IMPATIENT)
        .await;
    let (charge, _) = charge(&running, "pm_card_visa").await;
    service
        .ledger
        .settings(rates(&json!({"refund.drop_before_charge": 1.0})))
        .await;
    let accepted = running
        .client
        .refund(&charge, "return-1", &json!({"amount": 350}))
        .await;
    until("it was sent", async || {
        (!service.ledger.refund_keys().await.is_empty()).then_some(())
    })
    .await;
    running.stop().await;
    service.ledger.settings(rates(&json!({}))).await;
    service.ledger.advance(25 * 3600).await;
    service.age_refund(&accepted.id(), 25 * 3600).await;
    let sent = service.ledger.refund_keys().await.len();
    let running = service.run().await;
    assert_eq!(
        service.refund_parked(&accepted.body).await,
        "key_window_over"
    );
    assert_eq!(service.ledger.refund_keys().await.len(), sent);
    (running, charge, accepted)
}

#[tokio::test]
async fn an_operator_who_made_sure_sends_a_refund_again_under_another_key() {
    let service = TestService::new().await;
    let (running, _, accepted) = sent_and_forgotten(&service).await;
    let (id, sent) = (accepted.id(), service.ledger.refund_keys().await);
    let retry = ["refunds", "retry", &id, "--reason", "support case 7"];
    // Only to look once more: nothing is found, and nothing is sent.
    let said = payonce(&service, &retry).await;
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(
        service.refund_parked(&accepted.body).await,
        "key_window_over"
    );
    assert_eq!(service.ledger.refund_keys().await, sent);
    let again = [&retry[..], &["--send-again"]].concat();
    let said = payonce(&service, &again).await;
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(
        running.client.refund_ended(&id).await["status"],
        "completed"
    );
    let keys = service.ledger.refund_keys().await;
    assert_eq!(keys.len(), sent.len() + 1);
    assert!(!sent.contains(&keys[sent.len()]), "{keys:?}");
    assert_eq!(service.ledger.refunds().await.len(), 1);
    let late = payonce(&service, &again).await;
    assert_eq!(late.code, 1, "{late:?}");
    service.drained().await;
    running.stop().await;
    service.check_books().await;
}

/// As a worker does that writes what it has learned: neither is the victim of a deadlock.
#[tokio::test]
async fn a_refund_that_is_sent_again_is_locked_before_its_job() {
    let service = TestService::new().await;
    let (running, _, accepted) = sent_and_forgotten(&service).await;
    let id = accepted.id();
    let refund: RefundId = id.parse().unwrap();
    let lock = async |transaction: &mut Transaction<'_, Postgres>, row: &str| {
        sqlx::query(AssertSqlSafe(format!("SELECT FROM {row} = $1 FOR UPDATE")))
            .bind(refund.as_uuid())
            .execute(&mut **transaction)
            .await
            .unwrap();
    };
    let mut worker = service.books.begin().await.unwrap();
    lock(&mut worker, "refunds WHERE id").await;
    let again = ["refunds", "retry", &id, "--send-again", "--reason", "x"];
    let (said, ()) = tokio::join!(payonce(&service, &again), async {
        service.waits_for_a_lock().await;
        lock(&mut worker, "outbox WHERE refund_id").await;
        worker.commit().await.unwrap();
    });
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(
        running.client.refund_ended(&id).await["status"],
        "completed"
    );
    running.stop().await;
    service.check_books().await;
}

/// Sent, lost, and then nobody was there until the provider had forgotten the key.
#[tokio::test]
async fn a_refund_sent_longer_ago_than_the_provider_remembers_keys_is_never_sent_again() {
    let service = TestService::new().await;
    let (running, charge, accepted) = sent_and_forgotten(&service).await;
    let now = running
        .client
        .get(&format!("/v1/refunds/{}", accepted.id()))
        .await;
    assert_eq!(
        (&now.body["status"], &now.body["money"]),
        (&json!("in_progress"), &json!("unknown"))
    );
    // What it has reserved stays reserved.
    let more = running
        .client
        .refund(&charge, "return-2", &json!({"amount": 700}))
        .await;
    assert_eq!((more.status, more.code()), (422, "refund_exceeds_charge"));
    // It lands after all, and is found as soon as somebody looks.
    let object = running.client.show(&charge).await.body["provider_charge_id"].clone();
    service
        .ledger
        .refund_outside(object.as_str().unwrap(), 350, Some(&accepted.id()))
        .await;
    service.parked_go_on().await;
    assert_eq!(
        running.client.refund_ended(&accepted.id()).await["status"],
        "completed"
    );
    service.drained().await;
    running.stop().await;
    service.check_books().await;
}

#[tokio::test]
async fn a_refund_made_longer_ago_than_the_provider_remembers_keys_is_found_and_not_made_again() {
    let service = TestService::new().await;
    let running = service
        .run_with(payonce::config::Roles::ALL, &IMPATIENT)
        .await;
    let (charge, _) = charge(&running, "pm_card_visa").await;
    running.stop().await;
    let api = service.run_with(API, &[]).await;
    let accepted = api
        .client
        .refund(&charge, "return-1", &json!({"amount": 350}))
        .await;
    // It goes out and takes effect, and its sender is never heard of again.
    service.ledger.hold("refund", "after").await;
    let worker = service.spawn("worker", &[]).await;
    service.ledger.held().await;
    worker.kill().await;
    service.ledger.release().await;
    service.ledger.advance(25 * 3600).await;
    service.age_refund(&accepted.id(), 25 * 3600).await;
    service.leases_run_out().await;
    let worker = service.run_with(WORKER, &[]).await;
    assert_eq!(
        api.client.refund_ended(&accepted.id()).await["status"],
        "completed"
    );
    assert_eq!(service.ledger.refund_keys().await.len(), 1);
    worker.stop().await;
    api.stop().await;
    service.check_books().await;
}

/// The rows are gone, as after a failover that lost commits; the client asks again, and the key is long forgotten.
#[tokio::test]
async fn a_refund_whose_rows_were_lost_is_found_again_however_old() {
    let shop = Charged::new().await;
    let refund = shop.refund("return-1", json!({"amount": 350})).await;
    let ended = shop.ended(&refund).await;
    shop.service.lose_refund(&refund).await;
    shop.service.ledger.advance(30 * 3600).await;
    let again = shop.refund("return-1", json!({"amount": 350})).await;
    assert_eq!(again["id"], refund["id"]);
    let found = shop.ended(&again).await;
    assert_eq!(found["status"], "completed");
    assert_eq!(found["provider_refund_id"], ended["provider_refund_id"]);
    assert_eq!(shop.service.ledger.refunds().await.len(), 1);
    assert_eq!(shop.charge_now().await["amount_refunded"], 350);
    shop.close().await;
}

#[tokio::test]
async fn while_sending_is_paused_refunds_are_accepted_and_not_sent() {
    let shop = Charged::new().await;
    shop.service.pause("operator").await;
    let refund = shop.refund("return-1", json!({"amount": 350})).await;
    let another = shop
        .running
        .client
        .charge("order-2", &charge_body("pm_card_visa"))
        .await;
    assert_eq!(another.status, 202);
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    assert!(shop.service.ledger.refund_keys().await.is_empty());
    shop.service.resume().await;
    assert_eq!(shop.ended(&refund).await["status"], "completed");
    shop.close().await;
}
