//! The statements that take a refund on: accepted, sent, waiting, ended, corrected. Each is whole by itself: refund,
//! charge, request row, outbox row and event change together or not at all.
//!
//! [`finish`] and [`correct`] are the only statements that end a refund or change how it ended.

use std::time::Duration;

use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use super::{DbError, interval};
use crate::domain::idempotency::{Fingerprint, IdempotencyKey};
use crate::domain::ids::{ChargeId, LeaseToken, MerchantId, RefundId};

/// A refund to accept.
#[derive(Clone, Copy, Debug)]
pub struct NewRefund<'a> {
    pub id: RefundId,
    pub charge: ChargeId,
    pub merchant: MerchantId,
    pub key: &'a IdempotencyKey,
    /// Which submission it is of, so that one repeated after a lost reply knows its own row.
    pub intake_id: Uuid,
    pub fingerprint: Fingerprint,
    /// None for all that is left; `amount` must be exactly that then.
    pub asked_amount: Option<i64>,
    pub amount: i64,
    pub reason: Option<&'a str>,
    /// JSON texts.
    pub metadata: &'a str,
    pub payload_version: i16,
    pub payload: &'a str,
}

/// The charge as it stood under its lock, and when the refund was made, if it was.
#[derive(Clone, Debug)]
pub struct Room {
    pub stage: String,
    /// What no refund has taken or reserved, in minor units.
    pub unrefunded: i64,
    pub created_at: Option<OffsetDateTime>,
}

/// Accepts a refund and reserves its amount, if its charge has completed, so much is left and its key is new. `None`
/// without such a charge.
pub async fn accept(
    connection: &mut PgConnection,
    new: NewRefund<'_>,
) -> Result<Option<Room>, DbError> {
    let room = sqlx::query_file_as!(
        Room,
        "src/db/sql/accept_refund.sql",
        new.id.as_uuid(),
        new.charge.as_uuid(),
        new.merchant.as_uuid(),
        new.key.as_str(),
        new.intake_id,
        &new.fingerprint.hash[..],
        new.fingerprint.version,
        new.asked_amount,
        new.amount,
        new.reason,
        new.metadata,
        new.payload_version,
        new.payload,
        new.id.to_string(),
    )
    .fetch_optional(connection)
    .await?;
    Ok(room)
}

/// The hold on a refund's job: what every guard names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefundHold {
    pub refund: RefundId,
    pub charge: ChargeId,
    pub outbox_id: i64,
    pub lease: LeaseToken,
    /// The refund's version as the holder saw it.
    pub version: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Started {
    /// Committed: it may be sent.
    Yes,
    /// The lease is lost, the refund has changed, or its key's window is over: nothing may be sent.
    No,
    /// Sending is paused.
    Paused,
}

/// Commits that the refund is about to be sent, and when it first was under its key.
pub async fn start(
    connection: &mut PgConnection,
    hold: RefundHold,
    key_window: Duration,
    new_key: bool,
) -> Result<Started, DbError> {
    let row = sqlx::query_file!(
        "src/db/sql/start_refund.sql",
        hold.refund.as_uuid(),
        hold.outbox_id,
        hold.lease.as_uuid(),
        hold.version,
        interval(key_window),
        new_key,
        hold.refund.to_string(),
    )
    .fetch_one(connection)
    .await?;
    Ok(if row.started {
        Started::Yes
    } else if row.paused {
        Started::Paused
    } else {
        Started::No
    })
}

/// After a lost reply: whether the same statement has started it already. Only the lease's holder can have.
pub async fn already_started(
    connection: &mut PgConnection,
    hold: RefundHold,
    new_key: bool,
) -> Result<bool, DbError> {
    let started = sqlx::query_scalar!(
        r#"
        SELECT true AS "started!"
        FROM refunds
        JOIN outbox ON outbox.refund_id = refunds.id
        WHERE refunds.id = $1
            AND refunds.version = $2
            AND refunds.stage = 'processing'
            AND outbox.id = $3
            AND outbox.lease_token = $4
            AND outbox.lease_until > now()
        "#,
        hold.refund.as_uuid(),
        hold.version + 1 + i32::from(new_key),
        hold.outbox_id,
        hold.lease.as_uuid(),
    )
    .fetch_optional(connection)
    .await?;
    Ok(started.is_some())
}

/// A refund whose job goes on later, or is parked.
#[derive(Clone, Copy, Debug)]
pub struct Waiting<'a> {
    pub hold: RefundHold,
    /// Where the refund stands then, if that changes.
    pub changed: Option<Changed<'a>>,
    pub delay: Duration,
    pub parked: bool,
    pub error: &'a str,
    /// The last call, as a JSON text.
    pub call: Option<&'a str>,
}

#[derive(Clone, Copy, Debug)]
pub struct Changed<'a> {
    pub stage: &'a str,
    pub money: &'a str,
    pub version: i32,
    pub provider_refund_id: Option<&'a str>,
    pub attempts: i32,
}

/// Gives the lease back until later. Returns whether it still held and the refund was as its holder saw it.
pub async fn wait(connection: &mut PgConnection, waiting: Waiting<'_>) -> Result<bool, DbError> {
    let (hold, changed) = (waiting.hold, waiting.changed);
    let job = sqlx::query_file_scalar!(
        "src/db/sql/wait_refund.sql",
        hold.refund.as_uuid(),
        hold.outbox_id,
        hold.lease.as_uuid(),
        hold.version,
        changed.is_some(),
        changed.map(|changed| changed.stage),
        changed.map(|changed| changed.money),
        changed.map(|changed| changed.version),
        changed.and_then(|changed| changed.provider_refund_id),
        changed.map(|changed| changed.attempts),
        interval(waiting.delay),
        waiting.parked,
        waiting.error,
        waiting.call,
        hold.refund.to_string(),
    )
    .fetch_optional(connection)
    .await?;
    Ok(job.is_some())
}

/// How a refund ends, or ended in truth.
#[derive(Clone, Copy, Debug)]
pub struct End<'a> {
    /// `succeeded`, `failed` or `canceled`.
    pub stage: &'a str,
    pub provider_refund_id: Option<&'a str>,
    /// JSON texts.
    pub failure: Option<&'a str>,
    pub detail: &'a str,
    /// When a completed refund is read again.
    pub recheck_after: Duration,
}

/// Ends a refund. A success is a fact and is written whoever learned it; the others only while the lease holds and the
/// refund is as its holder saw it. Returns whether it did.
pub async fn finish(
    connection: &mut PgConnection,
    hold: RefundHold,
    end: End<'_>,
) -> Result<bool, DbError> {
    let finished = sqlx::query_file_scalar!(
        "src/db/sql/finish_refund.sql",
        hold.refund.as_uuid(),
        hold.outbox_id,
        hold.lease.as_uuid(),
        hold.version,
        end.stage,
        end.provider_refund_id,
        end.failure,
        end.detail,
        interval(end.recheck_after),
    )
    .fetch_optional(connection)
    .await?;
    Ok(finished.is_some())
}

/// Changes how a refund ended. Returns whether it did; it does so once.
pub async fn correct(
    connection: &mut PgConnection,
    refund: RefundId,
    end: End<'_>,
) -> Result<bool, DbError> {
    let corrected = sqlx::query_file_scalar!(
        "src/db/sql/correct_refund.sql",
        refund.as_uuid(),
        end.stage,
        end.provider_refund_id,
        end.failure,
        end.detail,
        interval(end.recheck_after),
    )
    .fetch_optional(connection)
    .await?;
    Ok(corrected.is_some())
}

/// Where a refund stands, and which refund of the provider it stores.
pub async fn standing(
    connection: &mut PgConnection,
    refund: RefundId,
) -> Result<Option<(String, Option<String>)>, DbError> {
    let row = sqlx::query!(
        "SELECT stage, provider_refund_id FROM refunds WHERE id = $1",
        refund.as_uuid(),
    )
    .fetch_optional(connection)
    .await?;
    Ok(row.map(|row| (row.stage, row.provider_refund_id)))
}

/// Deletes the job of a refund that has ended. One that completed is read again later: each time after twice as long,
/// until `recheck_for` is over.
pub async fn discard(
    connection: &mut PgConnection,
    hold: RefundHold,
    recheck_after: Duration,
    recheck_for: Duration,
) -> Result<bool, DbError> {
    let done = sqlx::query_scalar!(
        r#"
        WITH refund AS (
            UPDATE refunds
            SET recheck_at = CASE
                    -- News came while it was read.
                    WHEN stage = 'succeeded' AND recheck_at <= now() THEN recheck_at
                    WHEN stage = 'succeeded' AND now() - finished_at < $3::interval
                        THEN now() + GREATEST($2::interval, now() - finished_at)
                END
            WHERE id = $1
                AND finished_at IS NOT NULL
            RETURNING id
        )
        DELETE FROM outbox
        USING refund
        WHERE outbox.refund_id = refund.id
        RETURNING outbox.id
        "#,
        hold.refund.as_uuid(),
        interval(recheck_after),
        interval(recheck_for),
    )
    .fetch_optional(connection)
    .await?;
    Ok(done.is_some())
}

/// Writes down, once, that the provider's refund and ours differ.
pub async fn dispute(
    connection: &mut PgConnection,
    hold: RefundHold,
    provider: &str,
    kind: &str,
    provider_refund_id: &str,
    detail: &serde_json::Value,
) -> Result<bool, DbError> {
    let written = sqlx::query_scalar!(
        r#"
        WITH written AS (
            INSERT INTO discrepancies (kind, provider, provider_account, provider_charge_id, charge_id, detail)
            VALUES ($1, $2, (SELECT provider_account FROM refunds WHERE id = $6), $3, $4, $5)
            ON CONFLICT ON CONSTRAINT discrepancies_once DO NOTHING
            RETURNING id
        ),
        events AS (
            INSERT INTO charge_events (charge_id, version, kind, actor, reason, detail)
            SELECT charges.id, charges.version, 'discrepancy', 'worker', $1, $5
            FROM charges
            WHERE charges.id = $4
                AND EXISTS (SELECT FROM written)
        )
        SELECT id
        FROM written
        "#,
        kind,
        provider,
        provider_refund_id,
        hold.charge.as_uuid(),
        detail,
        hold.refund.as_uuid(),
    )
    .fetch_optional(connection)
    .await?;
    Ok(written.is_some())
}
