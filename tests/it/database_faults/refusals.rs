//! Postgres takes no writes for a while: it is read only (a demoted primary, an administrator's setting) or its disk is full.

use futures_util::future::join_all;
use payonce::config::Roles;
use sqlx::AssertSqlSafe;

use crate::intake::asks_to_retry;
use crate::support::service::{Running, TestSettings};
use crate::support::{TestService, charge_body, until};

const QUICK: TestSettings<'_> = &[
    ("intake.give_up_after", "2s"),
    ("database.statement_timeout", "800ms"),
    ("intake.batchers", "1"),
];
const KEYS: [&str; 4] = ["order-1", "order-2", "order-3", "order-4"];

/// One that ended, and one whose execute the provider has done and not yet answered.
struct Flowing {
    running: Running,
    ended: String,
    open: String,
}

impl Flowing {
    async fn start(service: &TestService) -> Self {
        let running = service.run_with(Roles::ALL, QUICK).await;
        let body = charge_body("pm_card_visa");
        let ended = running.client.charge("ended", &body).await.id();
        running.client.terminal(&ended).await;
        service.ledger.hold("execute", "after").await;
        let open = running.client.charge("open", &body).await.id();
        service.ledger.held().await;
        Self {
            running,
            ended,
            open,
        }
    }

    /// Clients are told, replays and reads are answered, and nothing new is stored or sent.
    async fn takes_no_writes(&self, service: &TestService) {
        service.ledger.release().await;
        let client = &self.running.client;
        let body = charge_body("pm_card_visa");
        for answer in join_all(KEYS.iter().map(|key| client.charge(key, &body))).await {
            asks_to_retry(&answer, "unavailable");
        }
        assert_eq!(client.show(&self.ended).await.body["status"], "completed");
        let open = client.show(&self.open).await.body;
        assert_eq!(open["status"], "in_progress");
        assert_eq!(service.count("SELECT count(*) FROM charges").await, 2);
    }

    /// Everything comes back without anybody's help.
    async fn goes_on(self, service: &TestService) {
        let client = &self.running.client;
        let body = charge_body("pm_card_visa");
        assert_eq!(client.terminal(&self.open).await["status"], "completed");
        for key in KEYS {
            let accepted = client.charge_until_accepted(key, &body).await;
            assert_eq!(accepted.status, 202, "{key}");
            client.terminal(&accepted.id()).await;
        }
        assert_eq!(service.ledger.executes().await.len(), 6);
        service.is_at_full_speed(&self.running).await;
        self.running.stop().await;
        service.check_books().await;
    }
}

/// Connections are ended and new ones find the database read only, as at a demoted primary; those that were made meanwhile
/// stay read only, and must be given up to find it writable again.
#[tokio::test]
async fn a_database_that_is_read_only_for_a_while_loses_nothing() {
    let service = TestService::new().await;
    let flowing = Flowing::start(&service).await;
    let name = service.database_url.rsplit('/').next().unwrap();
    let set = |what: &str| {
        // In a connection that may be read only itself.
        let sql = format!("BEGIN READ WRITE; ALTER DATABASE {name} {what}; COMMIT");
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&service.books)
    };
    set("SET default_transaction_read_only = on").await.unwrap();
    service
        .run_sql(&["SELECT pg_terminate_backend(pid) FROM pg_stat_activity
             WHERE application_name = 'payonce' AND datname = current_database()"])
        .await;
    // What became of a statement whose connection ended can't be asked of a database that refuses to repeat it.
    let body = charge_body("pm_card_visa");
    let first = flowing.running.client.charge(KEYS[0], &body).await;
    assert_eq!(first.status, 503);
    assert!(matches!(first.code(), "unavailable" | "acceptance_unknown"));
    flowing.takes_no_writes(&service).await;
    let client = &flowing.running.client;
    assert_eq!(client.get("/readyz").await.status, 503);
    set("RESET default_transaction_read_only").await.unwrap();
    until("it is ready again", async || {
        (client.get("/readyz").await.status == 200).then_some(())
    })
    .await;
    flowing.goes_on(&service).await;
}

/// As Postgres says it when a write finds no space; reads go on.
#[tokio::test]
async fn a_disk_that_is_full_for_a_while_loses_nothing() {
    let service = TestService::new().await;
    let flowing = Flowing::start(&service).await;
    service
        .run_sql(&[
            "CREATE FUNCTION fill() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100'; END $$",
            "CREATE TRIGGER fill BEFORE INSERT OR UPDATE ON charges FOR EACH STATEMENT EXECUTE FUNCTION fill()",
            "CREATE TRIGGER fill BEFORE INSERT OR UPDATE ON outbox FOR EACH STATEMENT EXECUTE FUNCTION fill()",
        ])
        .await;
    flowing.takes_no_writes(&service).await;
    service
        .run_sql(&[
            "DROP TRIGGER fill ON charges",
            "DROP TRIGGER fill ON outbox",
        ])
        .await;
    flowing.goes_on(&service).await;
}
