//! Reads refunds as clients see them, and lets their jobs run.

use serde_json::Value;
use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use super::DbError;
use crate::domain::charge::Stage;
use crate::domain::idempotency::{Fingerprint, IdempotencyKey};
use crate::domain::ids::{ChargeId, MerchantId, ProviderRefundId, RefundId};
use crate::domain::refund::request::RefundDraft;
use crate::domain::refund::{Refund, RefundProgress, RefundState};

/// A refund of one merchant, by its id.
pub async fn find(
    connection: &mut PgConnection,
    merchant: MerchantId,
    refund: RefundId,
) -> Result<Option<Refund>, DbError> {
    let found = find_all(connection, &[refund.as_uuid()]).await?.pop();
    Ok(found
        .map(|(refund, _)| refund)
        .filter(|refund| refund.merchant == merchant))
}

/// The refunds among `ids` that exist, each with the mark of the submission that made its request row, where that was not
/// purged.
pub async fn find_all(
    connection: &mut PgConnection,
    ids: &[Uuid],
) -> Result<Vec<(Refund, Option<Uuid>)>, DbError> {
    let rows = sqlx::query_as!(
        RefundRow,
        r#"
        SELECT
            refunds.id, refunds.charge_id, refunds.merchant_id, refunds.idempotency_key, fingerprint,
            fingerprint_version, asked_amount, amount, currency, reason, metadata, live, provider, provider_account,
            provider_charge_id, provider_refund_id, stage, version, attempts, key_number, first_attempted_at, failure,
            refunds.created_at, refunds.updated_at, finished_at, intake_id AS "intake_id?"
        FROM refunds
        LEFT JOIN idempotent_requests
            ON idempotent_requests.merchant_id = refunds.merchant_id
            AND idempotent_requests.operation = 'refund'
            AND idempotent_requests.client_key = refunds.idempotency_key
        WHERE refunds.id = ANY($1)
        "#,
        ids,
    )
    .fetch_all(connection)
    .await?;
    rows.into_iter().map(RefundRow::read).collect()
}

/// Those of these refunds whose version is another one now.
pub async fn find_changed(
    connection: &mut PgConnection,
    seen: &[(RefundId, i32)],
) -> Result<Vec<Result<Refund, DbError>>, DbError> {
    let (ids, versions): (Vec<_>, Vec<_>) = seen
        .iter()
        .map(|(id, version)| (id.as_uuid(), *version))
        .unzip();
    let rows = sqlx::query_as!(
        RefundRow,
        r#"
        SELECT
            refunds.id, charge_id, merchant_id, idempotency_key, fingerprint, fingerprint_version, asked_amount, amount,
            currency, reason, metadata, live, provider, provider_account, provider_charge_id, provider_refund_id, stage,
            refunds.version, attempts, key_number, first_attempted_at, failure, created_at, updated_at, finished_at,
            NULL::uuid AS intake_id
        FROM unnest($1::uuid[], $2::integer[]) AS seen (id, version)
        JOIN refunds ON refunds.id = seen.id
        WHERE refunds.version <> seen.version
        "#,
        &ids,
        &versions,
    )
    .fetch_all(connection)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| row.read().map(|(refund, _)| refund))
        .collect())
}

/// The largest page and the one refund more that tells of a next page.
pub const MOST: u8 = 101;

/// What to list: every condition holds for every refund that is found.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    pub merchant: MerchantId,
    pub charge: Option<ChargeId>,
    /// The refund that an idempotency key names.
    pub refund: Option<RefundId>,
    /// What comes after this one in the order of the list: by time and, of one time, by id.
    pub below: (OffsetDateTime, Uuid),
    /// At most [`MOST`].
    pub limit: u8,
}

/// Refunds of one merchant, newest first.
pub async fn list(connection: &mut PgConnection, wanted: Wanted) -> Result<Vec<Refund>, DbError> {
    let limit = i64::from(wanted.limit.min(MOST));
    let ids = match (wanted.refund, wanted.charge) {
        (Some(refund), _) => vec![refund.as_uuid()],
        (None, Some(charge)) => {
            sqlx::query_scalar!(
                r#"
                SELECT id
                FROM refunds
                WHERE charge_id = $1
                    AND (created_at, id) < ($2, $3)
                ORDER BY created_at DESC, id DESC
                LIMIT $4
                "#,
                charge.as_uuid(),
                wanted.below.0,
                wanted.below.1,
                limit,
            )
            .fetch_all(&mut *connection)
            .await?
        }
        (None, None) => {
            sqlx::query_scalar!(
                r#"
                SELECT id
                FROM refunds
                WHERE merchant_id = $1
                    AND (created_at, id) < ($2, $3)
                ORDER BY created_at DESC, id DESC
                LIMIT $4
                "#,
                wanted.merchant.as_uuid(),
                wanted.below.0,
                wanted.below.1,
                limit,
            )
            .fetch_all(&mut *connection)
            .await?
        }
    };
    let mut found: Vec<Refund> = find_all(connection, &ids)
        .await?
        .into_iter()
        .map(|(refund, _)| refund)
        .filter(|refund| {
            refund.merchant == wanted.merchant
                && wanted.charge.is_none_or(|charge| refund.charge() == charge)
                && (refund.created_at, refund.id.as_uuid()) < wanted.below
        })
        .collect();
    found.sort_by_key(|refund| std::cmp::Reverse((refund.created_at, refund.id)));
    Ok(found)
}

/// What an operator may list.
#[derive(Clone, Copy, Debug)]
pub struct Search<'a> {
    /// Only refunds whose job is parked.
    pub parked: bool,
    /// Only refunds that have not ended.
    pub open: bool,
    pub account: Option<&'a str>,
    pub limit: i64,
}

/// A refund as a list of operators' shows it, with its job where it has one.
#[derive(Clone, Debug)]
pub struct Found {
    pub refund: Refund,
    pub job_state: Option<String>,
    pub last_error: Option<String>,
    pub last_call: Option<Value>,
}

/// Refunds of all merchants, newest first.
pub async fn search(
    connection: &mut PgConnection,
    search: Search<'_>,
) -> Result<Vec<Found>, DbError> {
    let rows = sqlx::query!(
        r#"
        SELECT refunds.id, outbox.state AS "state?", outbox.last_error, outbox.last_call
        FROM refunds
        LEFT JOIN outbox ON outbox.refund_id = refunds.id
        WHERE (NOT $1::boolean OR outbox.state = 'parked')
            AND (NOT $2::boolean OR refunds.finished_at IS NULL)
            AND ($4::text IS NULL OR refunds.provider_account = $4)
        ORDER BY refunds.created_at DESC, refunds.id DESC
        LIMIT $3
        "#,
        search.parked,
        search.open,
        search.limit,
        search.account,
    )
    .fetch_all(&mut *connection)
    .await?;
    let ids: Vec<Uuid> = rows.iter().map(|row| row.id).collect();
    let mut found = find_all(connection, &ids).await?;
    Ok(rows
        .into_iter()
        .filter_map(|row| {
            let at = found
                .iter()
                .position(|(refund, _)| refund.id.as_uuid() == row.id)?;
            Some(Found {
                refund: found.swap_remove(at).0,
                job_state: row.state,
                last_error: row.last_error,
                last_call: row.last_call,
            })
        })
        .collect())
}

/// The provider has news of these refunds: their jobs run now, parked ones aside; of those without a job, and of those whose
/// job may have read before and ends now, the reconciler makes one with its next page. The job looks for itself, so order, repetition and staleness of the news can't matter.
/// Returns how many there are.
pub async fn nudge(connection: &mut PgConnection, refunds: &[Uuid]) -> Result<u64, DbError> {
    let nudged = sqlx::query_scalar!(
        r#"
        WITH rechecked AS (
            UPDATE refunds
            SET recheck_at = now()
            WHERE id = ANY($1)
            RETURNING id
        ),
        jobs AS (
            UPDATE outbox
            SET run_at = CASE WHEN state = 'ready' THEN LEAST(run_at, now()) ELSE run_at END,
                nudged = true
            FROM rechecked
            WHERE outbox.refund_id = rechecked.id
                AND outbox.state <> 'parked'
        )
        SELECT count(*) AS "count!"
        FROM rechecked
        "#,
        refunds,
    )
    .fetch_one(connection)
    .await?;
    Ok(nudged.unsigned_abs())
}

/// Gives a refund a job, if it has none: an open one that lost its own, one that has ended to be read again. Returns
/// whether this call did.
pub async fn make_job(
    connection: &mut PgConnection,
    refund: RefundId,
    payload_version: i16,
    payload: &Value,
) -> Result<bool, DbError> {
    let done = sqlx::query!(
        r#"
        INSERT INTO outbox (kind, charge_id, refund_id, merchant_id, provider_account, payload_version, payload)
        SELECT 'refund', charge_id, id, merchant_id, provider_account, $2, $3
        FROM refunds
        WHERE id = $1
        ON CONFLICT (refund_id) WHERE refund_id IS NOT NULL DO NOTHING
        "#,
        refund.as_uuid(),
        payload_version,
        payload,
    )
    .execute(connection)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Lets a parked or waiting job run now, by a person's wish. With `send_again`, they have made sure at the provider that
/// no send of this refund has done anything or ever will: it may be sent under another key.
pub async fn retry(
    connection: &mut PgConnection,
    refund: RefundId,
    send_again: bool,
    reason: &str,
) -> Result<Option<String>, DbError> {
    let was = sqlx::query_scalar!(
        r#"
        -- Refunds before outbox rows: one order of locks for all.
        WITH locked AS MATERIALIZED (
            SELECT id
            FROM refunds
            WHERE id = $1
            FOR NO KEY UPDATE
        ),
        job AS MATERIALIZED (
            SELECT outbox.id, outbox.refund_id, outbox.charge_id, outbox.state
            FROM locked
            JOIN outbox ON outbox.refund_id = locked.id
            WHERE outbox.state IN ('parked', 'ready')
            FOR UPDATE OF outbox
        ),
        refund AS (
            UPDATE refunds
            SET version = refunds.version + 1,
                attempts = 0,
                key_number = refunds.key_number + 1,
                first_attempted_at = NULL,
                updated_at = now()
            FROM job
            WHERE $2::boolean
                AND refunds.id = job.refund_id
                AND refunds.finished_at IS NULL
                AND refunds.provider_refund_id IS NULL
            RETURNING refunds.id
        ),
        retried AS (
            UPDATE outbox
            SET state = 'ready',
                run_at = LEAST(outbox.run_at, now())
            FROM job
            WHERE outbox.id = job.id
                AND (NOT $2 OR EXISTS (SELECT FROM refund))
            RETURNING job.charge_id, job.state
        ),
        events AS (
            INSERT INTO charge_events (charge_id, version, kind, actor, reason, detail)
            SELECT
                charges.id, charges.version, 'refund_retried', 'operator', $3,
                jsonb_build_object('refund_id', $4::text, 'was', retried.state, 'send_again', $2)
            FROM retried
            JOIN charges ON charges.id = retried.charge_id
        )
        SELECT state
        FROM retried
        "#,
        refund.as_uuid(),
        send_again,
        reason,
        refund.to_string(),
    )
    .fetch_optional(connection)
    .await?;
    Ok(was)
}

struct RefundRow {
    id: Uuid,
    charge_id: Uuid,
    merchant_id: Uuid,
    idempotency_key: String,
    fingerprint: Vec<u8>,
    fingerprint_version: i16,
    asked_amount: Option<i64>,
    amount: i64,
    currency: String,
    reason: Option<String>,
    metadata: Value,
    live: bool,
    provider: String,
    provider_account: String,
    provider_charge_id: String,
    provider_refund_id: Option<String>,
    stage: String,
    version: i32,
    attempts: i32,
    key_number: i32,
    first_attempted_at: Option<OffsetDateTime>,
    failure: Option<Value>,
    created_at: OffsetDateTime,
    updated_at: OffsetDateTime,
    finished_at: Option<OffsetDateTime>,
    intake_id: Option<Uuid>,
}

impl RefundRow {
    fn read(self) -> Result<(Refund, Option<Uuid>), DbError> {
        let charge = ChargeId::from_uuid(self.charge_id);
        let unreadable = |column| DbError::Unreadable { charge, column };
        let refund = Refund {
            id: RefundId::from_uuid(self.id),
            merchant: MerchantId::from_uuid(self.merchant_id),
            idempotency_key: IdempotencyKey::parse(self.idempotency_key.as_bytes())
                .map_err(|_| unreadable("idempotency_key"))?,
            fingerprint: Fingerprint {
                version: self.fingerprint_version,
                hash: self
                    .fingerprint
                    .try_into()
                    .map_err(|_| unreadable("fingerprint"))?,
            },
            request: RefundDraft {
                charge,
                amount: self.asked_amount,
                reason: self.reason,
                metadata: serde_json::from_value(self.metadata)
                    .map_err(|_| unreadable("metadata"))?,
            },
            amount: self.amount,
            currency: self.currency,
            live: self.live,
            provider: self.provider,
            provider_account: self.provider_account,
            provider_charge_id: self.provider_charge_id,
            progress: RefundProgress {
                version: self.version,
                state: state(charge, &self.stage, self.failure)?,
                attempts: self.attempts,
                key_number: self.key_number,
                first_attempted_at: self.first_attempted_at,
                object: object(charge, self.provider_refund_id.as_deref())?,
            },
            created_at: self.created_at,
            updated_at: self.updated_at,
            finished_at: self.finished_at,
        };
        Ok((refund, self.intake_id))
    }
}

/// The state that the columns say.
pub(super) fn state(
    charge: ChargeId,
    stage: &str,
    failure: Option<Value>,
) -> Result<RefundState, DbError> {
    let unreadable = |column| DbError::Unreadable { charge, column };
    Ok(
        match Stage::parse(stage).ok_or_else(|| unreadable("stage"))? {
            Stage::Pending => RefundState::Pending,
            Stage::Processing => RefundState::Processing,
            Stage::RequiresAction => RefundState::RequiresAction,
            Stage::RequiresReconciliation => RefundState::RequiresReconciliation,
            Stage::Succeeded => RefundState::Succeeded,
            Stage::Failed => RefundState::Failed(
                failure
                    .and_then(|failure| serde_json::from_value(failure).ok())
                    .ok_or_else(|| unreadable("failure"))?,
            ),
            Stage::Canceled => RefundState::Canceled,
        },
    )
}

pub(super) fn object(
    charge: ChargeId,
    id: Option<&str>,
) -> Result<Option<ProviderRefundId>, DbError> {
    id.map(|id| {
        ProviderRefundId::parse(id).ok_or(DbError::Unreadable {
            charge,
            column: "provider_refund_id",
        })
    })
    .transpose()
}
