//! What goes wrong on purpose.

use super::*;

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
        let error = busy.error();
        assert_eq!(
            (busy.status, &error["type"], &error["code"]),
            (
                409,
                &json!("invalid_request_error"),
                &json!("idempotency_key_in_use")
            )
        );
        assert_eq!(busy.headers["stripe-should-retry"], "true");
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
async fn what_was_held_while_everything_was_forgotten_leaves_no_trace() {
    let rig = Rig::new().await;
    rig.control(
        "PUT",
        "/hold",
        json!({"phase": "prepare", "when": "before"}),
    )
    .await;
    let form = of("pm_card_visa");
    let (held, ()) = tokio::join!(rig.try_post(CREATE, "k", &form), async {
        rig.until_held().await;
        assert_eq!(rig.control("DELETE", "", Value::Null).await.status, 204);
    });
    assert!(held.is_err());
    assert_eq!(
        rig.control("GET", "/objects", Value::Null).await.json(),
        json!([])
    );
    assert!(!rig.post(CREATE, "k", &form).await.replayed());
    rig.stop().await;
}

#[tokio::test]
async fn a_trickle_outlasts_every_read_timeout() {
    let rig = Rig::new().await;
    let id = rig.prepare("", "pm_sim_trickle").await;
    let url = format!("{}{}", rig.base, confirm(&id));
    let request = rig
        .client
        .post(url)
        .bearer_auth(SECRET)
        .timeout(Duration::from_secs(1));
    let mut response = request.send().await.unwrap();
    assert_eq!(response.chunk().await.unwrap().unwrap().len(), 1);
    assert!(response.bytes().await.unwrap_err().is_timeout());
    assert_eq!(rig.ledger().await, [id]);
    rig.stop().await;
}

#[tokio::test]
async fn a_test_may_dictate_an_answer_with_or_without_the_effect() {
    let rig = Rig::new().await;
    let id = rig.prepare("", "pm_card_visa").await;
    for (effect, status) in [(false, "requires_confirmation"), (true, "succeeded")] {
        let answer =
            json!({"phase": "execute", "status": 424, "body": "{\"x\":1}", "effect": effect});
        assert_eq!(rig.control("PUT", "/answer", answer).await.status, 200);
        let got = rig.try_confirm(&id, "x").await.unwrap();
        assert_eq!((got.status, got.json()), (424, json!({"x": 1})));
        assert_eq!(rig.status(&id).await, status);
    }
    assert!(rig.try_confirm(&id, "x").await.unwrap().replayed());
    assert_eq!(
        rig.control("PUT", "/answer", json!({"phase": "read", "status": 99}))
            .await
            .status,
        400
    );
    rig.stop().await;
}

#[tokio::test]
async fn the_faults_that_were_met_are_counted_by_step_and_kind() {
    let rig = Rig::new().await;
    rig.settings(json!({"rates": {"prepare.unavailable": 1}}))
        .await;
    for _ in 0..2 {
        assert_eq!(rig.post(CREATE, "key", &[]).await.status, 503);
    }
    rig.settings(json!({})).await;
    let id = rig.prepare("", "pm_sim_html").await;
    for _ in 0..2 {
        rig.try_confirm(&id, &id).await.unwrap();
    }
    let met = rig.control("GET", "/faults", Value::Null).await.json();
    assert_eq!(met, json!({"prepare.unavailable": 2, "execute.html": 1}));
    rig.stop().await;
}
