//! What bounds requests.

use serde_json::json;
use tokio::io::AsyncWriteExt;

use super::{exchange, only};
use crate::support::database_proxy::{DatabaseProxy, Fault, INSERT_BATCH};
use crate::support::service::API;
use crate::support::{TestService, charge_body, until};

#[tokio::test]
async fn a_merchant_beyond_its_limit_is_told_when_to_come_back_and_no_key_is_used_up() {
    let service = TestService::new().await;
    let settings = [
        ("http.requests_per_second", "1"),
        ("http.requests_burst", "6"),
    ];
    let api = service.run_with(API, &settings).await;
    let body = charge_body("pm_card_visa");
    let policy = api.client.get("/v1/policy").await;
    assert_eq!(policy.body["limits"]["requests_per_second"], 1);
    assert_eq!(policy.body["limits"]["requests_burst"], 6);
    // Duplicates count.
    let mut limited = None;
    for _ in 0..20 {
        let answer = api.client.charge("a", &body).await;
        if answer.status == 429 {
            limited = Some(answer);
            break;
        }
        assert!(matches!(answer.status, 200 | 202), "{answer:?}");
    }
    let limited = limited.unwrap();
    assert_eq!(limited.code(), "rate_limited");
    assert_eq!(limited.body["retry"], "same_request");
    let wait = limited.headers["retry-after"].to_str().unwrap();
    assert!(wait.parse::<u32>().unwrap() >= 1, "{wait}");
    // Another merchant has its own.
    let other = service.make_merchant("other").await.1;
    let other = api.client.with_token(&other);
    assert_eq!(other.charge("a", &body).await.status, 202);
    // Of what was refused nothing is stored, and the same request is accepted as new.
    let refused = until("one more is refused", async || {
        let key = payonce::random::Random::from_os().uuid().to_string();
        (api.client.charge(&key, &body).await.status == 429).then_some(key)
    })
    .await;
    let accepted = until("it is accepted", async || {
        let answer = api.client.charge(&refused, &body).await;
        (answer.status != 429).then_some(answer)
    })
    .await;
    assert_eq!((accepted.status, accepted.is_replay()), (202, false));
    let scrape = api.scrape().await;
    let counted = "payonce_intake_requests_total{result=\"refused\",code=\"rate_limited\"}";
    assert!(scrape.count(counted) >= 2);
    api.stop().await;
    service.check_books().await;
}

#[tokio::test]
async fn there_is_no_limit_unless_it_is_set() {
    let service = TestService::new().await;
    let api = service.run_with(API, &[]).await;
    let limits = &api.client.get("/v1/policy").await.body["limits"];
    assert_eq!(limits["requests_per_second"], json!(null));
    assert_eq!(limits["body_bytes"], 65_536);
    api.stop().await;
}

#[tokio::test]
async fn a_queue_that_is_full_by_its_bytes_refuses_before_anything_is_stored() {
    let service = TestService::new().await;
    let proxy = DatabaseProxy::start(&service.database_url).await;
    let settings = [
        ("database.url", proxy.url()),
        ("intake.batchers", "1"),
        ("intake.batch_bytes", "1000"),
        ("intake.queue_bytes", "3000"),
    ];
    let api = service.run_with(API, &settings).await;
    let mut held = proxy.arm(INSERT_BATCH, Fault::HoldBefore);
    let mut body = charge_body("pm_card_visa");
    body["metadata"] = json!({"note": "x".repeat(500), "more": "x".repeat(500)});
    let mut posts = tokio::task::JoinSet::new();
    let mut post = |key: String| {
        let (client, body) = (api.client.clone(), body.clone());
        posts.spawn(async move { (client.charge(&key, &body).await, key) });
    };
    post("first".to_owned());
    held.struck().await;
    for number in 0..6 {
        post(format!("k{number}"));
    }
    let refused = "payonce_intake_requests_total{result=\"refused\",code=\"overloaded\"}";
    let scrape = api.scrape_with(refused, 4.0).await;
    let bytes = scrape.value("payonce_intake_queue_bytes{batcher=\"0\"}");
    assert!((1.0..=3000.0).contains(&bytes), "{bytes}");
    assert_eq!(
        scrape.count("payonce_intake_queue_bytes_capacity{batcher=\"0\"}"),
        3000
    );
    held.release();
    let mut stored = 0;
    for (answer, key) in posts.join_all().await {
        match answer.status {
            202 => stored += 1,
            503 => {
                assert_eq!(answer.code(), "overloaded");
                assert_eq!(answer.headers["retry-after"], "1");
                assert_eq!(api.client.charge(&key, &body).await.status, 202);
            }
            status => panic!("{status}: {answer:?}"),
        }
    }
    assert!(stored < 7);
    assert_eq!(service.count("SELECT count(*) FROM charges").await, 7);
    assert_eq!(
        api.scrape()
            .await
            .count("payonce_intake_queue_bytes{batcher=\"0\"}"),
        0
    );
    api.stop().await;
    service.check_books().await;
}

#[tokio::test]
async fn a_lower_limit_of_bodies_is_obeyed_and_told() {
    let service = TestService::new().await;
    let api = service
        .run_with(API, &[("http.max_body_bytes", "100")])
        .await;
    let mut body = charge_body("pm_card_visa");
    assert_eq!(api.client.charge("a", &body).await.status, 202);
    body["description"] = "x".repeat(100).into();
    let answer = api.client.charge("b", &body).await;
    assert_eq!((answer.status, answer.code()), (413, "payload_too_large"));
    let endpoint =
        json!({"url": "https://shop.example.com/payonce", "description": "x".repeat(100)});
    let answer = api
        .client
        .send("POST", "/v1/webhook_endpoints", Some(endpoint))
        .await;
    assert_eq!((answer.status, answer.code()), (413, "payload_too_large"));
    let policy = api.client.get("/v1/policy").await;
    assert_eq!(policy.body["limits"]["body_bytes"], 100);
    api.stop().await;
}

/// Slow heads, slow bodies, and connections that send nothing, at short times.
#[tokio::test]
async fn slow_peers_are_told_so_and_let_go() {
    let service = TestService::new().await;
    let settings = [
        ("http.header_timeout", "200ms"),
        ("http.idle_timeout", "400ms"),
        ("http.request_timeout", "10300ms"),
    ];
    let api = service.run_with(API, &settings).await;
    let request = api.client.raw_charge("a", &charge_body("pm_card_visa"));
    let (head, _) = request.split_once("\r\n\r\n").unwrap();
    let slow_head = exchange(&api.client, head.as_bytes()).await;
    let slow_body = exchange(&api.client, format!("{head}\r\n\r\n{{").as_bytes()).await;
    for answer in [slow_head, slow_body] {
        let answer = only(&answer);
        assert_eq!(
            (answer.status, answer.body["code"].as_str()),
            (408, Some("request_timeout"))
        );
        assert!(answer.head.contains("connection: close"), "{}", answer.head);
    }
    assert_eq!(exchange(&api.client, b"").await, "");
    // Between two requests, too; and a head in pieces is fine if it comes in time.
    let mut connection = api.client.connect().await;
    for byte in request.as_bytes().chunks(64) {
        connection.write_all(byte).await.unwrap();
    }
    assert_eq!(only(&super::read_all(connection).await).status, 202);
    assert_eq!(service.count("SELECT count(*) FROM charges").await, 1);
    let scrape = api.scrape().await;
    assert_eq!(
        scrape.count("payonce_http_refused_total{reason=\"head_timeout\"}"),
        1
    );
    api.stop().await;
    service.check_books().await;
}
