//! Requests that never reach intake: each is a problem with the code of the contract.

use super::*;

#[tokio::test]
async fn headers_are_refused_before_the_body_is_read() {
    let rig = Rig::new();
    let bearer = format!("Bearer {}", rig.key.reveal());
    let post = || Request::post("/v1/charges");
    let cases = [
        (post(), 401, "unauthenticated"),
        (
            post().header("authorization", &bearer),
            400,
            "idempotency_key_missing",
        ),
        (
            rig.post().header("idempotency-key", "order-42"),
            400,
            "idempotency_key_invalid",
        ),
        (
            post()
                .header("authorization", &bearer)
                .header("idempotency-key", "k"),
            415,
            "unsupported_media_type",
        ),
        (
            rig.post().header("content-encoding", "gzip"),
            415,
            "unsupported_media_type",
        ),
    ];
    for (request, status, code) in cases {
        let (got, problem) = rig.refusal(request.body("{".into()).unwrap()).await;
        assert_eq!(
            (got.as_u16(), problem["code"].as_str()),
            (status, Some(code))
        );
        assert_eq!(problem["retry"], "after_fix");
    }
}

#[tokio::test]
async fn a_key_that_may_not_is_refused_and_never_told_back() {
    let rig = Rig::new();
    let mut random = StdRng::seed_from_u64(8);
    let live = ApiKey::generate(Mode::Live, &mut random);
    let mut broken = rig.key.reveal().to_owned();
    broken.pop();
    for token in [live.reveal(), &broken, DEV_KEY, "", "x y"] {
        for scheme in ["Bearer", "bearer", "Basic"] {
            let request = Request::get("/v1/charges/chg_1a8bb9ca44e856c8a8d3a6dba8275373")
                .header("authorization", format!("{scheme} {token}"));
            let (status, problem) = rig.refusal(request.body(Body::empty()).unwrap()).await;
            assert_eq!(status, StatusCode::UNAUTHORIZED);
            assert!(token.len() < 4 || !problem.to_string().contains(token));
        }
    }
    rig.state.auth().trust(&rig.key, None);
    let (status, _) = rig.refusal(rig.post().body(GOOD.into()).unwrap()).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);

    rig.trust(Scope::Write, Mode::Live);
    let (status, problem) = rig.refusal(rig.post().body(GOOD.into()).unwrap()).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    assert!(problem["detail"].as_str().unwrap().contains("test mode"));

    rig.trust(Scope::Read, Mode::Test);
    let (status, problem) = rig.refusal(rig.post().body(GOOD.into()).unwrap()).await;
    assert_eq!(
        (status.as_u16(), problem["code"].as_str()),
        (403, Some("forbidden"))
    );
}

#[tokio::test]
async fn without_the_database_nobody_new_is_let_in_and_nothing_is_ready() {
    let rig = Rig::new();
    let other = ApiKey::generate(Mode::Test, &mut StdRng::seed_from_u64(9));
    let request =
        Request::get("/v1/charges/x").header("authorization", format!("Bearer {}", other.reveal()));
    let (_, problem) = rig.refusal(request.body(Body::empty()).unwrap()).await;
    assert_eq!(problem["code"], "unavailable");
    let ready = Request::get("/readyz").body(Body::empty()).unwrap();
    let (status, _) = rig.refusal(ready).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    let alive = Request::get("/healthz").body(Body::empty()).unwrap();
    assert_eq!(rig.send(alive).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_body_is_refused_as_the_contract_says() {
    let rig = Rig::new();
    let big = format!("{GOOD}{}", " ".repeat(65_536));
    for (body, status, code) in [
        (big.as_str(), 413, "payload_too_large"),
        ("", 400, "malformed_json"),
        ("{", 400, "malformed_json"),
        ("[]", 422, "invalid_request"),
        (r#"{"amount":19.99}"#, 422, "invalid_request"),
    ] {
        let (got, problem) = rig
            .refusal(rig.post().body(body.to_owned().into()).unwrap())
            .await;
        assert_eq!(
            (got.as_u16(), problem["code"].as_str()),
            (status, Some(code))
        );
    }
    let parts = (0..9).map(|_| Ok::<_, std::io::Error>(" ".repeat(8192)));
    let chunked = Body::from_stream(futures_util::stream::iter(parts));
    let (status, _) = rig.refusal(rig.post().body(chunked).unwrap()).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test]
async fn faults_of_shape_and_broken_rules_are_named_together() {
    let rig = Rig::new();
    let body =
        r#"{"amount":"5","currency":"zzz","payment_method":"4242424242424242","curency":"eur"}"#;
    let (_, problem) = rig.refusal(rig.post().body(body.into()).unwrap()).await;
    let named: Vec<(&str, &str)> = problem["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|error| {
            (
                error["pointer"].as_str().unwrap(),
                error["rule"].as_str().unwrap(),
            )
        })
        .collect();
    let all = [
        ("#/curency", "unknown_field"),
        ("#/amount", "type"),
        ("#/currency", "currency"),
        ("#/payment_method", "card_number"),
    ];
    assert_eq!(named, all);
    assert!(!problem.to_string().contains("4242"));

    let body = r#"{"amount":0,"currency":"usd","payment_method":"pm","no name":1}"#;
    let (_, problem) = rig.refusal(rig.post().body(body.into()).unwrap()).await;
    assert_eq!(problem["errors"].as_array().unwrap().len(), 2);
    let (_, problem) = rig.refusal(rig.post().body("[]".into()).unwrap()).await;
    assert_eq!(problem["errors"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_body_that_does_not_arrive_is_a_408() {
    let rig = Rig::new();
    let never = futures_util::stream::pending::<Result<String, std::io::Error>>();
    let response = rig
        .send(rig.post().body(Body::from_stream(never)).unwrap())
        .await;
    assert_eq!(response.headers()["connection"], "close");
    let (status, _) = problem_of(response).await;
    assert_eq!(status, StatusCode::REQUEST_TIMEOUT);
}

#[tokio::test]
async fn what_the_framework_refuses_is_a_problem_too() {
    let rig = Rig::new();
    let long = format!("/v1/charges/{}", "a".repeat(9000));
    for (method, path, status) in [
        ("GET", "/", 404),
        ("POST", "/v1/charges/", 404),
        ("GET", "/v1/charges/", 404),
        ("GET", "/problems/nope", 404),
        ("GET", "/problems/%ff", 404),
        ("DELETE", "/v1/charges", 405),
        (
            "DELETE",
            "/v1/charges/chg_1a8bb9ca44e856c8a8d3a6dba8275373",
            405,
        ),
        ("GET", &long, 414),
    ] {
        let request = Request::builder().method(method).uri(path);
        let response = rig.send(request.body(Body::empty()).unwrap()).await;
        assert_eq!(response.headers().contains_key("allow"), status == 405);
        let private = path.starts_with("/v1");
        assert_eq!(response.headers().contains_key("cache-control"), private);
        assert_eq!(
            problem_of(response).await.0.as_u16(),
            status,
            "{method} {path}"
        );
    }
}

#[tokio::test]
async fn a_panic_is_an_internal_problem_that_tells_nothing() {
    let random = Random::from_seed(7);
    let router = Router::new()
        .route("/v1/panic", get(|| async { panic!("secret") as () }))
        .layer(edge::EdgeLayer {
            random,
            meters: None,
        });
    let request = Request::get("/v1/panic").header("x-request-id", "mine");
    let response = router.oneshot(request.body(Body::empty()).unwrap()).await;
    let (status, problem) = problem_of(response.unwrap()).await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    let expected = json!({
        "type": "/problems/internal",
        "title": "Something went wrong here",
        "status": 500,
        "detail": "the service has a fault; the request id names it in the log",
        "code": "internal",
        "request_id": "mine",
        "retry": "same_request",
    });
    assert_eq!(problem, expected);
}

#[tokio::test]
async fn the_documents_are_served_byte_for_byte_without_a_key() {
    let rig = Rig::new();
    for (path, committed) in [
        ("/openapi.json", openapi::COMMITTED),
        ("/openapi-3.0.json", openapi_3_0::COMMITTED),
    ] {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = rig.send(request).await;
        assert_eq!(response.headers()["content-type"], "application/json");
        assert_eq!(text_of(response).await, committed);
    }
    let page = Request::get("/problems/overloaded")
        .body(Body::empty())
        .unwrap();
    let page = rig.send(page).await;
    assert_eq!(page.status(), StatusCode::OK);
    assert!(text_of(page).await.contains("Retry-After"));
}
