//! That a claim reads the head of the queue and no more, however long the queue is and whatever Postgres believes of it.

use std::time::Duration;

use payonce::db::session::{Durability, Session, SessionLimits};
use sqlx::{AssertSqlSafe, Row};

use crate::support::TestService;

const CLAIM: &str = include_str!("../../src/db/sql/claim.sql");

/// The planner's numbers are those of the empty table: a queue grows faster than it is analysed.
const FILL: &str = "
    ALTER TABLE outbox SET (autovacuum_enabled = false);
    ANALYZE outbox;
    INSERT INTO outbox (kind, charge_id, payload_version, payload)
    SELECT 'charge', gen_random_uuid(), 1, '{\"amount\":1999,\"currency\":\"usd\",\"payment_method\":\"pm_card_visa\"}'
    FROM generate_series(1, 15000)
";

#[tokio::test]
async fn a_claim_reads_no_more_of_a_long_queue_than_it_takes() {
    let service = TestService::new().await;
    sqlx::raw_sql(FILL).execute(&service.books).await.unwrap();
    let limits = SessionLimits {
        statement_timeout: Duration::from_secs(30),
        lock_timeout: Duration::from_secs(1),
        connect_timeout: Duration::from_secs(5),
    };
    let options = service.books.connect_options();
    let mut session = Session::new(&options, limits, Durability::Lease);
    let connection = session.connection().await.unwrap();
    let prepare = format!(
        "PREPARE claim (bigint, uuid, interval, smallint[], text, uuid[], bigint, smallint[]) AS {CLAIM}"
    );
    sqlx::raw_sql(AssertSqlSafe(prepare))
        .execute(&mut *connection)
        .await
        .unwrap();
    for mode in ["force_generic_plan", "force_custom_plan"] {
        let explain = format!(
            "SET plan_cache_mode = {mode};
             EXPLAIN EXECUTE claim (32, '00000000-0000-4000-8000-000000000000', '2 minutes', '{{1}}', 'default', NULL, NULL, '{{1}}')"
        );
        let rows = sqlx::raw_sql(AssertSqlSafe(explain))
            .fetch_all(&mut *connection)
            .await
            .unwrap();
        let lines: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
        let plan = lines.join("\n");
        assert!(
            plan.contains("Index Scan using outbox_ready_idx on outbox") && !plan.contains("Sort"),
            "{mode}\n{plan}"
        );
    }
}
