//! Raw sockets that send what no client should.

use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::{A_WHILE, answers, exchange, only, read_all};
use crate::support::client::Client;
use crate::support::service::API;
use crate::support::{TestService, charge_body, until};

const CONNECTIONS: &str = "payonce_http_connections";

fn get(client: &Client, path: &str, more: &str) -> String {
    let token = &client.token;
    format!("GET {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n{more}\r\n")
}

/// Everything that a head can be but right: the answer is one problem of the 4xx, or the connection ends.
#[tokio::test]
async fn what_is_no_request_is_refused_with_a_problem_and_the_connection_ends() {
    let service = TestService::new().await;
    let api = service.run_with(API, &[]).await;
    let good = api.client.raw_charge("a", &charge_body("pm_card_visa"));
    let with =
        |more: &str| good.replacen("host: payonce\r\n", &format!("host: payonce\r\n{more}"), 1);
    for (bytes, status) in [
        (with("content-length: 3\r\n"), 400),
        (with("transfer-encoding: chunked\r\n"), 400),
        (with("transfer-encoding: gzip, chunked\r\n"), 400),
        (with("transfer-encoding: identity\r\n"), 400),
        (with("content-length: +5\r\n"), 400),
        (with("content-length: 99999999999999999999999\r\n"), 400),
        (with("a: b\r\n folded: yes\r\n"), 400),
        (with("no colon\r\n"), 400),
        (with("space before : colon\r\n"), 400),
        (with("nul: a\0b\r\n"), 400),
        (with("host: other\r\n"), 400),
        (with(&"a: b\r\n".repeat(200)), 431),
        (with(&format!("a: {}\r\n", "b".repeat(300_000))), 431),
        (good.replacen("host: payonce\r\n", "", 1), 400),
        (good.replacen("HTTP/1.1", "HTTP/3.0", 1), 400),
        (good.replacen("POST", "P ST", 1), 400),
        (
            format!(
                "GET /{} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
                "a".repeat(9000)
            ),
            414,
        ),
        (
            "CONNECT example.com:443 HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".to_owned(),
            404,
        ),
        (
            "OPTIONS * HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".to_owned(),
            404,
        ),
        (
            "TRACE /v1/charges HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".to_owned(),
            405,
        ),
        (
            "\u{16}\u{3}\u{1}\u{2}\0 a TLS hello, about\r\n\r\n".to_owned(),
            400,
        ),
    ] {
        let answer = exchange(&api.client, bytes.as_bytes()).await;
        let answer = only(&answer);
        assert_eq!(answer.status, status, "{bytes:.300}: {answer:?}");
        assert_eq!(answer.body["status"], status, "{answer:?}");
        assert!(answer.head.contains("x-request-id: "), "{answer:?}");
    }
    // HTTP/2 is not spoken here.
    let preface = exchange(&api.client, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
    assert!(!preface.contains(" 5"), "{preface}");
    assert_eq!(service.count("SELECT count(*) FROM charges").await, 0);
    api.stop().await;
}

/// A request hidden in the body of one that says two lengths is never run.
#[tokio::test]
async fn no_request_is_smuggled_behind_another_wherever_it_stands_in_a_pipeline() {
    let service = TestService::new().await;
    let api = service.run_with(API, &[]).await;
    let hidden = api
        .client
        .raw_charge("hidden", &charge_body("pm_card_visa"));
    let token = &api.client.token;
    for order in [
        format!(
            "content-length: {}\r\ntransfer-encoding: chunked\r\n",
            5 + hidden.len()
        ),
        format!(
            "transfer-encoding: chunked\r\ncontent-length: {}\r\n",
            5 + hidden.len()
        ),
    ] {
        let both = format!(
            "POST /v1/charges HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\nidempotency-key: k\r\n\
             content-type: application/json\r\n{order}\r\n0\r\n\r\n{hidden}"
        );
        let alone = answers(&exchange(&api.client, both.as_bytes()).await);
        assert_eq!(alone.len(), 1, "{alone:?}");
        assert_eq!(alone[0].body["code"], "malformed_request");
        // Behind another its head is not looked at by itself: the coding counts, and the connection ends.
        let behind = format!("{}{both}", get(&api.client, "/v1/policy", ""));
        let behind = answers(&exchange(&api.client, behind.as_bytes()).await);
        assert_eq!(behind.len(), 2, "{behind:?}");
        assert_eq!((behind[0].status, behind[1].status), (200, 400));
    }
    assert_eq!(service.count("SELECT count(*) FROM charges").await, 0);
    api.stop().await;
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_their_order() {
    let service = TestService::new().await;
    let api = service.run_with(API, &[]).await;
    let body = charge_body("pm_card_visa");
    let mut bytes = String::new();
    for key in ["a", "b", "a"] {
        bytes += &api.client.raw_charge(key, &body);
    }
    bytes += &get(&api.client, "/v1/charges", "");
    bytes += &get(&api.client, "/nowhere", "connection: close\r\n");
    let all = answers(&exchange(&api.client, bytes.as_bytes()).await);
    let statuses: Vec<u16> = all.iter().map(|answer| answer.status).collect();
    assert_eq!(statuses, [202, 202, 200, 200, 404]);
    assert_eq!(all[3].body["data"].as_array().unwrap().len(), 2);
    api.stop().await;
}

/// Bodies that end early, never, or are not what they say.
#[tokio::test]
async fn broken_bodies_store_nothing_and_are_told_so() {
    let service = TestService::new().await;
    let api = service
        .run_with(API, &[("http.request_timeout", "10500ms")])
        .await;
    let token = &api.client.token;
    let post = |more: &str, body: &str| {
        format!(
            "POST /v1/charges HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\nidempotency-key: k\r\n\
             content-type: application/json\r\n{more}\r\n{body}"
        )
    };
    let chunk = format!("1000\r\n{}\r\n", " ".repeat(4096));
    for (bytes, status) in [
        (post("content-length: 100\r\n", "{\"amount\""), 408),
        (
            post("transfer-encoding: chunked\r\n", "zz\r\n{}\r\n0\r\n\r\n"),
            400,
        ),
        (
            post("transfer-encoding: chunked\r\n", "FFFFFFFFFFFFFFFFFF\r\n{}"),
            400,
        ),
        (post("transfer-encoding: chunked\r\n", &chunk), 408),
        (
            post("transfer-encoding: chunked\r\n", &chunk.repeat(20)),
            413,
        ),
        (post("content-length: 70000\r\n", &" ".repeat(70_000)), 413),
        (
            post(
                "content-length: 20\r\ncontent-encoding: gzip\r\nconnection: close\r\n",
                "\u{1f}\u{8b}aaaaaaaaaaaaaaaaaa",
            ),
            415,
        ),
    ] {
        let mut connection = api.client.connect().await;
        let _ = connection.write_all(bytes.as_bytes()).await;
        if status == 413 {
            // Nothing more comes: what is still expected is not waited for without end.
            connection.shutdown().await.unwrap();
        }
        let answer = only(&read_all(connection).await);
        assert_eq!(answer.status, status, "{bytes:.300}: {answer:?}");
    }
    // Cut in the middle, and closed on the sending side.
    let mut connection = api.client.connect().await;
    let half = post("content-length: 100\r\n", "{\"amount\"");
    connection.write_all(half.as_bytes()).await.unwrap();
    connection.shutdown().await.unwrap();
    for answer in answers(&read_all(connection).await) {
        assert_eq!(answer.status, 400);
    }
    assert_eq!(service.count("SELECT count(*) FROM charges").await, 0);
    api.stop().await;
}

/// Chunks that never end are heard out for a bounded time and number of bytes.
#[tokio::test]
async fn a_body_without_end_is_refused_and_the_connection_ends() {
    let service = TestService::new().await;
    let api = service.run_with(API, &[]).await;
    let token = &api.client.token;
    let mut connection = api.client.connect().await;
    let head = format!(
        "POST /v1/charges HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\nidempotency-key: k\r\n\
         content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    );
    connection.write_all(head.as_bytes()).await.unwrap();
    let chunk = format!("10000\r\n{}\r\n", " ".repeat(65_536));
    let mut sent = 0_usize;
    let sending = async {
        while connection.write_all(chunk.as_bytes()).await.is_ok() {
            sent += chunk.len();
        }
    };
    tokio::time::timeout(crate::support::PATIENCE, sending)
        .await
        .expect("it is cut off");
    // What it hears out, and what the buffers on the way hold.
    assert!(sent < 64 << 20, "{sent}");
    assert_eq!(service.count("SELECT count(*) FROM charges").await, 0);
    api.stop().await;
}

/// A thousand connections that each hold half a head or nothing: the others are served, and they are let go in time.
#[tokio::test]
async fn a_thousand_slow_connections_hold_up_nobody_and_are_let_go() {
    let service = TestService::new().await;
    let settings = [
        ("http.max_connections", "1100"),
        ("http.header_timeout", "3s"),
        ("http.idle_timeout", "5s"),
    ];
    let api = service.run_with(API, &settings).await;
    let mut slow: Vec<TcpStream> = Vec::new();
    for number in 0..1000 {
        let mut connection = api.client.connect().await;
        if number % 2 == 0 {
            connection
                .write_all(b"POST /v1/charges HTTP/1.1\r\nx: ")
                .await
                .unwrap();
        }
        slow.push(connection);
    }
    let body = charge_body("pm_card_visa");
    for number in 0..20 {
        let answer = api.client.charge(&format!("k{number}"), &body).await;
        assert_eq!(answer.status, 202);
    }
    until("they are let go", async || {
        (api.scrape().await.count(CONNECTIONS) < 50).then_some(())
    })
    .await;
    let timed_out = "payonce_http_refused_total{reason=\"head_timeout\"}";
    assert_eq!(api.scrape().await.count(timed_out), 500);
    drop(slow);
    api.stop().await;
    service.check_books().await;
}

/// Asks for more and more and reads nothing of it.
#[tokio::test]
async fn a_peer_that_never_reads_is_dropped() {
    let service = TestService::new().await;
    let api = service
        .run_with(API, &[("http.write_timeout", "300ms")])
        .await;
    let mut connection = api.client.connect().await;
    let request = get(&api.client, "/docs", "").repeat(100);
    let asking = async {
        while connection.write_all(request.as_bytes()).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(crate::support::PATIENCE, asking)
        .await
        .expect("it is dropped");
    let dropped = "payonce_http_refused_total{reason=\"write_timeout\"}";
    assert_eq!(api.scrape().await.count(dropped), 1);
    tokio::time::sleep(A_WHILE).await;
    assert_eq!(api.scrape().await.count(CONNECTIONS), 0);
    api.stop().await;
}

#[tokio::test]
async fn every_answer_says_what_a_browser_and_a_cache_must_know() {
    let service = TestService::new().await;
    let api = service.run_with(API, &[]).await;
    let ask = async |line: &str, more: &str| {
        let token = &api.client.token;
        let request = format!(
            "{line} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\norigin: https://evil.example\r\n{more}connection: close\r\n\r\n"
        );
        exchange(&api.client, request.as_bytes()).await
    };
    for (line, allow) in [
        ("OPTIONS /v1/charges", "GET,HEAD,POST"),
        ("DELETE /v1/charges", "GET,HEAD,POST"),
        ("PUT /v1/policy", "GET,HEAD"),
    ] {
        let answer = only(&ask(line, "access-control-request-method: POST\r\n").await);
        assert_eq!(
            (answer.status, answer.body["code"].as_str()),
            (405, Some("method_not_allowed"))
        );
        let allowed = answer
            .head
            .lines()
            .find_map(|line| line.strip_prefix("allow: "));
        let mut allowed: Vec<&str> = allowed.unwrap().split(',').collect();
        allowed.sort_unstable();
        assert_eq!(allowed.join(","), allow, "{line}");
        assert!(answer.head.contains("cache-control: no-store"));
        assert!(!answer.head.contains("access-control-"), "{}", answer.head);
    }
    let head = ask("HEAD /v1/policy", "").await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert!(head.ends_with("\r\n\r\n"), "a HEAD has no body");
    for page in ["GET /docs", "GET /problems/rate_limited"] {
        let answer = ask(page, "").await;
        for header in [
            "content-security-policy: default-src 'none'",
            "frame-ancestors 'none'",
            "x-content-type-options: nosniff",
            "referrer-policy: no-referrer",
        ] {
            assert!(answer.contains(header), "{page}: {header}");
        }
        assert!(!answer.contains("access-control-"));
    }
    api.stop().await;
}
