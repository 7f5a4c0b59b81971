//! The invariant for refunds, page by page: an open one has one outbox row, its request row says what it says; and the
//! completed ones that are to be read again.

use std::time::Duration;

use sqlx::PgConnection;
use uuid::Uuid;

use super::{DbError, interval};

/// One page of the walk over all refunds.
#[derive(Debug)]
pub struct Page {
    /// Where the next page begins; `None` at the end of the table.
    pub next: Option<Uuid>,
    /// Refunds that need a job: open, unchanged for the threshold and without one.
    pub without_job: Vec<Uuid>,
}

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
            (
                page.finished_at IS NULL
                AND page.updated_at < now() - $3::interval
                AND outbox.id IS NULL
            ) AS "without_job!"
        FROM (
            SELECT id, finished_at, updated_at
            FROM refunds
            WHERE id > $1
            ORDER BY id
            LIMIT $2
        ) AS page
        LEFT JOIN outbox ON outbox.refund_id = page.id
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
            .map(|row| row.id)
            .collect(),
    })
}

/// Refunds that are to be read again by now, oldest first. Each is put off by `again`, so that one whose job can't be
/// made does not keep the others waiting.
pub async fn due(
    connection: &mut PgConnection,
    limit: i64,
    again: Duration,
) -> Result<Vec<Uuid>, DbError> {
    let ids = sqlx::query_scalar!(
        r#"
        WITH due AS MATERIALIZED (
            SELECT id
            FROM refunds
            WHERE recheck_at <= now()
                -- News of one whose job is under way is for the next.
                AND NOT EXISTS (SELECT FROM outbox WHERE outbox.refund_id = refunds.id)
            ORDER BY recheck_at
            LIMIT $1
            FOR UPDATE SKIP LOCKED
        )
        UPDATE refunds
        SET recheck_at = now() + $2::interval
        FROM due
        WHERE refunds.id = due.id
        RETURNING refunds.id
        "#,
        limit,
        interval(again),
    )
    .fetch_all(connection)
    .await?;
    Ok(ids)
}

/// Makes request rows say what their refunds say, after `cursor` up to `last`. Returns how many differed.
pub async fn align_requests(
    connection: &mut PgConnection,
    cursor: Uuid,
    last: Option<Uuid>,
) -> Result<u64, DbError> {
    let done = sqlx::query!(
        r#"
        UPDATE idempotent_requests
        SET status = CASE
                WHEN refunds.stage = 'succeeded' THEN 'completed'
                WHEN refunds.stage IN ('failed', 'canceled') THEN 'failed'
                ELSE 'in_progress'
            END,
            updated_at = now()
        FROM refunds
        WHERE refunds.id > $1
            AND ($2::uuid IS NULL OR refunds.id <= $2)
            AND idempotent_requests.merchant_id = refunds.merchant_id
            AND idempotent_requests.operation = 'refund'
            AND idempotent_requests.client_key = refunds.idempotency_key
            AND idempotent_requests.status <> CASE
                WHEN refunds.stage = 'succeeded' THEN 'completed'
                WHEN refunds.stage IN ('failed', 'canceled') THEN 'failed'
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

/// Purges request rows of refunds that ended before the retention, after `cursor` up to `last`. Such a refund goes on
/// answering for its key.
pub async fn purge_requests(
    connection: &mut PgConnection,
    cursor: Uuid,
    last: Option<Uuid>,
    retention: Duration,
) -> Result<u64, DbError> {
    let done = sqlx::query!(
        r#"
        DELETE FROM idempotent_requests
        USING refunds
        WHERE refunds.id > $1
            AND ($2::uuid IS NULL OR refunds.id <= $2)
            AND refunds.finished_at < now() - $3::interval
            AND idempotent_requests.merchant_id = refunds.merchant_id
            AND idempotent_requests.operation = 'refund'
            AND idempotent_requests.client_key = refunds.idempotency_key
        "#,
        cursor,
        last,
        interval(retention),
    )
    .execute(connection)
    .await?;
    Ok(done.rows_affected())
}
