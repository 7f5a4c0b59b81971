//! Reads without a database: who is let in, what is refused before it is asked, and what needs none.

use super::*;

impl Rig {
    fn get(&self, path: &str) -> Request<Body> {
        Request::get(path)
            .header("authorization", format!("Bearer {}", self.key.reveal()))
            .body(Body::empty())
            .unwrap()
    }
}

#[tokio::test]
async fn every_read_under_v1_takes_a_key() {
    let rig = Rig::new();
    for path in [
        "/v1/charges",
        "/v1/charges?nonsense",
        "/v1/charges/chg_1a8bb9ca44e856c8a8d3a6dba8275373/timeline",
        "/v1/policy",
    ] {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let (status, _) = rig.refusal(request).await;
        assert_eq!(status, StatusCode::UNAUTHORIZED, "{path}");
    }
}

#[tokio::test]
async fn a_bad_query_is_refused_before_the_database_is_asked_and_a_good_one_needs_it() {
    let rig = Rig::new();
    let (status, problem) = rig.refusal(rig.get("/v1/charges?statu=failed")).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert_eq!(
        problem["errors"],
        json!([{
            "parameter": "statu", "rule": "unknown_parameter",
            "detail": "is no parameter of this address; is status meant?"
        }])
    );
    for path in [
        "/v1/charges",
        "/v1/charges/chg_1a8bb9ca44e856c8a8d3a6dba8275373/timeline",
    ] {
        let (status, problem) = rig.refusal(rig.get(path)).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{path}");
        assert_eq!(problem["code"], "unavailable");
    }
    // Two filters that leave nothing need no database.
    let response = rig
        .send(rig.get("/v1/charges?status=failed&stage=pending"))
        .await;
    assert_eq!(text_of(response).await, "{\"data\":[]}");
}

#[tokio::test]
async fn the_policy_needs_no_database() {
    let rig = Rig::new();
    rig.trust(Scope::Read, Mode::Test);
    let response = rig.send(rig.get("/v1/policy")).await;
    assert_eq!(response.headers()["cache-control"], "no-store");
    let policy: Value = serde_json::from_str(&text_of(response).await).unwrap();
    assert_eq!(policy["idempotency"]["retention_seconds"], 3600);
}

#[tokio::test]
async fn the_reference_page_lets_nothing_in() {
    let rig = Rig::new();
    let page = |path: &str| Request::get(path).body(Body::empty()).unwrap();
    let response = rig.send(page("/docs")).await;
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(
        response.headers()["content-type"],
        "text/html; charset=utf-8"
    );
    let policy = response.headers()["content-security-policy"]
        .to_str()
        .unwrap();
    assert!(policy.starts_with("default-src 'none'; style-src 'self'"));
    assert!(text_of(response).await.contains("/docs/style.css"));
    let style = rig.send(page("/docs/style.css")).await;
    assert_eq!(style.headers()["content-type"], "text/css; charset=utf-8");
}
