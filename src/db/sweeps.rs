//! Sweeps: asked for, taken by one sweeper at a time, finished. One walk answers everybody who waits for it.

use std::time::Duration;

use sqlx::PgConnection;
use time::OffsetDateTime;

use super::{DbError, interval};
use crate::domain::ids::LeaseToken;

/// Whose objects are walked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// `stripe`.
    pub provider: &'static str,
    /// The configured account's name.
    pub name: String,
    /// Whether it is that of jobs which name none.
    pub is_default: bool,
}

/// Asks for a sweep of the objects that were made within `window`, for a person. Returns its id.
pub async fn ask(
    connection: &mut PgConnection,
    account: &Account,
    window: Duration,
) -> Result<i64, DbError> {
    let id = sqlx::query_scalar!(
        r#"
        INSERT INTO sweeps (provider, provider_account, reason, from_at)
        VALUES ($1, $2, 'operator', now() - $3::interval)
        RETURNING id
        "#,
        account.provider,
        account.name,
        interval(window),
    )
    .fetch_one(connection)
    .await?;
    Ok(id)
}

/// Asks for the next routine sweep if the last one was asked for `every` ago. Two replicas at once may both ask: one walk
/// answers both.
pub async fn ask_routine(
    connection: &mut PgConnection,
    account: &Account,
    every: Duration,
    window: Duration,
) -> Result<u64, DbError> {
    let done = sqlx::query!(
        r#"
        INSERT INTO sweeps (provider, provider_account, reason, from_at)
        SELECT $1, $2, 'routine', now() - $4::interval
        WHERE NOT EXISTS (
            SELECT
            FROM sweeps
            WHERE provider_account = $2
                AND reason = 'routine'
                AND (finished_at IS NULL OR asked_at > now() - $3::interval)
        )
        "#,
        account.provider,
        account.name,
        interval(every),
        interval(window),
    )
    .execute(connection)
    .await?;
    Ok(done.rows_affected())
}

/// Asks for one sweep that answers all jobs which look for their object, if one is not answered by any that is asked for
/// and has not begun.
pub async fn ask_for_looks(
    connection: &mut PgConnection,
    account: &Account,
    key_window: Duration,
) -> Result<u64, DbError> {
    let done = sqlx::query!(
        r#"
        INSERT INTO sweeps (provider, provider_account, reason, from_at)
        SELECT $1, $2, 'look', min(look_from)
        FROM outbox
        WHERE look_from IS NOT NULL
            AND (provider_account = $2 OR provider_account IS NULL AND $4)
            AND NOT EXISTS (
                SELECT
                FROM sweeps
                WHERE provider_account = $2
                    AND from_at <= outbox.look_from
                    AND (
                        finished_at IS NULL AND lease_token IS NULL
                        OR began_at > GREATEST(outbox.look_asked_at, now() - $3::interval)
                    )
            )
        HAVING count(*) > 0
        "#,
        account.provider,
        account.name,
        interval(key_window),
        account.is_default,
    )
    .execute(connection)
    .await?;
    Ok(done.rows_affected())
}

/// What one sweeper walks: everything that was asked for until then.
#[derive(Clone, Debug)]
pub struct Taken {
    pub ids: Vec<i64>,
    /// The earliest that was asked for.
    pub from: OffsetDateTime,
    /// The database's clock.
    pub began_at: OffsetDateTime,
}

/// Takes all open sweeps of an account under one lease. `None` when there is none, or somebody holds one.
pub async fn take(
    connection: &mut PgConnection,
    account: &Account,
    token: LeaseToken,
    lease: Duration,
) -> Result<Option<Taken>, DbError> {
    let row = sqlx::query!(
        r#"
        WITH taken AS (
            UPDATE sweeps
            SET lease_token = $2,
                lease_until = now() + $3::interval,
                began_at = now()
            WHERE provider_account = $1
                AND finished_at IS NULL
                AND (lease_until IS NULL OR lease_until < now())
                AND NOT EXISTS (
                    SELECT
                    FROM sweeps AS held
                    WHERE held.provider_account = $1
                        AND held.finished_at IS NULL
                        AND held.lease_until >= now()
                )
            RETURNING id, from_at
        )
        SELECT array_agg(id ORDER BY id) AS ids, min(from_at) AS from_at, now() AS "began_at!"
        FROM taken
        "#,
        account.name,
        token.as_uuid(),
        interval(lease),
    )
    .fetch_one(connection)
    .await?;
    Ok(row.ids.zip(row.from_at).map(|(ids, from)| Taken {
        ids,
        from,
        began_at: row.began_at,
    }))
}

/// Holds on for another lease. Returns whether the sweep is still this sweeper's.
pub async fn renew(
    connection: &mut PgConnection,
    ids: &[i64],
    token: LeaseToken,
    lease: Duration,
    objects: i64,
) -> Result<bool, DbError> {
    let done = sqlx::query!(
        r#"
        UPDATE sweeps
        SET lease_until = now() + $3::interval,
            objects = $4
        WHERE id = ANY($1)
            AND lease_token = $2
            AND finished_at IS NULL
        "#,
        ids,
        token.as_uuid(),
        interval(lease),
        objects,
    )
    .execute(connection)
    .await?;
    Ok(usize::try_from(done.rows_affected()).is_ok_and(|count| count == ids.len()))
}

/// Gives a sweep back that did not come to its end: it has asked nothing, and begins anew.
pub async fn give_back(
    connection: &mut PgConnection,
    ids: &[i64],
    token: LeaseToken,
    error: &str,
) -> Result<u64, DbError> {
    let done = sqlx::query!(
        r#"
        UPDATE sweeps
        SET lease_token = NULL,
            lease_until = NULL,
            last_error = $3
        WHERE id = ANY($1)
            AND lease_token = $2
            AND finished_at IS NULL
        "#,
        ids,
        token.as_uuid(),
        error,
    )
    .execute(connection)
    .await?;
    Ok(done.rows_affected())
}

/// Finishes a sweep whose every page answered, and lets the jobs run that it answers, while it is still this sweeper's.
/// Returns whether it was.
pub async fn finish(
    connection: &mut PgConnection,
    ids: &[i64],
    token: LeaseToken,
    objects: i64,
) -> Result<bool, DbError> {
    let finished = sqlx::query_scalar!(
        r#"
        WITH finished AS (
            UPDATE sweeps
            SET finished_at = now(),
                lease_token = NULL,
                lease_until = NULL,
                last_error = NULL,
                objects = $3
            WHERE id = ANY($1)
                AND lease_token = $2
                AND finished_at IS NULL
            RETURNING id, from_at, began_at, reason
        ),
        looks AS (
            UPDATE outbox
            SET run_at = CASE WHEN outbox.state = 'ready' THEN LEAST(outbox.run_at, now()) ELSE outbox.run_at END,
                nudged = true
            FROM (SELECT min(from_at) AS from_at, min(began_at) AS began_at FROM finished) AS walk
            WHERE outbox.look_from >= walk.from_at
                AND outbox.look_asked_at < walk.began_at
                AND outbox.state <> 'parked'
        ),
        -- Sending goes on when every recovery that was asked for has seen all, in each account.
        lifted AS (
            DELETE FROM pauses
            WHERE kind = 'recovery'
                AND EXISTS (SELECT FROM finished WHERE reason = 'recovery')
                AND NOT EXISTS (
                    SELECT
                    FROM sweeps
                    WHERE reason = 'recovery'
                        AND finished_at IS NULL
                        AND id <> ALL($1)
                )
        )
        SELECT count(*) AS "count!"
        FROM finished
        "#,
        ids,
        token.as_uuid(),
        objects,
    )
    .fetch_one(connection)
    .await?;
    Ok(usize::try_from(finished).is_ok_and(|count| count == ids.len()))
}

/// Where a sweep stands, for who waits for it.
#[derive(Clone, Debug)]
pub struct Standing {
    pub began_at: Option<OffsetDateTime>,
    pub finished_at: Option<OffsetDateTime>,
    pub objects: i64,
    pub last_error: Option<String>,
}

pub async fn find(connection: &mut PgConnection, id: i64) -> Result<Option<Standing>, DbError> {
    let standing = sqlx::query_as!(
        Standing,
        r#"
        SELECT began_at, finished_at, objects, last_error
        FROM sweeps
        WHERE id = $1
        "#,
        id,
    )
    .fetch_optional(connection)
    .await?;
    Ok(standing)
}

/// Forgets finished sweeps that can answer nobody any more.
pub async fn purge(connection: &mut PgConnection, older_than: Duration) -> Result<u64, DbError> {
    let done = sqlx::query!(
        r#"
        DELETE FROM sweeps
        WHERE finished_at < now() - $1::interval
        "#,
        interval(older_than),
    )
    .execute(connection)
    .await?;
    Ok(done.rows_affected())
}
