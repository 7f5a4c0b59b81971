//! `payonce webhooks`.

use payonce::config::Roles;

use crate::support::receiver::{Does, Receiver};
use crate::support::{TestService, charge_body};

async fn payonce(service: &TestService, arguments: &[&str]) -> (bool, String) {
    let ran = tokio::process::Command::new(env!("CARGO_BIN_EXE_payonce"))
        .args(arguments)
        .env_clear()
        .env("DATABASE_URL", &service.database_url)
        .output()
        .await
        .unwrap();
    let said = [ran.stdout, ran.stderr].concat();
    (ran.status.success(), String::from_utf8(said).unwrap())
}

#[tokio::test]
async fn an_operator_sees_what_failed_and_sends_it_again() {
    let service = TestService::new().await;
    let running = service
        .run_with(Roles::ALL, &[("webhooks.retry_delays", "10ms")])
        .await;
    let receiver = Receiver::start().await;
    let endpoint = running.client.make_endpoint(&receiver).await;
    receiver.next([Does::Status(500), Does::Status(500)]);
    running
        .client
        .charge("order-1", &charge_body("pm_card_visa"))
        .await;
    let failed = running.client.delivery_is(&endpoint, "failed").await;
    let delivery = failed["id"].as_str().unwrap();

    let (done, listed) = payonce(&service, &["webhooks", "endpoints"]).await;
    assert!(
        done && listed.contains(&endpoint.id)
            && listed.contains(&receiver.url())
            && listed.contains("  shop  "),
        "{listed}"
    );
    assert!(!listed.contains("whsec_"));
    let (done, listed) = payonce(
        &service,
        &["webhooks", "deliveries", &endpoint.id, "--failed"],
    )
    .await;
    assert!(
        done && listed.contains(delivery) && listed.contains("500"),
        "{listed}"
    );

    let (done, said) = payonce(&service, &["webhooks", "retry", delivery]).await;
    assert!(done, "{said}");
    receiver.has(3).await;
    running.client.delivery_is(&endpoint, "delivered").await;

    receiver.next([Does::Status(500), Does::Status(500)]);
    running
        .client
        .charge("order-2", &charge_body("pm_card_visa"))
        .await;
    running.client.delivery_is(&endpoint, "failed").await;
    let (done, said) = payonce(&service, &["webhooks", "retry", "--endpoint", &endpoint.id]).await;
    assert!(done && said.contains("1 delivery is sent again"), "{said}");
    receiver.has(6).await;
    let (done, said) = payonce(
        &service,
        &["webhooks", "retry", "whd_00000000000000000000000000000000"],
    )
    .await;
    assert!(!done && said.contains("there is no delivery"), "{said}");
    running.stop().await;
}
