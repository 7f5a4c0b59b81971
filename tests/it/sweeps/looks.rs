//! Jobs so old that the provider may have forgotten their key, and strays that a sweep found: what may have been executed
//! is known before anything is sent.

use futures_util::future::join_all;
use serde_json::{Value, json};

use super::{AMOUNT, text};
use crate::support::books::uuid_of;
use crate::support::service::API;
use crate::support::{TestService, charge_body, until};

/// Accepted, not begun, and `hours` old.
async fn accepted(service: &TestService, count: usize, hours: i32) -> Vec<String> {
    let api = service.run_with(API, &[]).await;
    let body = charge_body("pm_card_visa");
    let ids = join_all((0..count).map(async |number| {
        let key = format!("order-{number}");
        api.client.charge(&key, &body).await.id()
    }))
    .await;
    api.stop().await;
    for id in &ids {
        if hours > 0 {
            service.age(id, hours).await;
        }
    }
    ids
}

/// What a sweep has seen of an object, before any job runs.
async fn seen(service: &TestService, object: &str, charge: &str) {
    sqlx::query(
        "INSERT INTO stray_objects
             (provider, provider_account, provider_charge_id, charge_id, status, amount, currency)
         VALUES ('stripe', 'default', $1, $2, 'requires_confirmation', 1000, 'usd')",
    )
    .bind(object)
    .bind(uuid_of(charge))
    .execute(&service.books)
    .await
    .unwrap();
}

async fn walks(service: &TestService) -> usize {
    let requests = service.ledger.requests().await;
    let first_page = |request: &&Value| {
        let path = text(&request["path"]);
        path.starts_with("/v1/payment_intents?") && !path.contains("starting_after")
    };
    requests.iter().filter(first_page).count()
}

#[tokio::test]
async fn one_walk_answers_all_jobs_that_look() {
    let service = TestService::new().await;
    let ids = accepted(&service, 60, 25).await;
    // Of every third an object was made, of every sixth executed, by rows that were lost.
    for (number, id) in ids
        .iter()
        .enumerate()
        .filter(|(number, _)| number.is_multiple_of(3))
    {
        let object = service.ledger.make_object(id, AMOUNT).await;
        if number.is_multiple_of(6) {
            service.ledger.execute_object(&object).await;
        }
    }
    let running = service.run().await;
    for id in &ids {
        assert_eq!(running.client.terminal(id).await["status"], "completed");
    }
    running.stop().await;
    assert_eq!(service.ledger.charges().await.len(), 60);
    assert_eq!(service.ledger.objects().await.len(), 60);
    // Those that asked while the first walk was under way have a second one.
    let walks = walks(&service).await;
    assert!((1..=3).contains(&walks), "{walks} walks");
    service.check_books().await;
}

/// What is left of rows that were lost: one object that moved the money and two that could be executed by who stored them.
#[tokio::test]
async fn of_several_objects_the_one_that_moved_money_goes_on_and_the_others_are_canceled_first() {
    let service = TestService::new().await;
    let id = accepted(&service, 1, 25).await.remove(0);
    let mut objects = Vec::new();
    for _ in 0..3 {
        objects.push(service.ledger.make_object(&id, AMOUNT).await);
    }
    service.ledger.execute_object(&objects[1]).await;
    let running = service.run().await;
    let charge = running.client.terminal(&id).await;
    assert_eq!(charge["status"], "completed");
    assert_eq!(charge["provider_charge_id"], objects[1].as_str());
    for stray in [&objects[0], &objects[2]] {
        assert_eq!(service.ledger.status_of(stray).await, "canceled");
    }
    running.stop().await;
    service.check_books().await;
}

/// However young the charge is: a sweep has seen it.
#[tokio::test]
async fn a_stray_object_is_settled_before_anything_is_sent() {
    for executed in [true, false] {
        let service = TestService::new().await;
        let id = accepted(&service, 1, 0).await.remove(0);
        let object = service.ledger.make_object(&id, AMOUNT).await;
        if executed {
            service.ledger.execute_object(&object).await;
        }
        seen(&service, &object, &id).await;
        let running = service.run().await;
        let charge = running.client.terminal(&id).await;
        assert_eq!(charge["status"], "completed");
        assert_eq!(charge["provider_charge_id"], object.as_str());
        // An attempt is an execute that this charge has sent.
        assert_eq!(charge["attempts"], u8::from(!executed));
        let mut history = vec!["object_adopted", "execute_started", "succeeded"];
        history.retain(|kind| !executed || *kind != "execute_started");
        assert_eq!(service.history(&id).await, history);
        assert!(service.ledger.prepare_keys_of(&id).await.is_empty());
        running.stop().await;
        service.check_books().await;
    }
}

/// The rows were lost, and the key came back with another amount.
#[tokio::test]
async fn an_object_of_another_amount_that_moved_nothing_is_canceled_and_a_new_one_made() {
    let service = TestService::new().await;
    let id = accepted(&service, 1, 0).await.remove(0);
    let object = service.ledger.make_object(&id, 555).await;
    seen(&service, &object, &id).await;
    let running = service.run().await;
    let charge = running.client.terminal(&id).await;
    assert_eq!(charge["status"], "completed");
    assert_ne!(charge["provider_charge_id"], object.as_str());
    assert_eq!(service.ledger.status_of(&object).await, "canceled");
    running.stop().await;
    service.check_books().await;
}

/// A cancel is certain at once only where nothing can have been executed.
#[tokio::test]
async fn a_cancel_of_a_charge_whose_money_moved_unknown_to_the_books_does_not_say_canceled() {
    for hours in [0, 25] {
        let service = TestService::new().await;
        let id = accepted(&service, 1, hours).await.remove(0);
        let object = service.ledger.make_object(&id, AMOUNT).await;
        service.ledger.execute_object(&object).await;
        if hours == 0 {
            seen(&service, &object, &id).await;
        }
        let api = service.run_with(API, &[]).await;
        let answer = api.client.cancel(&id).await;
        assert_eq!(answer.status, 202, "{answer:?}");
        let running = service.run().await;
        assert_eq!(running.client.terminal(&id).await["status"], "completed");
        running.stop().await;
        api.stop().await;
        service.check_books().await;
    }
}

#[tokio::test]
async fn a_cancel_of_an_old_charge_that_was_never_begun_ends_once_a_sweep_has_looked() {
    let service = TestService::new().await;
    let id = accepted(&service, 1, 25).await.remove(0);
    let running = service.run().await;
    let answer = running.client.cancel(&id).await;
    assert!([200, 202].contains(&answer.status), "{answer:?}");
    let charge = running.client.terminal(&id).await;
    assert!(["canceled", "succeeded"].contains(&text(&charge["stage"])));
    running.stop().await;
    service.check_books().await;
}

/// The stored object and another one that moved the money: nobody but a person can tell what is right.
#[tokio::test]
async fn a_success_of_another_object_than_the_stored_one_is_held_for_a_person() {
    let service = TestService::new().await;
    let settings = [("worker.slow_base", "1h"), ("worker.slow_cap", "1h")];
    let running = service
        .run_with(payonce::config::Roles::ALL, &settings)
        .await;
    let mut body = charge_body("pm_card_authenticationRequired");
    body["return_url"] = json!("https://shop.example/back");
    let id = running.client.charge("order-1", &body).await.id();
    running.client.at_stage(&id, "requires_action").await;
    let other = service.ledger.make_object(&id, AMOUNT).await;
    service.ledger.execute_object(&other).await;
    seen(&service, &other, &id).await;
    sqlx::query("UPDATE outbox SET run_at = now()")
        .execute(&service.books)
        .await
        .unwrap();
    assert_eq!(service.parked(&id).await, "second_success");
    let open = "SELECT count(*) FROM discrepancies WHERE kind = 'second_success'";
    assert_eq!(service.count(open).await, 1);
    running.stop().await;
}

/// A sweep is begun anew until every page has answered; nothing is prepared meanwhile.
#[tokio::test]
async fn a_look_is_not_answered_by_a_walk_that_did_not_come_to_its_end() {
    let service = TestService::new().await;
    let id = accepted(&service, 1, 25).await.remove(0);
    service
        .ledger
        .settings(json!({"rates": {"read.unavailable": 1.0}}))
        .await;
    let running = service.run().await;
    until("a sweep was given up", async || {
        let failed = "SELECT count(*) FROM sweeps WHERE last_error IS NOT NULL";
        (service.count(failed).await > 0).then_some(())
    })
    .await;
    assert!(service.ledger.prepare_keys().await.is_empty());
    service.ledger.settings(json!({})).await;
    assert_eq!(running.client.terminal(&id).await["status"], "completed");
    running.stop().await;
    service.check_books().await;
}

/// It was executed by rows that were lost, and the bank has its turn: no attempt of this charge's, and nothing stuck.
#[tokio::test]
async fn an_adopted_object_that_the_provider_processes_is_not_stuck() {
    let service = TestService::new().await;
    let running = service.run().await;
    let body = charge_body("pm_sim_processing");
    let id = running.client.charge("order-1", &body).await.id();
    until("the bank has its turn", async || {
        let charge = running.client.show(&id).await.body;
        (service.job(&id).await.state == "ready" && charge["attempts"] == 1).then_some(())
    })
    .await;
    running.stop().await;
    let object = text(&service.ledger.objects().await[0]["id"]).to_owned();
    sqlx::query(
        "UPDATE charges
         SET stage = 'pending', money = 'not_moved', provider_charge_id = NULL, provider_account = NULL, attempts = 0",
    )
    .execute(&service.books)
    .await
    .unwrap();
    sqlx::query("UPDATE outbox SET last_call = NULL, created_at = created_at - interval '3 days'")
        .execute(&service.books)
        .await
        .unwrap();
    seen(&service, &object, &id).await;
    let running = service.run().await;
    until("it was adopted and read", async || {
        let read = "SELECT count(*) FROM outbox WHERE last_call ->> 'answer' = 'processing'";
        (service.count(read).await == 1).then_some(())
    })
    .await;
    let charge = running.client.show(&id).await.body;
    assert_eq!(
        (&charge["stage"], &charge["money"], &charge["attempts"]),
        (&json!("processing"), &json!("unknown"), &json!(0))
    );
    let mut connection = service.books.acquire().await.unwrap();
    let hour = std::time::Duration::from_hours(1);
    let backlog = payonce::db::reconcile::backlog(&mut connection, hour).await;
    assert_eq!(backlog.unwrap().stuck, 0);
    drop(connection);
    service.ledger.settle(&object, "succeeded").await;
    let charge = running.client.terminal(&id).await;
    assert_eq!(
        (&charge["status"], &charge["attempts"]),
        (&json!("completed"), &json!(0))
    );
    running.stop().await;
    assert_eq!(service.ledger.executes().await.len(), 1);
    service.check_books().await;
}

/// A failover lost its rows, and nobody started in recovery mode. A routine sweep saw its object while the provider knew
/// its key, and the client comes back when that is forgotten.
#[tokio::test]
async fn a_charge_whose_rows_were_lost_comes_out_as_before_after_the_key_window_once_a_sweep_has_run()
 {
    let service = TestService::new().await;
    let running = service.run().await;
    let body = charge_body("pm_card_visa");
    let id = running.client.charge("order-1", &body).await.id();
    let before = running.client.terminal(&id).await;
    running.stop().await;
    sqlx::query("TRUNCATE charges, idempotent_requests, outbox, charge_events")
        .execute(&service.books)
        .await
        .unwrap();
    assert_eq!(super::reconcile(&service).await.code, 1);
    service.ledger.advance(25 * 3600).await;

    let running = service.run().await;
    let again = running.client.charge("order-1", &body).await;
    assert_eq!((again.status, again.id()), (202, id.clone()));
    let charge = running.client.terminal(&id).await;
    for field in ["status", "provider_charge_id"] {
        assert_eq!(charge[field], before[field]);
    }
    running.stop().await;
    assert_eq!(service.ledger.objects().await.len(), 1);
    assert_eq!(service.ledger.times_charged(&id).await, 1);
    service.check_books().await;
}
