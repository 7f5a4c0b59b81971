//! Reads what is left to do, for people. Claims, settlements and the rest have their own files.

use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use super::DbError;
use crate::domain::ids::{ChargeId, RefundId};

/// A job, without its payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    pub id: i64,
    pub kind: String,
    pub payload_version: i16,
    /// `ready`, `leased` or `parked`.
    pub state: String,
    /// How often it was claimed.
    pub attempt: i32,
    /// Whose lease it is; no holder is known by another name.
    pub lease_token: Option<Uuid>,
    pub lease_until: Option<OffsetDateTime>,
    pub run_at: OffsetDateTime,
    pub last_error: Option<String>,
    /// The last call of the last run: `phase`, `answer`, `provider_request_id`, `at`.
    pub last_call: Option<serde_json::Value>,
    pub created_at: OffsetDateTime,
    /// The database's clock.
    pub now: OffsetDateTime,
}

/// The job of a charge; a charge that has ended has none.
pub async fn find(connection: &mut PgConnection, charge: ChargeId) -> Result<Option<Job>, DbError> {
    let job = sqlx::query_as!(
        Job,
        r#"
        SELECT
            id, kind, payload_version, state, attempt, lease_token, lease_until, run_at, last_error, last_call, created_at,
            now() AS "now!"
        FROM outbox
        WHERE charge_id = $1
            AND kind = 'charge'
        ORDER BY id
        LIMIT 1
        "#,
        charge.as_uuid(),
    )
    .fetch_optional(connection)
    .await?;
    Ok(job)
}

/// The job of a refund: one that has ended has none, but to be read again.
pub async fn find_of_refund(
    connection: &mut PgConnection,
    refund: RefundId,
) -> Result<Option<Job>, DbError> {
    let job = sqlx::query_as!(
        Job,
        r#"
        SELECT
            id, kind, payload_version, state, attempt, lease_token, lease_until, run_at, last_error, last_call, created_at,
            now() AS "now!"
        FROM outbox
        WHERE refund_id = $1
        "#,
        refund.as_uuid(),
    )
    .fetch_optional(connection)
    .await?;
    Ok(job)
}
