//! What clients do to their connections, and what becomes of them when the service shuts down.

use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{API, body};
use crate::support::TestService;
use crate::support::client::{Answer, Client};
use crate::support::database_proxy::{DatabaseProxy, Fault, INSERT_BATCH};

/// Hangs up N ms after the request was sent, for each N up to 50, with a database slow enough that this falls before,
/// into and after the statement.
#[tokio::test]
async fn a_client_that_hangs_up_at_any_moment_can_send_its_request_again() {
    let service = TestService::new().await;
    let proxy = DatabaseProxy::start(&service.database_url).await;
    let api = service
        .run_with(API, &[("database.url", proxy.url())])
        .await;
    proxy.network.delay_replies(Duration::from_millis(8));
    let is_full = std::env::var_os("PAYONCE_TEST_FULL").is_some();
    let rounds = if is_full { 10 } else { 1 };
    let body = body(1000);
    for round in 0..rounds {
        let hang_ups = (0..50).map(|milliseconds| {
            let (client, body) = (&api.client, &body);
            async move {
                let key = format!("{round}-{milliseconds}");
                let mut connection = client.connect().await;
                let request = client.raw_charge(&key, body);
                connection.write_all(request.as_bytes()).await.unwrap();
                tokio::time::sleep(Duration::from_millis(milliseconds)).await;
                if milliseconds % 2 == 0 {
                    // A reset in place of an orderly end.
                    connection.set_zero_linger().unwrap();
                }
                drop(connection);
                let answer = client.charge(&key, body).await;
                assert!(matches!(answer.status, 200 | 202), "{key}: {answer:?}");
                let again = client.charge(&key, body).await;
                assert_eq!((again.status, again.id()), (200, answer.id()), "{key}");
            }
        });
        futures_util::future::join_all(hang_ups).await;
    }
    assert_eq!(service.stored().await, 50 * rounds);
    api.stop().await;
    service.finish().await;
}

/// Nobody waits for the answer any more, and the request is accepted all the same.
#[tokio::test]
async fn a_request_whose_client_is_gone_is_carried_to_its_end() {
    let service = TestService::new().await;
    let proxy = DatabaseProxy::start(&service.database_url).await;
    let api = service
        .run_with(API, &[("database.url", proxy.url())])
        .await;
    let mut held = proxy.arm(INSERT_BATCH, Fault::HoldBefore);
    let mut connection = api.client.connect().await;
    let request = api.client.raw_charge("k1", &body(1000));
    connection.write_all(request.as_bytes()).await.unwrap();
    held.struck().await;
    drop(connection);
    held.release();
    crate::support::until("the request is stored", async || {
        (service.count("SELECT count(*) FROM charges").await == 1).then_some(())
    })
    .await;
    let retry = api.client.charge("k1", &body(1000)).await;
    assert_eq!((retry.status, retry.is_replay()), (200, true));
    assert_eq!(service.stored().await, 1);
    api.stop().await;
    service.finish().await;
}

#[tokio::test]
async fn a_client_that_closes_its_sending_side_gets_its_whole_answer() {
    let service = TestService::new().await;
    let api = service.run_with(API, &[]).await;
    let mut connection = api.client.connect().await;
    let request = api.client.raw_charge("k1", &body(1000));
    connection.write_all(request.as_bytes()).await.unwrap();
    connection.shutdown().await.unwrap();
    let (status, charge) = read_answer(&mut connection).await;
    assert_eq!(status, 202);
    assert_eq!(charge["id"], service.charge_id("k1").to_string());
    let retry = api.client.charge("k1", &body(1000)).await;
    assert_eq!((retry.status, retry.is_replay()), (200, true));
    api.stop().await;
    service.finish().await;
}

/// Reads until the service closes.
async fn read_answer(connection: &mut tokio::net::TcpStream) -> (u16, Value) {
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap())
}

/// A request that intake has is answered before the process ends.
#[tokio::test]
async fn a_request_under_way_at_sigterm_is_answered() {
    let service = TestService::new().await;
    let proxy = DatabaseProxy::start(&service.database_url).await;
    let process = service.spawn("api", &[("database.url", proxy.url())]).await;
    let client = process.client.clone();
    let mut held = proxy.arm(INSERT_BATCH, Fault::HoldAfter);
    let request = tokio::spawn(async move { client.charge("k1", &body(1000)).await });
    held.struck().await;
    let address = process.client.base.clone();
    let ended = tokio::spawn(process.terminate());
    // It has begun to shut down when it takes nobody any more.
    crate::support::until("nobody is let in", async || {
        let address = address.trim_start_matches("http://");
        tokio::net::TcpStream::connect(address).await.err()
    })
    .await;
    held.release();
    let answer = request.await.unwrap();
    assert_eq!((answer.status, answer.is_replay()), (202, false));
    assert!(ended.await.unwrap(), "the process ends well");
    assert_eq!(service.stored().await, 1);
    service.finish().await;
}

/// Clients who send one request after the other until the service is gone.
#[tokio::test]
async fn sigterm_under_load_loses_no_accepted_request_and_hangs_nobody() {
    let service = TestService::new().await;
    let process = service.spawn("api", &[]).await;
    let (told, mut heard) = tokio::sync::mpsc::unbounded_channel();
    let clients: Vec<_> = (0..16)
        .map(|n| tokio::spawn(post_until_gone(process.client.clone(), n, told.clone())))
        .collect();
    drop(told);
    let mut outcomes = Vec::new();
    for _ in 0..200 {
        outcomes.push(heard.recv().await.unwrap());
    }
    assert!(process.terminate().await, "the process ends well");
    for client in clients {
        client.await.unwrap();
    }
    while let Some(outcome) = heard.recv().await {
        outcomes.push(outcome);
    }

    let api = service.run_with(API, &[]).await;
    for (key, answer) in outcomes {
        let again = api.client.charge(&key, &body(1000)).await;
        match answer {
            Ok(answer) if answer.status == 202 => {
                assert_eq!((again.status, again.id()), (200, answer.id()), "{key}");
            }
            Ok(answer) => panic!("{key}: {answer:?}"),
            // Closed: it may have been accepted.
            Err(_) => assert!(matches!(again.status, 200 | 202), "{key}: {again:?}"),
        }
    }
    api.stop().await;
    service.finish().await;
}

type Outcome = (String, Result<Answer, reqwest::Error>);

async fn post_until_gone(
    client: Client,
    number: usize,
    told: tokio::sync::mpsc::UnboundedSender<Outcome>,
) {
    for n in 0.. {
        let key = format!("{number}-{n}");
        let answer = client.try_charge(&key, &body(1000)).await;
        let is_gone = answer.is_err();
        told.send((key, answer)).unwrap();
        if is_gone {
            return;
        }
    }
}

/// A thousand reads and cancels whose clients are gone within milliseconds, on two connections, with a database slow enough
/// that this falls into their statements: nobody is ever left in a transaction, no connection and no place is lost, and
/// everybody else is served.
#[tokio::test]
async fn clients_that_are_gone_at_once_spoil_no_connection() {
    const OPEN: &str = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = 'payonce' AND state LIKE 'idle in transaction%'";
    const SESSIONS: &str = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = 'payonce'";
    let service = TestService::new().await;
    let proxy = DatabaseProxy::start(&service.database_url).await;
    let settings = [
        ("database.url", proxy.url()),
        ("database.pool_size", "2"),
        // Whatever is left open stays so.
        ("database.statement_timeout", "3s"),
    ];
    let api = service.run_with(API, &settings).await;
    let id = api.client.charge("k1", &body(1000)).await.id();
    let nobody = "chg_00000000000000000000000000000001";
    let lines = [
        format!("GET /v1/charges/{id}"),
        format!("GET /v1/charges/{id}/timeline"),
        "GET /v1/charges".to_owned(),
        format!("POST /v1/charges/{nobody}/cancel"),
    ];
    proxy.network.delay_replies(Duration::from_millis(1));
    for (number, line) in (0..1000).zip(lines.iter().cycle()) {
        let mut connection = api.client.connect().await;
        let request = format!(
            "{line} HTTP/1.1\r\nhost: payonce\r\nauthorization: Bearer {}\r\ncontent-length: 0\r\n\r\n",
            api.client.token
        );
        connection.write_all(request.as_bytes()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(number / 4 % 8)).await;
        connection.set_zero_linger().unwrap();
        drop(connection);
        if number % 25 == 24 {
            assert_eq!(service.count(OPEN).await, 0, "after {number}");
        }
    }
    proxy.network.delay_replies(Duration::ZERO);
    for round in 0..20 {
        let key = format!("after-{round}");
        let charge = body(1000);
        let (new, one, other) = tokio::join!(
            api.client.charge(&key, &charge),
            api.client.show(&id),
            api.client.get("/v1/charges")
        );
        assert_eq!((new.status, one.status, other.status), (202, 200, 200));
    }
    // Two for reads; intake and the looks at the books have their own.
    crate::support::until("what was thrown away is closed", async || {
        (service.count(SESSIONS).await <= 6).then_some(())
    })
    .await;
    assert_eq!(service.stored().await, 21);
    api.stop().await;
    service.finish().await;
}
