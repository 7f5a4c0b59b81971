//! Where the provider and the books differ, and what people said about it.

use serde::{Serialize, Serializer};
use serde_json::Value;
use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use super::DbError;
use super::sweeps::Account;
use crate::clock;
use crate::domain::ids::ChargeId;

/// What a sweep found, a column a field.
#[derive(Debug, Default)]
pub struct Rows<'a> {
    pub kinds: Vec<&'a str>,
    pub provider_charge_ids: Vec<&'a str>,
    pub charge_ids: Vec<Uuid>,
    pub details: Vec<Value>,
}

/// Writes discrepancies, each once, with an event for the charges that are there. Returns how many are new.
pub async fn record(
    connection: &mut PgConnection,
    account: &Account,
    rows: &Rows<'_>,
) -> Result<u64, DbError> {
    let done = sqlx::query!(
        r#"
        WITH written AS (
            INSERT INTO discrepancies (kind, provider, provider_account, provider_charge_id, charge_id, detail)
            SELECT input.kind, $1, $6, input.provider_charge_id, input.charge_id, input.detail
            FROM unnest($2::text[], $3::text[], $4::uuid[], $5::jsonb[])
                AS input (kind, provider_charge_id, charge_id, detail)
            ON CONFLICT ON CONSTRAINT discrepancies_once DO NOTHING
            RETURNING kind, charge_id, detail
        ),
        events AS (
            INSERT INTO charge_events (charge_id, version, kind, actor, reason, detail)
            SELECT charges.id, charges.version, 'discrepancy', 'reconciler', written.kind, written.detail
            FROM written
            JOIN charges ON charges.id = written.charge_id
        )
        SELECT
        FROM written
        "#,
        account.provider,
        &rows.kinds as &[&str],
        &rows.provider_charge_ids as &[&str],
        &rows.charge_ids,
        &rows.details,
        account.name,
    )
    .execute(connection)
    .await?;
    Ok(done.rows_affected())
}

/// As operators are shown it.
#[derive(Clone, Debug, Serialize)]
pub struct Discrepancy {
    pub id: i64,
    pub kind: String,
    pub provider: String,
    /// The account that holds the object; what an earlier release wrote may not say it.
    pub account: Option<String>,
    pub provider_charge_id: String,
    /// The charge that the object's stamp names.
    #[serde(serialize_with = "shown")]
    pub charge_id: Option<Uuid>,
    pub detail: Value,
    #[serde(serialize_with = "time")]
    pub found_at: OffsetDateTime,
}

#[expect(clippy::ref_option, reason = "as serde calls it")]
fn shown<S: Serializer>(id: &Option<Uuid>, serializer: S) -> Result<S::Ok, S::Error> {
    id.map(|id| ChargeId::from_uuid(id).to_string())
        .serialize(serializer)
}

fn time<S: Serializer>(at: &OffsetDateTime, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&clock::shown(*at))
}

/// The oldest that nobody has resolved; of one account and of none, where one is named.
pub async fn open(
    connection: &mut PgConnection,
    account: Option<&str>,
    limit: i64,
) -> Result<Vec<Discrepancy>, DbError> {
    let rows = sqlx::query_as!(
        Discrepancy,
        r#"
        SELECT id, kind, provider, provider_account AS account, provider_charge_id, charge_id, detail, found_at
        FROM discrepancies
        WHERE resolved_at IS NULL
            AND ($2::text IS NULL OR provider_account IS NULL OR provider_account = $2)
        ORDER BY found_at, id
        LIMIT $1
        "#,
        limit,
        account,
    )
    .fetch_all(connection)
    .await?;
    Ok(rows)
}

/// Takes a person's word that a discrepancy is dealt with, and writes an event with the reason. Returns whether it was
/// open.
pub async fn resolve(
    connection: &mut PgConnection,
    id: i64,
    reason: &str,
) -> Result<bool, DbError> {
    let resolved = sqlx::query_scalar!(
        r#"
        WITH resolved AS (
            UPDATE discrepancies
            SET resolved_at = now(),
                resolution = 'operator: ' || $2
            WHERE id = $1
                AND resolved_at IS NULL
            RETURNING id, kind, charge_id, provider, provider_charge_id
        ),
        -- It stands in nobody's way any more: the charge's job may go on.
        strays AS (
            UPDATE stray_objects
            SET settled_at = now()
            FROM resolved
            WHERE stray_objects.provider = resolved.provider
                AND stray_objects.provider_charge_id = resolved.provider_charge_id
                AND stray_objects.settled_at IS NULL
        ),
        events AS (
            INSERT INTO charge_events (charge_id, version, kind, actor, reason, detail)
            SELECT
                charges.id, charges.version, 'discrepancy_resolved', 'operator', $2,
                jsonb_build_object('kind', resolved.kind, 'provider_charge_id', resolved.provider_charge_id)
            FROM resolved
            JOIN charges ON charges.id = resolved.charge_id
        )
        SELECT id
        FROM resolved
        "#,
        id,
        reason,
    )
    .fetch_optional(connection)
    .await?;
    Ok(resolved.is_some())
}
