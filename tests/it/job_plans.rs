//! That what is asked of the jobs again and again is looked up, however many wait: claims, turns, a merchant's open charges.

use sqlx::PgConnection;
use uuid::Uuid;

use crate::support::TestService;
use crate::support::books::run_sql;
use crate::support::statements::{CLAIM, LIST, Statement};

const WAITING: Statement = Statement {
    name: "waiting",
    parameters: "uuid, integer, text, text",
    sql: include_str!("../../src/db/sql/merchants_waiting.sql"),
};

const BY_MERCHANT: &str = "outbox_merchant_ready_idx";

/// Executes a prepared statement and undoes it. Returns its plan, with what it did.
async fn executed(connection: &mut PgConnection, execute: &str) -> String {
    run_sql(connection, "BEGIN".to_owned()).await;
    let explain = format!("EXPLAIN (ANALYZE, BUFFERS, TIMING OFF) EXECUTE {execute}");
    let plan = run_sql(connection, explain).await.join("\n");
    run_sql(connection, "ROLLBACK".to_owned()).await;
    plan
}

/// The pages that a plan touched.
fn pages(plan: &str) -> u64 {
    let line = plan.lines().find(|line| line.contains("Buffers:")).unwrap();
    let counts = line
        .split(['=', ' '])
        .filter_map(|word| word.parse::<u64>().ok());
    counts.sum()
}

/// As a worker's connection and as a reader's.
async fn prepared(service: &TestService) -> sqlx::pool::PoolConnection<sqlx::Postgres> {
    let mut connection = service.books.acquire().await.unwrap();
    for sql in ["ANALYZE", "SET enable_seqscan = off"] {
        run_sql(&mut connection, sql.to_owned()).await;
    }
    for statement in [CLAIM, WAITING, LIST] {
        statement.prepare(&mut connection).await;
    }
    connection
}

/// One merchant has thousands of jobs that are due, two have one: what is asked touches a few pages, however Postgres
/// plans it. A whole table would be hundreds.
#[tokio::test]
async fn a_backlog_costs_neither_claims_nor_turns_nor_the_lists_of_others() {
    let service = TestService::new().await;
    let mut few = Vec::new();
    service.fill(service.merchant, 60_000).await;
    for name in ["b", "c"] {
        let (merchant, _) = service.make_merchant(name).await;
        // More than a list's first walk looks at, and all but seven have ended.
        service.fill(merchant, 2500).await;
        few.push(merchant.as_uuid());
    }
    for sql in [
        "WITH ended AS (
             UPDATE charges
             SET stage = 'canceled', money = 'not_moved', next_action = NULL, finished_at = now()
             WHERE merchant_id <> $1 AND finished_at IS NULL AND created_at > '2026-01-01 00:10Z'
             RETURNING id
         )
         DELETE FROM outbox USING ended WHERE charge_id = ended.id",
        "UPDATE outbox SET run_at = now() - interval '1 minute' WHERE $1 IS NOT NULL",
    ] {
        sqlx::query(sql)
            .bind(service.merchant.as_uuid())
            .execute(&service.books)
            .await
            .unwrap();
    }
    sqlx::query("VACUUM outbox")
        .execute(&service.books)
        .await
        .unwrap();
    let mut connection = prepared(&service).await;
    let token = Uuid::from_u128(1);
    let (nobody, others) = (Uuid::nil(), format!("{{{},{}}}", few[0], few[1]));
    let lists = |merchant: Uuid| {
        format!(
            "list ('{merchant}', 'stages', '{{pending,processing}}', '-infinity', 'infinity', '{nobody}', 21, NULL,
                 'stripe', NULL, NULL)"
        )
    };
    let cases = [
        (
            format!(
                "claim (8, '{token}', '1 minute', '{{1}}', 'default', NULL, NULL, '{{1}}', '{{}}', '{{}}', 'default', NULL)"
            ),
            "outbox_ready_idx",
            400,
        ),
        (
            format!(
                "claim (8, '{token}', '1 minute', '{{1}}', 'default', '{others}', 4, '{{1}}', '{{}}', '{{}}', 'default', NULL)"
            ),
            BY_MERCHANT,
            400,
        ),
        (
            format!("waiting ('{nobody}', 100, 'default', 'default')"),
            BY_MERCHANT,
            100,
        ),
        // The 2000 newest, twice, are looked at first.
        (lists(few[0]), BY_MERCHANT, 2000),
    ];
    for mode in ["force_generic_plan", "force_custom_plan"] {
        run_sql(&mut connection, format!("SET plan_cache_mode = {mode}")).await;
        for (execute, index, most) in &cases {
            let plan = executed(&mut connection, execute).await;
            assert!(plan.contains(index), "{execute} without {index}\n{plan}");
            assert!(!plan.contains("Seq Scan on outbox"), "{execute}\n{plan}");
            assert!(!plan.contains("Seq Scan on charges"), "{execute}\n{plan}");
            assert!(pages(&plan) < *most, "{execute}: {}\n{plan}", pages(&plan));
        }
    }
}
