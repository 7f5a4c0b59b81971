//! GET /v1/events. Other tests' transactions hold an event back for a moment as one's own do, so pages are waited for.

use std::collections::BTreeSet;
use std::fmt::Write;

use payonce::config::Roles;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::support::client::Client;
use crate::support::service::{API, Running};
use crate::support::{TestService, charge_body, until};

impl Running {
    async fn paid(&self, key: &str) -> String {
        let body = charge_body("pm_card_visa");
        let id = self.client.charge(key, &body).await.id();
        self.client.terminal(&id).await;
        id
    }
}

/// The next page and the cursor behind it.
async fn page(client: &Client, query: &str, cursor: &str) -> (Vec<Value>, String) {
    let mut path = format!("/v1/events?{query}");
    if !cursor.is_empty() {
        path = format!("{path}&cursor={cursor}");
    }
    let page = client.get(&path).await;
    assert_eq!(page.status, 200, "{page:?}");
    let data = page.body["data"].as_array().unwrap().clone();
    (data, page.body["next_cursor"].as_str().unwrap().to_owned())
}

/// The next page, once it has so many events.
async fn page_of(count: usize, client: &Client, query: &str, cursor: &str) -> (Vec<Value>, String) {
    until(&format!("{count} events"), async || {
        let (events, next) = page(client, query, cursor).await;
        (events.len() >= count).then_some((events, next))
    })
    .await
}

fn charges(events: &[Value]) -> Vec<&str> {
    let ids = events.iter().map(|event| event["data"]["id"].as_str());
    ids.map(Option::unwrap).collect()
}

#[tokio::test]
async fn events_are_told_oldest_first_page_by_page_and_a_cursor_goes_on_for_ever() {
    let service = TestService::new().await;
    let running = service.run().await;
    let client = &running.client;
    let mut ids = Vec::new();
    for n in 0..5 {
        ids.push(running.paid(&format!("order-{n}")).await);
    }
    let (first, cursor) = page_of(3, client, "limit=3", "").await;
    let (second, cursor) = page_of(2, client, "limit=3", &cursor).await;
    assert_eq!(charges(&first), ids[..3]);
    assert_eq!(charges(&second), ids[3..]);
    assert_eq!(first[0]["type"], "charge.completed");
    let (nothing, same) = page(client, "limit=3", &cursor).await;
    assert!(nothing.is_empty());
    assert_eq!(same, cursor);
    let late = running.paid("order-5").await;
    let (more, _) = page_of(1, client, "limit=3", &cursor).await;
    assert_eq!(charges(&more), [late]);
    running.stop().await;
}

#[tokio::test]
async fn events_are_found_by_type_and_charge_and_are_their_merchants_alone() {
    let service = TestService::new().await;
    let running = service.run().await;
    let client = &running.client;
    let paid = running.paid("order-1").await;
    let body = charge_body("pm_card_chargeDeclined");
    let declined = client.charge("order-2", &body).await.id();
    client.terminal(&declined).await;
    page_of(2, client, "limit=2", "").await;
    for (query, found) in [
        ("type=charge.failed", vec![&declined]),
        (
            "type=charge.failed,charge.completed",
            vec![&paid, &declined],
        ),
        ("type=charge.requires_action", vec![]),
        (&format!("charge_id={paid}"), vec![&paid]),
        (&format!("charge_id={paid}&type=charge.failed"), vec![]),
    ] {
        assert_eq!(charges(&page(client, query, "").await.0), found, "{query}");
    }
    // What was looked at and is not wanted is not looked at again.
    let (nothing, cursor) = page(client, "type=charge.requires_action", "").await;
    assert!(nothing.is_empty());
    let (nothing, same) = page(client, "type=charge.requires_action", &cursor).await;
    assert!(nothing.is_empty());
    assert_eq!(same, cursor);
    let (one, cursor) = page(client, "limit=1&type=charge.failed,charge.completed", "").await;
    assert_eq!(charges(&one), [&paid]);
    let (one, _) = page(
        client,
        "limit=1&type=charge.completed,charge.failed",
        &cursor,
    )
    .await;
    assert_eq!(charges(&one), [&declined]);

    let (_, token) = service.make_merchant("other").await;
    let stranger = client.with_token(&token);
    let (nothing, _) = page(&stranger, &format!("charge_id={paid}"), "").await;
    assert!(nothing.is_empty());
    let filtered = format!("type=charge.failed&cursor={cursor}");
    for bad in [
        "type=charge.paid",
        "charge=x",
        "limit=0",
        "cursor=00",
        "charge_id=chg_1",
        &filtered,
    ] {
        let refused = client.get(&format!("/v1/events?{bad}")).await;
        assert_eq!(
            (refused.status, refused.code()),
            (400, "invalid_parameter"),
            "{bad}"
        );
    }
    running.stop().await;
}

/// A transaction that wrote its event first and commits last: its event is not passed by.
#[tokio::test]
async fn an_event_that_commits_late_is_never_skipped() {
    let service = TestService::new().await;
    let running = service.run().await;
    let client = &running.client;
    let first = running.paid("order-1").await;
    let (_, cursor) = page_of(1, client, "limit=100", "").await;

    let mut held = service.books.begin().await.unwrap();
    let late: uuid::Uuid = sqlx::query_scalar(
        "INSERT INTO events (merchant_id, type, charge_id, object_id, version, snapshot)
         SELECT merchant_id, 'charge.corrected', charge_id, object_id, version + 1, snapshot
         FROM events
         RETURNING charge_id",
    )
    .fetch_one(&mut *held)
    .await
    .unwrap();
    assert_eq!(format!("chg_{}", late.simple()), first);
    // Written later, committed earlier.
    let second = running.paid("order-2").await;
    assert_eq!(service.count("SELECT count(*) FROM events").await, 2);
    let queries = ["limit=100".to_owned(), format!("charge_id={second}")];
    for query in &queries {
        let from = if query == "limit=100" { &*cursor } else { "" };
        let (seen, _) = page(client, query, from).await;
        assert!(seen.is_empty(), "{seen:?}");
    }
    held.commit().await.unwrap();
    let (seen, cursor) = page_of(2, client, "limit=100", &cursor).await;
    assert_eq!(charges(&seen), [first, second]);
    assert_eq!(seen[0]["type"], "charge.corrected");
    let (nothing, _) = page(client, "limit=100", &cursor).await;
    assert!(nothing.is_empty());
    running.stop().await;
}

/// Writers that commit in any order, and a reader that never looks back.
#[tokio::test]
async fn a_reader_that_follows_sees_every_event_once() {
    let service = TestService::new().await;
    let running = service
        .run_with(Roles::ALL, &[("worker.batch_items", "2")])
        .await;
    let client = running.client.clone();
    let writing = tokio::spawn(async move {
        let mut ids = BTreeSet::new();
        for round in 0..10 {
            let charges = (0..8).map(|n| {
                let (client, key) = (client.clone(), format!("order-{round}-{n}"));
                async move { client.charge(&key, &charge_body("pm_card_visa")).await.id() }
            });
            ids.extend(futures_util::future::join_all(charges).await);
        }
        ids
    });
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    let mut follow = async || {
        let (events, next) = page(&running.client, "limit=7", &cursor).await;
        cursor = next;
        seen.extend(charges(&events).into_iter().map(str::to_owned));
        (seen.len() >= 80).then(|| seen.clone())
    };
    let seen = until("80 events", &mut follow).await;
    let ids = writing.await.unwrap();
    assert_eq!(seen.len(), 80);
    assert_eq!(seen.into_iter().collect::<BTreeSet<_>>(), ids);
    running.stop().await;
}

/// Other books count their transactions anew: a cursor of those before is a place in the future.
#[tokio::test]
async fn a_cursor_of_books_that_were_replaced_is_refused_rather_than_followed() {
    let service = TestService::new().await;
    let running = service.run_with(API, &[]).await;
    let (_, cursor) = page(&running.client, "limit=1", "").await;
    // Version, list and time, the transaction's and the event's number, and the check over all of it.
    let bytes: Vec<u8> = (0..cursor.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&cursor[at..at + 2], 16).unwrap())
        .collect();
    let mut ahead = bytes[..17].to_vec();
    ahead.extend((1_i64 << 40).to_be_bytes());
    ahead.extend(1_i64.to_be_bytes());
    let check = Sha256::new()
        .chain_update("payonce cursor")
        .chain_update(&ahead)
        .finalize();
    ahead.extend(&check[..8]);
    let mut path = "/v1/events?cursor=".to_owned();
    for byte in ahead {
        write!(path, "{byte:02x}").unwrap();
    }
    let refused = running.client.get(&path).await;
    assert_eq!((refused.status, refused.code()), (400, "invalid_parameter"));
    let fault = &refused.body["errors"][0];
    assert_eq!(fault["parameter"], json!("cursor"));
    assert!(
        fault["detail"].as_str().unwrap().contains("restored"),
        "{fault}"
    );
    running.stop().await;
}
