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
    let canceled = sqlx::query_scalar!(
        r#"
        -- Locked first and only where nobody holds it: a claim under way has this row or waits for it.
        WITH job AS MATERIALIZED (
            SELECT id
            FROM outbox
            WHERE charge_id = $1
                AND kind = 'charge'
                AND state IN ('ready', 'parked')
            FOR UPDATE
        ),
        charge AS (
            UPDATE charges
            SET stage = 'canceled',
                money = 'not_moved',
                version = version + 1,
                cancel_requested_at = COALESCE(cancel_requested_at, now()),
                updated_at = now(),
                finished_at = now()
            FROM job
            WHERE charges.id = $1
                AND charges.merchant_id = $2
                AND charges.stage IN ('pending', 'processing')
                AND charges.money = 'not_moved'
                AND charges.provider_charge_id IS NULL
                AND charges.created_at > now() - $3::interval
                AND NOT EXISTS (SELECT FROM pauses WHERE kind = 'recovery')
                AND NOT EXISTS (
                    SELECT
                    FROM stray_objects
                    WHERE stray_objects.charge_id = $1
                        AND stray_objects.settled_at IS NULL
                )
            RETURNING charges.id, charges.merchant_id, charges.idempotency_key, charges.version, job.id AS job_id
        ),
        requests AS (
            UPDATE idempotent_requests
            SET status = 'failed',
                updated_at = now()
            FROM charge
            WHERE idempotent_requests.merchant_id = charge.merchant_id
                AND idempotent_requests.operation = 'charge'
                AND idempotent_requests.client_key = charge.idempotency_key
        ),
        jobs AS (
            DELETE FROM outbox
            USING charge
            WHERE outbox.id = charge.job_id
        ),
        events AS (
            INSERT INTO charge_events (charge_id, version, kind, actor, reason)
            SELECT id, version, 'canceled', 'merchant', 'nothing was executed'
            FROM charge
        )
        SELECT id
        FROM charge
        "#,
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
