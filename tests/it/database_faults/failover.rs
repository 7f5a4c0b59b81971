//! The database fails over to a standby that had not got the last commits, while charges flow and inside the provider's
//! key window: rows are gone, sequences have gone back, and workers hold leases that nobody remembers.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;
use payonce::config::Roles;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::crashes::{Told, body_of, keep_charging};
use crate::support::books::SHORT_LEASES;
use crate::support::cluster;
use crate::support::service::API;
use crate::support::{TestService, charge_body};

#[tokio::test]
async fn after_a_failover_that_lost_rows_clients_that_ask_again_are_answered_as_before_and_pay_once()
 {
    let mut service = TestService::new().await;
    // Some were accepted before the standby's state, some begun, some ended.
    let running = service.run().await;
    for number in 0..5 {
        let body = charge_body("pm_card_visa");
        let key = format!("old-{number}");
        let id = running.client.charge(&key, &body).await.id();
        running.client.terminal(&id).await;
    }
    running.stop().await;
    let api = service.run_with(API, &[]).await;
    for number in 5..10 {
        let body = charge_body("pm_card_visa");
        api.client.charge(&format!("old-{number}"), &body).await;
    }
    api.stop().await;
    let older = service.back_up().await;

    let latency = serde_json::json!({"latency_ms": 20});
    service.ledger.settings(latency).await;
    let running = service.run_with(Roles::ALL, SHORT_LEASES).await;
    let (_at, clients_at) = watch::channel(running.client.clone());
    let stop = CancellationToken::new();
    let clients = (0..16).map(|client| keep_charging(client, clients_at.clone(), stop.clone()));
    let failing_over = async {
        tokio::time::sleep(Duration::from_millis(1500)).await;
        cluster::fail_over(&service.database_url, &older).await;
        tokio::time::sleep(Duration::from_millis(1500)).await;
        stop.cancel();
    };
    let ((), told) = tokio::join!(failing_over, join_all(clients));
    let told: Vec<Told> = told.into_iter().flatten().collect();
    assert!(told.len() > 64, "too little was going on: {}", told.len());

    let known = service.count("SELECT count(*) FROM charges").await;
    assert!(
        usize::try_from(known).unwrap() < told.len() + 10,
        "rows were lost"
    );
    // As clients do that have no answer yet.
    let mut paid = 10;
    for Told { key, id, declined } in &told {
        let body = body_of(*declined);
        let again = running.client.charge_until_accepted(key, &body).await;
        assert_eq!(&again.id(), id);
        let expected = if *declined { "failed" } else { "completed" };
        let charge = running.client.terminal(id).await;
        assert_eq!(charge["status"], expected, "{charge}");
        paid += usize::from(!*declined);
    }
    service.drained().await;
    service.is_at_full_speed(&running).await;
    running.stop().await;
    assert_eq!(service.ledger.charges().await.len(), paid + 100);
    service.check_books().await;
    let ids: Vec<String> = sqlx::query_scalar("SELECT idempotency_key FROM charges")
        .fetch_all(&service.books)
        .await
        .unwrap();
    let mut counted = BTreeMap::new();
    for id in ids {
        *counted.entry(id).or_insert(0) += 1;
    }
    assert!(counted.values().all(|count| *count == 1));
}
