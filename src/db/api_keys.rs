//! API keys, known by their SHA-256 alone.

use std::sync::Arc;

use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use super::DbError;
use crate::domain::api_key::{Mode, Scope, TokenHash};
use crate::domain::ids::MerchantId;

/// Whom a key that may be used speaks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    pub merchant: MerchantId,
    /// The account that the merchant's new charges are made in; `None` for the default one.
    pub account: Option<Arc<str>>,
    pub scope: Scope,
    pub mode: Mode,
}

/// The holder of a key, unless the key is unknown or revoked or its merchant is disabled.
pub async fn find_holder(
    connection: &mut PgConnection,
    hash: TokenHash,
) -> Result<Option<Holder>, DbError> {
    let row = sqlx::query!(
        r#"
        SELECT api_keys.merchant_id, api_keys.scope, api_keys.mode, merchants.provider_account
        FROM api_keys
        JOIN merchants ON merchants.id = api_keys.merchant_id
        WHERE api_keys.token_hash = $1
            AND api_keys.revoked_at IS NULL
            AND merchants.disabled_at IS NULL
        "#,
        hash.0.as_slice(),
    )
    .fetch_optional(connection)
    .await?;
    // A scope or mode of a later release gives no right in this one.
    Ok(row.and_then(|row| {
        Some(Holder {
            merchant: MerchantId::from_uuid(row.merchant_id),
            account: row.provider_account.map(Arc::from),
            scope: Scope::parse(&row.scope)?,
            mode: Mode::parse(&row.mode)?,
        })
    }))
}

/// A key about to be stored.
#[derive(Clone, Copy, Debug)]
pub struct NewApiKey<'a> {
    pub id: Uuid,
    pub merchant: MerchantId,
    pub hash: TokenHash,
    pub hint: &'a str,
    pub scope: Scope,
    pub mode: Mode,
}

/// Stores a key; `false` if that very key is there already.
pub async fn insert(connection: &mut PgConnection, key: NewApiKey<'_>) -> Result<bool, DbError> {
    let done = sqlx::query!(
        r#"
        INSERT INTO api_keys (id, merchant_id, token_hash, hint, scope, mode)
        VALUES ($1, $2, $3, $4, $5, $6)
        ON CONFLICT (token_hash) DO NOTHING
        "#,
        key.id,
        key.merchant.as_uuid(),
        key.hash.0.as_slice(),
        key.hint,
        key.scope.as_str(),
        key.mode.as_str(),
    )
    .execute(connection)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Revokes a key for ever; `false` if there is none or it was revoked before.
pub async fn revoke(connection: &mut PgConnection, id: Uuid) -> Result<bool, DbError> {
    let done = sqlx::query!(
        r#"
        UPDATE api_keys
        SET revoked_at = now()
        WHERE id = $1
            AND revoked_at IS NULL
        "#,
        id,
    )
    .execute(connection)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// A key as a list shows it.
#[derive(Clone, Debug)]
pub struct ListedApiKey {
    pub id: Uuid,
    pub merchant_name: String,
    pub hint: String,
    pub scope: String,
    pub mode: String,
    pub created_at: OffsetDateTime,
    pub revoked_at: Option<OffsetDateTime>,
}

/// The keys of one merchant, or of all, oldest first.
pub async fn list(
    connection: &mut PgConnection,
    merchant: Option<MerchantId>,
) -> Result<Vec<ListedApiKey>, DbError> {
    let rows = sqlx::query_as!(
        ListedApiKey,
        r#"
        SELECT
            api_keys.id, merchants.name AS merchant_name, api_keys.hint, api_keys.scope, api_keys.mode,
            api_keys.created_at, api_keys.revoked_at
        FROM api_keys
        JOIN merchants ON merchants.id = api_keys.merchant_id
        WHERE $1::uuid IS NULL
            OR api_keys.merchant_id = $1
        ORDER BY api_keys.created_at, api_keys.id
        "#,
        merchant.map(MerchantId::as_uuid),
    )
    .fetch_all(connection)
    .await?;
    Ok(rows)
}
