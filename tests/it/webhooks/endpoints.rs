//! `/v1/webhook_endpoints`.

use payonce::domain::api_key::Scope;
use serde_json::json;

use crate::support::TestService;
use crate::support::receiver::Receiver;
use crate::support::service::API;

const PATH: &str = "/v1/webhook_endpoints";

#[tokio::test]
async fn an_endpoint_is_made_read_changed_and_deleted_and_its_secret_is_told_once() {
    let service = TestService::new().await;
    let running = service.run_with(API, &[]).await;
    let client = &running.client;
    let body = json!({"url": "https://8.8.8.8/hooks", "events": ["charge.failed"], "description": "Orders"});
    let made = client.send("POST", PATH, Some(body)).await;
    assert_eq!(made.status, 201);
    let path = format!("{PATH}/{}", made.id());
    assert_eq!(made.headers["location"].to_str().unwrap(), path);
    assert!(made.body["secret"].as_str().unwrap().starts_with("whsec_"));
    let mut shown = made.body.clone();
    shown.as_object_mut().unwrap().remove("secret");
    assert_eq!(client.get(&path).await.body, shown);
    assert_eq!(client.get(PATH).await.body["data"], json!([shown]));

    let body =
        json!({"url": "https://8.8.4.4/", "events": [], "description": "", "enabled": false});
    let changed = client.send("PATCH", &path, Some(body)).await;
    assert_eq!(changed.status, 200);
    assert_eq!(changed.body["url"], "https://8.8.4.4/");
    assert_eq!(changed.body["events"], json!([]));
    assert_eq!(changed.body.get("description"), None);
    assert_eq!(
        (&changed.body["enabled"], &changed.body["disabled_reason"]),
        (&json!(false), &json!("merchant"))
    );
    assert_eq!(changed.body.get("secret"), None);
    let same = client.send("PATCH", &path, Some(json!({}))).await;
    assert_eq!(same.body["url"], "https://8.8.4.4/");

    let rotated = client
        .send("POST", &format!("{path}/rotate_secret"), None)
        .await;
    assert_eq!(rotated.status, 200);
    assert_ne!(rotated.body["secret"], made.body["secret"]);
    assert!(rotated.body["previous_secret_until"].is_string());

    assert_eq!(client.send("DELETE", &path, None).await.status, 204);
    for (method, path) in [
        ("GET", path.clone()),
        ("DELETE", path.clone()),
        ("POST", format!("{path}/test")),
    ] {
        assert_eq!(client.send(method, &path, None).await.status, 404);
    }
    assert_eq!(client.get(PATH).await.body, json!({"data": []}));
    running.stop().await;
}

#[tokio::test]
async fn what_is_wrong_with_an_endpoint_is_named_all_at_once() {
    let service = TestService::new().await;
    let strict = &[("webhooks.allow_loopback", "false")];
    let running = service.run_with(API, strict).await;
    let client = &running.client;
    let faults = async |body| {
        let refused = client.send("POST", PATH, Some(body)).await;
        assert_eq!(
            (refused.status, refused.code()),
            (422, "invalid_request"),
            "{refused:?}"
        );
        let errors = refused.body["errors"].as_array().unwrap().clone();
        let mut told: Vec<String> = errors
            .iter()
            .map(|error| {
                format!(
                    "{} {}",
                    error["pointer"].as_str().unwrap(),
                    error["rule"].as_str().unwrap()
                )
            })
            .collect();
        told.sort();
        told
    };
    assert_eq!(faults(json!({})).await, ["#/url required"]);
    assert_eq!(faults(json!([])).await, ["# type"]);
    let body = json!({"url": "http://x.example.com/", "events": ["charge.paid"], "enabled": 1, "secret": "mine"});
    assert_eq!(
        faults(body).await,
        [
            "#/enabled type",
            "#/events/0 word",
            "#/secret unknown_field",
            "#/url url"
        ]
    );
    for url in [
        "https://127.0.0.1/",
        "https://localhost/",
        "https://169.254.169.254/latest/meta-data/",
        "https://[::ffff:10.0.0.1]/",
        "https://user:password@shop.example.com/",
        "https://8.8.8.8:25/",
    ] {
        assert_eq!(faults(json!({"url": url})).await, ["#/url url"], "{url}");
    }
    running.stop().await;
}

#[tokio::test]
async fn endpoints_are_their_merchants_alone_and_changed_by_keys_that_may_write() {
    let service = TestService::new().await;
    let running = service
        .run_with(API, &[("webhooks.endpoints_per_merchant", "1")])
        .await;
    let client = &running.client;
    let receiver = Receiver::start().await;
    let endpoint = client.make_endpoint(&receiver).await;
    let reader = client.with_token(&service.make_key(service.merchant, Scope::Read).await);
    let (_, token) = service.make_merchant("other").await;
    let stranger = client.with_token(&token);
    assert_eq!(reader.get(&endpoint.path).await.status, 200);
    assert_eq!(stranger.get(&endpoint.path).await.status, 404);
    assert_eq!(stranger.get(PATH).await.body, json!({"data": []}));
    let body = json!({"url": receiver.url()});
    let none = "whd_00000000000000000000000000000000";
    for (method, path, body) in [
        (
            "PATCH",
            endpoint.path.clone(),
            Some(json!({"enabled": false})),
        ),
        ("DELETE", endpoint.path.clone(), None),
        ("POST", format!("{}/rotate_secret", endpoint.path), None),
        ("POST", format!("{}/test", endpoint.path), None),
        (
            "POST",
            format!("{}/deliveries/{none}/retry", endpoint.path),
            None,
        ),
    ] {
        assert_eq!(
            reader.send(method, &path, body.clone()).await.status,
            403,
            "{path}"
        );
        assert_eq!(
            stranger.send(method, &path, body).await.status,
            404,
            "{path}"
        );
    }
    assert_eq!(
        reader.send("POST", PATH, Some(body.clone())).await.status,
        403
    );
    let one_more = client.send("POST", PATH, Some(body)).await;
    assert_eq!(
        (one_more.status, &one_more.body["errors"][0]["rule"]),
        (422, &json!("limit"))
    );
    assert_eq!(client.get(&endpoint.path).await.body["enabled"], true);
    running.stop().await;
}
