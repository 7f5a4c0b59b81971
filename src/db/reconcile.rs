//! The invariant, page by page: a charge is not terminal exactly when it has one outbox row of its kind, and a request
//! row says what its charge says.

use std::time::Duration;

use sqlx::PgConnection;
use uuid::Uuid;

use super::books::MOST_COUNTED;
use super::{DbError, interval};

/// One page of the walk over all charges.
#[derive(Debug)]
pub struct Page {
    /// Where the next page begins; `None` at the end of the table.
    pub next: Option<Uuid>,
    /// Charges that are open, have not changed for the threshold and have no outbox row, with their versions.
    pub without_job: Vec<(Uuid, i32)>,
}

/// Looks at the charges after `cursor`. Walks the primary key, so that the sweep needs no index of its own, which every
/// charge would have to pay for.
pub async fn page(
    connection: &mut PgConnection,
    cursor: Uuid,
    limit: i64,
    threshold: Duration,
) -> Result<Page, DbError> {
    let rows = sqlx::query!(
        r#"
        SELECT
            page.id AS "id!",
            page.version AS "version!",
            (
                page.finished_at IS NULL
                AND page.updated_at < now() - $3::interval
                AND outbox.id IS NULL
            ) AS "without_job!"
        FROM (
            SELECT id, version, finished_at, updated_at
            FROM charges
            WHERE id > $1
            ORDER BY id
            LIMIT $2
        ) AS page
        LEFT JOIN outbox
            ON outbox.charge_id = page.id
            AND outbox.kind = 'charge'
            AND page.finished_at IS NULL
        ORDER BY page.id
        "#,
        cursor,
        limit,
        interval(threshold),
    )
    .fetch_all(connection)
    .await?;
    let full = i64::try_from(rows.len()).is_ok_and(|count| count >= limit);
    Ok(Page {
        next: rows.last().filter(|_| full).map(|row| row.id),
        without_job: rows
            .iter()
            .filter(|row| row.without_job)
            .map(|row| (row.id, row.version))
            .collect(),
    })
}

/// Gives an open charge its outbox row back. The version lets one of two reconcilers win. Returns whether this one did.
pub async fn make_job(
    connection: &mut PgConnection,
    charge: Uuid,
    version: i32,
    [payload_version, with_account]: [i16; 2],
    payload: &serde_json::Value,
) -> Result<bool, DbError> {
    let made = sqlx::query_scalar!(
        r#"
        WITH charge AS (
            UPDATE charges
            SET version = version + 1,
                updated_at = now()
            WHERE id = $1
                AND version = $2
                AND stage IN ('pending', 'processing', 'requires_action', 'requires_reconciliation')
                AND NOT EXISTS (SELECT FROM outbox WHERE outbox.charge_id = $1 AND outbox.kind = 'charge')
            RETURNING id, merchant_id, version, provider_account, provider_charge_id
        ),
        events AS (
            INSERT INTO charge_events (charge_id, version, kind, actor, reason)
            SELECT id, version, 'job_made', 'reconciler', 'the charge was open and had no job'
            FROM charge
        )
        INSERT INTO outbox (kind, charge_id, merchant_id, provider_account, payload_version, payload, unclear_since)
        SELECT
            'charge', charge.id, charge.merchant_id, charge.provider_account,
            -- As intake does. Who has stored its object is in no doubt about the account, in any release.
            CASE
                WHEN charge.provider_account IS NULL OR charge.provider_charge_id IS NOT NULL THEN $3::smallint
                ELSE $5::smallint
            END,
            $4,
            -- As the charge was before this statement.
            CASE charges.stage WHEN 'requires_reconciliation' THEN charges.updated_at END
        FROM charge
        JOIN charges ON charges.id = charge.id
        RETURNING id
        "#,
        charge,
        version,
        payload_version,
        payload,
        with_account,
    )
    .fetch_optional(connection)
    .await?;
    Ok(made.is_some())
}

/// Makes request rows say what their charges say, for the charges after `cursor` up to `last`. Returns how many differed.
pub async fn align_requests(
    connection: &mut PgConnection,
    cursor: Uuid,
    last: Option<Uuid>,
) -> Result<u64, DbError> {
    let done = sqlx::query!(
        r#"
        UPDATE idempotent_requests
        SET status = CASE
                WHEN charges.stage = 'succeeded' THEN 'completed'
                WHEN charges.stage IN ('failed', 'canceled') THEN 'failed'
                ELSE 'in_progress'
            END,
            updated_at = now()
        FROM charges
        WHERE charges.id > $1
            AND ($2::uuid IS NULL OR charges.id <= $2)
            AND idempotent_requests.merchant_id = charges.merchant_id
            AND idempotent_requests.operation = 'charge'
            AND idempotent_requests.client_key = charges.idempotency_key
            AND idempotent_requests.status <> CASE
                WHEN charges.stage = 'succeeded' THEN 'completed'
                WHEN charges.stage IN ('failed', 'canceled') THEN 'failed'
                ELSE 'in_progress'
            END
        "#,
        cursor,
        last,
    )
    .execute(connection)
    .await?;
    Ok(done.rows_affected())
}

/// Purges request rows of the charges after `cursor` up to `last` that have been terminal for the retention. Such a
/// charge goes on answering for its key.
pub async fn purge_requests(
    connection: &mut PgConnection,
    cursor: Uuid,
    last: Option<Uuid>,
    retention: Duration,
) -> Result<u64, DbError> {
    let done = sqlx::query!(
        r#"
        DELETE FROM idempotent_requests
        USING charges
        WHERE charges.id > $1
            AND ($2::uuid IS NULL OR charges.id <= $2)
            AND charges.finished_at < now() - $3::interval
            AND idempotent_requests.merchant_id = charges.merchant_id
            AND idempotent_requests.operation = 'charge'
            AND idempotent_requests.client_key = charges.idempotency_key
        "#,
        cursor,
        last,
        interval(retention),
    )
    .execute(connection)
    .await?;
    Ok(done.rows_affected())
}

/// Jobs that need attention, each by its own clock, counted up to [`MOST_COUNTED`].
#[derive(Debug)]
pub struct Backlog {
    pub parked: i64,
    /// Claimed at least once and for longer than the threshold neither executed nor, if it was executed, clear. A charge
    /// whose customer or bank has its turn is where it should be, for days if need be.
    pub stuck: i64,
}

pub async fn backlog(
    connection: &mut PgConnection,
    threshold: Duration,
) -> Result<Backlog, DbError> {
    let row = sqlx::query!(
        r#"
        SELECT
            (
                SELECT count(*)
                FROM (SELECT FROM outbox WHERE state = 'parked' ORDER BY id LIMIT $2) AS bounded
            ) AS "parked!",
            (
                SELECT count(*)
                FROM (
                    SELECT charge_id, unclear_since, last_call
                    FROM outbox
                    -- A first run under way is not stuck, however long its job had waited for it.
                    WHERE (state = 'ready' AND attempt > 0 OR state = 'leased' AND attempt > 1)
                        AND COALESCE(unclear_since, created_at) < now() - $1::interval
                    LIMIT $2
                ) AS attempted
                JOIN charges ON charges.id = attempted.charge_id
                WHERE attempted.unclear_since IS NOT NULL
                    OR charges.money = 'not_moved'
                    -- Its execute surely did nothing, every time; an object that the provider processes has been executed,
                    -- if not by this charge then by the one that it was adopted from.
                    OR (
                        charges.stage = 'processing'
                        AND charges.attempts = 0
                        AND COALESCE(attempted.last_call ->> 'answer', '') NOT IN ('processing', 'requires_capture')
                    )
            ) AS "stuck!"
        "#,
        interval(threshold),
        MOST_COUNTED,
    )
    .fetch_one(connection)
    .await?;
    Ok(Backlog {
        parked: row.parked,
        stuck: row.stuck,
    })
}
