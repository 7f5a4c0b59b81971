//! The simulator over real HTTP.

use std::time::Duration;

use serde_json::{Value, json};
use time::OffsetDateTime;

use super::*;

const SECRET: &str = "sk_test_one";
const CREATE: &str = "/v1/payment_intents";

struct Rig {
    base: String,
    client: reqwest::Client,
    shutdown: CancellationToken,
    running: tokio::task::JoinHandle<Result<(), SimulatorError>>,
}

#[derive(Debug)]
struct Got {
    status: u16,
    headers: reqwest::header::HeaderMap,
    text: String,
}

impl Got {
    fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    fn id(&self) -> String {
        assert_eq!(self.status, 200, "{}", self.text);
        self.json()["id"].as_str().unwrap().to_owned()
    }

    fn error(&self) -> Value {
        self.json()["error"].clone()
    }

    fn replayed(&self) -> bool {
        self.headers
            .get("idempotent-replayed")
            .is_some_and(|value| value == "true")
    }
}

type Sent = Result<Got, reqwest::Error>;

impl Rig {
    async fn new() -> Self {
        Self::with_state(None).await
    }

    async fn with_state(state_dir: Option<PathBuf>) -> Self {
        // An error means that another test was first.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let clock = Clock::from_fn(|| OffsetDateTime::from_unix_timestamp(1_800_000_000).unwrap());
        let simulator = Simulator::bind("127.0.0.1:0".parse().unwrap(), state_dir, clock)
            .await
            .unwrap();
        let shutdown = CancellationToken::new();
        let base = format!("http://{}", simulator.local_addr());
        let running = tokio::spawn(simulator.run(shutdown.clone()));
        let client = reqwest::Client::builder()
            .timeout(Duration::from_secs(10))
            .build()
            .unwrap();
        Self {
            base,
            client,
            shutdown,
            running,
        }
    }

    async fn stop(self) {
        self.shutdown.cancel();
        self.running.await.unwrap().unwrap();
    }

    async fn send(&self, request: reqwest::RequestBuilder) -> Sent {
        let response = request.send().await?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        Ok(Got {
            status,
            headers,
            text: response.text().await?,
        })
    }

    async fn try_post(&self, path: &str, key: &str, form: &[(&str, &str)]) -> Sent {
        let mut request = self
            .client
            .post(format!("{}{path}", self.base))
            .bearer_auth(SECRET)
            .form(form);
        if !key.is_empty() {
            request = request.header("Idempotency-Key", key);
        }
        self.send(request).await
    }

    async fn post(&self, path: &str, key: &str, form: &[(&str, &str)]) -> Got {
        self.try_post(path, key, form).await.unwrap()
    }

    async fn get(&self, path: &str) -> Got {
        self.send(
            self.client
                .get(format!("{}{path}", self.base))
                .bearer_auth(SECRET),
        )
        .await
        .unwrap()
    }

    async fn control(&self, method: &str, path: &str, body: Value) -> Got {
        let method = method.parse().unwrap();
        self.send(
            self.client
                .request(method, format!("{}/_sim{path}", self.base))
                .body(body.to_string()),
        )
        .await
        .unwrap()
    }

    async fn settings(&self, settings: Value) {
        let got = self.control("PUT", "/settings", settings).await;
        assert_eq!(got.status, 200, "{}", got.text);
    }

    async fn prepare(&self, key: &str, payment_method: &str) -> String {
        self.post(CREATE, key, &of(payment_method)).await.id()
    }

    async fn try_confirm(&self, id: &str, key: &str) -> Sent {
        self.try_post(&confirm(id), key, &[]).await
    }

    async fn status(&self, id: &str) -> String {
        self.get(&format!("{CREATE}/{id}")).await.json()["status"]
            .as_str()
            .unwrap()
            .to_owned()
    }

    /// The ids of what moved money.
    async fn ledger(&self) -> Vec<String> {
        let charges = self.control("GET", "/charges", Value::Null).await.json();
        charges
            .as_array()
            .unwrap()
            .iter()
            .map(|charge| charge["id"].as_str().unwrap().to_owned())
            .collect()
    }

    async fn until_held(&self) {
        assert_eq!(
            self.control("GET", "/hold?wait_ms=5000", Value::Null)
                .await
                .json(),
            json!({"held": 1})
        );
    }
}

fn confirm(id: &str) -> String {
    format!("{CREATE}/{id}/confirm")
}

fn of(payment_method: &str) -> [(&str, &str); 5] {
    [
        ("amount", "1000"),
        ("currency", "usd"),
        ("payment_method", payment_method),
        ("payment_method_types[]", "card"),
        ("metadata[order]", "A-1"),
    ]
}

#[tokio::test]
async fn an_object_is_made_confirmed_and_succeeds_once() {
    let rig = Rig::new().await;
    let made = rig.post(CREATE, "k", &of("pm_card_visa")).await;
    let id = made.id();
    assert_eq!(made.json()["status"], "requires_confirmation");
    assert_eq!(made.json()["metadata"], json!({"order": "A-1"}));
    assert_eq!(made.headers["idempotency-key"], "k");
    assert!(
        made.headers["request-id"]
            .to_str()
            .unwrap()
            .starts_with("req_")
    );
    assert!(rig.ledger().await.is_empty());

    let paid = rig.try_confirm(&id, "k-x1").await.unwrap().json();
    assert_eq!(
        (&paid["status"], &paid["amount_received"]),
        (&json!("succeeded"), &json!(1000))
    );
    for path in [confirm(&id), format!("{CREATE}/{id}/cancel")] {
        let again = rig.post(&path, "k-x2", &[]).await;
        assert_eq!(again.status, 400);
        if !again.replayed() && again.error()["code"] != Value::Null {
            assert_eq!(again.error()["code"], "payment_intent_unexpected_state");
            assert_eq!(again.error()["payment_intent"]["status"], "succeeded");
        }
    }
    assert_eq!(rig.ledger().await, [id]);
    rig.stop().await;
}

#[tokio::test]
async fn the_first_answer_is_replayed_within_the_window_and_for_the_same_request_alone() {
    let rig = Rig::new().await;
    let first = rig.post(CREATE, "k", &of("pm_card_visa")).await;
    let again = rig.post(CREATE, "k", &of("pm_card_visa")).await;
    assert!(again.replayed() && !first.replayed());
    assert_eq!(again.text, first.text);
    let paid = rig.try_confirm(&first.id(), "x").await.unwrap();
    assert_eq!(paid.json()["status"], "succeeded");
    let past = rig.post(CREATE, "k", &of("pm_card_visa")).await;
    assert_eq!(past.json()["status"], "requires_confirmation");

    for other in [
        rig.post(CREATE, "k", &of("pm_card_mastercard")).await,
        rig.try_confirm(&first.id(), "k").await.unwrap(),
    ] {
        assert_eq!(
            (other.status, &other.error()["type"]),
            (400, &json!("idempotency_error"))
        );
    }
    let elsewhere = rig
        .client
        .post(format!("{}{CREATE}", rig.base))
        .bearer_auth("sk_test_two")
        .header("Idempotency-Key", "k");
    assert_ne!(
        rig.send(elsewhere.form(&of("pm_card_visa")))
            .await
            .unwrap()
            .id(),
        first.id()
    );

    rig.control("POST", "/clock", json!({"advance_seconds": 86_400}))
        .await;
    let anew = rig.post(CREATE, "k", &of("pm_card_visa")).await;
    assert!(!anew.replayed());
    assert_ne!(anew.id(), first.id());
    rig.stop().await;
}

#[tokio::test]
async fn errors_of_an_execution_are_kept_and_failed_validation_is_not() {
    let rig = Rig::new().await;
    let wrong = rig
        .post(CREATE, "k", &[("amount", "1e3"), ("currency", "usd")])
        .await;
    assert_eq!(
        (wrong.status, &wrong.error()["code"]),
        (400, &json!("parameter_invalid_integer"))
    );
    rig.prepare("k", "pm_card_visa").await;

    let unknown = rig.post(CREATE, "u", &of("pm_sim_unknown")).await;
    assert_eq!(
        (&unknown.error()["code"], &unknown.error()["param"]),
        (&json!("resource_missing"), &json!("payment_method"))
    );
    assert!(
        rig.post(CREATE, "u", &of("pm_sim_unknown"))
            .await
            .replayed()
    );
    for (form, code) in [
        (
            vec![("amount", "49"), ("currency", "usd")],
            json!("amount_too_small"),
        ),
        (
            vec![("amount", "100000000"), ("currency", "usd")],
            json!("amount_too_large"),
        ),
        (vec![("amount", "1000")], json!("parameter_missing")),
        (
            vec![("amount", "1000"), ("currency", "usd"), ("colour", "red")],
            json!("parameter_unknown"),
        ),
        (vec![("amount", "1000"), ("currency", "xyz")], Value::Null),
        (
            vec![
                ("amount", "1000"),
                ("currency", "usd"),
                ("off_session", "true"),
            ],
            Value::Null,
        ),
    ] {
        let got = rig.post(CREATE, "", &form).await;
        assert_eq!(
            (got.status, &got.error()["code"]),
            (400, &code),
            "{}",
            got.text
        );
    }
    assert_eq!(
        rig.post(CREATE, &"k".repeat(256), &of("pm_card_visa"))
            .await
            .status,
        400
    );
    rig.stop().await;
}

#[tokio::test]
async fn a_decline_is_replayed_and_leaves_the_object_without_a_method() {
    let rig = Rig::new().await;
    for (method, code, reason) in [
        (
            "pm_card_chargeDeclined",
            "card_declined",
            json!("generic_decline"),
        ),
        (
            "pm_card_chargeDeclinedInsufficientFunds",
            "card_declined",
            json!("insufficient_funds"),
        ),
        (
            "pm_card_chargeDeclinedExpiredCard",
            "expired_card",
            Value::Null,
        ),
    ] {
        let id = rig.prepare("", method).await;
        for replayed in [false, true] {
            let declined = rig.try_confirm(&id, &id).await.unwrap();
            assert_eq!((declined.status, declined.replayed()), (402, replayed));
            assert_eq!(
                (&declined.error()["code"], &declined.error()["decline_code"]),
                (&json!(code), &reason)
            );
            assert_eq!(
                declined.error()["payment_intent"]["last_payment_error"]["code"],
                code
            );
        }
        assert_eq!(rig.status(&id).await, "requires_payment_method");
        assert_eq!(
            rig.try_confirm(&id, "").await.unwrap().error()["code"],
            "payment_intent_unexpected_state"
        );
        assert_eq!(
            rig.post(&format!("{CREATE}/{id}/cancel"), "", &[])
                .await
                .json()["status"],
            "canceled"
        );
        assert_eq!(rig.try_confirm(&id, "").await.unwrap().status, 400);
    }
    assert!(rig.ledger().await.is_empty());
    rig.stop().await;
}

#[tokio::test]
async fn a_customer_authenticates_or_fails_to_and_a_merchant_may_decline_to_wait() {
    let rig = Rig::new().await;
    for (result, status) in [
        ("success", "succeeded"),
        ("fail", "requires_payment_method"),
    ] {
        let id = rig.prepare("", "pm_card_authenticationRequired").await;
        let waiting = rig
            .post(
                &confirm(&id),
                "",
                &[("return_url", "https://shop.example/back")],
            )
            .await
            .json();
        assert_eq!(waiting["status"], "requires_action");
        let url = waiting["next_action"]["redirect_to_url"]["url"]
            .as_str()
            .unwrap()
            .replace("success", result);
        assert_eq!(rig.send(rig.client.get(&url)).await.unwrap().status, 200);
        assert_eq!(rig.status(&id).await, status);
        assert_eq!(rig.send(rig.client.post(&url)).await.unwrap().status, 409);
    }
    for option in ["error_on_requires_action", "off_session"] {
        let id = rig.prepare("", "pm_card_authenticationRequired").await;
        let declined = rig.post(&confirm(&id), "", &[(option, "true")]).await;
        assert_eq!(
            (declined.status, &declined.error()["code"]),
            (402, &json!("authentication_required"))
        );
    }
    rig.stop().await;
}

#[tokio::test]
async fn processing_is_settled_by_hand_and_a_partial_charge_moves_less() {
    let rig = Rig::new().await;
    let open = rig.prepare("", "pm_sim_processing").await;
    assert_eq!(
        rig.try_confirm(&open, "").await.unwrap().json()["status"],
        "processing"
    );
    assert!(rig.ledger().await.is_empty());
    rig.control(
        "POST",
        &format!("/settle/{open}?result=succeeded"),
        Value::Null,
    )
    .await;
    let partial = rig.prepare("", "pm_sim_partial").await;
    assert_eq!(
        rig.try_confirm(&partial, "").await.unwrap().json()["amount_received"],
        900
    );
    assert_eq!(rig.ledger().await, [open, partial]);
    rig.stop().await;
}

#[tokio::test]
async fn a_confirmation_that_may_redirect_needs_a_return_url() {
    let rig = Rig::new().await;
    let form = [
        ("amount", "1000"),
        ("currency", "usd"),
        ("payment_method", "pm_card_visa"),
    ];
    let id = rig.post(CREATE, "", &form).await.id();
    assert_eq!(rig.try_confirm(&id, "").await.unwrap().status, 400);
    assert_eq!(
        rig.post(&confirm(&id), "", &[("return_url", "https://shop.example")])
            .await
            .json()["status"],
        "succeeded"
    );
    rig.stop().await;
}

#[tokio::test]
async fn a_key_is_in_use_while_its_request_is_held_even_when_the_caller_hangs_up() {
    let rig = Rig::new().await;
    for when in ["before", "after"] {
        let id = rig.prepare("", "pm_card_visa").await;
        rig.control("PUT", "/hold", json!({"phase": "execute", "when": when}))
            .await;
        let url = format!("{}{}", rig.base, confirm(&id));
        let short = rig
            .client
            .post(url)
            .bearer_auth(SECRET)
            .header("Idempotency-Key", &id)
            .timeout(Duration::from_millis(200));
        assert!(
            rig.send(short.form(&[("x", "y"); 0]))
                .await
                .unwrap_err()
                .is_timeout()
        );
        rig.until_held().await;
        let busy = rig.try_confirm(&id, &id).await.unwrap();
        assert_eq!(
            (busy.status, &busy.error()["code"]),
            (409, &json!("idempotency_key_in_use"))
        );
        let expected = if when == "before" {
            "requires_confirmation"
        } else {
            "succeeded"
        };
        assert_eq!(rig.status(&id).await, expected);
        assert_eq!(
            rig.control("DELETE", "/hold", Value::Null).await.status,
            204
        );
        let settled = loop {
            let got = rig.try_confirm(&id, &id).await.unwrap();
            if got.status != 409 {
                break got;
            }
            tokio::task::yield_now().await;
        };
        assert!(settled.replayed());
        assert_eq!(settled.json()["status"], "succeeded");
    }
    rig.stop().await;
}

/// Each fault of the first execution: what the caller sees, whether money moved, and what the same request gives then.
#[tokio::test]
async fn a_fault_of_the_payment_method_hits_the_first_execution_alone() {
    let rig = Rig::new().await;
    rig.settings(json!({"slow_ms": 30, "land_late_ms": 30}))
        .await;
    // Name, status seen (0: none), money moved by it, status and replay of the second try.
    for (fault, seen, moved, then, replayed) in [
        ("charge_then_drop", 0, true, 200, true),
        ("decline_then_drop", 0, false, 402, true),
        ("drop_before_charge", 0, false, 200, false),
        ("slow", 200, true, 200, true),
        ("error_500_after_charge", 500, true, 500, true),
        ("error_500_before_charge", 500, false, 500, true),
        ("unsaved_400", 400, false, 200, false),
        ("key_in_use", 409, false, 200, false),
        ("rate_limited", 429, false, 200, false),
        ("unavailable", 503, false, 200, false),
        ("unauthorized", 401, false, 200, false),
        ("html", 200, true, 200, true),
        ("truncated", 0, true, 200, true),
        ("unknown_status", 200, true, 200, true),
        ("forget_keys", 200, true, 400, false),
    ] {
        let id = rig.prepare("", &format!("pm_sim_{fault}")).await;
        let first = rig.try_confirm(&id, &id).await;
        assert_eq!(first.as_ref().map_or(0, |got| got.status), seen, "{fault}");
        assert_eq!(rig.ledger().await.contains(&id), moved, "{fault}");
        match (fault, first) {
            ("html", Ok(got)) => assert!(got.text.starts_with("<!doctype html>")),
            ("unknown_status", Ok(got)) => assert_eq!(got.json()["status"], "simulated_unknown"),
            ("rate_limited", Ok(got)) => {
                assert_eq!(
                    (
                        &got.headers["retry-after"],
                        &got.headers["stripe-should-retry"]
                    ),
                    (&"1".parse().unwrap(), &"true".parse().unwrap())
                );
            }
            _ => {}
        }
        let second = rig.try_confirm(&id, &id).await.unwrap();
        assert_eq!(
            (second.status, second.replayed()),
            (then, replayed),
            "{fault}: {}",
            second.text
        );
    }
    rig.stop().await;
}

#[tokio::test]
async fn an_effect_may_land_late() {
    let rig = Rig::new().await;
    rig.settings(json!({"land_late_ms": 100})).await;
    let id = rig.prepare("", "pm_sim_land_late").await;
    assert!(rig.try_confirm(&id, &id).await.is_err());
    assert_eq!(rig.status(&id).await, "requires_confirmation");
    assert_eq!(rig.try_confirm(&id, &id).await.unwrap().status, 409);
    while rig.status(&id).await != "succeeded" {
        tokio::task::yield_now().await;
    }
    assert!(rig.try_confirm(&id, &id).await.unwrap().replayed());
    rig.stop().await;
}

#[tokio::test]
async fn a_rate_hits_the_phase_it_names_and_is_logged() {
    let rig = Rig::new().await;
    rig.settings(json!({"rates": {"prepare.charge_then_drop": 1}}))
        .await;
    assert!(
        rig.try_post(CREATE, "k", &of("pm_card_visa"))
            .await
            .is_err()
    );
    rig.settings(json!({})).await;
    let made = rig.post(CREATE, "k", &of("pm_card_visa")).await;
    assert!(made.replayed());
    rig.settings(json!({"rates": {"execute.drop_before_charge": 1, "cancel.unavailable": 1, "read.html": 1}})).await;
    assert!(rig.try_confirm(&made.id(), "x").await.is_err());
    assert_eq!(
        rig.post(&format!("{CREATE}/{}/cancel", made.id()), "", &[])
            .await
            .status,
        503
    );
    assert!(
        rig.get(&format!("{CREATE}/{}", made.id()))
            .await
            .text
            .starts_with("<!doctype")
    );
    assert_eq!(
        rig.control("PUT", "/settings", json!({"rate": {}}))
            .await
            .status,
        400
    );

    let log = rig.control("GET", "/requests", Value::Null).await.json();
    let statuses: Vec<_> = log
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["status"].clone())
        .collect();
    assert_eq!(
        statuses,
        [
            json!("dropped"),
            json!(200),
            json!("dropped"),
            json!(503),
            json!(200)
        ]
    );
    assert_eq!(
        (
            &log[0]["method"],
            &log[0]["path"],
            &log[0]["headers"]["idempotency-key"]
        ),
        (&json!("POST"), &json!(CREATE), &json!("k"))
    );
    assert!(log[0]["body"].as_str().unwrap().contains("amount=1000"));
    rig.stop().await;
}

#[tokio::test]
async fn lists_are_paged_newest_first_and_the_search_lags() {
    let rig = Rig::new().await;
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.insert(0, rig.prepare("", "pm_card_visa").await);
        rig.control("POST", "/clock", json!({"advance_seconds": 10}))
            .await;
    }
    let page = async |query: &str| {
        let list = rig.get(&format!("{CREATE}?{query}")).await.json();
        let found: Vec<_> = list["data"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| item["id"].as_str().unwrap().to_owned())
            .collect();
        (found, list["has_more"].as_bool().unwrap())
    };
    assert_eq!(page("limit=2").await, (ids[..2].to_vec(), true));
    assert_eq!(
        page(&format!("limit=3&starting_after={}", ids[1])).await,
        (ids[2..].to_vec(), false)
    );
    assert_eq!(
        page(&format!("limit=2&ending_before={}", ids[3])).await,
        (ids[1..3].to_vec(), true)
    );
    assert_eq!(
        page("created[gte]=1800000010&created[lt]=1800000030").await,
        (ids[2..4].to_vec(), false)
    );
    assert_eq!(
        rig.get(&format!("{CREATE}?colour=red")).await.error()["code"],
        "parameter_unknown"
    );

    rig.settings(json!({"search_lag_ms": 25_000})).await;
    let search = rig
        .get(&format!("{CREATE}/search?query=metadata['order']:'a-1'"))
        .await
        .json();
    assert_eq!(search["data"].as_array().unwrap().len(), 3);
    rig.stop().await;
}

#[tokio::test]
async fn events_carry_the_key_of_their_request() {
    let rig = Rig::new().await;
    let id = rig.prepare("made", "pm_card_visa").await;
    rig.try_confirm(&id, "paid").await.unwrap();
    let events = rig.get("/v1/events").await.json();
    let seen: Vec<_> = events["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| {
            (
                event["type"].clone(),
                event["request"]["idempotency_key"].clone(),
                event["data"]["object"]["status"].clone(),
            )
        })
        .collect();
    assert_eq!(
        seen,
        [
            (
                json!("payment_intent.succeeded"),
                json!("paid"),
                json!("succeeded")
            ),
            (
                json!("payment_intent.created"),
                json!("made"),
                json!("requires_confirmation")
            ),
        ]
    );
    let last = events["data"][0]["id"].as_str().unwrap();
    let older = rig
        .get(&format!(
            "/v1/events?type=payment_intent.created&starting_after={last}"
        ))
        .await
        .json();
    assert_eq!(older["data"].as_array().unwrap().len(), 1);
    rig.stop().await;
}

#[tokio::test]
async fn strangers_and_unknown_addresses_are_told_so() {
    let rig = Rig::new().await;
    let bare = rig
        .send(rig.client.get(format!("{}/v1/balance", rig.base)))
        .await
        .unwrap();
    assert_eq!(
        (bare.status, &bare.error()["type"]),
        (401, &json!("invalid_request_error"))
    );
    let basic = rig
        .client
        .get(format!("{}/v1/balance", rig.base))
        .basic_auth(SECRET, None::<&str>);
    assert_eq!(rig.send(basic).await.unwrap().status, 200);
    assert_eq!(rig.get("/v1/unheard_of").await.status, 404);
    let id = rig.prepare("", "pm_card_visa").await;
    let other = rig
        .client
        .get(format!("{}{CREATE}/{id}", rig.base))
        .bearer_auth("sk_test_two");
    assert_eq!(
        rig.send(other).await.unwrap().error()["code"],
        "resource_missing"
    );
    rig.stop().await;
}

#[tokio::test]
async fn what_was_answered_survives_a_restart_and_a_torn_line() {
    let directory = std::env::temp_dir().join(format!(
        "payonce-simulator-{:x}",
        RandomState::new().build_hasher().finish()
    ));
    let rig = Rig::with_state(Some(directory.clone())).await;
    let id = rig.prepare("k", "pm_sim_drop_before_charge").await;
    assert!(rig.try_confirm(&id, "x").await.is_err());
    rig.control("POST", "/clock", json!({"advance_seconds": 100}))
        .await;
    let declined = rig.prepare("d", "pm_card_chargeDeclined").await;
    let refused = rig.try_confirm(&declined, "dx").await.unwrap();
    rig.stop().await;

    let file = directory.join("simulator.jsonl");
    let mut bytes = std::fs::read(&file).unwrap();
    bytes.extend_from_slice(br#"{"owner":{"id":"acct_"#);
    std::fs::write(&file, bytes).unwrap();

    // The second start reads what was appended, the third what the second start rewrote.
    for round in 0..2 {
        let rig = Rig::with_state(Some(directory.clone())).await;
        assert!(
            rig.post(CREATE, "k", &of("pm_sim_drop_before_charge"))
                .await
                .replayed()
        );
        let again = rig.try_confirm(&declined, "dx").await.unwrap();
        assert!(again.replayed());
        assert_eq!(again.text, refused.text);
        let paid = rig.try_confirm(&id, "x").await.unwrap();
        assert_eq!(
            (paid.json()["status"].clone(), paid.replayed()),
            (json!("succeeded"), round == 1)
        );
        assert_eq!(rig.ledger().await, std::slice::from_ref(&id));
        assert_eq!(
            rig.control("GET", "/clock", Value::Null).await.json()["offset_seconds"],
            100
        );
        assert_eq!(
            rig.get("/v1/events").await.json()["data"]
                .as_array()
                .unwrap()
                .len(),
            4
        );
        rig.stop().await;
    }

    let rig = Rig::with_state(Some(directory.clone())).await;
    assert_eq!(rig.control("DELETE", "", Value::Null).await.status, 204);
    rig.prepare("k", "pm_card_visa").await;
    rig.stop().await;
    let rig = Rig::with_state(Some(directory.clone())).await;
    assert_eq!(
        rig.control("GET", "/objects", Value::Null)
            .await
            .json()
            .as_array()
            .unwrap()
            .len(),
        1
    );
    rig.stop().await;
    std::fs::remove_dir_all(directory).unwrap();
}
