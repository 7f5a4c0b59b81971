//! What a key means: to whom it belongs, what uses it up, what it answers later, and how long a client may wait for it.

use payonce::domain::idempotency::Fingerprint;
use serde_json::json;

use super::{API, WORKER, body, draft};
use crate::support::client::{answer, http};
use crate::support::{TestService, charge_body};

#[tokio::test]
async fn one_key_of_two_merchants_is_two_charges() {
    let service = TestService::new().await;
    let running = service.run().await;
    let mut other = running.client.clone();
    (_, other.token) = service.make_merchant("other").await;
    let ours = running.client.charge("1", &body(1000)).await;
    let theirs = other.charge("1", &body(500)).await;
    assert_eq!((ours.status, theirs.status), (202, 202));
    assert_ne!(ours.id(), theirs.id());
    assert_eq!(running.client.show(&theirs.id()).await.status, 404);
    assert_eq!(other.show(&ours.id()).await.status, 404);
    // And where all of it is the same.
    let our_twin = running.client.charge("2", &body(700)).await;
    let their_twin = other.charge("2", &body(700)).await;
    assert_eq!((our_twin.status, their_twin.status), (202, 202));
    assert_ne!(our_twin.id(), their_twin.id());
    for (client, key, answer, amount) in [
        (&running.client, "1", &ours, 1000),
        (&other, "1", &theirs, 500),
        (&running.client, "2", &our_twin, 700),
        (&other, "2", &their_twin, 700),
    ] {
        let charge = client.terminal(&answer.id()).await;
        assert_eq!(charge["amount"], amount);
        assert_eq!(charge["status"], "completed");
        assert_eq!(service.ledger.times_charged(&answer.id()).await, 1);
        let again = client.charge(key, &body(amount)).await;
        assert_eq!((again.status, again.id()), (200, answer.id()));
    }
    running.stop().await;
    service.check_books().await;
    assert_eq!(service.ledger.charges().await.len(), 4);
}

/// The order of fields and of metadata means nothing, however the JSON was read.
#[tokio::test]
async fn a_body_that_says_the_same_in_another_order_is_the_same_request() {
    let service = TestService::new().await;
    let api = service.run_with(API, &[]).await;
    let url = format!("{}/v1/charges", api.client.base);
    let mut ids = Vec::new();
    for text in [
        r#"{"amount":1000,"currency":"usd","payment_method":"pm_card_visa","metadata":{"a":"1","b":"2","c":"3"}}"#,
        r#"{"metadata":{"c":"3","a":"1","b":"2"},"payment_method":"pm_card_visa","currency":"usd","amount":1000}"#,
        r#"{ "metadata" : {"b":"2","c":"3","\u0061":"1"}, "amount":1000,"currency":"USD","payment_method":"pm_card_visa"}"#,
    ] {
        let request = http()
            .post(&url)
            .bearer_auth(&api.client.token)
            .header("idempotency-key", "k1")
            .header("content-type", "application/json")
            .body(text);
        let answer = answer(request.send().await.unwrap()).await.unwrap();
        let expected = if ids.is_empty() { 202 } else { 200 };
        assert_eq!(answer.status, expected, "{text} {answer:?}");
        ids.push(answer.id());
    }
    assert!(ids.iter().all(|id| *id == ids[0]));
    assert_eq!(service.stored().await, 1);
    api.stop().await;
    service.finish().await;
}

/// It is the charge's own alone: what a query says beside it, and a cancel that carries it, are no other request's answer.
#[tokio::test]
async fn a_key_on_another_path_answers_for_nothing_but_its_charge() {
    let service = TestService::new().await;
    let api = service.run_with(API, &[]).await;
    let send = async |path: &str| {
        let request = http()
            .post(format!("{}{path}", api.client.base))
            .bearer_auth(&api.client.token)
            .header("idempotency-key", "k1")
            .header("content-type", "application/json")
            .body(body(1000).to_string());
        answer(request.send().await.unwrap()).await.unwrap()
    };
    let first = send("/v1/charges").await;
    let second = api.client.charge("k2", &body(1000)).await;
    let again = send("/v1/charges?x=1").await;
    assert_eq!(
        (first.status, again.status, again.id()),
        (202, 200, first.id())
    );
    // A charge's body is no refund's.
    let refund = send(&format!("/v1/charges/{}/refunds", first.id())).await;
    assert_eq!((refund.status, refund.code()), (422, "invalid_request"));
    let canceled = send(&format!("/v1/charges/{}/cancel", second.id())).await;
    assert_eq!((canceled.status, canceled.id()), (200, second.id()));
    assert_eq!(canceled.body["stage"], "canceled");
    let untouched = api.client.show(&first.id()).await;
    assert_eq!(untouched.body["stage"], "pending");
    api.stop().await;
    let worker = service.run_with(WORKER, &[]).await;
    service.drained().await;
    worker.stop().await;
    assert_eq!(service.ledger.charges().await.len(), 1);
    service.check_books().await;
}

#[tokio::test]
async fn keys_that_differ_in_case_are_two_and_quotes_make_no_difference() {
    let service = TestService::new().await;
    let api = service.run_with(API, &[]).await;
    let upper = api.client.charge("order-A1", &body(1000)).await;
    let lower = api.client.charge("order-a1", &body(1000)).await;
    assert_eq!((upper.status, lower.status), (202, 202));
    let quoted = api.client.charge("\"order-a1\"", &body(1000)).await;
    assert_eq!((quoted.status, quoted.id()), (200, lower.id()));
    assert_eq!(service.stored().await, 2);
    api.stop().await;
    service.finish().await;
}

#[tokio::test]
async fn a_charge_answers_for_its_key_after_its_request_row_was_purged() {
    let service = TestService::new().await;
    let running = service.run().await;
    let accepted = running.client.charge("k1", &body(1000)).await;
    let charge = running.client.terminal(&accepted.id()).await;
    sqlx::query("DELETE FROM idempotent_requests")
        .execute(&service.books)
        .await
        .unwrap();
    let again = running.client.charge("k1", &body(1000)).await;
    assert_eq!((again.status, again.is_replay()), (200, true));
    assert_eq!(again.body, charge);
    let other = running.client.charge("k1", &body(2000)).await;
    assert_eq!(
        (other.status, other.code()),
        (422, "idempotency_key_reused")
    );
    assert_eq!(
        service
            .count("SELECT count(*) FROM idempotent_requests")
            .await,
        0
    );
    running.stop().await;
    service.check_books().await;
    assert_eq!(service.ledger.charges().await.len(), 1);
}

#[tokio::test]
async fn a_refused_body_does_not_use_up_the_key() {
    let service = TestService::new().await;
    let api = service.run_with(API, &[]).await;
    for (amount, status) in [(json!(-5), 422), (json!("1000"), 422), (json!(null), 422)] {
        let mut refused = body(1000);
        refused["amount"] = amount;
        let answer = api.client.charge("k1", &refused).await;
        assert_eq!((answer.status, answer.code()), (status, "invalid_request"));
        assert_eq!(answer.body["retry"], "after_fix");
    }
    assert_eq!(service.stored().await, 0);
    assert_eq!(api.client.charge("k1", &body(1000)).await.status, 202);
    api.stop().await;
    service.finish().await;
}

#[tokio::test]
async fn a_key_used_again_for_another_amount_is_refused_and_goes_on_answering() {
    let service = TestService::new().await;
    let running = service.run().await;
    let first = running.client.charge("k1", &body(1000)).await;
    let other = running.client.charge("k1", &body(2000)).await;
    assert_eq!(
        (other.status, other.code()),
        (422, "idempotency_key_reused")
    );
    assert_eq!(other.body["retry"], "never");
    assert_eq!(other.body["charge_id"], first.id());
    assert_eq!(other.body["errors"].as_array().unwrap().len(), 1);
    assert_eq!(other.body["errors"][0]["pointer"], "#/amount");
    assert!(other.body.get("status").is_none_or(|status| status == 422));
    // Ids are random and may well hold these digits.
    for told in ["errors", "detail", "title"] {
        assert!(!other.body[told].to_string().contains("1000"), "{other:?}");
    }
    // Another meaning that is refused by itself too: the key is not free, whatever is corrected.
    let refused = running.client.charge("k1", &body(-1)).await;
    assert_eq!(
        (refused.status, refused.code()),
        (422, "idempotency_key_reused")
    );
    let again = running.client.charge("k1", &body(1000)).await;
    assert_eq!((again.status, again.id()), (200, first.id()));
    running.client.terminal(&first.id()).await;
    running.stop().await;
    service.check_books().await;
    let ledger = service.ledger.charges().await;
    assert_eq!((ledger.len(), &ledger[0]["amount"]), (1, &json!(1000)));
}

/// A charge of an earlier release, with an amount that today's rules refuse, and one whose fingerprint a later release
/// made.
#[tokio::test]
async fn a_request_accepted_by_another_release_is_replayed() {
    const REFUSED: i64 = 5_000_000_000;
    let service = TestService::new().await;
    let api = service.run_with(API, &[]).await;
    let fresh = api.client.charge("fresh", &body(REFUSED)).await;
    assert_eq!((fresh.status, fresh.code()), (422, "invalid_request"));

    for (key, amount, version) in [
        ("earlier", REFUSED, 1),
        ("later", 1000, 2),
        ("later-and-refused", REFUSED, 2),
    ] {
        let accepted = api.client.charge(key, &body(1000)).await;
        assert_eq!(accepted.status, 202);
        let hash = match version {
            1 => Fingerprint::of(&draft(amount)).hash,
            _ => [7; 32],
        };
        sqlx::query(
            "UPDATE charges SET amount = $2, fingerprint = $3, fingerprint_version = $4 WHERE id = $1",
        )
        .bind(service.charge_id(key).as_uuid())
        .bind(amount)
        .bind(hash)
        .bind(version)
        .execute(&service.books)
        .await
        .unwrap();
        let again = api.client.charge(key, &body(amount)).await;
        assert_eq!(
            (again.status, again.is_replay()),
            (200, true),
            "{key}: {again:?}"
        );
        assert_eq!(again.id(), accepted.id());
        assert_eq!(again.body["amount"], amount);
        let other = api.client.charge(key, &body(amount + 1)).await;
        assert_eq!(
            (other.status, other.code()),
            (422, "idempotency_key_reused"),
            "{key}"
        );
    }
    assert_eq!(service.stored().await, 3);
    api.stop().await;
    service.check_books().await;
}

/// The answer to a POST and to a GET is held until the charge is done.
#[tokio::test]
async fn a_client_that_prefers_to_wait_is_answered_with_the_end() {
    let service = TestService::new().await;
    let (api, worker) = (
        service.run_with(API, &[]).await,
        service.run_with(WORKER, &[]).await,
    );
    let body = charge_body("pm_card_visa");
    let done = api.client.charge_and_wait("k1", &body, 5).await;
    assert_eq!((done.status, done.is_replay()), (202, false));
    assert_eq!(done.headers["preference-applied"], "wait=5");
    assert_eq!(
        (&done.body["status"], &done.body["money"]),
        (&json!("completed"), &json!("moved"))
    );

    service.ledger.hold("execute", "before").await;
    let second = api.client.charge("k2", &body).await;
    service.ledger.held().await;
    let id = second.id();
    let (shown, replayed, ()) = tokio::join!(
        api.client.show_and_wait(&id, 20),
        api.client.charge_and_wait("k2", &body, 90),
        async {
            let now = api.client.show(&id).await;
            assert_eq!(now.body["status"], "in_progress");
            service.ledger.release().await;
        }
    );
    for (answer, applied) in [(&shown, "wait=20"), (&replayed, "wait=30")] {
        assert_eq!(answer.status, 200);
        assert_eq!(answer.headers["preference-applied"], applied);
        assert_eq!(answer.body["status"], "completed", "{answer:?}");
    }
    assert!(replayed.is_replay() && !shown.is_replay());
    let declined = charge_body("pm_card_chargeDeclined");
    let failed = api.client.charge_and_wait("k3", &declined, 5).await;
    assert_eq!(
        (failed.status, &failed.body["status"]),
        (202, &json!("failed"))
    );
    api.stop().await;
    worker.stop().await;
    service.check_books().await;
    assert_eq!(service.ledger.charges().await.len(), 2);
}

/// Who waits too short is answered with the charge as it stands.
#[tokio::test]
async fn a_wait_that_is_over_is_answered_with_the_charge_as_it_stands() {
    let service = TestService::new().await;
    let api = service.run_with(API, &[]).await;
    let answer = api.client.charge_and_wait("k1", &body(1000), 1).await;
    assert_eq!(
        (answer.status, &answer.body["stage"]),
        (202, &json!("pending"))
    );
    assert_eq!(answer.headers["preference-applied"], "wait=1");
    api.stop().await;
    service.finish().await;
}
