//! Where merchants want their events.

use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use super::{DbError, interval};
use crate::domain::event::{DeliveryId, EndpointId};
use crate::domain::ids::MerchantId;
use crate::domain::signing::SigningSecret;

/// An endpoint, without its secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    pub id: Uuid,
    pub merchant_id: Uuid,
    pub url: String,
    /// Empty for all.
    pub events: Vec<String>,
    pub description: Option<String>,
    pub enabled: bool,
    /// `merchant`, `gone` or `failing`.
    pub disabled_reason: Option<String>,
    pub failing_since: Option<OffsetDateTime>,
    /// Until when the secret before this one signs too.
    pub previous_secret_until: Option<OffsetDateTime>,
    pub created_at: OffsetDateTime,
    pub updated_at: OffsetDateTime,
}

#[derive(Clone, Debug)]
pub struct New<'a> {
    pub id: EndpointId,
    pub merchant: MerchantId,
    pub url: &'a str,
    pub events: &'a [String],
    pub description: Option<&'a str>,
    pub enabled: bool,
    pub secret: &'a SigningSecret,
}

/// Makes an endpoint, unless the merchant has `most` of them already.
pub async fn insert(
    connection: &mut PgConnection,
    new: &New<'_>,
    most: i64,
) -> Result<Option<Endpoint>, DbError> {
    let endpoint = sqlx::query_as!(
        Endpoint,
        r#"
        INSERT INTO webhook_endpoints (id, merchant_id, url, events, description, enabled, disabled_reason, secret)
        SELECT $1, $2, $3, $4, $5, $6, CASE WHEN NOT $6 THEN 'merchant' END, $7
        WHERE (SELECT count(*) FROM webhook_endpoints WHERE merchant_id = $2) < $8
        RETURNING
            id, merchant_id, url, events, description, enabled, disabled_reason, failing_since,
            previous_secret_until, created_at, updated_at
        "#,
        new.id.as_uuid(),
        new.merchant.as_uuid(),
        new.url,
        new.events,
        new.description,
        new.enabled,
        new.secret.as_stored(),
        most,
    )
    .fetch_optional(connection)
    .await?;
    Ok(endpoint)
}

/// A merchant's endpoints, oldest first; of all merchants for none.
pub async fn list(
    connection: &mut PgConnection,
    merchant: Option<MerchantId>,
) -> Result<Vec<Endpoint>, DbError> {
    let endpoints = sqlx::query_as!(
        Endpoint,
        r#"
        SELECT
            id, merchant_id, url, events, description, enabled, disabled_reason, failing_since,
            CASE WHEN previous_secret_until > now() THEN previous_secret_until END AS previous_secret_until,
            created_at, updated_at
        FROM webhook_endpoints
        WHERE $1::uuid IS NULL
            OR merchant_id = $1
        ORDER BY created_at, id
        "#,
        merchant.map(MerchantId::as_uuid),
    )
    .fetch_all(connection)
    .await?;
    Ok(endpoints)
}

pub async fn find(
    connection: &mut PgConnection,
    merchant: MerchantId,
    id: EndpointId,
) -> Result<Option<Endpoint>, DbError> {
    let endpoint = sqlx::query_as!(
        Endpoint,
        r#"
        SELECT
            id, merchant_id, url, events, description, enabled, disabled_reason, failing_since,
            CASE WHEN previous_secret_until > now() THEN previous_secret_until END AS previous_secret_until,
            created_at, updated_at
        FROM webhook_endpoints
        WHERE id = $1
            AND merchant_id = $2
        "#,
        id.as_uuid(),
        merchant.as_uuid(),
    )
    .fetch_optional(connection)
    .await?;
    Ok(endpoint)
}

/// What is to change; the rest stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    pub url: Option<String>,
    pub events: Option<Vec<String>>,
    /// An empty one for none.
    pub description: Option<String>,
    pub enabled: Option<bool>,
}

/// Changes an endpoint. One that is enabled again has failed at nothing.
pub async fn update(
    connection: &mut PgConnection,
    merchant: MerchantId,
    id: EndpointId,
    changes: &Changes,
) -> Result<Option<Endpoint>, DbError> {
    let endpoint = sqlx::query_as!(
        Endpoint,
        r#"
        UPDATE webhook_endpoints
        SET url = COALESCE($3, url),
            events = COALESCE($4, events),
            description = CASE WHEN $5::text IS NULL THEN description ELSE NULLIF($5, '') END,
            enabled = COALESCE($6, enabled),
            disabled_reason = CASE
                WHEN COALESCE($6, enabled) THEN NULL
                ELSE COALESCE(disabled_reason, 'merchant')
            END,
            failing_since = CASE WHEN $6 AND NOT enabled THEN NULL ELSE failing_since END,
            updated_at = now()
        WHERE id = $1
            AND merchant_id = $2
        RETURNING
            id, merchant_id, url, events, description, enabled, disabled_reason, failing_since,
            CASE WHEN previous_secret_until > now() THEN previous_secret_until END AS previous_secret_until,
            created_at, updated_at
        "#,
        id.as_uuid(),
        merchant.as_uuid(),
        changes.url.as_deref(),
        changes.events.as_deref(),
        changes.description.as_deref(),
        changes.enabled,
    )
    .fetch_optional(connection)
    .await?;
    Ok(endpoint)
}

/// Gives an endpoint a new secret; the one before signs too for `overlap`, and the one before that no more.
pub async fn rotate(
    connection: &mut PgConnection,
    merchant: MerchantId,
    id: EndpointId,
    secret: &SigningSecret,
    overlap: std::time::Duration,
) -> Result<Option<Endpoint>, DbError> {
    let endpoint = sqlx::query_as!(
        Endpoint,
        r#"
        UPDATE webhook_endpoints
        SET previous_secret = secret,
            previous_secret_until = now() + $4::interval,
            secret = $3,
            updated_at = now()
        WHERE id = $1
            AND merchant_id = $2
        RETURNING
            id, merchant_id, url, events, description, enabled, disabled_reason, failing_since,
            previous_secret_until, created_at, updated_at
        "#,
        id.as_uuid(),
        merchant.as_uuid(),
        secret.as_stored(),
        interval(overlap),
    )
    .fetch_optional(connection)
    .await?;
    Ok(endpoint)
}

/// Takes an endpoint away: nothing more is sent to it. Returns whether there was one.
pub async fn delete(
    connection: &mut PgConnection,
    merchant: MerchantId,
    id: EndpointId,
) -> Result<bool, DbError> {
    let deleted = sqlx::query_scalar!(
        r#"
        DELETE FROM webhook_endpoints
        WHERE id = $1
            AND merchant_id = $2
        RETURNING id
        "#,
        id.as_uuid(),
        merchant.as_uuid(),
    )
    .fetch_optional(connection)
    .await?;
    Ok(deleted.is_some())
}

/// Writes a test event and its way to this endpoint alone, whatever types it wants. Of one that is disabled it waits.
pub async fn test(
    connection: &mut PgConnection,
    merchant: MerchantId,
    id: EndpointId,
) -> Result<Option<DeliveryId>, DbError> {
    let delivery = sqlx::query_scalar!(
        r#"
        WITH event AS (
            INSERT INTO events (merchant_id, type, object_id, version, snapshot)
            SELECT
                merchant_id, 'webhook_endpoint.test', gen_random_uuid(), 1,
                -- As the API shows it.
                jsonb_strip_nulls(jsonb_build_object(
                    'id', 'whe_' || replace(id::text, '-', ''), 'url', url, 'events', events,
                    'description', description, 'enabled', enabled, 'disabled_reason', disabled_reason,
                    'failing_since', to_char(failing_since AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
                    'created_at', to_char(created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
                    'updated_at', to_char(updated_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
                ))
            FROM webhook_endpoints
            WHERE id = $1
                AND merchant_id = $2
            RETURNING merchant_id, position, id
        )
        INSERT INTO webhook_deliveries (endpoint_id, merchant_id, event_position, event_id)
        SELECT $1, merchant_id, position, id
        FROM event
        RETURNING id
        "#,
        id.as_uuid(),
        merchant.as_uuid(),
    )
    .fetch_optional(connection)
    .await?;
    Ok(delivery.map(DeliveryId::from_uuid))
}
