//! Which of the provider's accounts each configured name stands for.

use sqlx::PgConnection;
use time::OffsetDateTime;

use super::DbError;

/// A name and the provider's account that it stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pinned {
    pub name: String,
    pub account_id: String,
}

/// Pins the name to the account unless one of them is pinned, and returns what stands in the books for the name, or else
/// for the account. Nothing when another process pinned one of them at this moment: ask again.
pub async fn pin(
    connection: &mut PgConnection,
    provider: &str,
    name: &str,
    account_id: &str,
) -> Result<Option<Pinned>, DbError> {
    let pinned = sqlx::query_as!(
        Pinned,
        r#"
        WITH pinned AS (
            INSERT INTO provider_accounts (provider, name, account_id)
            VALUES ($1, $2, $3)
            ON CONFLICT DO NOTHING
            RETURNING name, account_id
        )
        SELECT name AS "name!", account_id AS "account_id!"
        FROM (
            SELECT name, account_id
            FROM pinned
            UNION ALL
            SELECT name, account_id
            FROM provider_accounts
            WHERE provider = $1 AND (name = $2 OR account_id = $3)
        ) AS standing
        ORDER BY (name = $2) DESC
        LIMIT 1
        "#,
        provider,
        name,
        account_id,
    )
    .fetch_optional(connection)
    .await?;
    Ok(pinned)
}

/// Every name that is pinned.
pub async fn list(connection: &mut PgConnection, provider: &str) -> Result<Vec<Pinned>, DbError> {
    let pinned = sqlx::query_as!(
        Pinned,
        "SELECT name, account_id FROM provider_accounts WHERE provider = $1 ORDER BY name",
        provider,
    )
    .fetch_all(connection)
    .await?;
    Ok(pinned)
}

/// Charges and refunds of an account that are under way. Those that name none are the default one's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open {
    pub charges: i64,
    pub refunds: i64,
}

pub async fn open(
    connection: &mut PgConnection,
    name: &str,
    default: &str,
) -> Result<Open, DbError> {
    let open = sqlx::query_as!(
        Open,
        r#"
        SELECT
            count(*) FILTER (WHERE outbox.kind = 'charge') AS "charges!",
            count(*) FILTER (WHERE outbox.kind <> 'charge') AS "refunds!"
        FROM outbox
        JOIN charges ON charges.id = outbox.charge_id
        WHERE COALESCE(charges.provider_account, $2) = $1
        "#,
        name,
        default,
    )
    .fetch_one(connection)
    .await?;
    Ok(open)
}

/// Forgets which account the name stands for, and returns which and since when.
pub async fn forget(
    connection: &mut PgConnection,
    provider: &str,
    name: &str,
) -> Result<Option<(String, OffsetDateTime)>, DbError> {
    let was = sqlx::query!(
        "DELETE FROM provider_accounts WHERE provider = $1 AND name = $2 RETURNING account_id, pinned_at",
        provider,
        name,
    )
    .fetch_optional(connection)
    .await?;
    Ok(was.map(|was| (was.account_id, was.pinned_at)))
}
