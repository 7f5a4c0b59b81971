//! Merchants: who charges.

use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use super::DbError;
use super::books::MOST_COUNTED;
use crate::domain::ids::MerchantId;

/// Makes a merchant on an account, or on the default one; `false` if the name is taken.
pub async fn insert(
    connection: &mut PgConnection,
    merchant: MerchantId,
    name: &str,
    account: Option<&str>,
) -> Result<bool, DbError> {
    let done = sqlx::query!(
        r#"
        INSERT INTO merchants (id, name, provider_account)
        VALUES ($1, $2, $3)
        ON CONFLICT (name) DO NOTHING
        "#,
        merchant.as_uuid(),
        name,
        account,
    )
    .execute(connection)
    .await?;
    Ok(done.rows_affected() == 1)
}

pub async fn find_by_name(
    connection: &mut PgConnection,
    name: &str,
) -> Result<Option<MerchantId>, DbError> {
    let id: Option<Uuid> = sqlx::query_scalar!(
        r#"
        SELECT id
        FROM merchants
        WHERE name = $1
        "#,
        name,
    )
    .fetch_optional(connection)
    .await?;
    Ok(id.map(MerchantId::from_uuid))
}

/// Whether a merchant's keys are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switched {
    Done,
    /// It was so before.
    AsBefore,
    /// There is no such merchant.
    Unknown,
}

/// Lets a merchant's keys be refused, or taken again.
pub async fn switch(
    connection: &mut PgConnection,
    name: &str,
    disabled: bool,
) -> Result<Switched, DbError> {
    let was_disabled = sqlx::query_scalar!(
        r#"
        WITH merchant AS MATERIALIZED (
            SELECT id, disabled_at IS NOT NULL AS was_disabled
            FROM merchants
            WHERE name = $1
            FOR UPDATE
        ),
        switched AS (
            UPDATE merchants
            SET disabled_at = CASE WHEN $2 THEN now() END
            FROM merchant
            WHERE merchants.id = merchant.id
                AND merchant.was_disabled <> $2
        )
        SELECT was_disabled AS "was_disabled!"
        FROM merchant
        "#,
        name,
        disabled,
    )
    .fetch_optional(connection)
    .await?;
    Ok(match was_disabled {
        None => Switched::Unknown,
        Some(was) if was == disabled => Switched::AsBefore,
        Some(_) => Switched::Done,
    })
}

/// A merchant that was put on an account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// The account that it was on; `None` for the default one.
    pub was: Option<String>,
}

/// Puts a merchant on an account, or on the default one: its new charges are made there. `None` if there is no such
/// merchant.
pub async fn set_account(
    connection: &mut PgConnection,
    name: &str,
    account: Option<&str>,
) -> Result<Option<Moved>, DbError> {
    let moved = sqlx::query_as!(
        Moved,
        r#"
        WITH merchant AS MATERIALIZED (
            SELECT id, provider_account
            FROM merchants
            WHERE name = $1
            FOR UPDATE
        ),
        moved AS (
            UPDATE merchants
            SET provider_account = $2
            FROM merchant
            WHERE merchants.id = merchant.id
        )
        SELECT provider_account AS was
        FROM merchant
        "#,
        name,
        account,
    )
    .fetch_optional(connection)
    .await?;
    Ok(moved)
}

/// What a merchant has open in one account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open {
    /// `None` for the default one.
    pub account: Option<String>,
    pub charges: i64,
    pub refunds: i64,
}

/// What a merchant has open, by the accounts that it stays in, up to [`MOST_COUNTED`] jobs that wait and as many others.
pub async fn open(connection: &mut PgConnection, name: &str) -> Result<Vec<Open>, DbError> {
    let open = sqlx::query_as!(
        Open,
        r#"
        WITH merchant AS MATERIALIZED (
            SELECT id
            FROM merchants
            WHERE name = $1
        ),
        jobs AS (
            (
                SELECT outbox.kind, outbox.charge_id, outbox.refund_id
                FROM merchant
                JOIN outbox ON outbox.merchant_id = merchant.id
                WHERE outbox.state = 'ready'
                ORDER BY outbox.run_at
                LIMIT $2
            )
            UNION ALL
            (
                SELECT outbox.kind, outbox.charge_id, outbox.refund_id
                FROM merchant
                JOIN outbox ON outbox.merchant_id = merchant.id
                WHERE outbox.state IN ('leased', 'parked')
                LIMIT $2
            )
        )
        SELECT
            COALESCE(refunds.provider_account, charges.provider_account) AS account,
            count(*) FILTER (WHERE jobs.kind = 'charge') AS "charges!",
            count(*) FILTER (WHERE jobs.kind = 'refund') AS "refunds!"
        FROM jobs
        JOIN charges ON charges.id = jobs.charge_id
        LEFT JOIN refunds ON refunds.id = jobs.refund_id
        -- The job of a refund that has ended only reads it again.
        WHERE jobs.kind = 'charge'
            OR refunds.finished_at IS NULL
        GROUP BY 1
        ORDER BY 1
        "#,
        name,
        MOST_COUNTED,
    )
    .fetch_all(connection)
    .await?;
    Ok(open)
}

/// A merchant as a list shows it.
#[derive(Clone, Debug)]
pub struct ListedMerchant {
    pub id: Uuid,
    pub name: String,
    pub created_at: OffsetDateTime,
    pub disabled_at: Option<OffsetDateTime>,
    /// `None` for the default one.
    pub account: Option<String>,
}

/// All merchants, by name.
pub async fn list(connection: &mut PgConnection) -> Result<Vec<ListedMerchant>, DbError> {
    let merchants = sqlx::query_as!(
        ListedMerchant,
        r#"
        SELECT id, name, created_at, disabled_at, provider_account AS account
        FROM merchants
        ORDER BY name
        "#,
    )
    .fetch_all(connection)
    .await?;
    Ok(merchants)
}

pub async fn find_name(
    connection: &mut PgConnection,
    merchant: MerchantId,
) -> Result<Option<String>, DbError> {
    let name = sqlx::query_scalar!(
        r#"
        SELECT name
        FROM merchants
        WHERE id = $1
        "#,
        merchant.as_uuid(),
    )
    .fetch_optional(connection)
    .await?;
    Ok(name)
}
