//! What becomes of an object, and who may ask.

use super::*;

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
        let again = rig.post(&path, "", &[]).await;
        assert_eq!(again.status, 400);
        assert_eq!(again.error()["code"], "payment_intent_unexpected_state");
        assert_eq!(again.error()["payment_intent"]["status"], "succeeded");
    }
    assert_eq!(rig.ledger().await, [id]);
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
