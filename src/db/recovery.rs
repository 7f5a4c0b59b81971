//! After a restore: sending is held until a sweep has taken in what the provider has and the books have not.

use sqlx::PgConnection;
use time::OffsetDateTime;

use super::DbError;
use super::sweeps::Account;

/// Up to when the books surely remember: the time of the newest event. `None` if there is none.
pub async fn remembered(connection: &mut PgConnection) -> Result<Option<OffsetDateTime>, DbError> {
    let at = sqlx::query_scalar!(
        r#"
        SELECT at
        FROM charge_events
        ORDER BY id DESC
        LIMIT 1
        "#,
    )
    .fetch_optional(connection)
    .await?;
    Ok(at)
}

/// Holds sending, on every replica at once, and asks for the sweep that lets it go on. A process that comes second, or
/// again, asks for a sweep of its own.
pub async fn begin(
    connection: &mut PgConnection,
    account: &Account,
    from: OffsetDateTime,
) -> Result<i64, DbError> {
    let id = sqlx::query_scalar!(
        r#"
        WITH pause AS (
            INSERT INTO pauses (kind, reason)
            VALUES ('recovery', 'serve --recovery: the provider''s objects are being compared with the books')
            ON CONFLICT ON CONSTRAINT pauses_pkey DO NOTHING
        )
        INSERT INTO sweeps (provider, provider_account, reason, from_at)
        VALUES ($1, $2, 'recovery', $3)
        RETURNING id
        "#,
        account.provider,
        account.name,
        from,
    )
    .fetch_one(connection)
    .await?;
    Ok(id)
}

/// The database's clock.
pub async fn now(connection: &mut PgConnection) -> Result<OffsetDateTime, DbError> {
    let now = sqlx::query_scalar!(r#"SELECT now() AS "now!""#)
        .fetch_one(connection)
        .await?;
    Ok(now)
}
