//! `Prefer: wait`.

use std::time::{Duration, Instant};

use payonce::config::Roles;
use serde_json::json;
use tokio::io::AsyncWriteExt;

use super::{A_WHILE, only, read_all};

use crate::support::client::Client;
use crate::support::service::Running;
use crate::support::service::{API, WORKER};
use crate::support::{TestService, charge_body, until};

/// So seldom that whoever is answered before was woken.
const SELDOM: (&str, &str) = ("http.wait_poll_interval", "10m");

const WAITING: &str = "payonce_waiting_requests";

impl Client {
    /// The bytes of a GET that prefers to wait as long as can be.
    fn raw_wait(&self, id: &str) -> String {
        let token = &self.token;
        format!(
            "GET /v1/charges/{id} HTTP/1.1\r\nhost: payonce\r\nauthorization: Bearer {token}\r\nprefer: wait=30\r\n\r\n"
        )
    }
}

impl Running {
    async fn has_waiting(&self, count: u64) {
        until(&format!("{count} wait"), async || {
            (self.scrape().await.count(WAITING) == count).then_some(())
        })
        .await;
    }
}

/// The pauses between two looks grow to half an hour here: who waits long is only told by the completion itself.
#[tokio::test]
async fn who_waits_is_woken_by_completion_by_a_customer_s_turn_and_by_a_cancel() {
    let service = TestService::new().await;
    let running = service.run_with(Roles::ALL, &[SELDOM]).await;
    let client = &running.client;
    let mut action = charge_body("pm_card_authenticationRequired");
    action["return_url"] = "https://shop.example.com/back".into();
    for (key, body, stage) in [
        ("a", charge_body("pm_card_visa"), "succeeded"),
        ("b", charge_body("pm_card_chargeDeclined"), "failed"),
        ("c", action, "requires_action"),
    ] {
        service.ledger.hold("execute", "before").await;
        let begun = Instant::now();
        let (answer, ()) = tokio::join!(client.charge_and_wait(key, &body, 30), async {
            service.ledger.held().await;
            // Past the looks that come close together, so that the next one would be too late for this test.
            tokio::time::sleep(Duration::from_secs(3)).await;
            service.ledger.release().await;
        });
        assert_eq!(answer.body["stage"], stage);
        assert_eq!(answer.headers["preference-applied"], "wait=30");
        // The look after the one at 2.6 s is at 5.1 s.
        assert!(begun.elapsed() < Duration::from_secs(5), "{key}");
    }
    running.stop().await;
    service.check_books().await;
}

#[tokio::test]
async fn a_cancel_wakes_who_waits() {
    let service = TestService::new().await;
    let api = service.run_with(API, &[SELDOM]).await;
    let id = api
        .client
        .charge("a", &charge_body("pm_card_visa"))
        .await
        .id();
    let begun = Instant::now();
    let (answer, canceled) = tokio::join!(api.client.show_and_wait(&id, 30), async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        api.client.cancel(&id).await
    });
    assert_eq!(canceled.status, 200);
    assert_eq!(answer.body["stage"], "canceled");
    assert!(begun.elapsed() < Duration::from_secs(5));
    api.stop().await;
    service.check_books().await;
}

/// A worker in another process completes it, and only looking tells.
#[tokio::test]
async fn what_another_process_completes_is_found_by_looking() {
    let service = TestService::new().await;
    let api = service.run_with(API, &[]).await;
    let worker = service.run_with(WORKER, &[]).await;
    let body = charge_body("pm_card_visa");
    let answers = futures_util::future::join_all((0..50).map(|n| {
        let (client, body) = (&api.client, &body);
        async move { client.charge_and_wait(&format!("k{n}"), body, 30).await }
    }))
    .await;
    for answer in answers {
        assert_eq!(
            (answer.status, &answer.body["status"]),
            (202, &json!("completed"))
        );
    }
    api.stop().await;
    worker.stop().await;
    service.check_books().await;
}

#[tokio::test]
async fn who_waits_holds_no_connection_and_only_so_many_wait() {
    let service = TestService::new().await;
    let settings = [("database.pool_size", "1"), ("http.max_waiting", "64")];
    let api = service.run_with(API, &settings).await;
    let body = charge_body("pm_card_visa");
    let id = api.client.charge("a", &body).await.id();
    let waiting: Vec<_> = (0..64)
        .map(|_| {
            let (client, id) = (api.client.clone(), id.clone());
            tokio::spawn(async move { client.show_and_wait(&id, 30).await })
        })
        .collect();
    until("all of them wait", async || {
        (api.scrape().await.count(WAITING) == 64).then_some(())
    })
    .await;
    // One more is answered at once, and says that it did not wait.
    let more = api.client.show_and_wait(&id, 30).await;
    assert_eq!((more.status, &more.body["stage"]), (200, &json!("pending")));
    assert!(!more.headers.contains_key("preference-applied"));
    for _ in 0..20 {
        assert_eq!(api.client.show(&id).await.status, 200);
    }
    assert_eq!(api.client.cancel(&id).await.status, 200);
    for answer in futures_util::future::join_all(waiting).await {
        assert_eq!(answer.unwrap().body["stage"], "canceled");
    }
    let scrape = api.scrape().await;
    assert_eq!(scrape.count(WAITING), 0);
    assert_eq!(scrape.count("payonce_waits_total{ended=\"settled\"}"), 64);
    assert_eq!(scrape.count("payonce_waits_total{ended=\"refused\"}"), 1);
    api.stop().await;
    service.check_books().await;
}

#[tokio::test]
async fn shutdown_ends_every_wait_with_an_answer() {
    let service = TestService::new().await;
    let api = service.run_with(API, &[]).await;
    let client = api.client.clone();
    let waiting = tokio::spawn(async move {
        client
            .charge_and_wait("a", &charge_body("pm_card_visa"), 30)
            .await
    });
    until("it waits", async || {
        (api.scrape().await.count(WAITING) == 1).then_some(())
    })
    .await;
    let begun = Instant::now();
    api.stop().await;
    let answer = waiting.await.unwrap();
    assert_eq!(
        (answer.status, &answer.body["stage"]),
        (202, &json!("pending"))
    );
    assert!(begun.elapsed() < Duration::from_secs(10));
}

/// In order, by a reset, and with a request behind the one that waits, which hides the end.
#[tokio::test]
async fn a_client_that_hangs_up_while_it_waits_gives_its_place_back() {
    let service = TestService::new().await;
    let api = service.run_with(API, &[("http.max_waiting", "1")]).await;
    let body = charge_body("pm_card_visa");
    let id = api.client.charge("a", &body).await.id();
    let wait = api.client.raw_wait(&id);
    for (resets, requests) in [(false, 1), (true, 1), (false, 2), (true, 2)] {
        let mut connection = api.client.connect().await;
        let first = wait.as_bytes();
        connection.write_all(first).await.unwrap();
        api.has_waiting(1).await;
        if requests > 1 {
            connection.write_all(first).await.unwrap();
        }
        if resets {
            connection.set_zero_linger().unwrap();
        }
        let begun = Instant::now();
        drop(connection);
        api.has_waiting(0).await;
        assert!(begun.elapsed() < Duration::from_secs(10));
    }
    assert!(
        api.scrape()
            .await
            .count("payonce_waits_total{ended=\"hung_up\"}")
            >= 4
    );
    api.stop().await;
}

/// It can't be told from one that is gone, and is answered.
#[tokio::test]
async fn a_client_that_closes_its_sending_side_while_it_waits_is_told_how_the_charge_stands() {
    let service = TestService::new().await;
    let api = service.run_with(API, &[]).await;
    let body = charge_body("pm_card_visa");
    let id = api.client.charge("a", &body).await.id();
    let mut connection = api.client.connect().await;
    let request = api.client.raw_wait(&id);
    connection.write_all(request.as_bytes()).await.unwrap();
    api.has_waiting(1).await;
    tokio::time::sleep(A_WHILE).await;
    assert_eq!(api.scrape().await.count(WAITING), 1);
    let begun = Instant::now();
    connection.shutdown().await.unwrap();
    let answer = only(&read_all(connection).await);
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert_eq!(
        (answer.status, &answer.body["stage"]),
        (200, &json!("pending"))
    );
    assert!(
        !answer.head.contains("preference-applied"),
        "{}",
        answer.head
    );
    api.stop().await;
}

/// It needs the customer no more: its job takes it to the provider.
#[tokio::test]
async fn a_cancel_while_the_customer_is_asked_is_waited_for_until_it_is_decided() {
    let service = TestService::new().await;
    let slow = [("worker.slow_base", "1h"), ("worker.slow_cap", "2h")];
    let running = service.run_with(Roles::ALL, &slow).await;
    let client = &running.client;
    let mut body = charge_body("pm_card_authenticationRequired");
    body["return_url"] = "https://shop.example.com/back".into();
    let id = client.charge("a", &body).await.id();
    client.at_stage(&id, "requires_action").await;
    service.ledger.hold("cancel", "before").await;
    let held = async {
        service.ledger.held().await;
        // The cancel waits, and so does whoever asks now.
        let (shown, ()) = tokio::join!(client.show_and_wait(&id, 30), async {
            tokio::time::sleep(A_WHILE).await;
            service.ledger.release().await;
        });
        shown
    };
    let (canceled, shown) = tokio::join!(client.cancel_and_wait(&id, 30), held);
    assert_eq!((canceled.status, shown.status), (202, 200));
    assert_eq!(canceled.body["stage"], "canceled");
    assert_eq!(shown.body, canceled.body);
    assert_eq!(canceled.headers["preference-applied"], "wait=30");
    running.stop().await;
    service.check_books_and_events().await;
}
