//! What an operator does to jobs: lets them run now. A job that someone holds is never touched, and each statement writes
//! who did it and why.

use sqlx::PgConnection;
use uuid::Uuid;

use super::DbError;

/// A job that was made to run now, as it was before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retried {
    pub outbox_id: i64,
    pub charge_id: Uuid,
    /// `parked` or `ready`.
    pub was: String,
    pub last_error: Option<String>,
}

/// Lets the jobs of these charges run now, parked or waiting.
pub async fn retry(
    connection: &mut PgConnection,
    charges: &[Uuid],
    reason: &str,
) -> Result<Vec<Retried>, DbError> {
    let retried = sqlx::query_as!(
        Retried,
        r#"
        WITH jobs AS MATERIALIZED (
            SELECT id, charge_id, state, last_error
            FROM outbox
            WHERE charge_id = ANY($1)
                AND state IN ('parked', 'ready')
            -- One order of locks for all.
            ORDER BY id
            FOR UPDATE
        ),
        retried AS (
            UPDATE outbox
            SET state = 'ready',
                run_at = LEAST(outbox.run_at, now())
            FROM jobs
            WHERE outbox.id = jobs.id
            RETURNING jobs.id, jobs.charge_id, jobs.state, jobs.last_error
        ),
        events AS (
            INSERT INTO charge_events (charge_id, version, kind, actor, reason, detail)
            SELECT
                charges.id, charges.version, 'retried', 'operator', $2,
                jsonb_strip_nulls(jsonb_build_object('was', retried.state, 'last_error', retried.last_error))
            FROM retried
            JOIN charges ON charges.id = retried.charge_id
        )
        SELECT id AS outbox_id, charge_id, state AS was, last_error
        FROM retried
        ORDER BY id
        "#,
        charges,
        reason,
    )
    .fetch_all(connection)
    .await?;
    Ok(retried)
}

/// Lets the next `limit` parked jobs after `cursor` run now. Walking on by the job's id, a caller meets each once, also
/// one that is parked again meanwhile.
pub async fn retry_parked(
    connection: &mut PgConnection,
    cursor: i64,
    limit: i64,
    reason: &str,
) -> Result<Vec<Retried>, DbError> {
    let retried = sqlx::query_as!(
        Retried,
        r#"
        WITH jobs AS MATERIALIZED (
            SELECT id, charge_id, state, last_error
            FROM outbox
            WHERE state = 'parked'
                AND id > $1
            ORDER BY id
            LIMIT $2
            FOR UPDATE
        ),
        retried AS (
            UPDATE outbox
            SET state = 'ready',
                run_at = LEAST(outbox.run_at, now())
            FROM jobs
            WHERE outbox.id = jobs.id
            RETURNING jobs.id, jobs.charge_id, jobs.state, jobs.last_error
        ),
        events AS (
            INSERT INTO charge_events (charge_id, version, kind, actor, reason, detail)
            SELECT
                charges.id, charges.version, 'retried', 'operator', $3,
                jsonb_strip_nulls(jsonb_build_object('was', retried.state, 'last_error', retried.last_error))
            FROM retried
            JOIN charges ON charges.id = retried.charge_id
        )
        SELECT id AS outbox_id, charge_id, state AS was, last_error
        FROM retried
        ORDER BY id
        "#,
        cursor,
        limit,
        reason,
    )
    .fetch_all(connection)
    .await?;
    Ok(retried)
}
