//! Merchants: who charges.

use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use super::DbError;
use crate::domain::ids::MerchantId;

/// Makes a merchant; `false` if the name is taken.
pub async fn insert(
    connection: &mut PgConnection,
    merchant: MerchantId,
    name: &str,
) -> Result<bool, DbError> {
    let done = sqlx::query!(
        r#"
        INSERT INTO merchants (id, name)
        VALUES ($1, $2)
        ON CONFLICT (name) DO NOTHING
        "#,
        merchant.as_uuid(),
        name,
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

/// A merchant as a list shows it.
#[derive(Clone, Debug)]
pub struct ListedMerchant {
    pub id: Uuid,
    pub name: String,
    pub created_at: OffsetDateTime,
    pub disabled_at: Option<OffsetDateTime>,
}

/// All merchants, by name.
pub async fn list(connection: &mut PgConnection) -> Result<Vec<ListedMerchant>, DbError> {
    let merchants = sqlx::query_as!(
        ListedMerchant,
        r#"
        SELECT id, name, created_at, disabled_at
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
