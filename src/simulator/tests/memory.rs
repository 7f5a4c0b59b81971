//! Keys, lists, events, and what survives.

use super::*;

#[tokio::test]
async fn the_first_answer_is_replayed_within_the_window_and_for_the_same_request_alone() {
    let rig = Rig::new().await;
    let first = rig.post(CREATE, "k", &of("pm_card_visa")).await;
    let again = rig.post(CREATE, "k", &of("pm_card_visa")).await;
    assert!(again.replayed() && !first.replayed());
    assert_eq!(again.text, first.text);
    // The first answer names itself as the original, every later one the first, under an id of its own.
    let id = first.headers["request-id"].clone();
    let later = rig.post(CREATE, "k", &of("pm_card_visa")).await;
    for got in [&first, &again, &later] {
        assert_eq!(got.headers["original-request"], id);
        assert_eq!(got.headers["stripe-should-retry"], "false");
    }
    assert_ne!(again.headers["request-id"], id);
    assert_ne!(later.headers["request-id"], again.headers["request-id"]);
    let paid = rig.try_confirm(&first.id(), "x").await.unwrap();
    assert_eq!(paid.json()["status"], "succeeded");
    let past = rig.post(CREATE, "k", &of("pm_card_visa")).await;
    assert_eq!(past.json()["status"], "requires_confirmation");

    for (other, only) in [
        (
            rig.post(CREATE, "k", &of("pm_card_mastercard")).await,
            "with the same parameters",
        ),
        (
            rig.try_confirm(&first.id(), "k").await.unwrap(),
            "for the same endpoint",
        ),
    ] {
        let error = other.error();
        assert_eq!(
            (other.status, &error["type"]),
            (400, &json!("idempotency_error"))
        );
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(only), "{message}");
        assert!(!other.headers.contains_key("idempotent-replayed"));
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
    assert_eq!(
        wrong.headers["original-request"],
        wrong.headers["request-id"]
    );
    assert!(!wrong.headers.contains_key("stripe-should-retry"));
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
        assert_eq!(
            again.headers["original-request"],
            refused.headers["request-id"]
        );
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
