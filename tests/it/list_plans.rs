//! That no list reads the whole table, whether Postgres plans it for its values or once for all.

use sqlx::{AssertSqlSafe, PgConnection};

use crate::support::TestService;
use crate::support::books::run_sql;
use crate::support::statements::LIST;

const ALL: &str =
    "{pending,processing,requires_action,requires_reconciliation,succeeded,failed,canceled}";
const OPEN: &str = "{pending,processing,requires_action,requires_reconciliation}";
const NEWEST: &str = "charges_merchant_id_created_at_idx";
const RARE: &str = "charges_rare_stage_idx";

/// A walk, the stages, the times, and the index that must be used.
struct Case(
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static str,
);

async fn plan(connection: &mut PgConnection, merchant: uuid::Uuid, case: &Case) -> String {
    let Case(walk, stages, from, before, _) = case;
    let (reference, object, charge) = match *walk {
        "reference" => ("'subscription'", "NULL", "NULL"),
        "object" => ("NULL", "'pi_1'", "NULL"),
        "key" => ("NULL", "NULL", "'00000000-0000-0000-0000-000000000001'"),
        _ => ("NULL", "NULL", "NULL"),
    };
    let explain = format!(
        "EXPLAIN EXECUTE list ('{merchant}', '{walk}', '{stages}', '{from}', '{before}',
             '00000000-0000-0000-0000-000000000000', 21, {reference}, 'stripe', {object}, {charge})"
    );
    run_sql(connection, explain).await.join("\n")
}

#[tokio::test]
async fn every_list_is_read_from_an_index() {
    let service = TestService::new().await;
    service.fill(service.merchant, 20_000).await;
    let mut connection = service.books.acquire().await.unwrap();
    run_sql(&mut connection, "ANALYZE".to_owned()).await;
    LIST.prepare(&mut connection).await;
    let cases = [
        Case("newest", ALL, "-infinity", "infinity", NEWEST),
        Case("newest", ALL, "2026-01-01", "2026-01-01 12:00Z", NEWEST),
        Case("newest", "{succeeded}", "-infinity", "infinity", NEWEST),
        Case("stages", "{failed,canceled}", "-infinity", "infinity", RARE),
        Case("stages", "{requires_action}", "-infinity", "infinity", RARE),
        Case("stages", OPEN, "-infinity", "infinity", RARE),
        Case(
            "stages",
            "{pending}",
            "-infinity",
            "2026-01-01 12:00Z",
            NEWEST,
        ),
        Case(
            "reference",
            ALL,
            "-infinity",
            "infinity",
            "charges_reference_idx",
        ),
        Case(
            "object",
            ALL,
            "-infinity",
            "infinity",
            "charge_objects_pkey",
        ),
        Case("key", ALL, "-infinity", "infinity", "charges_pkey"),
    ];
    for mode in ["force_generic_plan", "force_custom_plan"] {
        let set = format!("SET plan_cache_mode = {mode}");
        sqlx::raw_sql(AssertSqlSafe(set))
            .execute(&mut *connection)
            .await
            .unwrap();
        for case in &cases {
            let plan = plan(&mut connection, service.merchant.as_uuid(), case).await;
            assert!(
                !plan.contains("Seq Scan on charges"),
                "{} {}\n{plan}",
                case.0,
                case.1
            );
            assert!(
                plan.contains(case.4),
                "{} {} without {}\n{plan}",
                case.0,
                case.1,
                case.4
            );
        }
    }
}

/// A charge that goes well must not pay for the lists with an update of every index: it changes nothing that one holds.
#[tokio::test]
async fn a_charge_that_goes_well_changes_no_column_that_a_list_is_found_by() {
    let service = TestService::new().await;
    let names: Vec<String> = sqlx::query_scalar(
        "SELECT indexname::text FROM pg_indexes WHERE tablename = 'charges' AND indexdef ~ '\\m(stage|money|finished_at|updated_at|version|attempts|provider_account|provider_charge_id|next_action|failure)\\M'",
    )
    .fetch_all(&service.books)
    .await
    .unwrap();
    assert_eq!(names, [""; 0]);
}
