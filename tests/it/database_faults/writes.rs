//! What merchants write besides charges: whoever is not told what came of it is never told that nothing did.

use serde_json::{Value, json};

use crate::support::client::{Answer, Client};
use crate::support::database_proxy::{DatabaseProxy, Fault};
use crate::support::service::API;
use crate::support::{TestService, charge_body};

const ENDPOINTS: &str = "/v1/webhook_endpoints";

/// A call, a part of the statement whose answer is lost, and what the client is told.
struct Write {
    method: &'static str,
    path: String,
    body: Option<Value>,
    statement: &'static str,
    code: &'static str,
    retry: &'static str,
}

impl Write {
    fn new(method: &'static str, path: String, statement: &'static str) -> Self {
        Self {
            method,
            path,
            body: None,
            statement,
            code: "acceptance_unknown",
            retry: "same_request",
        }
    }

    fn with(self, body: Value) -> Self {
        Self {
            body: Some(body),
            ..self
        }
    }

    /// Twice is not the same as once.
    fn not_again(self) -> Self {
        Self {
            code: "outcome_unknown",
            retry: "never",
            ..self
        }
    }

    async fn sent(&self, client: &Client) -> Answer {
        client
            .send(self.method, &self.path, self.body.clone())
            .await
    }
}

/// Every write once, on an endpoint and a charge of their own; the last one deletes the endpoint.
async fn writes(client: &Client, key: &str) -> Vec<Write> {
    let url = json!({"url": "https://8.8.8.8/hooks"});
    let endpoint = client.make_endpoint_with(url.clone()).await.path;
    let tested = client.send("POST", &format!("{endpoint}/test"), None).await;
    let delivery = format!("{endpoint}/deliveries/{}", tested.id());
    let charge = client.charge(key, &charge_body("pm_card_visa")).await.id();
    let at = |rest: &str| format!("{endpoint}{rest}");
    vec![
        Write::new("POST", ENDPOINTS.into(), "INSERT INTO webhook_endpoints")
            .with(url)
            .not_again(),
        Write::new("PATCH", at(""), "SET url = COALESCE").with(json!({"description": "Orders"})),
        Write::new("POST", at("/rotate_secret"), "SET previous_secret = secret").not_again(),
        Write::new("POST", at("/test"), "'webhook_endpoint.test'"),
        // Which reads what was written.
        Write::new("POST", at("/test"), "FROM webhook_deliveries"),
        Write::new("POST", format!("{delivery}/retry"), "SET state = 'due'"),
        Write::new("POST", format!("/v1/charges/{charge}/cancel"), "FOR UPDATE"),
        Write::new("DELETE", at(""), "DELETE FROM webhook_endpoints"),
    ]
}

#[tokio::test]
async fn a_write_whose_answer_is_lost_is_never_told_as_one_that_stored_nothing() {
    let service = TestService::new().await;
    let proxy = DatabaseProxy::start(&service.database_url).await;
    let settings = [
        ("database.url", proxy.url()),
        ("database.connect_timeout", "500ms"),
        ("database.statement_timeout", "800ms"),
    ];
    let api = service.run_with(API, &settings).await;
    let client = &api.client;
    for (key, fault) in [
        ("a", Fault::CutBefore),
        ("b", Fault::CutAfter),
        ("c", Fault::HoldAfter),
    ] {
        for write in writes(client, key).await {
            let name = format!("{fault:?} {} {}", write.method, write.path);
            let mut lost = proxy.arm(write.statement, fault);
            let told = write.sent(client).await;
            lost.struck().await;
            lost.release();
            assert_eq!(
                (told.status, told.code()),
                (503, write.code),
                "{name}: {told:?}"
            );
            assert_eq!(told.body["retry"], write.retry, "{name}");
            let detail = told.body["detail"].as_str().unwrap();
            assert!(detail.contains(" may "), "{name}: {detail}");
            assert!(!detail.contains("nothing was stored"), "{name}: {detail}");
        }
    }
    // Each round has made two and deleted one; of the first neither was done.
    let endpoints = service
        .count("SELECT count(*) FROM webhook_endpoints")
        .await;
    assert_eq!(endpoints, 3);
    assert_eq!(
        service
            .count("SELECT count(*) FROM charges WHERE stage = 'canceled'")
            .await,
        2
    );
    api.stop().await;
}

#[tokio::test]
async fn a_write_that_never_reached_the_database_stored_nothing_and_its_client_is_told() {
    let service = TestService::new().await;
    let proxy = DatabaseProxy::start(&service.database_url).await;
    let api = service
        .run_with(API, &[("database.url", proxy.url())])
        .await;
    let all = writes(&api.client, "a").await;
    proxy.network.refuse();
    // The pool gives up the connections that it had.
    assert_eq!(api.client.get(ENDPOINTS).await.status, 503);
    for write in all {
        let told = write.sent(&api.client).await;
        assert_eq!((told.status, told.code()), (503, "unavailable"), "{told:?}");
        assert_eq!(told.body["retry"], "same_request");
    }
    proxy.network.recover();
    assert_eq!(
        service
            .count("SELECT count(*) FROM webhook_endpoints")
            .await,
        1
    );
    assert_eq!(
        service
            .count("SELECT count(*) FROM webhook_deliveries")
            .await,
        1
    );
    api.stop().await;
}
