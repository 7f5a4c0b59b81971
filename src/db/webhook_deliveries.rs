//! Events on their way: claimed by lease, sent by whoever holds one, settled under its token.

use std::time::Duration;

use sqlx::PgConnection;
use sqlx::postgres::types::PgInterval;
use time::OffsetDateTime;
use uuid::Uuid;

use super::events::Position;
use super::{DbError, interval};
use crate::domain::event::{DeliveryId, EndpointId, EventId};
use crate::domain::ids::{LeaseToken, MerchantId};
use crate::domain::signing::SigningSecret;

/// How much to claim, and of whom.
#[derive(Clone, Debug)]
pub struct Share<'a> {
    /// Endpoints after this one.
    pub after: Uuid,
    /// The most endpoints to look at.
    pub endpoints: i64,
    /// Where something is on its way already, and how much.
    pub busy: (&'a [Uuid], &'a [i64]),
    /// The most at once for one endpoint.
    pub each: i64,
    /// The most in all.
    pub limit: i64,
}

/// A delivery that is held.
#[derive(Clone, Debug)]
pub struct Claimed {
    pub id: Uuid,
    pub endpoint: Uuid,
    pub merchant: Uuid,
    pub position: Position,
    /// How often it was claimed, this time included.
    pub attempt: i32,
    /// How often it was sent in vain.
    pub tries: i32,
    pub url: String,
    /// The newest first.
    pub secrets: Vec<SigningSecret>,
    /// `None` when the event's time is over.
    pub event: Option<EventId>,
    /// What is sent, unless nobody was sent it yet.
    pub body: Option<String>,
}

pub async fn claim(
    connection: &mut PgConnection,
    share: &Share<'_>,
    token: LeaseToken,
    lease: Duration,
) -> Result<Vec<Claimed>, DbError> {
    let rows = sqlx::query_file!(
        "src/db/sql/claim_deliveries.sql",
        share.after,
        share.endpoints,
        share.busy.0,
        share.busy.1,
        share.each,
        share.limit,
        token.as_uuid(),
        interval(lease),
    )
    .fetch_all(connection)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| Claimed {
            id: row.id,
            endpoint: row.endpoint_id,
            merchant: row.merchant_id,
            position: Position {
                transaction: row.event_position,
                id: row.event_id,
            },
            attempt: row.attempt,
            tries: row.tries,
            url: row.url,
            secrets: [Some(row.secret), row.previous_secret]
                .into_iter()
                .flatten()
                .map(SigningSecret::from_stored)
                .collect(),
            event: match (row.object_id, row.event_type, row.version) {
                (Some(object), Some(r#type), Some(version)) => {
                    Some(EventId::derive(object, &r#type, version))
                }
                _ => None,
            },
            body: row.body,
        })
        .collect())
}

/// Lets deliveries whose lease ran out be sent again. Returns how many.
pub async fn take_back(connection: &mut PgConnection, limit: i64) -> Result<u64, DbError> {
    let done = sqlx::query!(
        r#"
        WITH expired AS MATERIALIZED (
            SELECT id
            FROM webhook_deliveries
            WHERE state = 'leased'
                AND lease_until < now()
            ORDER BY lease_until
            LIMIT $1
            FOR UPDATE SKIP LOCKED
        )
        UPDATE webhook_deliveries
        SET state = 'due',
            lease_token = NULL,
            lease_until = NULL,
            run_at = now()
        FROM expired
        WHERE webhook_deliveries.id = expired.id
        "#,
        limit,
    )
    .execute(connection)
    .await?;
    Ok(done.rows_affected())
}

/// Gives back what was claimed and not sent.
pub async fn release(
    connection: &mut PgConnection,
    ids: &[Uuid],
    token: LeaseToken,
) -> Result<u64, DbError> {
    let done = sqlx::query!(
        r#"
        UPDATE webhook_deliveries
        SET state = 'due',
            attempt = attempt - 1,
            lease_token = NULL,
            lease_until = NULL
        WHERE id = ANY($1)
            AND state = 'leased'
            AND lease_token = $2
        "#,
        ids,
        token.as_uuid(),
    )
    .execute(connection)
    .await?;
    Ok(done.rows_affected())
}

/// What came of deliveries, a column a field.
#[derive(Debug, Default)]
pub struct Settled {
    pub ids: Vec<Uuid>,
    pub lease_tokens: Vec<Uuid>,
    /// `delivered`, `gone` or `refused`.
    pub results: Vec<&'static str>,
    /// The answer's status, where there was an answer.
    pub statuses: Vec<Option<i32>>,
    /// A word for what went wrong.
    pub errors: Vec<Option<&'static str>>,
    /// When to send it again; `None` for never.
    pub delays: Vec<Option<PgInterval>>,
}

/// An endpoint that was sent nothing more.
#[derive(Clone, Debug)]
pub struct Disabled {
    pub id: Uuid,
    pub merchant_id: Uuid,
    /// `gone` or `failing`.
    pub reason: String,
}

/// Writes what came of deliveries whose lease holds, and what follows for their endpoints: one that answers 410, or has
/// failed for `disable_after` without a success, is disabled, and its merchant's others are told.
pub async fn settle(
    connection: &mut PgConnection,
    settled: &Settled,
    disable_after: Duration,
) -> Result<Vec<Disabled>, DbError> {
    let disabled = sqlx::query_file_as!(
        Disabled,
        "src/db/sql/settle_deliveries.sql",
        &settled.ids,
        &settled.lease_tokens,
        &settled.results as &[&str],
        &settled.statuses as &[Option<i32>],
        &settled.errors as &[Option<&str>],
        &settled.delays as &[Option<PgInterval>],
        interval(disable_after),
    )
    .fetch_all(connection)
    .await?;
    Ok(disabled)
}

/// A delivery as its merchant sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    pub id: Uuid,
    pub endpoint_id: Uuid,
    pub object_id: Option<Uuid>,
    pub event_type: Option<String>,
    pub version: Option<i32>,
    /// `due`, `leased`, `delivered` or `failed`.
    pub state: String,
    pub attempt: i32,
    pub run_at: OffsetDateTime,
    pub last_status: Option<i32>,
    pub last_error: Option<String>,
    pub last_attempt_at: Option<OffsetDateTime>,
    pub created_at: OffsetDateTime,
}

impl Delivery {
    /// The event's name, unless its time is over.
    pub fn event(&self) -> Option<EventId> {
        let (object, r#type, version) =
            (self.object_id?, self.event_type.as_deref()?, self.version?);
        Some(EventId::derive(object, r#type, version))
    }
}

/// Deliveries to list.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    pub endpoint: EndpointId,
    /// All for none.
    pub states: &'a [&'a str],
    pub one: Option<DeliveryId>,
    /// What comes after this one in the order of the list.
    pub below: (OffsetDateTime, Uuid),
    pub limit: i64,
}

/// An endpoint's deliveries, newest first.
pub async fn list(
    connection: &mut PgConnection,
    wanted: Wanted<'_>,
) -> Result<Vec<Delivery>, DbError> {
    let deliveries = sqlx::query_as!(
        Delivery,
        r#"
        SELECT
            listed.id, listed.endpoint_id, listed.state, listed.attempt, listed.run_at, listed.last_status,
            listed.last_error, listed.last_attempt_at, listed.created_at,
            events.object_id AS "object_id?", events.type AS "event_type?", events.version AS "version?"
        FROM (
            SELECT *
            FROM webhook_deliveries
            WHERE endpoint_id = $1
                AND (created_at, id) < ($2, $3)
                AND ($4::text[] = '{}' OR state = ANY($4))
                AND ($5::uuid IS NULL OR id = $5)
            ORDER BY created_at DESC, id DESC
            LIMIT $6
        ) AS listed
        LEFT JOIN events
            ON events.merchant_id = listed.merchant_id
            AND events.position = listed.event_position
            AND events.id = listed.event_id
        ORDER BY listed.created_at DESC, listed.id DESC
        "#,
        wanted.endpoint.as_uuid(),
        wanted.below.0,
        wanted.below.1,
        wanted.states as &[&str],
        wanted.one.map(DeliveryId::as_uuid),
        wanted.limit,
    )
    .fetch_all(connection)
    .await?;
    Ok(deliveries)
}

/// Sends one again, or at once if it waits; under the event's own name and with the same bytes. Of any merchant for none.
/// Returns the endpoint, if there is such a delivery and nobody is sending it.
pub async fn retry(
    connection: &mut PgConnection,
    merchant: Option<MerchantId>,
    id: DeliveryId,
) -> Result<Option<Uuid>, DbError> {
    let endpoint = sqlx::query_scalar!(
        r#"
        UPDATE webhook_deliveries
        SET state = 'due',
            run_at = now(),
            tries = 0
        WHERE id = $1
            AND ($2::uuid IS NULL OR merchant_id = $2)
            AND state <> 'leased'
        RETURNING endpoint_id
        "#,
        id.as_uuid(),
        merchant.map(MerchantId::as_uuid),
    )
    .fetch_optional(connection)
    .await?;
    Ok(endpoint)
}

/// Sends again what an endpoint has failed to take, or has yet to take. Returns how many, at most `limit`.
pub async fn retry_all(
    connection: &mut PgConnection,
    endpoint: EndpointId,
    limit: i64,
) -> Result<u64, DbError> {
    let done = sqlx::query!(
        r#"
        WITH chosen AS MATERIALIZED (
            SELECT id
            FROM webhook_deliveries
            WHERE endpoint_id = $1
                AND (state = 'failed' OR state = 'due' AND run_at > now())
            ORDER BY created_at, id
            LIMIT $2
            FOR UPDATE SKIP LOCKED
        )
        UPDATE webhook_deliveries
        SET state = 'due',
            run_at = now(),
            tries = 0
        FROM chosen
        WHERE webhook_deliveries.id = chosen.id
        "#,
        endpoint.as_uuid(),
        limit,
    )
    .execute(connection)
    .await?;
    Ok(done.rows_affected())
}

/// Forgets deliveries that are older than the retention, whatever became of them.
pub async fn purge(
    connection: &mut PgConnection,
    retention: Duration,
    limit: i64,
) -> Result<u64, DbError> {
    let done = sqlx::query!(
        r#"
        WITH old AS MATERIALIZED (
            SELECT id
            FROM webhook_deliveries
            WHERE created_at < now() - $1::interval
            ORDER BY created_at
            LIMIT $2
            FOR UPDATE SKIP LOCKED
        )
        DELETE FROM webhook_deliveries
        USING old
        WHERE webhook_deliveries.id = old.id
        "#,
        interval(retention),
        limit,
    )
    .execute(connection)
    .await?;
    Ok(done.rows_affected())
}

/// How deliveries stand, for who watches them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Standing {
    /// Of an endpoint that is enabled, in seconds.
    pub oldest_due: f64,
    /// Endpoints that were disabled because they failed or are gone.
    pub disabled: i64,
}

pub async fn standing(connection: &mut PgConnection) -> Result<Standing, DbError> {
    let row = sqlx::query!(
        r#"
        SELECT
            (
                SELECT extract(epoch FROM now() - min(oldest.run_at))::double precision
                FROM webhook_endpoints
                CROSS JOIN LATERAL (
                    SELECT run_at
                    FROM webhook_deliveries
                    WHERE state = 'due'
                        AND endpoint_id = webhook_endpoints.id
                    ORDER BY run_at
                    LIMIT 1
                ) AS oldest
                WHERE webhook_endpoints.enabled
                    -- One that fails is behind by its own doing.
                    AND webhook_endpoints.failing_since IS NULL
            ) AS oldest_due,
            (
                SELECT count(*) FROM webhook_endpoints WHERE disabled_reason IN ('gone', 'failing')
            ) AS "disabled!"
        "#
    )
    .fetch_one(connection)
    .await?;
    Ok(Standing {
        oldest_due: row.oldest_due.unwrap_or_default().max(0.0),
        disabled: row.disabled,
    })
}
