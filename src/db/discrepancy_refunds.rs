//! Gives back what moved for a charge that was told failed: a refund like any other, but that no client asked for it.
//!
//! Discrepancy, refund, reservation and job are one statement, so a discrepancy has one refund however often it is tried,
//! and by whomever. It is resolved by the statement that completes the refund; one that fails leaves it open.

use serde_json::Value;
use sqlx::PgConnection;
use uuid::Uuid;

use super::DbError;
use crate::domain::idempotency::{Fingerprint, IdempotencyKey};
use crate::domain::ids::RefundId;

/// A discrepancy that a refund would resolve.
#[derive(Clone, Debug)]
pub struct Refundable {
    pub id: i64,
    pub charge_id: Uuid,
    pub merchant_id: Uuid,
    pub provider_charge_id: String,
    /// The charge's, in minor units.
    pub amount: i64,
    pub currency: String,
    /// What was seen of the object.
    pub detail: Value,
}

/// The open ones of a provider without a refund, oldest first; or one of them.
pub async fn refundable(
    connection: &mut PgConnection,
    provider: &str,
    only: Option<i64>,
    limit: i64,
) -> Result<Vec<Refundable>, DbError> {
    let rows = sqlx::query_as!(
        Refundable,
        r#"
        SELECT
            discrepancies.id, charges.id AS charge_id, charges.merchant_id, discrepancies.provider_charge_id,
            charges.amount, charges.currency, discrepancies.detail
        FROM discrepancies
        JOIN charges ON charges.id = discrepancies.charge_id
        WHERE discrepancies.kind = 'success_after_failed'
            AND discrepancies.provider = $1
            AND discrepancies.resolved_at IS NULL
            AND discrepancies.refund_id IS NULL
            AND charges.stage IN ('failed', 'canceled')
            AND COALESCE(discrepancies.provider_account, charges.provider_account) IS NOT NULL
            AND ($2::bigint IS NULL OR discrepancies.id = $2)
        ORDER BY discrepancies.id
        LIMIT $3
        "#,
        provider,
        only,
        limit,
    )
    .fetch_all(connection)
    .await?;
    Ok(rows)
}

/// The refund of all that moved.
#[derive(Clone, Copy, Debug)]
pub struct NewRefund<'a> {
    pub id: RefundId,
    pub key: &'a IdempotencyKey,
    pub fingerprint: Fingerprint,
    pub payload_version: i16,
    /// A JSON text.
    pub payload: &'a str,
    /// Who wants it, and why.
    pub actor: &'a str,
    pub reason: &'a str,
}

/// Accepts the refund, if the discrepancy is still open and has none. Returns whether it did.
pub async fn accept(
    connection: &mut PgConnection,
    discrepancy: &Refundable,
    new: NewRefund<'_>,
) -> Result<bool, DbError> {
    let accepted = sqlx::query_file_scalar!(
        "src/db/sql/refund_discrepancy.sql",
        discrepancy.id,
        discrepancy.charge_id,
        new.id.as_uuid(),
        new.key.as_str(),
        &new.fingerprint.hash[..],
        new.fingerprint.version,
        new.payload_version,
        new.payload,
        new.actor,
        new.reason,
        new.id.to_string(),
    )
    .fetch_optional(connection)
    .await?;
    Ok(accepted.is_some())
}
