//! Pools, time-outs and locks come to their limits: who waits is told, who does not need it goes on.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use payonce::config::Roles;

use crate::intake::asks_to_retry;
use crate::operator::payonce_with;
use crate::support::database_proxy::{DatabaseProxy, Fault};
use crate::support::service::API;
use crate::support::{TestService, charge_body, until};

#[tokio::test]
async fn reads_that_find_the_pool_exhausted_are_told_and_charges_are_accepted_meanwhile() {
    let service = TestService::new().await;
    let proxy = DatabaseProxy::start(&service.database_url).await;
    let settings = [
        ("database.url", proxy.url()),
        ("database.pool_size", "1"),
        ("database.connect_timeout", "500ms"),
        ("database.statement_timeout", "800ms"),
    ];
    let running = service.run_with(API, &settings).await;
    let client = &running.client;
    let body = charge_body("pm_card_visa");
    let id = client.charge("order-1", &body).await.id();
    let mut blocked = proxy.arm("AND merchant_id = $2", Fault::HoldBefore);
    let first = client.show(&id);
    let others = async {
        blocked.struck().await;
        let begun = Instant::now();
        let accepted = client.charge("order-2", &body).await;
        assert_eq!(accepted.status, 202, "{accepted:?}");
        for answer in join_all((0..4).map(|_| client.show(&id))).await {
            // Its place is free again once the first one has been told: who still waits then is served.
            if answer.status != 200 {
                asks_to_retry(&answer, "unavailable");
            }
        }
        assert!(begun.elapsed() < Duration::from_secs(5));
    };
    let (first, ()) = tokio::join!(first, others);
    asks_to_retry(&first, "unavailable");
    blocked.release();
    until("reads are served again", async || {
        (client.show(&id).await.status == 200).then_some(())
    })
    .await;
    running.stop().await;
}

/// Every insert of a charge takes longer than a statement may.
#[tokio::test]
async fn statements_that_take_too_long_store_nothing_and_clients_are_told() {
    let service = TestService::new().await;
    service
        .run_sql(&[
            "CREATE FUNCTION linger() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN PERFORM pg_sleep(5); RETURN NEW; END $$",
            "CREATE TRIGGER linger BEFORE INSERT ON charges FOR EACH ROW EXECUTE FUNCTION linger()",
        ])
        .await;
    let settings = [
        ("database.statement_timeout", "800ms"),
        ("intake.give_up_after", "2s"),
    ];
    let running = service.run_with(Roles::ALL, &settings).await;
    let body = charge_body("pm_card_visa");
    let keys: Vec<String> = (0..8).map(|number| format!("order-{number}")).collect();
    for answer in join_all(keys.iter().map(|key| running.client.charge(key, &body))).await {
        asks_to_retry(&answer, "unavailable");
    }
    assert_eq!(service.count("SELECT count(*) FROM charges").await, 0);
    service.run_sql(&["DROP TRIGGER linger ON charges"]).await;
    for key in &keys {
        let accepted = running.client.charge(key, &body).await;
        assert_eq!(accepted.status, 202, "{accepted:?}");
        running.client.terminal(&accepted.id()).await;
    }
    running.stop().await;
    service.check_books().await;
}

/// The end of a charge takes too long for a while: it is written when it can be, and the provider is not asked again.
#[tokio::test]
async fn an_end_that_takes_too_long_is_written_later_and_nothing_is_sent_twice() {
    let service = TestService::new().await;
    service
        .run_sql(&[
            "CREATE FUNCTION linger() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN PERFORM pg_sleep(5); RETURN NEW; END $$",
            "CREATE TRIGGER linger BEFORE UPDATE ON charges FOR EACH ROW
             WHEN (NEW.stage = 'succeeded') EXECUTE FUNCTION linger()",
        ])
        .await;
    let settings = [("database.statement_timeout", "800ms")];
    let running = service.run_with(Roles::ALL, &settings).await;
    let body = charge_body("pm_card_visa");
    let ids = join_all((0..8).map(async |number| {
        let key = format!("order-{number}");
        running.client.charge(&key, &body).await.id()
    }))
    .await;
    until("the provider has charged all of them", async || {
        (service.ledger.charges().await.len() == 8).then_some(())
    })
    .await;
    for id in &ids {
        let open = running.client.show(id).await.body;
        assert_eq!(open["status"], "in_progress", "{open}");
    }
    service.run_sql(&["DROP TRIGGER linger ON charges"]).await;
    for id in &ids {
        assert_eq!(running.client.terminal(id).await["status"], "completed");
    }
    assert_eq!(service.ledger.executes().await.len(), 8);
    service.is_at_full_speed(&running).await;
    running.stop().await;
    service.check_books().await;
}

/// A schema change or a backup of somebody's locks a whole table for a while.
#[tokio::test]
async fn while_a_table_is_locked_clients_are_told_and_afterwards_everything_goes_on() {
    let service = TestService::new().await;
    let settings = [
        ("intake.give_up_after", "2s"),
        ("database.statement_timeout", "800ms"),
    ];
    let running = service.run_with(Roles::ALL, &settings).await;
    let body = charge_body("pm_card_visa");
    service.ledger.hold("execute", "after").await;
    let open = running.client.charge("open", &body).await.id();
    service.ledger.held().await;
    let mut somebody = service.books.begin().await.unwrap();
    sqlx::query("LOCK TABLE charges IN ACCESS EXCLUSIVE MODE")
        .execute(&mut *somebody)
        .await
        .unwrap();
    service.ledger.release().await;
    let keys: Vec<String> = (0..8).map(|number| format!("order-{number}")).collect();
    for answer in join_all(keys.iter().map(|key| running.client.charge(key, &body))).await {
        asks_to_retry(&answer, "unavailable");
    }
    asks_to_retry(&running.client.show(&open).await, "unavailable");
    somebody.rollback().await.unwrap();
    assert_eq!(running.client.terminal(&open).await["status"], "completed");
    assert_eq!(service.ledger.executes().await.len(), 1);
    for key in &keys {
        let accepted = running.client.charge_until_accepted(key, &body).await;
        assert_eq!(accepted.status, 202, "{key}");
    }
    service.drained().await;
    service.is_at_full_speed(&running).await;
    running.stop().await;
    service.check_books().await;
}

/// Whoever supervises it can start it again; one that waits for ever looks as if it ran.
#[tokio::test]
async fn a_start_whose_connection_falls_silent_ends_in_time() {
    let service = TestService::new().await;
    let proxy = DatabaseProxy::start(&service.database_url).await;
    let settings = [
        ("database.url", proxy.url()),
        ("database.connect_timeout", "500ms"),
        ("database.statement_timeout", "800ms"),
    ];
    for text in ["to_regclass", "SELECT version FROM _sqlx_migrations"] {
        let mut silent = proxy.arm(text, Fault::HoldAfter);
        let started = payonce_with(&service, &settings, &["serve"]);
        let started = tokio::time::timeout(Duration::from_secs(30), started).await;
        let said = started.expect("it ends");
        assert_eq!(said.code, 1, "{said:?}");
        silent.struck().await;
    }
}
