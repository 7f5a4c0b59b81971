//! Merchants: who charges.

use sqlx::PgConnection;
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
