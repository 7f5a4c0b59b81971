//! After a restore: sending is held until a sweep has taken in what the provider has and the books have not.

use sqlx::PgConnection;
use time::OffsetDateTime;

use super::DbError;

/// Up to when the books surely remember: the time of the newest charge. `None` if there is none.
pub async fn remembered(connection: &mut PgConnection) -> Result<Option<OffsetDateTime>, DbError> {
    let at = sqlx::query_scalar!(
        r#"
        SELECT max(newest.created_at)
        FROM merchants
        -- By the index, whatever the planner believes.
        CROSS JOIN LATERAL (
            SELECT created_at
            FROM charges
            WHERE charges.merchant_id = merchants.id
                -- A clock that ran ahead for a moment says nothing.
                AND created_at <= now()
            ORDER BY created_at DESC
            LIMIT 1
        ) AS newest
        "#,
    )
    .fetch_one(connection)
    .await?;
    Ok(at)
}

/// Holds sending, on every replica at once, and asks for the sweeps that let it go on when the last of them is finished: one
/// of each of these accounts, and of each that a merchant is on or a job is for. Returns those which are not among `accounts`. A process
/// that comes second, or again, asks for sweeps of its own.
pub async fn begin(
    connection: &mut PgConnection,
    provider: &str,
    accounts: &[&str],
    from: OffsetDateTime,
) -> Result<Vec<String>, DbError> {
    let elsewhere = sqlx::query_scalar!(
        r#"
        WITH RECURSIVE pause AS (
            INSERT INTO pauses (kind, reason)
            VALUES ('recovery', 'serve --recovery: the provider''s objects are being compared with the books')
            ON CONFLICT ON CONSTRAINT pauses_pkey DO NOTHING
        ),
        -- By the index, name after name: a look at every job would be too much of a large queue.
        of_ready (account) AS (
            (
                SELECT provider_account
                FROM outbox
                WHERE state NOT IN ('leased', 'parked')
                    AND provider_account IS NOT NULL
                ORDER BY provider_account, run_at
                LIMIT 1
            )
            UNION ALL
            SELECT next.provider_account
            FROM of_ready
            CROSS JOIN LATERAL (
                SELECT provider_account
                FROM outbox
                WHERE state NOT IN ('leased', 'parked')
                    AND provider_account > of_ready.account
                ORDER BY provider_account, run_at
                LIMIT 1
            ) AS next
        ),
        asked AS (
            INSERT INTO sweeps (provider, provider_account, reason, from_at)
            SELECT $1, account, 'recovery', $3
            FROM (
                SELECT unnest($2::text[]) AS account
                UNION
                SELECT provider_account FROM merchants WHERE provider_account IS NOT NULL
                UNION
                SELECT account FROM of_ready
                UNION
                SELECT provider_account FROM outbox WHERE state = 'leased' AND provider_account IS NOT NULL
                UNION
                SELECT provider_account FROM outbox WHERE state = 'parked' AND provider_account IS NOT NULL
            ) AS accounts
            RETURNING provider_account
        )
        SELECT provider_account AS "account!"
        FROM asked
        WHERE provider_account <> ALL($2)
        ORDER BY provider_account
        "#,
        provider,
        accounts as &[&str],
        from,
    )
    .fetch_all(connection)
    .await?;
    Ok(elsewhere)
}

/// The database's clock.
pub async fn now(connection: &mut PgConnection) -> Result<OffsetDateTime, DbError> {
    let now = sqlx::query_scalar!(r#"SELECT now() AS "now!""#)
        .fetch_one(connection)
        .await?;
    Ok(now)
}
