//! Refunds of our charges that were made outside payonce: counted in what is left, each once.

use sqlx::PgConnection;
use uuid::Uuid;

use super::DbError;

/// A charge that refunds of the provider may be of.
#[derive(Clone, Debug)]
pub struct OfObject {
    pub charge_id: Uuid,
    pub provider_charge_id: String,
    pub amount: i64,
    pub currency: String,
}

/// The charges that store these objects.
pub async fn charges_of(
    connection: &mut PgConnection,
    provider: &str,
    objects: &[&str],
) -> Result<Vec<OfObject>, DbError> {
    let rows = sqlx::query_as!(
        OfObject,
        r#"
        SELECT charges.id AS charge_id, charge_objects.provider_charge_id, charges.amount, charges.currency
        FROM charge_objects
        -- The limit keeps this a look-up by the id, also in a plan that was made while the books were empty.
        CROSS JOIN LATERAL (
            SELECT id, amount, currency FROM charges WHERE charges.id = charge_objects.charge_id LIMIT 1
        ) AS charges
        WHERE charge_objects.provider = $1
            AND charge_objects.provider_charge_id = ANY($2)
        "#,
        provider,
        objects as &[&str],
    )
    .fetch_all(connection)
    .await?;
    Ok(rows)
}

/// What the provider lists, a column a field. A page names a refund once.
#[derive(Debug, Default)]
pub struct Rows<'a> {
    pub provider_refund_ids: Vec<&'a str>,
    pub charge_ids: Vec<Uuid>,
    /// In minor units.
    pub amounts: Vec<i64>,
    pub statuses: Vec<&'a str>,
    /// Whether it takes from what is left of its charge.
    pub counted: Vec<bool>,
    /// What its stamp says, if it has one of ours.
    pub refund_ids: Vec<Option<Uuid>>,
}

/// Takes what was made outside into `amount_refunded`, and out of it what has failed since. What is ours is left to its
/// own refund. Returns the refunds that changed something, and whether they have a stamp of ours.
pub async fn count(
    connection: &mut PgConnection,
    provider: &str,
    rows: &Rows<'_>,
) -> Result<Vec<(String, bool)>, DbError> {
    let written = sqlx::query_file!(
        "src/db/sql/count_external_refunds.sql",
        provider,
        &rows.provider_refund_ids as &[&str],
        &rows.charge_ids,
        &rows.amounts,
        &rows.statuses as &[&str],
        &rows.counted,
        &rows.refund_ids as &[Option<Uuid>],
    )
    .fetch_all(connection)
    .await?;
    Ok(written
        .into_iter()
        .map(|row| (row.provider_refund_id, row.stamped))
        .collect())
}

/// Of these refunds of the provider, ours that stand otherwise than the provider says: their ids. With one that was called
/// failed before the provider had any, its stamp alone tells.
pub async fn disagreeing(
    connection: &mut PgConnection,
    provider: &str,
    provider_refund_ids: &[&str],
    statuses: &[&str],
    stamps: &[Option<Uuid>],
) -> Result<Vec<Uuid>, DbError> {
    let ids = sqlx::query_scalar!(
        r#"
        SELECT refunds.id AS "id!"
        FROM unnest($2::text[], $3::text[]) AS input (provider_refund_id, status)
        JOIN refunds
            ON refunds.provider = $1
            AND refunds.provider_refund_id = input.provider_refund_id
        WHERE refunds.stage IS DISTINCT FROM input.status
            -- Open ones that the provider still works on stand as they should.
            AND NOT (refunds.finished_at IS NULL AND input.status = 'pending')
        UNION
        SELECT refunds.id
        FROM unnest($3::text[], $4::uuid[]) AS input (status, refund_id)
        JOIN refunds ON refunds.id = input.refund_id
        WHERE refunds.provider = $1
            AND refunds.provider_refund_id IS NULL
            AND refunds.finished_at IS NOT NULL
            AND input.status NOT IN ('failed', 'canceled')
        "#,
        provider,
        provider_refund_ids as &[&str],
        statuses as &[&str],
        stamps as &[Option<Uuid>],
    )
    .fetch_all(connection)
    .await?;
    Ok(ids)
}
