//! `charges resolve`: the provider is asked first, and its word stands against whatever is wanted.

use serde_json::{Value, json};

use super::{accepted, by_operator, parked, payonce_typing, resolve, shown};
use crate::support::{TestService, charge_body, until};

/// Nothing was decided: the job waits as before, and the history says who wanted what.
async fn assert_untouched(service: &TestService, id: &str) {
    let charge = shown(service, id).await;
    assert_eq!(charge["status"], "in_progress");
    assert_eq!(charge["job"]["state"], "parked");
    assert_eq!(charge["job"]["last_error"], "object_not_found");
    let written = by_operator(&charge);
    assert!(
        written.ends_with(&["resolve_asked", "resolve_refused"]),
        "{written:?}"
    );
}

async fn object(service: &TestService) -> Value {
    let objects = service.ledger.objects().await;
    assert_eq!(objects.len(), 1);
    objects[0].clone()
}

#[tokio::test]
async fn what_succeeded_at_the_provider_is_completed_as_asked() {
    let service = TestService::new().await;
    let id = parked(&service, "pm_card_visa", true).await;
    let said = resolve(&service, &id, "completed").await;
    assert_eq!(said.code, 0, "{said:?}");
    let charge = shown(&service, &id).await;
    assert_eq!(charge["stage"], "succeeded");
    let asked = &charge["events"][2];
    assert_eq!(
        (&asked["actor"], &asked["reason"]),
        (&"operator".into(), &"ticket 7".into())
    );
    assert_eq!(charge["events"][3]["detail"]["decided_by"], "operator");

    let again = resolve(&service, &id, "completed").await;
    assert_eq!(again.code, 0, "{again:?}");
    let contrary = resolve(&service, &id, "failed").await;
    assert_eq!(contrary.code, 1, "{contrary:?}");
    assert_eq!(service.ledger.times_charged(&id).await, 1);
    service.check_books_and_events().await;
}

#[tokio::test]
async fn what_succeeded_at_the_provider_is_completed_also_against_failed() {
    let service = TestService::new().await;
    let id = parked(&service, "pm_card_visa", true).await;
    let said = resolve(&service, &id, "failed").await;
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.err.contains("ended as completed"), "{said:?}");
    assert_eq!(shown(&service, &id).await["stage"], "succeeded");
    service.check_books_and_events().await;
}

#[tokio::test]
async fn what_the_provider_does_not_confirm_is_never_completed_and_fails_once_it_is_canceled() {
    let service = TestService::new().await;
    let id = parked(&service, "pm_card_visa", false).await;
    let said = resolve(&service, &id, "completed").await;
    assert_eq!(said.code, 1);
    assert!(said.err.contains("has not executed it"), "{said:?}");
    assert_untouched(&service, &id).await;
    assert_eq!(object(&service).await["status"], "requires_confirmation");

    let said = resolve(&service, &id, "failed").await;
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(object(&service).await["status"], "canceled");
    let charge = shown(&service, &id).await;
    assert_eq!(
        (&charge["stage"], &charge["money"]),
        (&"failed".into(), &"not_moved".into())
    );
    assert_eq!(charge["failure"]["code"], "ended_by_operator");
    service.check_books_and_events().await;
}

#[tokio::test]
async fn what_waits_for_the_customer_is_canceled_first() {
    let service = TestService::new().await;
    let id = parked(&service, "pm_card_authenticationRequired", true).await;
    let said = resolve(&service, &id, "completed").await;
    assert!(said.err.contains("is not done with it"), "{said:?}");
    assert_untouched(&service, &id).await;
    assert_eq!(resolve(&service, &id, "failed").await.code, 0);
    assert_eq!(object(&service).await["status"], "canceled");
    service.check_books_and_events().await;
}

/// Canceled on the provider's own pages, while nobody here looked.
#[tokio::test]
async fn what_is_canceled_at_the_provider_has_failed_also_against_completed() {
    let service = TestService::new().await;
    let id = parked(&service, "pm_card_visa", false).await;
    let object = object(&service).await["id"].as_str().unwrap().to_owned();
    let canceled = crate::support::client::http()
        .post(format!(
            "{}/v1/payment_intents/{object}/cancel",
            service.ledger.base_url()
        ))
        .bearer_auth("sk_test_it")
        .send()
        .await
        .unwrap();
    assert!(canceled.status().is_success());
    let said = resolve(&service, &id, "completed").await;
    assert_eq!(said.code, 1, "{said:?}");
    assert_eq!(shown(&service, &id).await["status"], "failed");
    service.check_books_and_events().await;
}

#[tokio::test]
async fn a_silent_provider_decides_nothing() {
    let service = TestService::new().await;
    let id = parked(&service, "pm_card_visa", true).await;
    for (status, wanted) in [
        (500, "failed"),
        (500, "completed"),
        (401, "failed"),
        (429, "completed"),
    ] {
        let answer = json!({"phase": "read", "status": status, "body": "{}"});
        service.ledger.dictate(answer).await;
        let said = resolve(&service, &id, wanted).await;
        assert_eq!(said.code, 1, "{said:?}");
        assert_untouched(&service, &id).await;
    }
    service.check_books_and_events().await;
}

/// The cancel's answer is lost, its effect is not: the read after it tells.
#[tokio::test]
async fn a_lost_answer_to_the_cancel_is_cleared_up_by_a_read() {
    let service = TestService::new().await;
    let id = parked(&service, "pm_card_visa", false).await;
    let lost = json!({"phase": "cancel", "status": 503, "body": "{}", "effect": true});
    service.ledger.dictate(lost).await;
    let said = resolve(&service, &id, "failed").await;
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(
        shown(&service, &id).await["failure"]["code"],
        "ended_by_operator"
    );
    service.check_books_and_events().await;
}

#[tokio::test]
async fn a_cancel_that_the_provider_refuses_leaves_the_charge_open() {
    let service = TestService::new().await;
    let id = parked(&service, "pm_card_visa", false).await;
    let refused =
        json!({"phase": "cancel", "status": 503, "body": "{}", "effect": false, "times": 1});
    service.ledger.dictate(refused).await;
    let said = resolve(&service, &id, "failed").await;
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.err.contains("does not let it be canceled"), "{said:?}");
    assert_untouched(&service, &id).await;
    assert_eq!(resolve(&service, &id, "failed").await.code, 0);
    service.check_books_and_events().await;
}

#[tokio::test]
async fn where_nothing_is_stored_failed_is_certain_and_completed_is_refused() {
    let service = TestService::new().await;
    let id = accepted(&service, "order-1").await;
    let said = resolve(&service, &id, "completed").await;
    assert_eq!(said.code, 1);
    assert!(said.err.contains("nothing was executed"), "{said:?}");
    let charge = shown(&service, &id).await;
    assert_eq!(
        (&charge["stage"], &charge["job"]["state"]),
        (&"pending".into(), &"ready".into())
    );

    let said = resolve(&service, &id, "failed").await;
    assert_eq!(said.code, 0, "{said:?}");
    let running = service.run().await;
    service.drained().await;
    running.stop().await;
    assert!(service.ledger.objects().await.is_empty());
    service.check_books_and_events().await;
}

/// The books are of before the charge was executed, as after a restore: what has our stamp at the provider counts.
#[tokio::test]
async fn where_the_stored_id_was_lost_the_provider_is_searched_for_our_stamp() {
    let service = TestService::new().await;
    let id = accepted(&service, "order-1").await;
    let all = "CREATE TABLE old_outbox AS SELECT * FROM outbox";
    sqlx::query(all).execute(&service.books).await.unwrap();
    let running = service.run().await;
    running.client.terminal(&id).await;
    running.stop().await;
    for statement in [
        "UPDATE charges SET stage = 'pending', money = 'not_moved', provider_charge_id = NULL, provider_account = NULL,
             finished_at = NULL, version = 1, attempts = 0",
        "UPDATE idempotent_requests SET status = 'in_progress'",
        "INSERT INTO outbox OVERRIDING SYSTEM VALUE SELECT * FROM old_outbox",
    ] {
        sqlx::query(statement).execute(&service.books).await.unwrap();
    }

    let said = resolve(&service, &id, "failed").await;
    assert_eq!(said.code, 1, "{said:?}");
    assert_eq!(shown(&service, &id).await["stage"], "succeeded");
    assert_eq!(service.ledger.times_charged(&id).await, 1);
    // The events are not of before: the end was told, and is told again.
    service.check_books().await;
}

#[tokio::test]
async fn nothing_is_done_without_the_typed_word() {
    let service = TestService::new().await;
    let id = parked(&service, "pm_card_visa", false).await;
    let arguments = ["charges", "resolve", &id, "--as", "failed", "--reason", "x"];
    for typed in ["", "\n", "yes\n", "completed\n"] {
        let said = payonce_typing(&service, &arguments, typed).await;
        assert_eq!(said.code, 1);
        assert!(said.err.contains("not confirmed"), "{said:?}");
    }
    assert!(by_operator(&shown(&service, &id).await).is_empty());
    let said = payonce_typing(&service, &arguments, "failed\n").await;
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.err.contains(&id), "{said:?}");
    service.check_books_and_events().await;
}

#[tokio::test]
async fn a_charge_of_another_account_or_of_none_is_left_alone() {
    let service = TestService::new().await;
    let id = parked(&service, "pm_card_visa", false).await;
    let move_away = "UPDATE charges SET provider_account = 'elsewhere'";
    sqlx::query(move_away)
        .execute(&service.books)
        .await
        .unwrap();
    let said = resolve(&service, &id, "failed").await;
    assert_eq!(said.code, 1);
    assert!(said.err.contains("`elsewhere`"), "{said:?}");
    assert!(by_operator(&shown(&service, &id).await).is_empty());
    let absent = "chg_00000000000000000000000000000000";
    assert_eq!(resolve(&service, absent, "failed").await.code, 1);
}

/// An operator's process is killed while it asks: the lease runs out, and a worker goes on.
#[tokio::test]
async fn a_resolve_that_is_killed_leaves_a_job_that_goes_on() {
    let service = TestService::new().await;
    let id = parked(&service, "pm_card_visa", false).await;
    service.ledger.hold("cancel", "after").await;
    let resolving = resolve(&service, &id, "failed");
    tokio::select! {
        said = resolving => panic!("it was not held: {said:?}"),
        () = service.ledger.held() => {}
    }
    // Dropped with the future, the process is killed. The lease ends now, not in a minute.
    service.ledger.release().await;
    let expire = "UPDATE outbox SET lease_until = now() WHERE state = 'leased'";
    sqlx::query(expire).execute(&service.books).await.unwrap();
    let running = service.run().await;
    assert_eq!(running.client.terminal(&id).await["status"], "failed");
    running.stop().await;
    service.check_books_and_events().await;
}

/// Less came in than was asked for: neither word would be true.
#[tokio::test]
async fn what_moved_with_another_amount_is_neither_completed_nor_failed() {
    let service = TestService::new().await;
    let running = service.run().await;
    let body = charge_body("pm_sim_partial");
    let id = running.client.charge("order-1", &body).await.id();
    until("the job is parked", async || {
        let parked = service.count("SELECT count(*) FROM outbox WHERE state = 'parked'");
        (parked.await == 1).then_some(())
    })
    .await;
    running.stop().await;
    for wanted in ["completed", "failed"] {
        let said = resolve(&service, &id, wanted).await;
        assert_eq!(said.code, 1);
        assert!(said.err.contains("not as it was asked for"), "{said:?}");
        let charge = shown(&service, &id).await;
        assert_eq!(charge["status"], "in_progress");
        assert_eq!(charge["job"]["last_error"], "amount_differs");
    }
}
