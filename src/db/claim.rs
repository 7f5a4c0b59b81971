//! Leases on outbox rows: taken, taken back, given back.

use std::time::Duration;

use sqlx::PgConnection;
use time::OffsetDateTime;

use super::{DbError, charges, interval};
use crate::domain::charge::Progress;
use crate::domain::ids::{ChargeId, LeaseToken};

/// A leased outbox row with the charge it is for, as both stood at the claim.
#[derive(Debug)]
pub struct Claimed {
    pub outbox_id: i64,
    pub lease: LeaseToken,
    /// How often the row was claimed, this time included.
    pub attempt: i32,
    pub charge: ChargeId,
    /// The instruction as it was frozen at intake.
    pub payload: serde_json::Value,
    pub progress: Progress,
    pub created_at: OffsetDateTime,
    /// The client asked for a cancel.
    pub cancel_requested: bool,
    /// The database's clock at the claim.
    pub claimed_at: OffsetDateTime,
}

/// A row that was leased and can't be read.
#[derive(Debug)]
pub struct Unclaimable {
    pub outbox_id: i64,
    pub lease: LeaseToken,
    pub error: DbError,
}

/// Leases up to `limit` rows that are due, oldest first, of a kind and payload version this release knows; rows of other
/// versions are left to the release that knows them. What another worker locks at this moment is skipped.
pub async fn claim(
    connection: &mut PgConnection,
    limit: i64,
    token: LeaseToken,
    lease: Duration,
    payload_versions: &[i16],
) -> Result<Vec<Result<Claimed, Unclaimable>>, DbError> {
    let rows = sqlx::query_file!(
        "src/db/sql/claim.sql",
        limit,
        token.as_uuid(),
        interval(lease),
        payload_versions,
    )
    .fetch_all(connection)
    .await?;
    let claimed = rows.into_iter().map(|row| {
        let charge = ChargeId::from_uuid(row.charge_id);
        let unclaimable = |error| Unclaimable {
            outbox_id: row.outbox_id,
            lease: token,
            error,
        };
        Ok(Claimed {
            outbox_id: row.outbox_id,
            lease: token,
            attempt: row.attempt,
            charge,
            payload: row.payload,
            progress: Progress {
                version: row.version,
                state: charges::state(charge, &row.stage, &row.money, row.failure, row.next_action)
                    .map_err(unclaimable)?,
                attempts: row.attempts,
                prepares: row.prepares,
                object: charges::object(
                    charge,
                    row.provider_charge_id.as_deref(),
                    row.provider_account,
                )
                .map_err(unclaimable)?,
            },
            created_at: row.created_at,
            cancel_requested: row.cancel_requested,
            claimed_at: row.claimed_at,
        })
    });
    Ok(claimed.collect())
}

/// Makes rows ready again whose lease ran out: their holder crashed, hung or lost its connection. Returns how many.
pub async fn take_back_expired(connection: &mut PgConnection, limit: i64) -> Result<u64, DbError> {
    let done = sqlx::query!(
        r#"
        WITH expired AS MATERIALIZED (
            SELECT id
            FROM outbox
            WHERE state = 'leased'
                AND lease_until < now()
            ORDER BY lease_until
            LIMIT $1
            FOR UPDATE SKIP LOCKED
        )
        UPDATE outbox
        SET state = 'ready',
            lease_token = NULL,
            lease_until = NULL,
            run_at = now(),
            last_error = 'lease_expired'
        FROM expired
        WHERE outbox.id = expired.id
        "#,
        limit,
    )
    .execute(connection)
    .await?;
    Ok(done.rows_affected())
}

/// Makes every leased row ready again. Only for who knows that no holder is alive: `dev` at its start, whose data
/// directory is its own. A holder that lives all the same is fenced by its token, like any whose lease ran out.
pub async fn take_back_all(connection: &mut PgConnection) -> Result<u64, DbError> {
    let done = sqlx::query!(
        r#"
        UPDATE outbox
        SET state = 'ready',
            lease_token = NULL,
            lease_until = NULL,
            run_at = now(),
            last_error = 'holder_gone'
        WHERE state = 'leased'
        "#,
    )
    .execute(connection)
    .await?;
    Ok(done.rows_affected())
}

/// Parks a row that its holder can't even read, for an operator.
pub async fn park(
    connection: &mut PgConnection,
    outbox_id: i64,
    token: LeaseToken,
    error: &str,
) -> Result<u64, DbError> {
    let done = sqlx::query!(
        r#"
        UPDATE outbox
        SET state = 'parked',
            lease_token = NULL,
            lease_until = NULL,
            last_error = $3
        WHERE id = $1
            AND state = 'leased'
            AND lease_token = $2
        "#,
        outbox_id,
        token.as_uuid(),
        error,
    )
    .execute(connection)
    .await?;
    Ok(done.rows_affected())
}
