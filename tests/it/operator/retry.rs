//! `charges list`, `charges show` and `charges retry`: finding what is stuck, and the way out of parked.

use payonce::config::Roles;
use serde_json::json;

use super::{API_ALONE, accepted, by_operator, parked, payonce, shown};
use crate::support::{TestService, charge_body};

#[tokio::test]
async fn a_parked_charge_is_found_explained_and_retried_to_its_end() {
    let service = TestService::new().await;
    let id = parked(&service, "pm_card_visa", true).await;

    let listed = payonce(&service, &["charges", "list", "--parked", "--json"])
        .await
        .json();
    assert_eq!(listed["data"][0]["id"], *id);
    assert_eq!(listed["data"][0]["job"]["last_error"], "object_not_found");
    let told = payonce(&service, &["charges", "show", &id]).await.out;
    assert!(told.contains("parked, object_not_found"), "{told}");
    assert!(told.contains("secret_key"), "{told}");
    assert!(told.contains("charges retry"), "{told}");

    let retry = ["charges", "retry", &id, "--reason", "the key is right now"];
    let retried = payonce(&service, &retry).await;
    assert_eq!(retried.code, 0, "{retried:?}");
    assert!(
        retried.out.contains("it was parked (object_not_found)"),
        "{retried:?}"
    );
    let waiting = payonce(&service, &retry).await;
    assert!(waiting.out.contains("it was waiting"), "{waiting:?}");

    let running = service.run().await;
    assert_eq!(running.client.terminal(&id).await["status"], "completed");
    running.stop().await;
    assert_eq!(service.ledger.times_charged(&id).await, 1);
    let charge = shown(&service, &id).await;
    assert_eq!(by_operator(&charge), ["retried", "retried"]);
    assert_eq!(charge["events"][2]["reason"], "the key is right now");
    assert_eq!(charge["next"][0], "nothing: it has ended");
    let late = payonce(&service, &retry).await;
    assert_eq!(late.code, 1);
    assert!(late.out.contains("it has ended, succeeded"), "{late:?}");
    service.check_books().await;
}

#[tokio::test]
async fn all_parked_charges_are_retried_at_once_and_each_says_so() {
    let service = TestService::new().await;
    let id = parked(&service, "pm_card_visa", false).await;
    let all = ["charges", "retry", "--all-parked", "--reason", "x"];
    let retried = payonce(&service, &all).await;
    assert_eq!((retried.code, retried.out.lines().count()), (0, 1));
    assert!(retried.out.starts_with(&id));
    let none = payonce(&service, &all).await;
    assert_eq!((none.code, none.out.as_str()), (0, ""));
    assert!(none.err.contains("no job is parked"));

    let running = service.run().await;
    assert_eq!(running.client.terminal(&id).await["status"], "completed");
    running.stop().await;
    service.check_books().await;
}

#[tokio::test]
async fn what_can_not_be_retried_says_why_and_the_rest_is_retried() {
    let service = TestService::new().await;
    let id = accepted(&service, "order-1").await;
    let absent = "chg_00000000000000000000000000000000";
    let said = payonce(
        &service,
        &["charges", "retry", absent, &id, "--reason", "x"],
    )
    .await;
    assert_eq!(said.code, 1);
    assert!(said.out.contains("there is no such charge"), "{said:?}");
    assert!(said.out.contains(&format!("{id}  runs now")), "{said:?}");
    assert!(
        said.err.contains("nothing could be done for 1 of 2"),
        "{said:?}"
    );
}

#[tokio::test]
async fn a_job_that_someone_holds_is_neither_retried_nor_resolved() {
    let service = TestService::new().await;
    let running = service.run().await;
    let id = service
        .stopped_at(&running.client, "execute", "before")
        .await;

    let retried = payonce(&service, &["charges", "retry", &id, "--reason", "x"]).await;
    assert_eq!(retried.code, 1);
    assert!(retried.out.contains("held by lease"), "{retried:?}");
    let resolved = super::resolve(&service, &id, "failed").await;
    assert_eq!(resolved.code, 1);
    assert!(resolved.err.contains("held by lease"), "{resolved:?}");
    let told = payonce(&service, &["charges", "show", &id]).await.out;
    assert!(told.contains("it runs at this moment"), "{told}");

    service.ledger.release().await;
    assert_eq!(running.client.terminal(&id).await["status"], "completed");
    running.stop().await;
    service.check_books().await;
}

#[tokio::test]
async fn a_list_shows_what_every_filter_allows_newest_first() {
    let service = TestService::new().await;
    let running = service.run_with(Roles::ALL, &[]).await;
    let mut ended = Vec::new();
    for (key, method) in [("a", "pm_card_visa"), ("b", "pm_card_chargeDeclined")] {
        let mut body = charge_body(method);
        body["reference"] = json!(format!("ref-{key}"));
        let id = running.client.charge(key, &body).await.id();
        running.client.terminal(&id).await;
        ended.push(id);
    }
    running.stop().await;
    let open = accepted(&service, "c").await;
    let api = service.run_with(API_ALONE, &[]).await;
    let mut other = api.client.clone();
    other.token = service.make_merchant("other").await.1;
    let others = other.charge("d", &charge_body("pm_card_visa")).await.id();
    api.stop().await;

    let (a, b, c, d) = (&ended[0], &ended[1], &open, &others);
    for (filter, expected) in [
        ("", vec![d, c, b, a]),
        ("--limit 2", vec![d, c]),
        ("--merchant shop", vec![c, b, a]),
        ("--merchant other", vec![d]),
        ("--status completed", vec![a]),
        ("--status failed", vec![b]),
        ("--stage pending", vec![d, c]),
        ("--status in_progress --merchant shop", vec![c]),
        ("--stage succeeded --status failed", vec![]),
        ("--reference ref-b", vec![b]),
        ("--reference ref-", vec![]),
        ("--older-than 1h", vec![]),
        ("--older-than 0s", vec![d, c, b, a]),
        ("--unclear", vec![]),
        ("--parked", vec![]),
    ] {
        let filters = filter.split_whitespace();
        let arguments: Vec<&str> = ["charges", "list", "--json"]
            .into_iter()
            .chain(filters)
            .collect();
        let listed = payonce(&service, &arguments).await.json();
        let ids: Vec<&str> = listed["data"]
            .as_array()
            .unwrap()
            .iter()
            .map(|charge| charge["id"].as_str().unwrap())
            .collect();
        assert_eq!(ids, expected, "{filter}");
        assert_eq!(listed["has_more"], filter == "--limit 2", "{filter}");
    }
    let table = payonce(&service, &["charges", "list", "--limit", "1"]).await;
    assert!(table.out.starts_with("ID "), "{table:?}");
    assert!(table.err.contains("only the newest 1"), "{table:?}");
    let unknown = payonce(&service, &["charges", "list", "--merchant", "nobody"]).await;
    assert_eq!(unknown.code, 1);
}
