//! What an account is given to begin, beside others that have nothing to do or that hang.

use std::time::Duration;

use payonce::config::Roles;
use tokio::time::Instant;

use super::{ACME, backlog, completed_of};
use crate::support::service::WORKER;
use crate::support::{TestService, charge_body, until};

/// An account that has nothing to do does not decide when the next job of another may begin.
#[tokio::test]
async fn an_idle_account_costs_a_bounded_one_nothing_of_its_budget() {
    let service = TestService::new().await;
    backlog(&service, &service.token, "pm_card_visa", 60).await;
    let settings = [
        ACME[0],
        ("provider.stripe.calls_per_second", "40"),
        ("worker.permits", "32"),
        ("worker.poll_interval", "2s"),
        ("worker.take_back_interval", "2s"),
    ];
    let running = service.run_with(WORKER, &settings).await;
    let began = Instant::now();
    service.drained().await;
    // 120 calls at 40 a second.
    let took = began.elapsed();
    assert!(took < Duration::from_secs(6), "{took:?}");
    running.stop().await;
    service.check_books().await;
}

/// Whatever hangs elsewhere, and in however many accounts.
#[tokio::test]
async fn two_accounts_that_hang_leave_a_third_its_permits() {
    const HANGING: [&str; 2] = ["a", "b"];
    let service = TestService::new().await;
    for name in HANGING {
        let (_, token) = service.make_merchant_on(name, name).await;
        backlog(&service, &token, "pm_sim_slow_always", 200).await;
    }
    service
        .ledger
        .settings(serde_json::json!({"slow_ms": 60_000}))
        .await;
    let settings = [
        ("provider.stripe.accounts.a.secret_key", "sk_test_a"),
        ("provider.stripe.accounts.b.secret_key", "sk_test_b"),
        ("provider.stripe.timeout", "15s"),
        ("reconciler.sweep_lease", "60s"),
        ("worker.lease", "90s"),
        ("worker.permits", "24"),
    ];
    let running = service.run_with(Roles::ALL, &settings).await;
    until("they hang", async || {
        let leased = service
            .count("SELECT count(*) FROM outbox WHERE state = 'leased'")
            .await;
        (leased >= 20).then_some(())
    })
    .await;
    let began = Instant::now();
    let body = charge_body("pm_card_visa");
    for number in 0..20 {
        let id = running
            .client
            .charge(&format!("order-{number}"), &body)
            .await
            .id();
        assert_eq!(running.client.terminal(&id).await["status"], "completed");
    }
    let took = began.elapsed();
    assert!(took < Duration::from_secs(10), "{took:?}");
    assert_eq!(completed_of(&service, super::HERE).await, 20);
}

/// The default account has another name since, and the old one is a section: what it had begun names no account in its
/// jobs, and stands in the way of the new one's.
#[tokio::test]
async fn jobs_that_name_no_account_and_are_of_another_than_the_default_one_go_as_fast_as_others() {
    const COUNT: i32 = 300;
    let service = TestService::new().await;
    backlog(&service, &service.token, "pm_card_visa", COUNT).await;
    for sql in [
        "UPDATE charges SET provider_account = 'default'",
        "UPDATE outbox SET run_at = now() - interval '1 hour'",
    ] {
        sqlx::query(sql).execute(&service.books).await.unwrap();
    }
    let settings = [
        ("provider.account", "new"),
        ("provider.stripe.secret_key", "sk_test_new"),
        ("provider.stripe.accounts.default.secret_key", "sk_test_it"),
        ("worker.permits", "16"),
    ];
    let running = service.run_with(WORKER, &settings).await;
    let began = Instant::now();
    service.drained().await;
    let took = began.elapsed();
    assert!(took < Duration::from_secs(20), "{took:?}");
    assert_eq!(
        i32::try_from(completed_of(&service, super::HERE).await).unwrap(),
        COUNT
    );
    running.stop().await;
    service.check_books().await;
}

/// The index entries that claims have read.
async fn entries_read(service: &TestService) -> i64 {
    service
        .count(
            "SELECT idx_tup_read FROM pg_stat_user_indexes WHERE indexrelname = 'outbox_ready_idx'",
        )
        .await
}

/// Its account may be another process's: claims of one that does not have it pass by it.
#[tokio::test]
async fn the_backlog_of_an_account_that_a_process_does_not_have_is_not_walked_for_each_claim() {
    const BACKLOG: i32 = 20_000;
    let service = TestService::new().await;
    let (_, token) = service.make_merchant_on("acme", "acme").await;
    backlog(&service, &token, "pm_card_visa", BACKLOG).await;
    sqlx::query("UPDATE outbox SET run_at = now() - interval '1 hour'")
        .execute(&service.books)
        .await
        .unwrap();
    let running = service.run_with(Roles::ALL, &[]).await;
    let body = charge_body("pm_card_visa");
    let before = entries_read(&service).await;
    for number in 0..60 {
        let key = format!("order-{number}");
        let id = running.client.charge(&key, &body).await.id();
        assert_eq!(running.client.terminal(&id).await["status"], "completed");
    }
    // The process has told all it did.
    running.stop().await;
    let read = entries_read(&service).await - before;
    assert!(read < i64::from(BACKLOG) * 15, "{read} entries");
}

/// What it had in the account that it was on has its turn there all the same.
#[tokio::test]
async fn a_moved_merchants_refund_does_not_wait_for_anothers_backlog_where_its_charge_is() {
    let service = TestService::new().await;
    let (_, token) = service.make_merchant("mover").await;
    let running = service.run_with(Roles::ALL, ACME).await;
    let client = running.client.with_token(&token);
    let body = charge_body("pm_card_visa");
    let id = client.charge("order-1", &body).await.id();
    client.terminal(&id).await;
    running.stop().await;
    service.put_on("mover", Some("acme")).await;
    backlog(&service, &service.token, "pm_card_visa", 20_000).await;
    let settings = [
        ACME[0],
        ("provider.stripe.calls_per_second", "50"),
        ("worker.permits", "32"),
        ("worker.fair_after", "100ms"),
    ];
    let running = service.run_with(Roles::ALL, &settings).await;
    until("the backlog is worked on", async || {
        (completed_of(&service, super::HERE).await >= 10).then_some(())
    })
    .await;
    let client = running.client.with_token(&token);
    let began = Instant::now();
    let refund = client
        .refund(&id, "back-1", &serde_json::json!({"amount": 400}))
        .await;
    let refund = refund.body["id"].as_str().unwrap().to_owned();
    assert_eq!(client.refund_ended(&refund).await["status"], "completed");
    let took = began.elapsed();
    assert!(took < Duration::from_secs(10), "{took:?}");
    running.stop().await;
}
