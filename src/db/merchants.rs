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
