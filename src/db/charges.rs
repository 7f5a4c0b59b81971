//! Reads charges as clients see them.

use std::sync::Arc;

use serde_json::Value;
use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use super::DbError;
use crate::domain::charge::{Charge, Progress, Stage, State, StoredObject};
use crate::domain::idempotency::{Fingerprint, IdempotencyKey};
use crate::domain::ids::{ChargeId, MerchantId, ProviderChargeId};
use crate::domain::request::Draft;

/// A charge of one merchant, by its id.
pub async fn find(
    connection: &mut PgConnection,
    merchant: MerchantId,
    charge: ChargeId,
) -> Result<Option<Charge>, DbError> {
    let row = sqlx::query_as!(
        ChargeRow,
        r#"
        SELECT
            id, merchant_id, idempotency_key, fingerprint, fingerprint_version, amount, currency, payment_method,
            customer, return_url, off_session, reference, description,
            metadata, live, provider, stage, money, version, attempts,
            prepares, provider_account, provider_charge_id, failure,
            next_action, created_at, updated_at, finished_at, amount_refunded,
            cancel_requested_at IS NOT NULL AS "cancel_requested!"
        FROM charges
        WHERE id = $1
            AND merchant_id = $2
        "#,
        charge.as_uuid(),
        merchant.as_uuid(),
    )
    .fetch_optional(connection)
    .await?;
    row.map(Charge::try_from).transpose()
}

/// The charges among `ids` that exist, in no order, each with the mark of the submission that made its request row,
/// where that was not purged.
pub async fn find_all(
    connection: &mut PgConnection,
    ids: &[Uuid],
) -> Result<Vec<(Charge, Option<Uuid>)>, DbError> {
    let rows = sqlx::query!(
        r#"
        SELECT
            id, charges.merchant_id, idempotency_key, fingerprint, fingerprint_version, amount, currency,
            payment_method, customer, return_url, off_session, reference, description,
            metadata, live, provider, stage, money, version, attempts,
            prepares, provider_account, provider_charge_id, failure,
            next_action, charges.created_at, charges.updated_at, finished_at, amount_refunded,
            cancel_requested_at IS NOT NULL AS "cancel_requested!",
            intake_id AS "intake_id?"
        FROM charges
        LEFT JOIN idempotent_requests
            ON idempotent_requests.merchant_id = charges.merchant_id
            AND idempotent_requests.operation = 'charge'
            AND idempotent_requests.client_key = charges.idempotency_key
        WHERE id = ANY($1)
        "#,
        ids,
    )
    .fetch_all(connection)
    .await?;
    rows.into_iter()
        .map(|row| {
            let charge = ChargeRow {
                id: row.id,
                merchant_id: row.merchant_id,
                idempotency_key: row.idempotency_key,
                fingerprint: row.fingerprint,
                fingerprint_version: row.fingerprint_version,
                amount: row.amount,
                currency: row.currency,
                payment_method: row.payment_method,
                customer: row.customer,
                return_url: row.return_url,
                off_session: row.off_session,
                reference: row.reference,
                description: row.description,
                metadata: row.metadata,
                live: row.live,
                provider: row.provider,
                stage: row.stage,
                money: row.money,
                version: row.version,
                attempts: row.attempts,
                prepares: row.prepares,
                provider_account: row.provider_account,
                provider_charge_id: row.provider_charge_id,
                failure: row.failure,
                next_action: row.next_action,
                created_at: row.created_at,
                updated_at: row.updated_at,
                finished_at: row.finished_at,
                cancel_requested: row.cancel_requested,
                amount_refunded: row.amount_refunded,
            };
            Ok((Charge::try_from(charge)?, row.intake_id))
        })
        .collect()
}

/// The charges among `ids` that are not at the version that was last seen of them, in no order. One that can't be read
/// costs the others nothing.
pub async fn find_changed(
    connection: &mut PgConnection,
    seen: &[(ChargeId, i32)],
) -> Result<Vec<Result<Charge, DbError>>, DbError> {
    let (ids, versions): (Vec<_>, Vec<_>) = seen
        .iter()
        .map(|(id, version)| (id.as_uuid(), *version))
        .unzip();
    let rows = sqlx::query_as!(
        ChargeRow,
        r#"
        SELECT
            charges.id, merchant_id, idempotency_key, fingerprint, fingerprint_version, amount, currency, payment_method,
            customer, return_url, off_session, reference, description,
            metadata, live, provider, stage, money, charges.version, attempts,
            prepares, provider_account, provider_charge_id, failure,
            next_action, created_at, updated_at, finished_at, amount_refunded,
            cancel_requested_at IS NOT NULL AS "cancel_requested!"
        FROM unnest($1::uuid[], $2::integer[]) AS seen (id, version)
        JOIN charges ON charges.id = seen.id
        WHERE charges.version <> seen.version
        "#,
        &ids,
        &versions,
    )
    .fetch_all(connection)
    .await?;
    Ok(rows.into_iter().map(Charge::try_from).collect())
}

/// A row of `charges`.
pub(super) struct ChargeRow {
    pub(super) id: Uuid,
    pub(super) merchant_id: Uuid,
    pub(super) idempotency_key: String,
    pub(super) fingerprint: Vec<u8>,
    pub(super) fingerprint_version: i16,
    pub(super) amount: i64,
    pub(super) currency: String,
    pub(super) payment_method: String,
    pub(super) customer: Option<String>,
    pub(super) return_url: Option<String>,
    pub(super) off_session: bool,
    pub(super) reference: Option<String>,
    pub(super) description: Option<String>,
    pub(super) metadata: Value,
    pub(super) live: bool,
    pub(super) provider: String,
    pub(super) stage: String,
    pub(super) money: String,
    pub(super) version: i32,
    pub(super) attempts: i32,
    pub(super) prepares: i32,
    pub(super) provider_account: Option<String>,
    pub(super) provider_charge_id: Option<String>,
    pub(super) failure: Option<Value>,
    pub(super) next_action: Option<Value>,
    pub(super) created_at: OffsetDateTime,
    pub(super) updated_at: OffsetDateTime,
    pub(super) finished_at: Option<OffsetDateTime>,
    pub(super) cancel_requested: bool,
    pub(super) amount_refunded: i64,
}

impl TryFrom<ChargeRow> for Charge {
    type Error = DbError;

    fn try_from(row: ChargeRow) -> Result<Self, Self::Error> {
        let id = ChargeId::from_uuid(row.id);
        let unreadable = |column| DbError::Unreadable { charge: id, column };
        let state = state(id, &row.stage, &row.money, row.failure, row.next_action)?;
        Ok(Self {
            id,
            merchant: MerchantId::from_uuid(row.merchant_id),
            idempotency_key: IdempotencyKey::parse(row.idempotency_key.as_bytes())
                .map_err(|_| unreadable("idempotency_key"))?,
            fingerprint: Fingerprint {
                version: row.fingerprint_version,
                hash: row
                    .fingerprint
                    .try_into()
                    .map_err(|_| unreadable("fingerprint"))?,
            },
            request: Draft {
                amount: row.amount,
                currency: row.currency,
                payment_method: row.payment_method,
                customer: row.customer,
                return_url: row.return_url,
                off_session: row.off_session,
                reference: row.reference,
                description: row.description,
                metadata: serde_json::from_value(row.metadata)
                    .map_err(|_| unreadable("metadata"))?,
            },
            live: row.live,
            provider: row.provider,
            account: row.provider_account.as_deref().map(Arc::from),
            progress: Progress {
                version: row.version,
                state,
                attempts: row.attempts,
                prepares: row.prepares,
                object: object(id, row.provider_charge_id.as_deref(), row.provider_account)?,
            },
            created_at: row.created_at,
            updated_at: row.updated_at,
            finished_at: row.finished_at,
            cancel_requested: row.cancel_requested,
            amount_refunded: row.amount_refunded,
        })
    }
}

/// The state that the columns say; the table's CHECKs keep them together.
pub(super) fn state(
    charge: ChargeId,
    stage: &str,
    money: &str,
    failure: Option<Value>,
    next_action: Option<Value>,
) -> Result<State, DbError> {
    let unreadable = |column| DbError::Unreadable { charge, column };
    Ok(
        match Stage::parse(stage).ok_or_else(|| unreadable("stage"))? {
            Stage::Pending => State::Pending,
            Stage::Processing => State::Processing {
                sent: money != "not_moved",
            },
            Stage::RequiresAction => {
                State::RequiresAction(read(next_action).ok_or_else(|| unreadable("next_action"))?)
            }
            Stage::RequiresReconciliation => State::RequiresReconciliation,
            Stage::Succeeded => State::Succeeded,
            Stage::Failed => State::Failed(read(failure).ok_or_else(|| unreadable("failure"))?),
            Stage::Canceled => State::Canceled,
        },
    )
}

/// Read here and not by the query: one value of another release must not cost its neighbours their rows.
fn read<T: serde::de::DeserializeOwned>(value: Option<Value>) -> Option<T> {
    serde_json::from_value(value?).ok()
}

pub(super) fn object(
    charge: ChargeId,
    id: Option<&str>,
    account: Option<String>,
) -> Result<Option<StoredObject>, DbError> {
    let Some(id) = id else { return Ok(None) };
    let unreadable = |column| DbError::Unreadable { charge, column };
    Ok(Some(StoredObject {
        id: ProviderChargeId::parse(id).ok_or_else(|| unreadable("provider_charge_id"))?,
        account: account.ok_or_else(|| unreadable("provider_account"))?,
    }))
}
