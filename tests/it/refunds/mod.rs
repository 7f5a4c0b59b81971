//! Money back: one accepted refund is at most one refund at the provider, and never more than the charge.

mod crashes;
mod later;
mod provider;
mod returned;
mod told;

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::support::service::{API, Running};
use crate::support::{TestService, charge_body};

/// A service with a completed charge of 1000.
pub struct Charged {
    pub service: TestService,
    pub running: Running,
    pub charge: String,
    /// The provider's object.
    pub object: String,
}

impl Charged {
    pub async fn new() -> Self {
        Self::with("pm_card_visa", &[]).await
    }

    pub async fn with(payment_method: &str, settings: &[(&'static str, &str)]) -> Self {
        let service = TestService::new().await;
        let running = service
            .run_with(payonce::config::Roles::ALL, settings)
            .await;
        let (charge, object) = charge(&running, payment_method).await;
        Self {
            service,
            running,
            charge,
            object,
        }
    }

    pub async fn refund(&self, key: &str, body: Value) -> Value {
        let accepted = self.running.client.refund(&self.charge, key, &body).await;
        assert_eq!(accepted.status, 202, "{accepted:?}");
        accepted.body
    }

    pub async fn ended(&self, refund: &Value) -> Value {
        let id = refund["id"].as_str().unwrap();
        self.running.client.refund_ended(id).await
    }

    pub async fn charge_now(&self) -> Value {
        self.running.client.show(&self.charge).await.body
    }

    /// Everything agrees, and the service ends well.
    pub async fn close(self) {
        self.service.drained().await;
        self.running.stop().await;
        self.service.check_books().await;
    }
}

/// A completed charge of 1000, and the provider's object.
pub async fn charge(running: &Running, payment_method: &str) -> (String, String) {
    let body = charge_body(payment_method);
    let accepted = running.client.charge_and_wait("order-1", &body, 20).await;
    assert_eq!(accepted.body["status"], "completed", "{accepted:?}");
    let object = accepted.body["provider_charge_id"].as_str().unwrap();
    (accepted.id(), object.to_owned())
}

#[tokio::test]
async fn a_refund_goes_back_once_and_its_key_answers_with_it_for_ever() {
    let shop = Charged::new().await;
    let client = &shop.running.client;
    let body =
        json!({"amount": 400, "reason": "requested_by_customer", "metadata": {"return": "7"}});
    let first = client
        .refund_and_wait(&shop.charge, "return-1", &body)
        .await;
    assert_eq!((first.status, first.is_replay()), (202, false), "{first:?}");
    let refund = &first.body;
    assert_eq!(refund["status"], "completed", "{refund}");
    assert_eq!(refund["stage"], "succeeded");
    assert_eq!(refund["money"], "moved");
    assert_eq!(refund["amount"], 400);
    assert_eq!(refund["charge_id"], shop.charge.as_str());
    let id = refund["id"].as_str().unwrap();
    assert_eq!(first.headers["location"], format!("/v1/refunds/{id}"));
    let again = client
        .refund(
            &shop.charge,
            "return-1",
            &json!({"metadata": {"return": "7"}, "amount": 400, "reason": "requested_by_customer"}),
        )
        .await;
    assert_eq!((again.status, again.is_replay()), (200, true));
    assert_eq!(&again.body, refund);
    let theirs = shop.service.ledger.refunds().await;
    assert_eq!(theirs.len(), 1);
    assert_eq!(theirs[0]["amount"], 400);
    assert_eq!(theirs[0]["reason"], "requested_by_customer");
    assert_eq!(
        theirs[0]["metadata"],
        json!({"return": "7", "payonce_refund_id": id})
    );
    let charge = shop.charge_now().await;
    assert_eq!(charge["amount_refunded"], 400);
    assert_eq!(charge["status"], "completed");
    let timeline = client
        .get(&format!("/v1/charges/{}/timeline", shop.charge))
        .await;
    let kinds: Vec<&str> = timeline.body["data"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|event| event["refund_id"] == id)
        .map(|event| event["kind"].as_str().unwrap())
        .collect();
    assert_eq!(
        kinds,
        ["refund_accepted", "refund_started", "refund_completed"]
    );
    shop.close().await;
}

#[tokio::test]
async fn an_amount_left_out_is_all_that_is_left() {
    let shop = Charged::new().await;
    let part = shop.refund("return-1", json!({"amount": 250})).await;
    let rest = shop.refund("return-2", json!({})).await;
    assert_eq!(rest["amount"], 750);
    for refund in [&part, &rest] {
        assert_eq!(shop.ended(refund).await["status"], "completed");
    }
    assert_eq!(shop.charge_now().await["amount_refunded"], 1000);
    let client = &shop.running.client;
    for (body, faults) in [(json!({}), 0), (json!({"amount": 1}), 1)] {
        let more = client.refund(&shop.charge, "return-3", &body).await;
        assert_eq!((more.status, more.code()), (422, "refund_exceeds_charge"));
        // A field is at fault where one was sent.
        let named = more.body["errors"].as_array().map_or(0, Vec::len);
        assert_eq!(
            (named, &more.body["charge_id"]),
            (faults, &json!(shop.charge))
        );
    }
    // It was accepted when there was room.
    let again = client.refund(&shop.charge, "return-2", &json!({})).await;
    assert_eq!((again.status, again.is_replay()), (200, true));
    shop.close().await;
}

#[tokio::test]
async fn of_100_partial_refunds_at_once_no_more_goes_back_than_the_charge() {
    let shop = Charged::new().await;
    let client = &shop.running.client;
    // A retry of each, too.
    let answers = join_all((0..200).map(async |number| {
        let key = format!("return-{}", number % 100);
        client
            .refund(&shop.charge, &key, &json!({"amount": 30}))
            .await
    }))
    .await;
    let accepted: Vec<_> = answers
        .iter()
        .filter(|answer| answer.status == 202)
        .collect();
    assert_eq!(accepted.len(), 33);
    for answer in &answers {
        match answer.status {
            202 => assert!(!answer.is_replay()),
            200 => assert!(answer.is_replay()),
            422 => assert_eq!(answer.code(), "refund_exceeds_charge"),
            status => panic!("{status}: {answer:?}"),
        }
    }
    for answer in accepted {
        assert_eq!(shop.ended(&answer.body).await["status"], "completed");
    }
    assert_eq!(shop.charge_now().await["amount_refunded"], 990);
    assert_eq!(shop.service.ledger.refunds().await.len(), 33);
    shop.close().await;
}

#[tokio::test]
async fn of_one_refund_sent_many_times_at_once_one_is_accepted() {
    let shop = Charged::new().await;
    let client = &shop.running.client;
    let answers = join_all((0..30).map(async |_| {
        client
            .refund(&shop.charge, "return-1", &json!({"amount": 700}))
            .await
    }))
    .await;
    let new = answers.iter().filter(|answer| answer.status == 202).count();
    let replays = answers
        .iter()
        .filter(|answer| answer.status == 200 && answer.is_replay())
        .count();
    assert_eq!((new, replays), (1, 29));
    assert_eq!(shop.ended(&answers[0].body).await["status"], "completed");
    assert_eq!(shop.service.ledger.refunds().await.len(), 1);
    shop.close().await;
}

#[tokio::test]
async fn a_key_used_for_another_refund_is_refused_and_a_charge_may_have_the_same_key() {
    let shop = Charged::new().await;
    let client = &shop.running.client;
    // The charge's own key.
    let refund = shop
        .refund("order-1", json!({"amount": 100, "metadata": {"a": "1"}}))
        .await;
    let other = json!({"amount": 200, "reason": "duplicate"});
    let reused = client.refund(&shop.charge, "order-1", &other).await;
    assert_eq!(
        (reused.status, reused.code()),
        (422, "idempotency_key_reused")
    );
    assert_eq!(reused.body["charge_id"], shop.charge.as_str());
    let pointers: Vec<&str> = reused.body["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|error| error["pointer"].as_str().unwrap())
        .collect();
    assert_eq!(pointers, ["#/amount", "#/reason", "#/metadata/a"]);
    let second = client
        .charge_and_wait("order-2", &charge_body("pm_card_visa"), 20)
        .await;
    let elsewhere = client
        .refund(
            &second.id(),
            "order-1",
            &json!({"amount": 100, "metadata": {"a": "1"}}),
        )
        .await;
    assert_eq!(
        (elsewhere.status, elsewhere.code()),
        (422, "idempotency_key_reused")
    );
    assert_eq!(elsewhere.body["errors"][0]["parameter"], "id");
    assert_eq!(shop.ended(&refund).await["status"], "completed");
    assert_eq!(shop.service.ledger.refunds().await.len(), 1);
    shop.close().await;
}

#[tokio::test]
async fn a_refund_of_a_failed_charge_is_refused_for_good() {
    let service = TestService::new().await;
    let running = service.run().await;
    let body = charge_body("pm_card_chargeDeclined");
    let failed = running.client.charge_and_wait("order-1", &body, 20).await;
    let refused = running
        .client
        .refund(&failed.id(), "return-1", &json!({}))
        .await;
    assert_eq!(
        (refused.status, refused.code(), &refused.body["retry"]),
        (409, "charge_not_refundable", &json!("never"))
    );
    assert_eq!(refused.body["charge_id"], failed.body["id"]);
    running.stop().await;
}

#[tokio::test]
async fn only_a_completed_charge_is_refunded_and_only_by_its_merchant() {
    let service = TestService::new().await;
    let running = service.run_with(API, &[]).await;
    let client = &running.client;
    let open = client.charge("order-1", &charge_body("pm_card_visa")).await;
    let refused = client.refund(&open.id(), "return-1", &json!({})).await;
    assert_eq!(
        (refused.status, refused.code()),
        (409, "charge_not_refundable")
    );
    assert_eq!(
        (&refused.body["retry"], &refused.body["charge_id"]),
        (&json!("after_fix"), &json!(open.id()))
    );
    let nothing = "chg_00000000000000000000000000000000";
    for (charge, client) in [
        (nothing.to_owned(), client.clone()),
        ("nonsense".to_owned(), client.clone()),
        (
            open.id(),
            client.with_token(&service.make_merchant("other").await.1),
        ),
    ] {
        let absent = client.refund(&charge, "return-1", &json!({})).await;
        assert_eq!((absent.status, absent.code()), (404, "not_found"));
    }
    running.stop().await;
    let running = service.run().await;
    running.client.terminal(&open.id()).await;
    // The refusal has not used up the key.
    let accepted = running
        .client
        .refund(&open.id(), "return-1", &json!({}))
        .await;
    assert_eq!(accepted.status, 202);
    let other = running
        .client
        .with_token(&service.make_merchant("another").await.1);
    let hidden = other.get(&format!("/v1/refunds/{}", accepted.id())).await;
    assert_eq!(hidden.status, 404);
    running.client.refund_ended(&accepted.id()).await;
    service.drained().await;
    running.stop().await;
    service.check_books().await;
}

#[tokio::test]
async fn every_fault_of_a_refund_request_is_named_at_once_and_nothing_is_stored() {
    let shop = Charged::new().await;
    let client = &shop.running.client;
    let bad =
        json!({"amount": 0, "reason": "because", "amuont": 1, "metadata": {"payonce_x": "1"}});
    let refused = client.refund(&shop.charge, "return-1", &bad).await;
    assert_eq!((refused.status, refused.code()), (422, "invalid_request"));
    let rules: Vec<(&str, &str)> = refused.body["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|error| {
            (
                error["pointer"].as_str().unwrap(),
                error["rule"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        rules,
        [
            ("#/amuont", "unknown_field"),
            ("#/amount", "range"),
            ("#/reason", "word"),
            ("#/metadata/payonce_x", "metadata_reserved")
        ]
    );
    assert_eq!(shop.service.count("SELECT count(*) FROM refunds").await, 0);
    let good = client
        .refund(&shop.charge, "return-1", &json!({"amount": 5}))
        .await;
    assert_eq!(good.status, 202);
    shop.ended(&good.body).await;
    shop.close().await;
}

#[tokio::test]
async fn refunds_are_listed_by_charge_and_by_key_newest_first() {
    let shop = Charged::new().await;
    let client = &shop.running.client;
    let mut ids = Vec::new();
    for number in 0..5 {
        let refund = shop
            .refund(&format!("return-{number}"), json!({"amount": 10}))
            .await;
        ids.push(refund["id"].as_str().unwrap().to_owned());
        shop.ended(&refund).await;
    }
    ids.reverse();
    let listed = |body: &Value| -> Vec<String> {
        let data = body["data"].as_array().unwrap();
        data.iter()
            .map(|refund| refund["id"].as_str().unwrap().to_owned())
            .collect()
    };
    let filter = format!("charge_id={}", shop.charge);
    let mut seen = Vec::new();
    let mut path = format!("/v1/refunds?{filter}&limit=2");
    loop {
        let page = client.get(&path).await;
        assert_eq!(page.status, 200, "{page:?}");
        seen.extend(listed(&page.body));
        let Some(cursor) = page.body["next_cursor"].as_str() else {
            break;
        };
        path = format!("/v1/refunds?{filter}&limit=2&cursor={cursor}");
    }
    assert_eq!(seen, ids);
    let by_key = client.get("/v1/refunds?idempotency_key=return-3").await;
    assert_eq!(listed(&by_key.body), [ids[1].clone()]);
    assert_eq!(client.get("/v1/refunds?charge=x").await.status, 400);
    shop.close().await;
}
