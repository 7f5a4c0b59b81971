//! The provider's objects against the books and the books against them: what differs is told, what jobs must know reaches
//! them, and one walk answers everybody.

mod looks;
mod recovery;

use futures_util::future::join_all;
use payonce::config::Roles;
use serde_json::{Value, json};

use crate::operator::{Said, payonce};
use crate::support::service::{API, RECONCILER};
use crate::support::{TestService, charge_body, until};

/// What [`charge_body`] asks for.
const AMOUNT: i64 = 1000;
/// Of no charge in any books.
const UNKNOWN: &str = "chg_00000000000000000000000000000001";

async fn reconcile(service: &TestService) -> Said {
    payonce(service, &["reconcile", "--since", "1h", "--json"]).await
}

/// The kinds of the open discrepancies with their charges and objects.
fn kinds(said: &Said) -> Vec<(String, String, String)> {
    let data = said.json()["data"].as_array().unwrap().clone();
    data.into_iter()
        .map(|open| {
            (
                open["kind"].as_str().unwrap().to_owned(),
                text(&open["charge_id"]).to_owned(),
                open["provider_charge_id"].as_str().unwrap().to_owned(),
            )
        })
        .collect()
}

/// Charges with these payment methods, all ended.
async fn ended(service: &TestService, methods: &[&str]) -> Vec<Value> {
    let running = service.run().await;
    let ended = join_all(methods.iter().enumerate().map(async |(number, method)| {
        let key = format!("order-{number}");
        let id = running.client.charge(&key, &charge_body(method)).await.id();
        running.client.terminal(&id).await
    }))
    .await;
    running.stop().await;
    ended
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

#[tokio::test]
async fn books_and_provider_that_agree_have_no_discrepancy() {
    let service = TestService::new().await;
    let methods = ["pm_card_visa", "pm_card_chargeDeclined", "pm_card_visa"];
    ended(&service, &methods).await;
    let said = reconcile(&service).await;
    assert_eq!(said.code, 0, "{said:?}");
    assert!(kinds(&said).is_empty());
    assert!(said.err.contains("3 objects"), "{said:?}");
}

#[tokio::test]
async fn money_that_moved_for_a_charge_the_books_do_not_have_is_told_until_a_person_has_dealt_with_it()
 {
    let service = TestService::new().await;
    let paid = service.ledger.make_object(UNKNOWN, AMOUNT).await;
    service.ledger.execute_object(&paid).await;
    // Of an object that moved nothing nobody needs to know yet.
    service.ledger.make_object(UNKNOWN, AMOUNT).await;
    for _ in 0..2 {
        let said = reconcile(&service).await;
        assert_eq!(said.code, 1, "{said:?}");
        assert_eq!(
            kinds(&said),
            [("theirs_only".to_owned(), UNKNOWN.to_owned(), paid.clone())]
        );
    }
    let number = reconcile(&service).await.json()["data"][0]["id"].to_string();
    let arguments = ["discrepancies", "resolve", &number, "--reason", "refunded"];
    assert_eq!(payonce(&service, &arguments).await.code, 0);
    assert_eq!(payonce(&service, &arguments).await.code, 1);
    let said = reconcile(&service).await;
    assert_eq!(said.code, 0, "{said:?}");
}

#[tokio::test]
async fn a_completed_charge_that_the_provider_does_not_have_is_told() {
    let service = TestService::new().await;
    let charge = ended(&service, &["pm_card_visa"]).await.remove(0);
    service.ledger.forget_everything().await;
    // Older than an hour less than clocks differ.
    service.age(text(&charge["id"]), 2).await;
    let said = payonce(&service, &["reconcile", "--since", "24h", "--json"]).await;
    assert_eq!(said.code, 1, "{said:?}");
    let object = text(&charge["provider_charge_id"]).to_owned();
    assert_eq!(
        kinds(&said),
        [(
            "ours_only".to_owned(),
            text(&charge["id"]).to_owned(),
            object
        )]
    );
    let timeline = service.history(text(&charge["id"])).await;
    assert_eq!(timeline.last().unwrap(), "discrepancy");
}

#[tokio::test]
async fn a_success_beside_another_and_one_after_a_failure_are_told_and_change_no_charge() {
    let service = TestService::new().await;
    let charges = ended(&service, &["pm_card_visa", "pm_card_chargeDeclined"]).await;
    let mut expected = Vec::new();
    for (charge, kind) in charges
        .iter()
        .zip(["second_success", "success_after_failed"])
    {
        let object = service
            .ledger
            .make_object(text(&charge["id"]), AMOUNT)
            .await;
        service.ledger.execute_object(&object).await;
        expected.push((kind.to_owned(), text(&charge["id"]).to_owned(), object));
    }
    let said = reconcile(&service).await;
    assert_eq!(said.code, 1, "{said:?}");
    let mut found = kinds(&said);
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
    let api = service.run_with(API, &[]).await;
    for charge in &charges {
        let now = api.client.show(text(&charge["id"])).await.body;
        assert_eq!(now["status"], charge["status"]);
        assert_eq!(now["provider_charge_id"], charge["provider_charge_id"]);
    }
    api.stop().await;
}

#[tokio::test]
async fn a_completed_charge_of_another_amount_is_told() {
    let service = TestService::new().await;
    let charge = ended(&service, &["pm_card_visa"]).await.remove(0);
    sqlx::query("UPDATE charges SET amount = amount + 1")
        .execute(&service.books)
        .await
        .unwrap();
    let said = reconcile(&service).await;
    assert_eq!(said.code, 1, "{said:?}");
    let object = text(&charge["provider_charge_id"]).to_owned();
    assert_eq!(
        kinds(&said),
        [(
            "amount_differs".to_owned(),
            text(&charge["id"]).to_owned(),
            object
        )]
    );
}

#[tokio::test]
async fn an_object_that_could_still_move_money_for_a_charge_that_ended_without_it_is_canceled() {
    let service = TestService::new().await;
    let charges = ended(&service, &["pm_card_visa", "pm_card_chargeDeclined"]).await;
    let mut strays = Vec::new();
    for charge in &charges {
        strays.push(
            service
                .ledger
                .make_object(text(&charge["id"]), AMOUNT)
                .await,
        );
    }
    let said = reconcile(&service).await;
    assert_eq!(said.code, 0, "{said:?}");
    for stray in &strays {
        assert_eq!(service.ledger.status_of(stray).await, "canceled");
    }
    assert_eq!(service.ledger.charges().await.len(), 1);
}

/// Nothing but the sweep would look at it within the hour.
#[tokio::test]
async fn a_charge_whose_object_came_to_its_end_hears_of_it() {
    let service = TestService::new().await;
    let slow = [("worker.slow_base", "1h"), ("worker.slow_cap", "1h")];
    let running = service.run_with(Roles::ALL, &slow).await;
    let mut body = charge_body("pm_card_authenticationRequired");
    body["return_url"] = json!("https://shop.example/back");
    let id = running.client.charge("order-1", &body).await.id();
    let charge = running.client.at_stage(&id, "requires_action").await;
    let object = text(&charge["provider_charge_id"]).to_owned();
    service.ledger.authenticate(&object, "success").await;
    let said = reconcile(&service).await;
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(running.client.terminal(&id).await["status"], "completed");
    running.stop().await;
    service.check_books().await;
}

#[tokio::test]
async fn the_newest_objects_are_swept_without_being_asked() {
    let service = TestService::new().await;
    let paid = service.ledger.make_object(UNKNOWN, AMOUNT).await;
    service.ledger.execute_object(&paid).await;
    sqlx::query("DELETE FROM sweeps")
        .execute(&service.books)
        .await
        .unwrap();
    let running = service.run_with(RECONCILER, &[]).await;
    until("the discrepancy is found", async || {
        let open = "SELECT count(*) FROM discrepancies WHERE kind = 'theirs_only'";
        (service.count(open).await == 1).then_some(())
    })
    .await;
    running.stop().await;
}

/// Whoever holds a sweep and dies keeps it for no longer than its lease; the next one begins anew and finds the same.
#[tokio::test]
async fn a_sweep_whose_process_is_killed_is_begun_anew_by_another() {
    let service = TestService::new().await;
    let paid = service.ledger.make_object(UNKNOWN, AMOUNT).await;
    service.ledger.execute_object(&paid).await;
    sqlx::query("DELETE FROM sweeps")
        .execute(&service.books)
        .await
        .unwrap();
    service.ledger.hold("read", "before").await;
    let process = service.spawn("reconciler", &[]).await;
    service.ledger.held().await;
    process.kill().await;
    service.ledger.release().await;
    assert_eq!(service.count("SELECT count(*) FROM discrepancies").await, 0);
    sqlx::query("UPDATE sweeps SET lease_until = now()")
        .execute(&service.books)
        .await
        .unwrap();
    let running = service.run_with(RECONCILER, &[]).await;
    until("the sweep is finished", async || {
        let finished = "SELECT count(*) FROM sweeps WHERE finished_at IS NOT NULL";
        (service.count(finished).await == 1).then_some(())
    })
    .await;
    running.stop().await;
    assert_eq!(service.count("SELECT count(*) FROM discrepancies").await, 1);
}

/// Two replicas, and a person besides: each sweep is walked by one of them.
#[tokio::test]
async fn sweepers_at_once_find_each_difference_once() {
    let service = TestService::new().await;
    let paid = service.ledger.make_object(UNKNOWN, AMOUNT).await;
    service.ledger.execute_object(&paid).await;
    let (one, other) = (
        service.run_with(RECONCILER, &[]).await,
        service.run_with(RECONCILER, &[]).await,
    );
    let all = join_all((0..4).map(|_| reconcile(&service))).await;
    for said in all {
        assert_eq!(said.code, 1, "{said:?}");
        assert_eq!(kinds(&said).len(), 1);
    }
    one.stop().await;
    other.stop().await;
}

/// A page holds a hundred objects, and each that is canceled has its pause.
#[tokio::test]
async fn a_sweep_that_cancels_many_objects_ends_at_once_when_its_process_is_to_end() {
    let service = TestService::new().await;
    let charge = ended(&service, &["pm_card_visa"]).await.remove(0);
    let id = text(&charge["id"]);
    for _ in 0..8 {
        service.ledger.make_object(id, AMOUNT).await;
    }
    sqlx::query("DELETE FROM sweeps")
        .execute(&service.books)
        .await
        .unwrap();
    let slow = [("reconciler.sweep_pause", "1500ms")];
    let running = service.run_with(RECONCILER, &slow).await;
    until("the first one is canceled", async || {
        let objects = service.ledger.objects().await;
        let canceled = |object: &&Value| object["status"] == "canceled";
        (objects.iter().filter(canceled).count() == 1).then_some(())
    })
    .await;
    running.stop().await;
    let objects = service.ledger.objects().await;
    let open = objects
        .iter()
        .filter(|object| object["status"] == "requires_confirmation");
    assert!(open.count() >= 5, "it went on to the end");
    // Given back: the next one need not wait for the lease.
    let held = "SELECT count(*) FROM sweeps WHERE lease_token IS NOT NULL";
    assert_eq!(service.count(held).await, 0);
}
