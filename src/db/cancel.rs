//! A client asks for a cancel: certain at once while nobody holds the job and no object is stored, else a request that the
//! worker takes to the provider.

use std::time::Duration;

use sqlx::PgConnection;

use super::{DbError, interval};
use crate::domain::ids::{ChargeId, MerchantId};

/// Cancels a charge whose job nobody holds and for which no object is stored: only a stored object is ever executed, and
/// none can be stored for a charge that is terminal. Not one that rows which were lost may have executed: which has stray
/// objects, or is older than `key_window`, or came while a recovery is under way. Returns whether it did.
pub async fn before_execute(
    connection: &mut PgConnection,
    merchant: MerchantId,
    charge: ChargeId,
    key_window: Duration,
) -> Result<bool, DbError> {
    let canceled = sqlx::query_file_scalar!(
        "src/db/sql/cancel_before_execute.sql",
        charge.as_uuid(),
        merchant.as_uuid(),
        interval(key_window),
    )
    .fetch_optional(connection)
    .await?;
    Ok(canceled.is_some())
}

/// Asks the worker to cancel an open charge, and lets its job run now. The charge's new version fences a run that is about
/// to execute. Returns whether the request is new.
pub async fn request(
    connection: &mut PgConnection,
    merchant: MerchantId,
    charge: ChargeId,
) -> Result<bool, DbError> {
    let requested = sqlx::query_scalar!(
        r#"
        WITH charge AS (
            UPDATE charges
            SET version = version + 1,
                cancel_requested_at = now(),
                updated_at = now()
            WHERE id = $1
                AND merchant_id = $2
                AND stage IN ('pending', 'processing', 'requires_action', 'requires_reconciliation')
                AND cancel_requested_at IS NULL
            RETURNING id, version
        ),
        -- Also by a repeat, and also a job that is held: its holder may not have seen the request.
        job AS (
            UPDATE outbox
            SET run_at = CASE WHEN outbox.state = 'ready' THEN now() ELSE outbox.run_at END,
                nudged = true
            FROM charges
            WHERE charges.id = $1
                AND charges.merchant_id = $2
                AND outbox.charge_id = charges.id
        ),
        events AS (
            INSERT INTO charge_events (charge_id, version, kind, actor)
            SELECT id, version, 'cancel_requested', 'merchant'
            FROM charge
        )
        SELECT id
        FROM charge
        "#,
        charge.as_uuid(),
        merchant.as_uuid(),
    )
    .fetch_optional(connection)
    .await?;
    Ok(requested.is_some())
}
