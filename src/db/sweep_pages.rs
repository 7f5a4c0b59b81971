//! What a sweep compares with: charges by the stamps of one page, and charges of a span of time that a walk did not meet.

use std::time::Duration;

use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use super::{DbError, interval};

/// A charge as far as a sweep needs it.
#[derive(Clone, Debug)]
pub struct Stands {
    pub id: Uuid,
    pub stage: String,
    pub amount: i64,
    pub currency: String,
    pub provider_charge_id: Option<String>,
}

pub async fn by_ids(connection: &mut PgConnection, ids: &[Uuid]) -> Result<Vec<Stands>, DbError> {
    let rows = sqlx::query_as!(
        Stands,
        r#"
        SELECT id, stage, amount, currency, provider_charge_id
        FROM charges
        WHERE id = ANY($1)
        "#,
        ids,
    )
    .fetch_all(connection)
    .await?;
    Ok(rows)
}

/// The charges of an account that were accepted in the `span` from `from` on and store an object, with it.
pub async fn with_object(
    connection: &mut PgConnection,
    account: &str,
    from: OffsetDateTime,
    span: Duration,
) -> Result<Vec<(Uuid, String)>, DbError> {
    let rows = sqlx::query!(
        r#"
        SELECT id, provider_charge_id AS "provider_charge_id!"
        FROM charges
        WHERE created_at >= $2
            AND created_at < $2::timestamptz + $3::interval
            AND provider_account = $1
            AND provider_charge_id IS NOT NULL
        "#,
        account,
        from,
        interval(span),
    )
    .fetch_all(connection)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| (row.id, row.provider_charge_id))
        .collect())
}

/// Lets the jobs of these charges run now: the provider's object has news.
pub async fn nudge(connection: &mut PgConnection, charges: &[Uuid]) -> Result<u64, DbError> {
    let done = sqlx::query!(
        r#"
        UPDATE outbox
        SET run_at = CASE WHEN state = 'ready' THEN LEAST(run_at, now()) ELSE run_at END,
            nudged = true
        WHERE charge_id = ANY($1)
            AND kind = 'charge'
            AND state <> 'parked'
        "#,
        charges,
    )
    .execute(connection)
    .await?;
    Ok(done.rows_affected())
}
