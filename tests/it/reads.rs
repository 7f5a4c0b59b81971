//! The other reads: a charge's history, the policy, and what a key may do that only reads.

use payonce::domain::api_key::Scope;
use serde_json::Value;

use crate::support::{TestService, charge_body};

/// The values of a field, event by event.
fn told<'a>(timeline: &'a Value, field: &str) -> Vec<&'a Value> {
    let events = timeline["data"].as_array().unwrap();
    events.iter().map(|event| &event[field]).collect()
}

#[tokio::test]
async fn a_timeline_tells_from_acceptance_to_success() {
    let service = TestService::new().await;
    let running = service.run().await;
    let accepted = running
        .client
        .charge("order-42", &charge_body("pm_card_visa"))
        .await;
    let charge = running.client.terminal(&accepted.id()).await;

    let answer = running
        .client
        .get(&format!("/v1/charges/{}/timeline", accepted.id()))
        .await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.headers["cache-control"], "no-store");
    let timeline = answer.body;
    assert_eq!(
        told(&timeline, "kind"),
        ["accepted", "execute_started", "succeeded"]
    );
    assert_eq!(told(&timeline, "actor"), ["merchant", "worker", "worker"]);
    assert_eq!(told(&timeline, "version"), [1, 2, 3]);
    let (first, last) = (&timeline["data"][0], &timeline["data"][2]);
    assert_eq!(first["at"], charge["created_at"]);
    assert_eq!(last["at"], charge["finished_at"]);
    assert_eq!(
        (&last["attempt"], &last["version"]),
        (&charge["attempts"], &charge["version"])
    );
    assert_eq!(last["provider_charge_id"], charge["provider_charge_id"]);
    assert!(
        last["provider_request_id"]
            .as_str()
            .unwrap()
            .starts_with("req_")
    );
    running.stop().await;
    service.check_books().await;
}

#[tokio::test]
async fn a_timeline_tells_of_a_decline() {
    let service = TestService::new().await;
    let running = service.run().await;
    let body = charge_body("pm_card_chargeDeclined");
    let accepted = running.client.charge("order-43", &body).await;
    running.client.terminal(&accepted.id()).await;

    let timeline = running
        .client
        .get(&format!("/v1/charges/{}/timeline", accepted.id()))
        .await
        .body;
    let kinds = told(&timeline, "kind");
    assert_eq!(
        (kinds[0], kinds[1]),
        (&"accepted".into(), &"execute_started".into())
    );
    assert_eq!(kinds.last(), Some(&&"failed".into()));
    let versions: Vec<i64> = told(&timeline, "version")
        .iter()
        .filter_map(|v| v.as_i64())
        .collect();
    assert!(
        versions.is_sorted_by(|before, after| before < after),
        "{versions:?}"
    );
    let times: Vec<&str> = told(&timeline, "at")
        .iter()
        .filter_map(|at| at.as_str())
        .collect();
    assert!(times.is_sorted());
    for id in ["chg_00000000000000000000000000000000", "nonsense"] {
        let answer = running
            .client
            .get(&format!("/v1/charges/{id}/timeline"))
            .await;
        assert_eq!((answer.status, answer.code()), (404, "not_found"));
    }
    running.stop().await;
}

#[tokio::test]
async fn the_policy_says_what_is_taken() {
    let service = TestService::new().await;
    let running = service
        .run_with(
            payonce::config::Roles::ALL,
            &[("idempotency.retention", "48h")],
        )
        .await;
    let answer = running.client.get("/v1/policy").await;
    assert_eq!(
        (answer.status, &answer.headers["content-type"]),
        (200, &"application/json".parse().unwrap())
    );
    let policy = answer.body;
    assert_eq!(
        (&policy["live"], &policy["provider"]),
        (&false.into(), &"stripe".into())
    );
    assert_eq!(policy["idempotency"]["key_max_length"], 255);
    assert_eq!(policy["idempotency"]["retention_seconds"], 172_800);
    assert_eq!(policy["limits"]["body_bytes"], 65_536);
    assert_eq!(policy["limits"]["metadata_entries"], 20);
    assert_eq!(policy["limits"]["wait_seconds"], 30);
    let currencies = policy["currencies"].as_array().unwrap();
    let of = |code: &str| currencies.iter().find(|currency| currency["code"] == code);
    let kwd =
        serde_json::json!({"code": "kwd", "decimals": 3, "max_amount": 99_999_990, "step": 10});
    assert_eq!(of("kwd"), Some(&kwd));
    assert_eq!(of("kpw"), None);

    // The caps are those that are kept.
    for (amount, status) in [(99_999_990, 202), (100_000_000, 422), (99_999_985, 422)] {
        let body = serde_json::json!({"amount": amount, "currency": "kwd", "payment_method": "pm_card_visa"});
        let answer = running.client.charge(&format!("kwd-{amount}"), &body).await;
        assert_eq!(answer.status, status, "{amount}");
    }
    service.drained().await;
    running.stop().await;
}

#[tokio::test]
async fn a_key_that_only_reads_reads_everything_and_makes_nothing() {
    let service = TestService::new().await;
    let running = service.run().await;
    let id = running
        .client
        .charge("order-42", &charge_body("pm_card_visa"))
        .await
        .id();
    running.client.terminal(&id).await;
    let token = service.make_key(service.merchant, Scope::Read).await;
    let reader = running.client.with_token(&token);
    for path in [
        "/v1/charges".to_owned(),
        format!("/v1/charges/{id}"),
        format!("/v1/charges/{id}/timeline"),
        "/v1/policy".to_owned(),
    ] {
        let (answer, same) = (reader.get(&path).await, running.client.get(&path).await);
        assert_eq!((answer.status, answer.body), (200, same.body), "{path}");
    }
    for key in ["order-42", "order-43"] {
        let answer = reader.charge(key, &charge_body("pm_card_visa")).await;
        assert_eq!((answer.status, answer.code()), (403, "forbidden"));
    }
    assert_eq!(
        reader.get("/v1/charges").await.body["data"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    running.stop().await;
    service.check_books().await;
}
