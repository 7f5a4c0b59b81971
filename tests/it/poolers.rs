//! PgBouncer in front of Postgres: one that gives each connection a session of its own is as good as none, and any other
//! is refused, since nobody could say which time-outs and which durability a statement has.

use payonce::config::Roles;
use payonce::db::session::SessionLimits;
use payonce::db::sessions::{self, SessionsError};
use serde_json::json;

use crate::operator::{Said, payonce_with};
use crate::support::pgbouncer::PgBouncer;
use crate::support::{TestService, charge_body};

const SESSION: &str = "pool_mode = session\ndefault_pool_size = 60";

fn limits(service: &TestService) -> SessionLimits {
    service.config(&[]).database.session_limits()
}

/// The cluster's own default is `synchronous_commit = off`, so what is in force is what was set.
#[tokio::test]
async fn behind_a_pooler_of_sessions_everything_works() {
    let service = TestService::new().await;
    let Some(pooler) = PgBouncer::start(&service.database_url, SESSION).await else {
        return;
    };
    let base = pooler.url().parse().unwrap();
    sessions::check(&base, limits(&service)).await.unwrap();
    let settings = [("database.url", pooler.url())];
    for arguments in [&["migrate"][..], &["charges", "list"]] {
        let said = payonce_with(&service, &settings, arguments).await;
        assert_eq!(said.code, 0, "{said:?}");
    }
    let running = service.run_with(Roles::ALL, &settings).await;
    let client = &running.client;
    for (key, method, status) in [
        ("paid", "pm_card_visa", "completed"),
        ("declined", "pm_card_chargeDeclined", "failed"),
        ("dropped", "pm_sim_charge_then_drop", "completed"),
    ] {
        let id = client.charge(key, &charge_body(method)).await.id();
        assert_eq!(client.terminal(&id).await["status"], status);
        assert_eq!(client.charge(key, &charge_body(method)).await.status, 200);
    }
    running.stop().await;
    service.check_books().await;
}

fn refused(said: &Said) {
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.err.contains("pool_mode = session"), "{said:?}");
}

#[tokio::test]
async fn a_pooler_of_transactions_or_statements_is_refused_with_what_to_do() {
    let service = TestService::new().await;
    for settings in [
        "pool_mode = transaction",
        "pool_mode = transaction\nserver_round_robin = 1\nmin_pool_size = 3",
        "pool_mode = transaction\ndefault_pool_size = 1",
        "pool_mode = statement",
    ] {
        let Some(pooler) = PgBouncer::start(&service.database_url, settings).await else {
            return;
        };
        let through = [("database.url", pooler.url())];
        refused(&payonce_with(&service, &through, &["serve"]).await);
        refused(&payonce_with(&service, &through, &["migrate"]).await);
        let pause = ["pause", "--reason", "a look"];
        refused(&payonce_with(&service, &through, &pause).await);
    }
    assert_eq!(service.count("SELECT count(*) FROM pauses").await, 0);
}

/// With others busy in the same sessions, those that a connection gets are not the ones that it had.
#[tokio::test]
async fn a_pooler_of_transactions_is_found_out_while_others_use_it_too() {
    let service = TestService::new().await;
    let settings = "pool_mode = transaction\ndefault_pool_size = 12";
    let Some(pooler) = PgBouncer::start(&service.database_url, settings).await else {
        return;
    };
    let (url, stop) = (
        pooler.url().to_owned(),
        tokio_util::sync::CancellationToken::new(),
    );
    let others: Vec<_> = (0..8)
        .map(|_| {
            let (url, stop) = (url.clone(), stop.clone());
            tokio::spawn(stop.run_until_cancelled_owned(async move {
                let options = url.parse().unwrap();
                let options = payonce::db::session::connect_options(&options);
                let mut connection = sqlx::ConnectOptions::connect(&options).await.unwrap();
                loop {
                    sqlx::raw_sql("SELECT pg_sleep(random() * 0.005)")
                        .execute(&mut connection)
                        .await
                        .unwrap();
                }
            }))
        })
        .collect();
    let base = url.parse().unwrap();
    for _ in 0..30 {
        let checked = sessions::check(&base, limits(&service)).await;
        assert!(
            matches!(
                checked,
                Err(SessionsError::Shared | SessionsError::NotInForce(_))
            ),
            "{checked:?}"
        );
    }
    stop.cancel();
    for other in others {
        other.await.unwrap();
    }
}

/// An administrator changes the mode under a running service: what is accepted by then is charged once, by a process that
/// has sessions again.
#[tokio::test]
async fn a_process_ends_when_a_pooler_takes_its_sessions_away() {
    let service = TestService::new().await;
    let Some(mut pooler) = PgBouncer::start(&service.database_url, SESSION).await else {
        return;
    };
    let settings = [
        ("database.url", pooler.url()),
        ("database.sessions_interval", "200ms"),
    ];
    let process = service.spawn("api,worker,reconciler", &settings).await;
    let body = charge_body("pm_card_visa");
    let id = process.client.charge("order-1", &body).await.id();
    process.client.terminal(&id).await;
    service.ledger.settings(json!({"latency_ms": 300})).await;
    let open = process.client.charge("order-2", &body).await.id();
    pooler
        .reload("pool_mode = transaction\ndefault_pool_size = 60")
        .await;
    process.alerted("sessions_shared").await;
    assert!(!process.ended().await);
    service.leases_run_out().await;
    let running = service.run().await;
    assert_eq!(running.client.terminal(&open).await["status"], "completed");
    running.stop().await;
    assert_eq!(service.ledger.charges().await.len(), 2);
    service.check_books().await;
}
