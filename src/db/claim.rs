//! Leases on outbox rows: taken, taken back, given back.

use std::time::Duration;

use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use super::claimed::{Job, Ours, Row, Unclaimable};
use super::{DbError, interval};
use crate::domain::ids::LeaseToken;

/// What every claim is told.
#[derive(Clone, Copy, Debug)]
pub struct Terms<'a> {
    /// At most as many rows, of the default account; with `shares`, of the account that they are of.
    pub limit: i64,
    /// Of the default account, only what became due within this time; `None` for all that is due.
    pub due_within: Option<Duration>,
    /// Other accounts, each with the most rows of it. Nothing is claimed of those that are not here.
    pub accounts: Most<'a>,
    pub token: LeaseToken,
    pub lease: Duration,
    /// The payload versions that this release knows, of charges and of refunds; rows of others are left to the release
    /// that knows them.
    pub payload_versions: &'a [i16],
    pub refund_payload_versions: &'a [i16],
    pub ours: Ours<'a>,
    /// `None` for the oldest of all.
    pub shares: Option<Shares<'a>>,
}

/// Accounts by name, and the most rows of each in the same order.
#[derive(Clone, Copy, Debug, Default)]
pub struct Most<'a> {
    pub names: &'a [&'a str],
    pub most: &'a [i64],
}

/// Of these merchants and this account alone, in their order, and at most so many rows of each.
#[derive(Clone, Copy, Debug)]
pub struct Shares<'a> {
    pub account: &'a str,
    pub merchants: &'a [Uuid],
    pub each: i64,
}

/// Leases rows that are due; none while sending is paused. What another worker locks at this moment is skipped.
pub async fn claim(
    connection: &mut PgConnection,
    terms: Terms<'_>,
) -> Result<Vec<Result<Job, Unclaimable>>, DbError> {
    let rows = sqlx::query_file_as!(
        Row,
        "src/db/sql/claim.sql",
        terms.limit,
        terms.token.as_uuid(),
        interval(terms.lease),
        terms.payload_versions,
        terms.ours.account,
        terms.shares.map(|shares| shares.merchants) as Option<&[Uuid]>,
        terms.shares.map(|shares| shares.each),
        terms.refund_payload_versions,
        terms.accounts.names as &[&str],
        terms.accounts.most,
        terms
            .shares
            .map_or(terms.ours.account, |shares| shares.account),
        terms.due_within.map(interval),
    )
    .fetch_all(connection)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| row.job(terms.token, terms.ours))
        .collect())
}

/// A merchant with jobs that are ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    pub merchant: Uuid,
    /// Whether one of them is due; the others are later.
    pub due: bool,
}

/// The next `limit` merchants after `cursor` that have jobs, in the order of their ids; due are those of merchants that are
/// on `account` or have their oldest there. Each costs two look-ups in the index, however many jobs it has.
pub async fn merchants_waiting(
    connection: &mut PgConnection,
    cursor: Uuid,
    limit: i32,
    (account, ours): (&str, Ours<'_>),
) -> Result<Vec<Waiting>, DbError> {
    let waiting = sqlx::query_file_as!(
        Waiting,
        "src/db/sql/merchants_waiting.sql",
        cursor,
        limit,
        ours.account,
        account,
    )
    .fetch_all(connection)
    .await?;
    Ok(waiting)
}

/// An account that has jobs ready and that this process does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unserved {
    pub account: String,
    /// Its oldest job.
    pub outbox_id: i64,
    /// Since when that could have been claimed, if it could.
    pub due_at: OffsetDateTime,
    /// The database's clock.
    pub now: OffsetDateTime,
}

/// The accounts of ready jobs that are not among `known`; none while sending is paused, when nobody takes any. Each account
/// costs a look-up in the index, however many jobs it has.
pub async fn unserved(
    connection: &mut PgConnection,
    known: &[String],
) -> Result<Vec<Unserved>, DbError> {
    let unserved = sqlx::query_as!(
        Unserved,
        r#"
        WITH RECURSIVE visited AS (
            (
                SELECT provider_account, run_at, id
                FROM outbox
                WHERE state NOT IN ('leased', 'parked')
                    AND provider_account IS NOT NULL
                ORDER BY provider_account, run_at, id
                LIMIT 1
            )
            UNION ALL
            SELECT next.provider_account, next.run_at, next.id
            FROM visited
            CROSS JOIN LATERAL (
                SELECT provider_account, run_at, id
                FROM outbox
                WHERE state NOT IN ('leased', 'parked')
                    AND provider_account > visited.provider_account
                ORDER BY provider_account, run_at, id
                LIMIT 1
            ) AS next
        )
        SELECT provider_account AS "account!", id AS "outbox_id!", run_at AS "due_at!", now() AS "now!"
        FROM visited
        WHERE provider_account <> ALL($1)
            AND NOT EXISTS (SELECT FROM pauses)
        "#,
        known,
    )
    .fetch_all(connection)
    .await?;
    Ok(unserved)
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
        -- A look-up of each by its id, however many rows the planner expects.
        WHERE id = ANY(ARRAY(SELECT id FROM expired))
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

/// Gives a job back to who has its charge's account, by its name: a charge keeps the account that it was begun in, and its
/// row may name none.
pub async fn leave(
    connection: &mut PgConnection,
    outbox_id: i64,
    token: LeaseToken,
) -> Result<u64, DbError> {
    let done = sqlx::query!(
        r#"
        UPDATE outbox
        SET provider_account = COALESCE(
                (SELECT refunds.provider_account FROM refunds WHERE refunds.id = outbox.refund_id),
                (SELECT charges.provider_account FROM charges WHERE charges.id = outbox.charge_id)
            ),
            state = 'ready',
            lease_token = NULL,
            lease_until = NULL,
            run_at = now(),
            last_error = 'account_not_configured'
        WHERE id = $1
            AND lease_token = $2
        "#,
        outbox_id,
        token.as_uuid(),
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
