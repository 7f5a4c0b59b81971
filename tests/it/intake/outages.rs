//! The database is slow, full of work or gone: clients are told at once, with what to do.

use std::time::{Duration, Instant};

use super::{API, asks_to_retry, body};
use crate::support::client::Client;
use crate::support::database_proxy::{DatabaseProxy, Fault, INSERT_BATCH};
use crate::support::{TestService, until};

#[tokio::test]
async fn a_full_queue_refuses_at_once_and_leaves_the_key_free() {
    let service = TestService::new().await;
    let proxy = DatabaseProxy::start(&service.database_url).await;
    let settings = &[
        ("database.url", proxy.url()),
        ("intake.batchers", "1"),
        ("intake.queue", "2"),
        ("intake.batch_items", "2"),
    ];
    let api = service.run_with(API, settings).await;
    let mut blocked = proxy.arm(INSERT_BATCH, Fault::HoldBefore);
    let mut requests = tokio::task::JoinSet::new();
    let mut post = |key: String| {
        let client = api.client.clone();
        requests.spawn(async move { (client.charge(&key, &body(1000)).await, key) });
    };
    post("first".to_owned());
    blocked.struck().await;
    for n in 0..10 {
        post(format!("k{n}"));
    }
    // Two of them have the places in the queue; nobody else waits for the database.
    let mut refused = Vec::new();
    for _ in 0..8 {
        let (answer, key) = requests.join_next().await.unwrap().unwrap();
        asks_to_retry(&answer, "overloaded");
        refused.push(key);
    }
    assert_eq!(service.stored().await, 0);
    blocked.release();
    while let Some(answered) = requests.join_next().await {
        let (answer, key) = answered.unwrap();
        assert_eq!(answer.status, 202, "{key}");
    }
    assert_eq!(service.stored().await, 3);
    for key in refused {
        assert_eq!(api.client.charge(&key, &body(1000)).await.status, 202);
    }
    api.stop().await;
    service.finish().await;
}

/// Everything is answered within the limits, and everything comes back by itself.
#[tokio::test]
async fn while_the_database_is_down_clients_are_told_and_afterwards_they_are_served() {
    let service = TestService::new().await;
    let proxy = DatabaseProxy::start(&service.database_url).await;
    let settings = &[
        ("database.url", proxy.url()),
        ("database.statement_timeout", "500ms"),
        ("database.connect_timeout", "500ms"),
        ("intake.give_up_after", "1s"),
        ("intake.batchers", "1"),
    ];
    let api = service.run_with(API, settings).await;
    let (_, stranger) = service.make_merchant("stranger").await;
    let before = api.client.charge("before", &body(1000)).await;
    assert_eq!(before.status, 202);

    proxy.network.refuse();
    // The connection dies under this one, so what became of it could be asked of nobody.
    let under_way = timed(&api.client, "under-way").await;
    assert_eq!(under_way.status, 503);
    assert!(matches!(
        under_way.code(),
        "unavailable" | "acceptance_unknown"
    ));
    let outside = timed(&api.client, "outside").await;
    asks_to_retry(&outside, "unavailable");
    // Who is not known can't be asked for.
    let mut client = api.client.clone();
    client.token = stranger;
    asks_to_retry(&timed(&client, "stranger").await, "unavailable");
    asks_to_retry(&api.client.show(&before.id()).await, "unavailable");
    assert_eq!(api.client.get("/healthz").await.status, 200);
    asks_to_retry(&api.client.get("/readyz").await, "unavailable");
    assert_eq!(service.stored().await, 1);

    proxy.network.recover();
    until("the service is ready again", async || {
        (api.client.get("/readyz").await.status == 200).then_some(())
    })
    .await;
    for key in ["under-way", "outside"] {
        let accepted = api.client.charge_until_accepted(key, &body(1000)).await;
        assert_eq!(accepted.status, 202, "{key}");
    }
    let again = api.client.charge("before", &body(1000)).await;
    assert_eq!((again.status, again.is_replay()), (200, true));
    api.stop().await;
    service.finish().await;
}

async fn timed(client: &Client, key: &str) -> crate::support::client::Answer {
    let started = Instant::now();
    let answer = client.charge(key, &body(1000)).await;
    // A second of trying, and a slow machine.
    assert!(started.elapsed() < Duration::from_secs(9), "{key}");
    answer
}

/// The network swallows everything for a moment. What was asked meanwhile is answered with 503, and no connection is
/// lost for it: afterwards everybody is served again.
#[tokio::test]
async fn a_database_that_falls_silent_for_a_moment_costs_no_connection() {
    let service = TestService::new().await;
    let proxy = DatabaseProxy::start(&service.database_url).await;
    let settings = &[
        ("database.url", proxy.url()),
        ("database.pool_size", "2"),
        ("database.statement_timeout", "300ms"),
        ("database.connect_timeout", "300ms"),
        ("intake.give_up_after", "1s"),
    ];
    let api = service.run_with(API, settings).await;
    let id = api.client.charge("before", &body(1000)).await.id();
    for _ in 0..3 {
        let (warm, more) = tokio::join!(api.client.show(&id), api.client.show(&id));
        assert_eq!((warm.status, more.status), (200, 200));
        proxy.network.swallow();
        let (read, other) = tokio::join!(api.client.show(&id), api.client.show(&id));
        asks_to_retry(&read, "unavailable");
        asks_to_retry(&other, "unavailable");
        proxy.network.recover();
        // Both connections were silent: the first to ask each of them may still find out.
        until("reads are served again", async || {
            let (read, other) = tokio::join!(api.client.show(&id), api.client.show(&id));
            (read.status == 200 && other.status == 200).then_some(())
        })
        .await;
    }
    api.stop().await;
    service.finish().await;
}
