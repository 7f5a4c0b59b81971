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
    /// Where the object is to be made; `None` for the default account.
    pub accounts: Vec<Option<&'a str>>,
}

/// What all rows of a batch share.
#[derive(Debug, Clone, Copy)]
pub struct Common {
    pub live: bool,
    pub provider: &'static str,
    pub payload_version: i16,
    pub payload_version_with_account: i16,
}

/// Stores the requests whose key is new, each with its charge and its outbox row, and returns their charge ids. The
/// others lost to an earlier request; within this statement its rows can't be seen.
pub async fn insert_batch(
    connection: &mut PgConnection,
    rows: &Rows<'_>,
    common: Common,
) -> Result<Vec<(Uuid, OffsetDateTime)>, DbError> {
    let accepted = sqlx::query_file!(
        "src/db/sql/insert_batch.sql",
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
        &rows.accounts as &[Option<&str>],
        common.payload_version_with_account,
    )
    .fetch_all(connection)
    .await?;
    Ok(accepted
        .into_iter()
        .map(|row| (row.id, row.created_at))
        .collect())
}
