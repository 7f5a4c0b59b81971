//! Postgres is restarted while charges flow, as for an update (fast) and as after a crash (immediate).

use std::time::Duration;

use futures_util::future::join_all;
use payonce::config::Roles;
use payonce::embedded_postgres::{EmbeddedPostgres, Options};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::process::Command;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::crashes::{assert_kept, keep_charging};
use crate::support::TestService;
use crate::support::books::SHORT_LEASES;

#[derive(Clone, Copy)]
enum Restart {
    /// Sessions are ended, and everything is written down first.
    Fast,
    /// Everything ends where it is; what was confirmed is read from the log.
    Immediate,
}

async fn restart(postgres: &EmbeddedPostgres, how: Restart) {
    match how {
        Restart::Immediate => postgres.kill().await.unwrap(),
        Restart::Fast => {
            let file = postgres.home().join("data/postmaster.pid");
            let text = std::fs::read_to_string(file).unwrap();
            let process = text.lines().next().unwrap();
            let sent = Command::new("kill").args(["-INT", process]).status();
            assert!(sent.await.unwrap().success());
            postgres.ended().await;
        }
    }
    postgres.restart_after_kill().await.unwrap();
}

/// The cluster's own default is `synchronous_commit = off`: what a crash of Postgres keeps is what payonce asked it to.
async fn nothing_is_lost(how: Restart) {
    let postgres = EmbeddedPostgres::start(Options::throw_away())
        .await
        .unwrap();
    postgres.ensure_database("books").await.unwrap();
    let url = postgres.url("books");
    payonce::db::migrations::migrate(&url.parse().unwrap())
        .await
        .unwrap();
    let service = TestService::on(url).await;
    let latency = serde_json::json!({"latency_ms": 20});
    service.ledger.settings(latency).await;
    let running = service.run_with(Roles::ALL, SHORT_LEASES).await;
    let (_at, clients_at) = watch::channel(running.client.clone());
    let stop = CancellationToken::new();
    let clients = (0..16).map(|client| keep_charging(client, clients_at.clone(), stop.clone()));
    let restarting = async {
        let mut random = StdRng::seed_from_u64(5);
        for _ in 0..4 {
            tokio::time::sleep(Duration::from_millis(random.random_range(200..900))).await;
            restart(&postgres, how).await;
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
        stop.cancel();
    };
    let ((), told) = tokio::join!(restarting, join_all(clients));
    let told: Vec<_> = told.into_iter().flatten().collect();
    assert!(told.len() > 64, "too little was going on: {}", told.len());
    service.drained().await;
    assert_kept(&service, &running.client, &told).await;
    service.is_at_full_speed(&running).await;
    running.stop().await;
    service.check_books().await;
    service.books.close().await;
    postgres.stop().await.unwrap();
}

#[tokio::test]
async fn fast_restarts_of_postgres_while_charges_flow_lose_nothing_and_charge_nothing_twice() {
    nothing_is_lost(Restart::Fast).await;
}

#[tokio::test]
async fn immediate_restarts_of_postgres_while_charges_flow_lose_nothing_and_charge_nothing_twice() {
    nothing_is_lost(Restart::Immediate).await;
}
