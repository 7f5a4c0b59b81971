//! What `show` and `list` say of what waits: for whom, since when, and what the provider answered last.

use payonce::config::Roles;
use serde_json::json;

use super::{accepted, payonce};
use crate::refunds;
use crate::support::ledger::SECRET_KEY;
use crate::support::{TestService, charge_body, until};

#[tokio::test]
async fn a_charge_that_waits_for_a_pause_says_so_and_blames_no_worker() {
    let service = TestService::new().await;
    let id = accepted(&service, "order-1").await;
    payonce(&service, &["pause", "--reason", "incident 7"]).await;
    let shown = payonce(&service, &["charges", "show", &id]).await.out;
    assert!(
        shown.contains("sending is paused since ") && shown.contains("(operator): incident 7"),
        "{shown}"
    );
    assert!(!shown.contains("none is running"), "{shown}");
    payonce(&service, &["resume"]).await;
    let shown = payonce(&service, &["charges", "show", &id]).await.out;
    assert!(!shown.contains("paused"), "{shown}");
    assert!(shown.contains("none is running"), "{shown}");
}

#[tokio::test]
async fn a_list_says_what_the_provider_answered() {
    let service = TestService::new().await;
    let running = service.run_with(Roles::ALL, &[]).await;
    // A key that was taken once, and is revoked then.
    let body = charge_body("pm_card_visa");
    let before = running.client.charge("order-0", &body).await.id();
    running.client.terminal(&before).await;
    service
        .ledger
        .settings(json!({"revoked": [SECRET_KEY]}))
        .await;
    let id = running.client.charge("order-1", &body).await.id();
    until("it was denied", async || {
        let job = service.job(&id).await;
        (job.state == "ready" && job.last_error.as_deref() == Some("prepare")).then_some(())
    })
    .await;
    running.stop().await;
    let listed = payonce(&service, &["charges", "list"]).await.out;
    assert!(listed.contains("ready (prepare: denied)"), "{listed}");
    let listed = payonce(&service, &["charges", "list", "--json"]).await;
    assert_eq!(
        listed.json()["data"][0]["job"]["last_call"]["answer"],
        "denied"
    );
}

#[tokio::test]
async fn a_parked_refund_is_explained_and_its_charge_shows_what_went_back() {
    let service = TestService::new().await;
    let running = service.run_with(Roles::ALL, &[]).await;
    let client = &running.client;
    let (id, _) = refunds::charge(&running, "pm_card_visa").await;
    let back = client.refund(&id, "back-1", &json!({"amount": 600})).await;
    client.refund_ended(&back.id()).await;
    service
        .ledger
        .settings(json!({"rates": {"refund.unsaved_400": 1.0}}))
        .await;
    let stuck = client.refund(&id, "back-2", &json!({"amount": 400})).await;
    service.refund_parked(&stuck.body).await;
    running.stop().await;

    let shown = payonce(&service, &["refunds", "show", &stuck.id()])
        .await
        .out;
    for told in [
        "nothing by itself: parked, request_rejected; an operator must act",
        "then: payonce refunds retry rfd_",
        "the last one: refund answered rejected, at ",
        "the provider's request id req_",
        "\njob\n",
        "\nhistory\n",
        "v1  accepted",
    ] {
        assert!(shown.contains(told), "{told}: {shown}");
    }
    let as_json = ["refunds", "show", &stuck.id(), "--json"];
    let as_json = payonce(&service, &as_json).await.json();
    assert_eq!(as_json["job"]["state"], "parked");
    assert_eq!(as_json["stage"], "processing");
    assert!(as_json["next"][0].as_str().unwrap().contains("parked"));
    let ended = payonce(&service, &["refunds", "show", &back.id()])
        .await
        .out;
    assert!(ended.contains("nothing: it has ended"), "{ended}");

    let charge = payonce(&service, &["charges", "show", &id]).await.out;
    assert!(charge.contains("amount_refunded     600"), "{charge}");
    for (refund, told) in [
        (&back, "600 usd  succeeded"),
        (&stuck, "400 usd  processing"),
    ] {
        let line = format!("{}  {told}", refund.id());
        assert!(charge.contains(&line), "{line}: {charge}");
    }
    let charge = payonce(&service, &["charges", "show", &id, "--json"]).await;
    assert_eq!(charge.json()["refunds"].as_array().unwrap().len(), 2);
    let listed = payonce(&service, &["refunds", "list", "--open"]).await.out;
    assert!(listed.contains("request_rejected"), "{listed}");
}

#[tokio::test]
async fn an_open_refund_says_what_it_waits_for() {
    let service = TestService::new().await;
    let running = service.run_with(Roles::ALL, &[]).await;
    let client = &running.client;
    let (id, _) = refunds::charge(&running, "pm_card_visa").await;
    service
        .ledger
        .settings(json!({"revoked": [SECRET_KEY]}))
        .await;
    let refund = client.refund(&id, "back-1", &json!({})).await.id();
    until("the look is denied", async || {
        let listed = payonce(&service, &["refunds", "list", "--open"]).await.out;
        listed.contains("list_refunds: denied").then_some(())
    })
    .await;
    running.stop().await;
    payonce(&service, &["pause", "--reason", "incident 7"]).await;
    let shown = payonce(&service, &["refunds", "show", &refund]).await.out;
    assert!(shown.contains("sending is paused since "), "{shown}");
    assert!(
        shown.contains("the provider's answer to list_refunds"),
        "{shown}"
    );
}
