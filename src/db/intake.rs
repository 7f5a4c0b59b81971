//! The statement that accepts: request rows, charges and outbox rows for a whole batch, or for none of it.

use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use super::DbError;

/// A batch, a column a field, in the order of merchant and key.
#[derive(Debug, Default)]
pub struct Rows<'a> {
    pub charge_ids: Vec<Uuid>,
    pub merchant_ids: Vec<Uuid>,
    /// Which submission a row is of, so that one repeated after a lost reply knows its own rows.
    pub intake_ids: Vec<Uuid>,
    pub client_keys: Vec<&'a str>,
    pub fingerprints: Vec<&'a [u8]>,
    pub fingerprint_versions: Vec<i16>,
    pub amounts: Vec<i64>,
    pub currencies: Vec<&'a str>,
    pub payment_methods: Vec<&'a str>,
    pub customers: Vec<Option<&'a str>>,
    pub return_urls: Vec<Option<&'a str>>,
    pub off_sessions: Vec<bool>,
    pub references: Vec<Option<&'a str>>,
    pub descriptions: Vec<Option<&'a str>>,
    /// JSON texts.
    pub metadata: Vec<&'a str>,
    /// JSON texts.
    pub payloads: Vec<&'a str>,
}

/// What all rows of a batch share.
#[derive(Debug, Clone, Copy)]
pub struct Common {
    pub live: bool,
    pub provider: &'static str,
    pub payload_version: i16,
}

/// Stores the requests whose key is new, each with its charge and its outbox row, and returns their charge ids. The
/// others lost to an earlier request; within this statement its rows can't be seen.
pub async fn insert_batch(
    connection: &mut PgConnection,
    rows: &Rows<'_>,
    common: Common,
) -> Result<Vec<(Uuid, OffsetDateTime)>, DbError> {
    let accepted = sqlx::query!(
        r#"
        WITH input AS MATERIALIZED (
            SELECT *
            FROM unnest(
                $1::uuid[], $2::uuid[], $3::text[], $4::bytea[], $5::smallint[], $6::bigint[], $7::text[], $8::text[],
                $9::text[], $10::text[], $11::boolean[], $12::text[], $13::text[], $14::text[], $15::text[],
                $16::uuid[]
            ) AS input (
                charge_id, merchant_id, client_key, fingerprint, fingerprint_version, amount, currency, payment_method,
                customer, return_url, off_session, reference, description, metadata, payload,
                intake_id
            )
        ),
        requests AS (
            INSERT INTO idempotent_requests (merchant_id, operation, client_key, charge_id, intake_id)
            SELECT merchant_id, 'charge', client_key, charge_id, intake_id
            FROM input
            -- The charge answers for its key also when its request row was purged.
            WHERE NOT EXISTS (SELECT FROM charges WHERE charges.id = input.charge_id)
            -- One order for all batches, or two of them deadlock.
            ORDER BY merchant_id, client_key COLLATE "C"
            ON CONFLICT DO NOTHING
            RETURNING charge_id
        ),
        new_charges AS (
            INSERT INTO charges (
                id, merchant_id, idempotency_key, fingerprint, fingerprint_version, amount, currency, payment_method,
                customer, return_url, off_session, reference, description, metadata, live, provider
            )
            SELECT
                charge_id, merchant_id, client_key, fingerprint, fingerprint_version, amount, currency, payment_method,
                customer, return_url, off_session, reference, description, metadata::jsonb, $17, $18
            FROM input
            JOIN requests USING (charge_id)
            RETURNING id, created_at
        ),
        jobs AS (
            INSERT INTO outbox (kind, charge_id, payload_version, payload)
            SELECT 'charge', charge_id, $19, payload::jsonb
            FROM input
            JOIN requests USING (charge_id)
        )
        SELECT id, created_at
        FROM new_charges
        "#,
        &rows.charge_ids,
        &rows.merchant_ids,
        &rows.client_keys as &[&str],
        &rows.fingerprints as &[&[u8]],
        &rows.fingerprint_versions,
        &rows.amounts,
        &rows.currencies as &[&str],
        &rows.payment_methods as &[&str],
        &rows.customers as &[Option<&str>],
        &rows.return_urls as &[Option<&str>],
        &rows.off_sessions,
        &rows.references as &[Option<&str>],
        &rows.descriptions as &[Option<&str>],
        &rows.metadata as &[&str],
        &rows.payloads as &[&str],
        &rows.intake_ids,
        common.live,
        common.provider,
        common.payload_version,
    )
    .fetch_all(connection)
    .await?;
    Ok(accepted
        .into_iter()
        .map(|row| (row.id, row.created_at))
        .collect())
}
