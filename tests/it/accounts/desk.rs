//! What an operator sees of the accounts: who is on each, what is open there, and that nothing is left behind when one is
//! moved away from or taken out.

use payonce::config::Roles;
use serde_json::{Value, json};

use super::{ACME, AT_ACME, failed_and_paid_at_acme};
use crate::operator::{Said, payonce, payonce_with};
use crate::support::ledger::SECRET_KEY;
use crate::support::service::{API, TestSettings};
use crate::support::{TestService, charge_body, until};

/// The default account under another name.
const RENAMED: TestSettings<'static> = &[("provider.account", "renamed")];

/// Of a merchant whose charges need their customer.
async fn open_charge(service: &TestService, token: &str, key: &str) -> String {
    let running = service.run_with(Roles::ALL, ACME).await;
    let client = running.client.with_token(token);
    let mut body = charge_body("pm_card_authenticationRequired");
    body["return_url"] = "https://shop.example.com/back".into();
    let id = client.charge(key, &body).await.id();
    until("the customer is asked", async || {
        (client.show(&id).await.body["stage"] == "requires_action").then_some(())
    })
    .await;
    running.stop().await;
    id
}

/// A completed charge and a refund of it that is parked.
async fn parked_refund(service: &TestService, token: &str, key: &str) -> (String, String) {
    let running = service.run_with(Roles::ALL, ACME).await;
    let client = running.client.with_token(token);
    let id = client.charge(key, &charge_body("pm_card_visa")).await.id();
    assert_eq!(client.terminal(&id).await["status"], "completed");
    service
        .ledger
        .settings(json!({"rates": {"refund.unsaved_400": 1.0}}))
        .await;
    let refund = client.refund(&id, key, &json!({"amount": 400})).await;
    service.refund_parked(&refund.body).await;
    service.ledger.settings(json!({})).await;
    running.stop().await;
    (id, refund.id())
}

fn of<'a>(listed: &'a Value, account: &str) -> &'a Value {
    let data = listed["data"].as_array().unwrap();
    data.iter()
        .find(|found| found["account"] == account)
        .unwrap_or_else(|| panic!("{account}: {listed}"))
}

fn ids(said: &Said) -> Vec<String> {
    let data = said.json()["data"].as_array().unwrap().clone();
    data.iter()
        .map(|found| found["id"].as_str().unwrap().to_owned())
        .collect()
}

/// Jobs of every state and kind count, each for the account that it is in, wherever its merchant is now.
#[tokio::test]
async fn a_move_names_every_account_that_something_is_open_in() {
    let service = TestService::new().await;
    let (_, token) = service.make_merchant_on("mover", "acme").await;
    open_charge(&service, &token, "order-1").await;
    let (_, refund) = parked_refund(&service, &token, "order-2").await;
    service.put_on("mover", None).await;
    open_charge(&service, &token, "order-3").await;
    let move_it = ["merchants", "set-account", "mover", "acme"];
    let said = payonce_with(&service, ACME, &move_it).await;
    let about = |said: &Said, account: &str| {
        let named = format!("account `{account}`: ");
        let mut lines = said.err.lines();
        lines
            .find(|line| line.contains(&named) && line.contains(" open "))
            .map(str::to_owned)
    };
    let at_acme = about(&said, "acme").unwrap();
    assert!(
        at_acme.starts_with("1 open charge and 1 open refund on"),
        "{said:?}"
    );
    let here = about(&said, "default").unwrap();
    assert!(here.starts_with("1 open charge on"), "{said:?}");

    let listed = payonce_with(&service, ACME, &["accounts", "list", "--json"]).await;
    let listed = listed.json();
    let acme = of(&listed, "acme");
    for (field, count) in [
        ("merchants", 1),
        ("open_charges", 1),
        ("parked_charges", 0),
        ("open_refunds", 1),
        ("parked_refunds", 1),
    ] {
        assert_eq!(acme[field], count, "{field}: {acme}");
    }
    assert_eq!(
        (&acme["configured"], &acme["default"]),
        (&json!(true), &json!(false))
    );
    let default = of(&listed, "default");
    assert_eq!(default["open_charges"], 1);
    assert_eq!(default["open_refunds"], 0);
    assert_eq!(default["default"], true);
    let table = payonce_with(&service, ACME, &["accounts", "list"]).await;
    assert!(table.out.starts_with("ACCOUNT"), "{table:?}");

    for (command, found) in [("charges", 1), ("refunds", 1)] {
        let list = async |account| {
            let arguments = [command, "list", "--account", account, "--json"];
            payonce_with(&service, ACME, &arguments).await
        };
        let at_acme = ids(&list("acme").await);
        assert_eq!(at_acme.len(), found + usize::from(command == "charges"));
        assert_eq!(at_acme.contains(&refund), command == "refunds");
        assert_eq!(
            ids(&list("default").await).len(),
            usize::from(command == "charges")
        );
        let table = payonce_with(&service, ACME, &[command, "list"]).await.out;
        assert!(table.lines().next().unwrap().contains("ACCOUNT"), "{table}");
    }
    let open = ["charges", "list", "--status", "in_progress", "--json"];
    let in_acme = [&open[..], &["--account", "acme"]].concat();
    assert_eq!(ids(&payonce_with(&service, ACME, &open).await).len(), 2);
    assert_eq!(ids(&payonce_with(&service, ACME, &in_acme).await).len(), 1);
}

/// What has no object yet is of whichever account is the default one; what has one stays in the account of its name.
#[tokio::test]
async fn a_charge_without_an_object_is_listed_in_the_default_account() {
    let service = TestService::new().await;
    let begun = open_charge(&service, &service.token, "order-1").await;
    let api = service.run_with(API, &[]).await;
    let body = charge_body("pm_card_visa");
    let new = api.client.charge("order-2", &body).await.id();
    api.stop().await;
    let list = async |account| {
        let arguments = ["charges", "list", "--account", account, "--json"];
        ids(&payonce_with(&service, RENAMED, &arguments).await)
    };
    assert_eq!(list("renamed").await, [new]);
    assert_eq!(list("default").await, [begun.as_str()]);
    let listed = payonce_with(&service, RENAMED, &["accounts", "list", "--json"]).await;
    let listed = listed.json();
    assert_eq!(of(&listed, "renamed")["open_charges"], 1);
    assert_eq!(of(&listed, "default")["open_charges"], 1);
    assert_eq!(of(&listed, "default")["configured"], false);
    // Its worker is somewhere else, if anywhere.
    let shown = payonce_with(&service, RENAMED, &["charges", "show", &begun]).await;
    assert!(
        shown.out.contains("waits for the account `default`"),
        "{shown:?}"
    );
}

#[tokio::test]
async fn an_account_that_is_gone_with_something_open_is_told_of() {
    let service = TestService::new().await;
    let (_, token) = service.make_merchant_on("acme", "acme").await;
    let (_, refund) = parked_refund(&service, &token, "order-1").await;
    // With its account everything is well.
    let swept = payonce_with(&service, ACME, &["reconcile", "--since", "1h"]).await;
    assert_eq!(swept.code, 0, "{swept:?}");
    // Without it somebody should know, though the charge has ended and nothing differs.
    let swept = payonce(&service, &["reconcile", "--since", "1h"]).await;
    assert_eq!(swept.code, 1, "{swept:?}");
    assert!(
        swept
            .err
            .contains("`acme` is not in the configuration here, and has 1 merchant, 1 open refund"),
        "{swept:?}"
    );
    let process = service.spawn("worker", &[]).await;
    let told = process.logged("WARN", "account_not_configured").await;
    assert_eq!(
        (&told["account"], &told["open_refunds"]),
        (&json!("acme"), &json!(1))
    );
    assert!(process.terminate().await);
    let shown = payonce(&service, &["refunds", "show", &refund]).await;
    assert!(shown.out.contains("provider_account    acme"), "{shown:?}");
}

/// The default account, which comes first, and another one.
#[tokio::test]
async fn an_account_that_can_not_be_swept_is_named_and_keeps_none_of_the_others_from_it() {
    let service = TestService::new().await;
    service
        .ledger
        .settings(json!({"revoked": [SECRET_KEY]}))
        .await;
    let swept = payonce_with(&service, ACME, &["reconcile", "--since", "24h"]).await;
    assert_eq!(swept.code, 1, "{swept:?}");
    for told in [
        "the account `default`",
        "denied",
        "swept the account `acme`: the provider has 0 objects with a stamp of ours from the last 1 day",
        "not compared to the end: `default`",
    ] {
        assert!(swept.err.contains(told), "{told}: {swept:?}");
    }
}

/// Goal: whoever asks for one account is answered for that one.
#[tokio::test]
async fn a_discrepancy_says_in_which_account_it_is() {
    let service = TestService::new().await;
    let (_, token) = service.make_merchant_on("acme", "acme").await;
    let running = service.run_with(Roles::ALL, ACME).await;
    let client = running.client.with_token(&token);
    let (id, _) = failed_and_paid_at_acme(&service, &client).await;
    let swept = async |account| {
        let arguments = ["reconcile", "--since", "1h", "--account", account, "--json"];
        payonce_with(&service, ACME, &arguments).await
    };
    let at_acme = swept("acme").await;
    assert_eq!(at_acme.code, 1, "{at_acme:?}");
    assert!(at_acme.err.contains("1 discrepancy is open"), "{at_acme:?}");
    assert_eq!(at_acme.json()["data"][0]["account"], "acme");
    let here = swept("default").await;
    assert_eq!(here.code, 0, "{here:?}");
    assert_eq!(here.json()["data"], json!([]));
    let both = payonce_with(&service, ACME, &["reconcile", "--since", "1h"]).await;
    assert_eq!(both.code, 1, "{both:?}");
    let table = payonce(&service, &["discrepancies", "list"]).await.out;
    assert!(
        table.contains("ACCOUNT") && table.contains("acme"),
        "{table}"
    );
    let admin = running.admin.unwrap();
    let listed = reqwest::get(format!("http://{admin}/discrepancies"))
        .await
        .unwrap();
    let listed: Value = serde_json::from_str(&listed.text().await.unwrap()).unwrap();
    assert_eq!(listed["data"][0]["account"], "acme");
    running.stop().await;
    // One that an earlier release wrote is everybody's.
    sqlx::query("UPDATE discrepancies SET provider_account = NULL")
        .execute(&service.books)
        .await
        .unwrap();
    let here = swept("default").await;
    assert_eq!(
        (here.code, here.json()["data"][0]["account"].is_null()),
        (1, true)
    );
    assert_eq!(service.accounts_with_object(&id).await.len(), 2);
    assert_eq!(service.accounts_charged(&id).await, [AT_ACME]);
}

#[tokio::test]
async fn what_is_found_of_refunds_names_the_account_too() {
    let service = TestService::new().await;
    let running = service.run_with(Roles::ALL, ACME).await;
    let body = charge_body("pm_card_visa");
    let id = running.client.charge("order-1", &body).await.id();
    let charge = running.client.terminal(&id).await;
    let object = charge["provider_charge_id"].as_str().unwrap();
    let stamp = "rfd_00000000000000000000000000000001";
    service
        .ledger
        .refund_outside(object, 100, Some(stamp))
        .await;
    let swept = payonce_with(&service, ACME, &["reconcile", "--since", "1h", "--json"]).await;
    let found = &swept.json()["data"][0];
    assert_eq!(
        (&found["kind"], &found["account"]),
        (&json!("refund_unknown"), &json!("default"))
    );
    // Six digits, always.
    assert_eq!(found["found_at"].as_str().unwrap().len(), 27, "{found}");
    running.stop().await;
}
