//! What an operator does to jobs: lets them run now, and holds one to end its charge by hand. A job that someone holds is
//! never touched, and each statement writes who did it and why.

use std::time::Duration;

use serde_json::Value;
use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use super::claimed::{Look, Ours, Strays};
use super::{DbError, interval};
use crate::domain::ids::{ChargeId, LeaseToken};

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
                AND kind = 'charge'
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
                AND kind = 'charge'
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

/// A job that an operator holds, and how it was before.
#[derive(Clone, Debug)]
pub struct HeldJob {
    pub outbox_id: i64,
    pub attempt: i32,
    pub payload_version: i16,
    pub payload: Value,
    /// `parked` or `ready`.
    pub was: String,
    pub cancel_requested: bool,
    /// The database's clock at the claim.
    pub claimed_at: OffsetDateTime,
    pub look: Look,
    pub strays: Strays,
    /// Where the charge's object is or is to be made.
    pub account: String,
}

/// Takes the lease of a charge's job for an operator, whenever it is due, and writes what they want and why. `None` when
/// there is no job or someone holds it.
pub async fn hold(
    connection: &mut PgConnection,
    charge: ChargeId,
    token: LeaseToken,
    lease: Duration,
    (reason, detail): (&str, &Value),
    ours: Ours<'_>,
) -> Result<Option<HeldJob>, DbError> {
    let held = sqlx::query_file!(
        "src/db/sql/hold.sql",
        charge.as_uuid(),
        token.as_uuid(),
        interval(lease),
        reason,
        detail,
        ours.account,
    )
    .fetch_optional(connection)
    .await?;
    held.map(|row| {
        let account = row.account.unwrap_or_else(|| ours.account.to_owned());
        Ok(HeldJob {
            outbox_id: row.outbox_id,
            attempt: row.attempt,
            payload_version: row.payload_version,
            payload: row.payload,
            was: row.was,
            cancel_requested: row.cancel_requested,
            claimed_at: row.claimed_at,
            look: Look::judge(
                row.look_asked_at,
                row.swept_at,
                row.claimed_at,
                ours.key_window,
            ),
            strays: Strays::read(charge, row.strays, &account)?,
            account,
        })
    })
    .transpose()
}

/// Gives a held job back as it was, with its time and its error, and writes why nothing was decided. Returns whether the
/// lease still held.
pub async fn give_back(
    connection: &mut PgConnection,
    charge: ChargeId,
    token: LeaseToken,
    was: &str,
    detail: &Value,
) -> Result<bool, DbError> {
    let given_back = sqlx::query_scalar!(
        r#"
        WITH job AS (
            UPDATE outbox
            SET state = $3,
                lease_token = NULL,
                lease_until = NULL
            WHERE charge_id = $1
                AND kind = 'charge'
                AND state = 'leased'
                AND lease_token = $2
            RETURNING id, charge_id
        ),
        events AS (
            INSERT INTO charge_events (charge_id, version, kind, actor, detail)
            SELECT charges.id, charges.version, 'resolve_refused', 'operator', $4
            FROM job
            JOIN charges ON charges.id = job.charge_id
        )
        SELECT id
        FROM job
        "#,
        charge.as_uuid(),
        token.as_uuid(),
        was,
        detail,
    )
    .fetch_optional(connection)
    .await?;
    Ok(given_back.is_some())
}
