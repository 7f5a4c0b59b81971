//! The statements that end a run: charge, request row, outbox row and event change together or not at all.

use sqlx::PgConnection;
use sqlx::postgres::types::PgInterval;
use time::OffsetDateTime;
use uuid::Uuid;

use super::DbError;

/// A batch of final transitions, a column a field, in the order of the charge ids.
#[derive(Debug, Default)]
pub struct FinishRows<'a> {
    pub charge_ids: Vec<Uuid>,
    pub outbox_ids: Vec<i64>,
    pub lease_tokens: Vec<Uuid>,
    pub versions: Vec<i32>,
    /// `succeeded`, `failed` or `canceled`.
    pub stages: Vec<&'a str>,
    pub provider_charge_ids: Vec<Option<&'a str>>,
    pub provider_accounts: Vec<Option<&'a str>>,
    /// JSON texts.
    pub failures: Vec<Option<String>>,
    pub details: Vec<String>,
}

/// Writes the last transitions. A success is a fact and is written whoever learned it; the others only while the lease
/// holds and the charge is as the worker saw it. A success that contradicts the books is a discrepancy, written here
/// too. Returns the charges that changed.
pub async fn finish(
    connection: &mut PgConnection,
    rows: &FinishRows<'_>,
) -> Result<Vec<Uuid>, DbError> {
    let finished = sqlx::query_file_scalar!(
        "src/db/sql/finish.sql",
        &rows.charge_ids,
        &rows.outbox_ids,
        &rows.lease_tokens,
        &rows.versions,
        &rows.stages as &[&str],
        &rows.provider_charge_ids as &[Option<&str>],
        &rows.provider_accounts as &[Option<&str>],
        &rows.failures as &[Option<String>],
        &rows.details,
    )
    .fetch_all(connection)
    .await?;
    Ok(finished)
}

/// A charge that a final transition did not change, as it stands.
#[derive(Debug)]
pub struct Standing {
    pub charge_id: Uuid,
    pub stage: String,
    pub provider_charge_id: Option<String>,
}

pub async fn standing(
    connection: &mut PgConnection,
    charge_ids: &[Uuid],
) -> Result<Vec<Standing>, DbError> {
    let rows = sqlx::query_as!(
        Standing,
        r#"
        SELECT id AS charge_id, stage, provider_charge_id
        FROM charges
        WHERE id = ANY($1)
        "#,
        charge_ids,
    )
    .fetch_all(connection)
    .await?;
    Ok(rows)
}

/// Deletes the outbox row of a charge that is terminal already: the job has nothing left to do, whoever holds it.
pub async fn discard(connection: &mut PgConnection, outbox_ids: &[i64]) -> Result<u64, DbError> {
    let done = sqlx::query!(
        r#"
        DELETE FROM outbox
        USING charges
        WHERE outbox.id = ANY($1)
            AND charges.id = outbox.charge_id
            AND charges.stage IN ('succeeded', 'failed', 'canceled')
        "#,
        outbox_ids,
    )
    .execute(connection)
    .await?;
    Ok(done.rows_affected())
}

/// A batch of jobs that go on later, a column a field, in the order of the charge ids.
#[derive(Debug, Default)]
pub struct WaitRows<'a> {
    pub charge_ids: Vec<Uuid>,
    pub outbox_ids: Vec<i64>,
    pub lease_tokens: Vec<Uuid>,
    pub versions: Vec<i32>,
    /// Whether the charge changes too, or only its outbox row.
    pub changes: Vec<bool>,
    pub stages: Vec<&'a str>,
    pub moneys: Vec<&'a str>,
    /// JSON texts.
    pub next_actions: Vec<Option<String>>,
    pub attempts: Vec<i32>,
    pub prepares: Vec<i32>,
    pub delays: Vec<PgInterval>,
    /// Leave the row to an operator.
    pub parked: Vec<bool>,
    pub errors: Vec<Option<&'a str>>,
    /// From when on a sweep must look for the charge's object before it goes on.
    pub looks_from: Vec<Option<OffsetDateTime>>,
    /// The last call of the run, as a JSON text.
    pub calls: Vec<Option<String>>,
}

/// Gives the leases back until later, or parks the rows, and shows where the charges stand. Returns the outbox ids that
/// changed; the others had lost their lease.
pub async fn wait(connection: &mut PgConnection, rows: &WaitRows<'_>) -> Result<Vec<i64>, DbError> {
    let waiting = sqlx::query_file_scalar!(
        "src/db/sql/wait.sql",
        &rows.charge_ids,
        &rows.outbox_ids,
        &rows.lease_tokens,
        &rows.versions,
        &rows.changes,
        &rows.stages as &[&str],
        &rows.moneys as &[&str],
        &rows.next_actions as &[Option<String>],
        &rows.attempts,
        &rows.prepares,
        &rows.delays,
        &rows.parked,
        &rows.errors as &[Option<&str>],
        &rows.looks_from as &[Option<OffsetDateTime>],
        &rows.calls as &[Option<String>],
    )
    .fetch_all(connection)
    .await?;
    Ok(waiting)
}

/// An object of the provider that is not the one we asked for.
#[derive(Debug)]
pub struct Discrepancy<'a> {
    pub kind: &'a str,
    pub provider: &'a str,
    /// The one that holds the object.
    pub account: &'a str,
    pub provider_charge_id: &'a str,
    pub charge_id: Uuid,
    pub outbox_id: i64,
    pub lease_token: Uuid,
    pub detail: serde_json::Value,
}

/// What became of a discrepancy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disputed {
    /// Nobody had written it before.
    pub is_new: bool,
    /// The lease still held, and the job it was found by is parked.
    pub parked: bool,
}

/// Writes a discrepancy and parks the job it was found by, in one statement. The discrepancy is a fact and is written
/// once, whoever found it; a holder that has lost its lease and says what is known parks nothing and adds nothing to the
/// history.
pub async fn dispute(
    connection: &mut PgConnection,
    found: &Discrepancy<'_>,
) -> Result<Disputed, DbError> {
    let row = sqlx::query!(
        r#"
        WITH written AS (
            INSERT INTO discrepancies (kind, provider, provider_account, provider_charge_id, charge_id, detail)
            VALUES ($1, $2, $8, $3, $4, $7)
            ON CONFLICT ON CONSTRAINT discrepancies_once DO NOTHING
            RETURNING id
        ),
        parked AS (
            UPDATE outbox
            SET state = 'parked',
                lease_token = NULL,
                lease_until = NULL,
                last_error = $1
            WHERE id = $5
                AND lease_token = $6
                AND state = 'leased'
            RETURNING id
        ),
        events AS (
            INSERT INTO charge_events (charge_id, version, kind, actor, reason, detail)
            SELECT id, version, 'discrepancy', 'worker', $1, $7
            FROM charges
            WHERE id = $4
                AND (EXISTS (SELECT FROM written) OR EXISTS (SELECT FROM parked))
        )
        SELECT
            EXISTS (SELECT FROM written) AS "is_new!",
            EXISTS (SELECT FROM parked) AS "parked!"
        "#,
        found.kind,
        found.provider,
        found.provider_charge_id,
        found.charge_id,
        found.outbox_id,
        found.lease_token,
        found.detail,
        found.account,
    )
    .fetch_one(connection)
    .await?;
    Ok(Disputed {
        is_new: row.is_new,
        parked: row.parked,
    })
}
