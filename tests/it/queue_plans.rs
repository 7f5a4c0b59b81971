//! That a claim reads the head of the queue and no more, and that what settles a job reads its row and no more, however
//! long the queue is or was and whatever Postgres believes of it.

use std::time::Duration;

use payonce::db::claim::{Most, Terms, claim};
use payonce::db::claimed::Ours;
use payonce::db::session::{Durability, Session, SessionLimits};
use payonce::domain::ids::LeaseToken;
use payonce::random::Random;

use crate::support::TestService;
use crate::support::books::run_sql;
use crate::support::statements::{CLAIM, LIST, Statement, planned};

const A_CLAIM: &str = "claim (32, '00000000-0000-4000-8000-000000000000', '2 minutes', '{1}', 'default', NULL, NULL, '{1}', '{acme}', '{32}', 'default', NULL)";
const MODES: [&str; 2] = ["force_generic_plan", "force_custom_plan"];

/// The planner's numbers are those of the empty table: a queue grows faster than it is analysed.
const FILL: &str = "
    ALTER TABLE outbox SET (autovacuum_enabled = false);
    ANALYZE outbox;
    INSERT INTO outbox (kind, charge_id, payload_version, payload)
    SELECT 'charge', gen_random_uuid(), 1, '{\"amount\":1999,\"currency\":\"usd\",\"payment_method\":\"pm_card_visa\"}'
    FROM generate_series(1, 15000)
";

/// A session as the service has them, and none of its statements planned yet.
fn session(service: &TestService, durability: Durability) -> Session {
    let limits = SessionLimits {
        statement_timeout: Duration::from_secs(30),
        lock_timeout: Duration::from_secs(1),
        connect_timeout: Duration::from_secs(5),
    };
    Session::new(&service.books.connect_options(), limits, durability)
}

#[tokio::test]
async fn a_claim_reads_no_more_of_a_long_queue_than_it_takes() {
    let service = TestService::new().await;
    sqlx::raw_sql(FILL).execute(&service.books).await.unwrap();
    let mut session = session(&service, Durability::Lease);
    let connection = session.connection().await.unwrap();
    CLAIM.prepare(connection).await;
    for mode in MODES {
        let plan = planned(connection, mode, A_CLAIM).await;
        assert!(
            plan.contains("Index Scan using outbox_ready_idx on outbox") && !plan.contains("Sort"),
            "{mode}\n{plan}"
        );
    }
}

#[tokio::test]
async fn claims_are_planned_once() {
    let service = TestService::new().await;
    let mut session = session(&service, Durability::Lease);
    let connection = session.connection().await.unwrap();
    let random = Random::from_seed(1);
    for _ in 0..20 {
        let terms = Terms {
            limit: 32,
            due_within: None,
            accounts: Most::default(),
            token: LeaseToken::from_uuid(random.uuid()),
            lease: Duration::from_mins(2),
            payload_versions: &[1, 2],
            refund_payload_versions: &[1],
            ours: Ours {
                account: "default",
                key_window: Duration::from_hours(23),
            },
            shares: None,
        };
        assert!(claim(connection, terms).await.unwrap().is_empty());
    }
    let plans = run_sql(
        connection,
        "SELECT generic_plans || ' for all, ' || custom_plans || ' for one'
         FROM pg_prepared_statements WHERE statement LIKE '%of_merchant%'"
            .to_owned(),
    )
    .await;
    assert_eq!(plans, ["20 for all, 0 for one"]);
}

/// A worker's first claim is planned while the books are empty, and its plan is kept while they grow.
#[tokio::test]
async fn a_claim_of_empty_books_looks_charges_and_refunds_up_by_their_ids() {
    let service = TestService::new().await;
    for known in ["SELECT ''", "VACUUM ANALYZE"] {
        sqlx::raw_sql(known).execute(&service.books).await.unwrap();
        let mut session = session(&service, Durability::Lease);
        let connection = session.connection().await.unwrap();
        CLAIM.prepare(connection).await;
        let plan = run_sql(connection, format!("EXPLAIN EXECUTE {A_CLAIM}"))
            .await
            .join("\n");
        assert_looked_up(&plan, "charges", "leased.charge_id");
        assert_looked_up(&plan, "refunds", "leased.refund_id");
    }
}

fn assert_looked_up(plan: &str, table: &str, by: &str) {
    let scan = format!("Index Scan using {table}_pkey on {table} ");
    let condition = format!("Index Cond: (id = {by})");
    let lines: Vec<&str> = plan.lines().collect();
    let is = |pair: &[&str]| pair[0].contains(&scan) && pair[1].trim() == condition;
    assert!(lines.windows(2).any(is), "{plan}");
}

const EVENT: Statement = Statement {
    name: "event",
    parameters: "text, text, text, uuid, text, text, boolean, boolean, boolean, timestamptz, timestamptz, boolean, text, \
                 uuid, boolean",
    sql: include_str!("../../src/db/sql/take_in_event.sql"),
};

/// So are an event of the provider's and a list that names an object.
#[tokio::test]
async fn in_empty_books_the_charge_of_an_object_is_looked_up_by_its_id() {
    let service = TestService::new().await;
    sqlx::raw_sql("VACUUM ANALYZE")
        .execute(&service.books)
        .await
        .unwrap();
    let mut session = session(&service, Durability::Durable);
    let connection = session.connection().await.unwrap();
    for statement in [EVENT, LIST] {
        statement.prepare(connection).await;
        for mode in MODES {
            // The list's walk, too: of another one the look-up would not be planned.
            let execute = some_execution(statement).replace("'{}'", "'object'");
            let plan = planned(connection, mode, &execute).await;
            assert_looked_up(&plan, "charges", "charge_objects.charge_id");
        }
    }
}

/// The statements of who holds a lease, and by what the row is to be looked up.
const HOLDERS: [(Statement, &str); 7] = [
    (
        Statement {
            name: "start_execute",
            parameters: "uuid[], bigint[], uuid[], integer[], text[], text[], boolean[]",
            sql: include_str!("../../src/db/sql/start_execute.sql"),
        },
        "outbox_pkey",
    ),
    (
        Statement {
            name: "finish",
            parameters: "uuid[], bigint[], uuid[], integer[], text[], text[], text[], text[], text[]",
            sql: include_str!("../../src/db/sql/finish.sql"),
        },
        "outbox_pkey",
    ),
    (
        Statement {
            name: "wait",
            parameters: "uuid[], bigint[], uuid[], integer[], boolean[], text[], text[], text[], integer[], integer[], interval[], \
         boolean[], text[], timestamptz[], text[]",
            sql: include_str!("../../src/db/sql/wait.sql"),
        },
        "outbox_pkey",
    ),
    (
        Statement {
            name: "start_refund",
            parameters: "uuid, bigint, uuid, integer, interval, boolean, text",
            sql: include_str!("../../src/db/sql/start_refund.sql"),
        },
        "outbox_pkey",
    ),
    (
        Statement {
            name: "finish_refund",
            parameters: "uuid, bigint, uuid, integer, text, text, text, text, interval",
            sql: include_str!("../../src/db/sql/finish_refund.sql"),
        },
        "outbox_pkey",
    ),
    (
        Statement {
            name: "wait_refund",
            parameters: "uuid, bigint, uuid, integer, boolean, text, text, integer, text, integer, interval, boolean, text, text, text",
            sql: include_str!("../../src/db/sql/wait_refund.sql"),
        },
        "outbox_pkey",
    ),
    (
        Statement {
            name: "settle_deliveries",
            parameters: "uuid[], uuid[], text[], integer[], text[], interval[], interval",
            sql: include_str!("../../src/db/sql/settle_deliveries.sql"),
        },
        "webhook_deliveries_pkey",
    ),
];

/// Once, at a worker's start, the whole queue is read: what that costs is in proportion, and no compiler runs for it.
#[tokio::test]
async fn what_reads_the_whole_queue_is_not_compiled_first() {
    let service = TestService::new().await;
    sqlx::raw_sql(FILL).execute(&service.books).await.unwrap();
    let mut session = session(&service, Durability::Durable);
    let connection = session.connection().await.unwrap();
    let statement = Statement {
        name: "standing",
        parameters: "text",
        sql: include_str!("../../src/db/sql/account_standing.sql"),
    };
    statement.prepare(connection).await;
    let explain = "EXPLAIN (ANALYZE, TIMING OFF) EXECUTE standing ('default')".to_owned();
    let plan = run_sql(connection, explain).await.join("\n");
    assert!(
        plan.contains("on outbox") && !plan.contains("JIT"),
        "{plan}"
    );
}

/// Something of this type, for plans of a batch of two.
fn argument(kind: &str) -> &'static str {
    match kind {
        "uuid" => "'00000000-0000-4000-8000-000000000000'",
        "uuid[]" => "'{00000000-0000-4000-8000-000000000000,00000000-0000-4000-8000-000000000001}'",
        "bigint" | "integer" => "1",
        "bigint[]" | "integer[]" => "'{1,2}'",
        "boolean" => "true",
        "boolean[]" => "'{true,true}'",
        "interval" => "'1 minute'",
        "interval[]" => "'{1 minute,1 minute}'",
        "text" => "'{}'",
        "text[]" => "'{failed,failed}'",
        "timestamptz" => "'now'",
        "timestamptz[]" => "'{now,now}'",
        other => panic!("no {other} is known"),
    }
}

/// With something for each parameter.
fn some_execution(statement: Statement) -> String {
    let arguments: Vec<&str> = statement.parameters.split(", ").map(argument).collect();
    format!("{} ({})", statement.name, arguments.join(", "))
}

/// The index of leased rows holds every lease since the last vacuum: thousands a second.
#[tokio::test]
async fn who_holds_a_lease_looks_its_row_up_and_walks_no_leases() {
    let service = TestService::new().await;
    for known in ["SELECT ''", "ANALYZE"] {
        sqlx::raw_sql(known).execute(&service.books).await.unwrap();
        let mut session = session(&service, Durability::Durable);
        let connection = session.connection().await.unwrap();
        for (statement, index) in HOLDERS {
            statement.prepare(connection).await;
            for mode in MODES {
                let plan = planned(connection, mode, &some_execution(statement)).await;
                assert!(
                    plan.contains(index) && !plan.contains("leased_idx"),
                    "{mode}\n{plan}"
                );
            }
        }
    }
}
