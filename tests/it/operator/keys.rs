//! Merchants that are disabled and enabled, keys that are derived, and what is generated from the commands' definition.

use super::payonce;
use crate::support::{TestService, charge_body, until};

#[tokio::test]
async fn a_disabled_merchants_keys_are_refused_and_an_enabled_ones_are_taken_again() {
    let service = TestService::new().await;
    let running = service.run().await;
    let body = charge_body("pm_card_visa");
    let first = running.client.charge("order-1", &body).await;
    assert_eq!(first.status, 202);
    let mut other = running.client.clone();
    other.token = service.make_merchant("other").await.1;

    let said = payonce(&service, &["merchants", "disable", "shop"]).await;
    assert_eq!(said.code, 0, "{said:?}");
    let since = tokio::time::Instant::now();
    until("the key is refused", async || {
        (running.client.show(&first.id()).await.status == 401).then_some(())
    })
    .await;
    assert!(
        since.elapsed() < std::time::Duration::from_millis(2500),
        "{:?}",
        since.elapsed()
    );
    assert_eq!(running.client.charge("order-2", &body).await.status, 401);
    assert_eq!(other.charge("order-1", &body).await.status, 202);
    let list = payonce(&service, &["merchants", "list"]).await.out;
    assert!(list.contains("disabled"), "{list}");
    let again = payonce(&service, &["merchants", "disable", "shop"]).await;
    assert!(again.code == 0 && again.err.contains("before"), "{again:?}");

    assert_eq!(
        payonce(&service, &["merchants", "enable", "shop"])
            .await
            .code,
        0
    );
    until("the key is taken again", async || {
        (running.client.show(&first.id()).await.status == 200).then_some(())
    })
    .await;
    let unknown = payonce(&service, &["merchants", "disable", "nobody"]).await;
    assert_eq!(unknown.code, 1);
    service.drained().await;
    running.stop().await;
    service.check_books().await;
}

#[tokio::test]
async fn a_derived_key_is_alone_on_stdout_and_is_taken_by_the_api() {
    let service = TestService::new().await;
    let derive = ["idempotency-key", "derive", "charge", "order-42", "1"];
    let said = payonce(&service, &derive).await;
    assert_eq!(said.out, "charge-f9be41d4c0c2660fe6d8c51a566ed5a2\n");
    let running = service.run().await;
    let answer = running
        .client
        .charge(said.out.trim(), &charge_body("pm_card_visa"))
        .await;
    assert_eq!(answer.status, 202);
    running.client.terminal(&answer.id()).await;
    running.stop().await;

    let empty = payonce(&service, &["idempotency-key", "derive", "charge", ""]).await;
    assert_eq!((empty.code, empty.out.as_str()), (1, ""));
    let help = payonce(&service, &["idempotency-key", "derive", "--help"])
        .await
        .out;
    assert!(
        help.contains("charge-f9be41d4c0c2660fe6d8c51a566ed5a2"),
        "{help}"
    );
}

#[tokio::test]
async fn completions_and_manual_pages_name_the_commands() {
    let service = TestService::new().await;
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = payonce(&service, &["completions", shell]).await.out;
        assert!(script.contains("all-parked"), "{shell}");
    }
    let page = payonce(&service, &["man", "charges", "resolve"]).await.out;
    assert!(page.contains(".TH"), "{page}");
    assert_eq!(payonce(&service, &["man", "charge"]).await.code, 1);
}
