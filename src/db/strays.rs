//! Objects with our stamp that no charge stores.

use sqlx::PgConnection;
use uuid::Uuid;

use super::DbError;
use super::sweeps::Account;

/// Objects as a sweep saw them, a column a field.
#[derive(Debug, Default)]
pub struct Rows<'a> {
    pub provider_charge_ids: Vec<&'a str>,
    pub charge_ids: Vec<Uuid>,
    pub statuses: Vec<&'a str>,
    pub amounts: Vec<i64>,
    pub currencies: Vec<&'a str>,
}

/// Writes strays down and lets the jobs of their charges run now. One that its charge has stored meanwhile is none.
pub async fn record(
    connection: &mut PgConnection,
    account: &Account,
    rows: &Rows<'_>,
) -> Result<u64, DbError> {
    let done = sqlx::query!(
        r#"
        WITH input AS MATERIALIZED (
            SELECT *
            FROM unnest($3::text[], $4::uuid[], $5::text[], $6::bigint[], $7::text[])
                AS input (provider_charge_id, charge_id, status, amount, currency)
            WHERE NOT EXISTS (
                SELECT
                FROM charges
                WHERE charges.id = input.charge_id
                    AND charges.provider_charge_id = input.provider_charge_id
            )
        ),
        recorded AS (
            INSERT INTO stray_objects
                (provider, provider_account, provider_charge_id, charge_id, status, amount, currency)
            SELECT $1, $2, provider_charge_id, charge_id, status, amount, currency
            FROM input
            ON CONFLICT ON CONSTRAINT stray_objects_pkey DO UPDATE
            SET status = excluded.status,
                seen_at = now()
            RETURNING charge_id
        )
        UPDATE outbox
        SET run_at = CASE WHEN outbox.state = 'ready' THEN LEAST(outbox.run_at, now()) ELSE outbox.run_at END,
            nudged = true
        FROM recorded
        WHERE outbox.charge_id = recorded.charge_id
            AND outbox.state <> 'parked'
        "#,
        account.provider,
        &account.name,
        &rows.provider_charge_ids as &[&str],
        &rows.charge_ids,
        &rows.statuses as &[&str],
        &rows.amounts,
        &rows.currencies as &[&str],
    )
    .execute(connection)
    .await?;
    Ok(done.rows_affected())
}

/// Settles strays that can't move money any more, and those that did beside the one that goes on: each of them is a
/// discrepancy, written in the same statement.
pub async fn settle(
    connection: &mut PgConnection,
    provider: &str,
    provider_charge_ids: &[String],
    statuses: &[String],
) -> Result<u64, DbError> {
    let done = sqlx::query!(
        r#"
        WITH settled AS (
            UPDATE stray_objects
            SET settled_at = COALESCE(settled_at, now()),
                status = input.status
            FROM unnest($2::text[], $3::text[]) AS input (provider_charge_id, status)
            WHERE stray_objects.provider = $1
                AND stray_objects.provider_charge_id = input.provider_charge_id
            RETURNING
                stray_objects.provider_account, stray_objects.provider_charge_id, stray_objects.charge_id,
                stray_objects.status, amount, currency
        ),
        doubles AS (
            INSERT INTO discrepancies (kind, provider, provider_account, provider_charge_id, charge_id, detail)
            SELECT
                'second_success', $1, provider_account, provider_charge_id, charge_id,
                jsonb_build_object('amount', amount, 'currency', currency)
            FROM settled
            WHERE status = 'succeeded'
            ON CONFLICT ON CONSTRAINT discrepancies_once DO NOTHING
        )
        SELECT
        FROM settled
        "#,
        provider,
        provider_charge_ids,
        statuses,
    )
    .execute(connection)
    .await?;
    Ok(done.rows_affected())
}

/// Settles strays that their charges have stored since they were seen, and resolves what was written of them as missing
/// from the books.
pub async fn settle_stored(
    connection: &mut PgConnection,
    account: &Account,
) -> Result<u64, DbError> {
    let done = sqlx::query!(
        r#"
        WITH stored AS (
            UPDATE stray_objects
            SET settled_at = now()
            FROM charges
            WHERE stray_objects.provider_account = $1
                AND stray_objects.settled_at IS NULL
                AND charges.id = stray_objects.charge_id
                AND charges.provider_charge_id = stray_objects.provider_charge_id
            RETURNING stray_objects.provider, stray_objects.provider_charge_id
        )
        UPDATE discrepancies
        SET resolved_at = now(),
            resolution = 'reconciler: its charge is in the books now'
        FROM stored
        WHERE discrepancies.provider = stored.provider
            AND discrepancies.provider_charge_id = stored.provider_charge_id
            AND discrepancies.kind = 'theirs_only'
            AND discrepancies.resolved_at IS NULL
        "#,
        account.name,
    )
    .execute(connection)
    .await?;
    Ok(done.rows_affected())
}
