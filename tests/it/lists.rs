//! GET /v1/charges: what each filter finds, and that pages fit together.

use std::collections::HashSet;

use payonce::config::Roles;
use serde_json::Value;

use crate::support::client::Client;
use crate::support::service::Running;
use crate::support::{TestService, charge_body};

/// The API alone: what is written past it stays as it is.
async fn api(service: &TestService) -> Running {
    let roles = Roles {
        api: true,
        worker: false,
        reconciler: false,
    };
    service.run_with(roles, &[]).await
}

/// All pages of a list, one after the other; `between` runs before each next one.
async fn walk(client: &Client, query: &str, mut between: impl AsyncFnMut()) -> Vec<Value> {
    let (mut all, mut next) = (Vec::new(), String::new());
    loop {
        let page = client.get(&format!("/v1/charges?{query}{next}")).await;
        assert_eq!(page.status, 200, "{page:?}");
        all.extend(page.body["data"].as_array().unwrap().iter().cloned());
        match page.body.get("next_cursor") {
            Some(cursor) => next = format!("&cursor={}", cursor.as_str().unwrap()),
            None => return all,
        }
        between().await;
    }
}

async fn list(client: &Client, query: &str) -> Vec<Value> {
    walk(client, query, async || {}).await
}

fn ids(charges: &[Value]) -> Vec<&str> {
    charges
        .iter()
        .map(|charge| charge["id"].as_str().unwrap())
        .collect()
}

fn place(charge: &Value) -> (&str, &str) {
    (
        charge["created_at"].as_str().unwrap(),
        charge["id"].as_str().unwrap(),
    )
}

/// A query and what its charges have in common.
type Case = (String, Box<dyn Fn(&Value) -> bool>);

/// Every filter, with values that some of the charges have.
fn cases(all: &[Value]) -> Vec<Case> {
    let some = &all[200];
    let (key, object) = (&some["idempotency_key"], &some["provider_charge_id"]);
    let moment = some["created_at"].as_str().unwrap();
    let is = |field: &'static str, value: &Value| {
        let value = value.clone();
        Box::new(move |charge: &Value| charge[field] == value) as Box<dyn Fn(&Value) -> bool>
    };
    let mut cases: Vec<Case> = vec![
        (
            format!("idempotency_key={}", key.as_str().unwrap()),
            is("idempotency_key", key),
        ),
        (
            format!("provider_charge_id={}", object.as_str().unwrap()),
            is("provider_charge_id", object),
        ),
        (
            "reference=subscription".to_owned(),
            is("reference", &"subscription".into()),
        ),
    ];
    for status in ["in_progress", "completed", "failed"] {
        cases.push((format!("status={status}"), is("status", &status.into())));
    }
    for stage in [
        "pending",
        "processing",
        "requires_action",
        "requires_reconciliation",
        "succeeded",
        "failed",
        "canceled",
    ] {
        cases.push((format!("stage={stage}"), is("stage", &stage.into())));
    }
    let (from, before) = (moment.to_owned(), moment.to_owned());
    let created = |charge: &Value| charge["created_at"].as_str().unwrap().to_owned();
    cases.push((
        format!("created_from={moment}"),
        Box::new(move |charge| created(charge) >= from),
    ));
    cases.push((
        format!("created_before={moment}"),
        Box::new(move |charge| created(charge) < before),
    ));
    cases
}

#[tokio::test]
async fn each_filter_finds_its_charges_and_no_others() {
    let service = TestService::new().await;
    service.fill(service.merchant, 400).await;
    let (other, _) = service.make_merchant("other").await;
    service.fill(other, 400).await;
    let running = api(&service).await;
    let all = list(&running.client, "limit=100").await;
    assert_eq!(all.len(), 400);
    assert!(all.is_sorted_by(|newer, older| place(newer) > place(older)));

    let cases = cases(&all);
    let mut found = 0;
    for (query, wanted) in &cases {
        let expected: Vec<Value> = all
            .iter()
            .filter(|charge| wanted(charge))
            .cloned()
            .collect();
        assert!(!expected.is_empty(), "{query}");
        for limit in [3, 100] {
            let listed = list(&running.client, &format!("{query}&limit={limit}")).await;
            assert_eq!(ids(&listed), ids(&expected), "{query}");
            assert_eq!(listed, expected, "{query}");
        }
        found += expected.len();
    }
    assert!(found > 800);
    for (query, count) in [
        (
            "status=in_progress&stage=pending&created_before=2026-01-01T00:10:00Z",
            3,
        ),
        ("reference=subscription&status=completed", 4),
        ("reference=subscription&status=failed", 0),
        ("status=failed&stage=succeeded", 0),
        ("idempotency_key=bulk-3&status=failed", 1),
        ("idempotency_key=bulk-3&status=completed", 0),
        ("idempotency_key=nobody", 0),
        ("provider_charge_id=pi_nobody", 0),
    ] {
        assert_eq!(list(&running.client, query).await.len(), count, "{query}");
    }
    running.stop().await;
}

/// Many charges have come and gone since: the walk over the newest ends before it has seen the open ones.
#[tokio::test]
async fn old_open_charges_are_found_by_their_jobs() {
    let service = TestService::new().await;
    service.fill(service.merchant, 3000).await;
    let (other, _) = service.make_merchant("other").await;
    service.fill(other, 500).await;
    let ended = "
        WITH ended AS (
            UPDATE charges
            SET stage = 'canceled', money = 'not_moved', next_action = NULL, finished_at = now()
            WHERE finished_at IS NULL AND created_at > '2026-01-01 00:30Z'
            RETURNING id
        )
        DELETE FROM outbox USING ended WHERE charge_id = ended.id";
    sqlx::query(ended).execute(&service.books).await.unwrap();
    let running = api(&service).await;
    let all = list(
        &running.client,
        "limit=100&created_before=2026-01-01T00:31:00Z",
    )
    .await;
    for (query, is_wanted) in [
        (
            "status=in_progress",
            &[
                "pending",
                "processing",
                "requires_action",
                "requires_reconciliation",
            ][..],
        ),
        ("stage=pending", &["pending"]),
        ("stage=processing", &["processing"]),
    ] {
        let wanted = |charge: &&Value| is_wanted.iter().any(|stage| charge["stage"] == *stage);
        let expected: Vec<Value> = all.iter().filter(wanted).cloned().collect();
        assert!(expected.len() > 5, "{query}");
        for limit in [4, 100] {
            let listed = list(&running.client, &format!("{query}&limit={limit}")).await;
            assert_eq!(ids(&listed), ids(&expected), "{query}");
        }
    }
    running.stop().await;
}

#[tokio::test]
async fn pages_neither_repeat_nor_skip_a_charge_while_others_come_in_and_change() {
    let service = TestService::new().await;
    service.fill(service.merchant, 300).await;
    // All of one moment, as a batch is.
    sqlx::query(
        "UPDATE charges SET created_at = '2026-01-01 00:00Z' WHERE idempotency_key < 'bulk-2'",
    )
    .execute(&service.books)
    .await
    .unwrap();
    let running = api(&service).await;
    let before: Vec<Value> = list(&running.client, "limit=100").await;
    for limit in [1, 7, 50] {
        let mut count = 0;
        let walked = walk(&running.client, &format!("limit={limit}"), async || {
            count += 1;
            if count <= 20 {
                let key = format!("between-{limit}-{count}");
                let accepted = running.client.charge(&key, &charge_body("pm_card_visa")).await;
                assert_eq!(accepted.status, 202);
                sqlx::query(
                    "UPDATE charges SET version = version + 1, updated_at = now()
                     WHERE id = (SELECT id FROM charges WHERE stage = 'processing' ORDER BY random() LIMIT 1)",
                )
                .execute(&service.books)
                .await
                .unwrap();
            }
        })
        .await;
        let unique: HashSet<&str> = ids(&walked).into_iter().collect();
        assert_eq!(unique.len(), walked.len(), "a charge came twice");
        let bulk = walked.iter().filter(|charge| {
            charge["idempotency_key"]
                .as_str()
                .unwrap()
                .starts_with("bulk-")
        });
        let bulk: Vec<Value> = bulk.cloned().collect();
        assert_eq!(ids(&bulk), ids(&before), "a charge was left out or moved");
    }
    running.stop().await;
}

#[tokio::test]
async fn a_cursor_is_taken_as_it_came_with_its_filters_and_by_its_merchant_alone() {
    let service = TestService::new().await;
    service.fill(service.merchant, 100).await;
    let (_, token) = service.make_merchant("other").await;
    let running = api(&service).await;
    let other = running.client.with_token(&token);
    let first = running
        .client
        .get("/v1/charges?status=completed&limit=2")
        .await;
    let cursor = first.body["next_cursor"].as_str().unwrap();
    let longer = format!("/v1/charges?status=completed&limit=9&cursor={cursor}");
    assert_eq!(running.client.get(&longer).await.status, 200);
    let refused = [
        (&running.client, format!("status=failed&cursor={cursor}")),
        (&running.client, format!("cursor={cursor}")),
        (
            &running.client,
            format!("status=completed&cursor={cursor}0"),
        ),
        (
            &running.client,
            format!("status=completed&cursor={}", &cursor[2..]),
        ),
        (
            &running.client,
            format!("status=completed&cursor={}", cursor.to_uppercase()),
        ),
        (&running.client, "cursor=".to_owned()),
        (&other, format!("status=completed&cursor={cursor}")),
    ];
    for (client, query) in refused {
        let answer = client.get(&format!("/v1/charges?{query}")).await;
        assert_eq!(
            (answer.status, answer.code()),
            (400, "invalid_parameter"),
            "{query}"
        );
        assert_eq!(answer.body["errors"][0]["parameter"], "cursor");
        assert!(!answer.body.to_string().contains(cursor), "{query}");
    }
    running.stop().await;
}

#[tokio::test]
async fn another_merchant_sees_nothing_whatever_it_asks_for() {
    let service = TestService::new().await;
    service.fill(service.merchant, 100).await;
    let (_, token) = service.make_merchant("other").await;
    let running = api(&service).await;
    let other = running.client.with_token(&token);
    let all = list(&running.client, "limit=100").await;
    let some = all
        .iter()
        .find(|charge| charge["stage"] == "requires_action")
        .unwrap();
    let text = |field: &str| some[field].as_str().unwrap().to_owned();
    for query in [
        String::new(),
        "status=in_progress".to_owned(),
        "status=failed".to_owned(),
        "reference=subscription".to_owned(),
        format!("idempotency_key={}", text("idempotency_key")),
        format!("provider_charge_id={}", text("provider_charge_id")),
        format!("created_from={}", text("created_at")),
    ] {
        assert!(!list(&running.client, &query).await.is_empty(), "{query}");
        let answer = other.get(&format!("/v1/charges?{query}")).await;
        assert_eq!(answer.body, serde_json::json!({"data": []}), "{query}");
    }
    for path in ["", "/timeline"] {
        let path = format!("/v1/charges/{}{path}", text("id"));
        assert_eq!(running.client.get(&path).await.status, 200);
        let answer = other.get(&path).await;
        assert_eq!((answer.status, answer.code()), (404, "not_found"));
    }
    running.stop().await;
}

#[tokio::test]
async fn every_parameter_that_can_not_be_used_is_named() {
    let service = TestService::new().await;
    let running = api(&service).await;
    let query =
        "/v1/charges?staus=failed&limit=0&limit=5&stage=%zz&created_from=yesterday&reference=a%00b";
    let answer = running.client.get(query).await;
    assert_eq!((answer.status, answer.code()), (400, "invalid_parameter"));
    assert_eq!(answer.body["retry"], "after_fix");
    let told: Vec<(&str, &str)> = answer.body["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|fault| {
            (
                fault["parameter"].as_str().unwrap(),
                fault["rule"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            ("staus", "unknown_parameter"),
            ("limit", "repeated"),
            ("stage", "encoding"),
            ("reference", "text"),
            ("created_from", "time"),
            ("limit", "range"),
        ]
    );
    assert!(
        answer.body["errors"][0]["detail"]
            .as_str()
            .unwrap()
            .contains("status")
    );
    running.stop().await;
}
