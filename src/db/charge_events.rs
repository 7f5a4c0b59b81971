//! The history of charges, append-only.

use serde_json::Value;
use sqlx::PgConnection;
use time::OffsetDateTime;

use super::DbError;
use crate::domain::ids::ChargeId;

/// One entry of a charge's history.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// The charge's version after it.
    pub version: i32,
    pub kind: String,
    /// A role.
    pub actor: String,
    pub reason: Option<String>,
    pub detail: Option<Value>,
    pub at: OffsetDateTime,
}

/// The history of a charge, oldest first; its acceptance is not part of it.
pub async fn list(connection: &mut PgConnection, charge: ChargeId) -> Result<Vec<Event>, DbError> {
    let events = sqlx::query_as!(
        Event,
        r#"
        SELECT version, kind, actor, reason, detail, at
        FROM charge_events
        WHERE charge_id = $1
        ORDER BY id
        "#,
        charge.as_uuid(),
    )
    .fetch_all(connection)
    .await?;
    Ok(events)
}
