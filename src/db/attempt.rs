//! The step before the step that moves money: the object's id is stored and the money is unknown from here on.

use sqlx::PgConnection;
use uuid::Uuid;

use super::DbError;

/// A batch, a column a field, in the order of the charge ids.
#[derive(Debug, Default)]
pub struct Rows<'a> {
    pub charge_ids: Vec<Uuid>,
    pub outbox_ids: Vec<i64>,
    pub lease_tokens: Vec<Uuid>,
    /// The charge's version that the worker saw.
    pub versions: Vec<i32>,
    pub provider_charge_ids: Vec<&'a str>,
    pub provider_accounts: Vec<&'a str>,
}

/// Stores the objects' ids and counts an attempt, where the lease still holds, the charge is as the worker saw it and no
/// other object is stored. Returns the charges that may now be executed.
pub async fn start_execute(
    connection: &mut PgConnection,
    rows: &Rows<'_>,
) -> Result<Vec<Uuid>, DbError> {
    let started = sqlx::query_scalar!(
        r#"
        WITH input AS MATERIALIZED (
            SELECT *
            FROM unnest($1::uuid[], $2::bigint[], $3::uuid[], $4::integer[], $5::text[], $6::text[])
                AS input (charge_id, outbox_id, lease_token, version, provider_charge_id, provider_account)
        ),
        started AS (
            UPDATE charges
            SET stage = 'processing',
                money = 'unknown',
                version = charges.version + 1,
                attempts = charges.attempts + 1,
                provider_charge_id = input.provider_charge_id,
                provider_account = input.provider_account,
                next_action = NULL,
                updated_at = now()
            FROM input
            JOIN outbox
                ON outbox.id = input.outbox_id
                AND outbox.lease_token = input.lease_token
                AND outbox.state = 'leased'
                AND outbox.lease_until > now()
            WHERE charges.id = input.charge_id
                -- The version fences what the lease alone can't: a row that was claimed anew while this statement waited.
                AND charges.version = input.version
                AND charges.stage IN ('pending', 'processing', 'requires_action', 'requires_reconciliation')
                AND (
                    charges.provider_charge_id IS NULL
                    OR (charges.provider_charge_id, charges.provider_account)
                        = (input.provider_charge_id, input.provider_account)
                )
            RETURNING charges.id, charges.version, charges.attempts, charges.provider_charge_id
        ),
        events AS (
            INSERT INTO charge_events (charge_id, version, kind, actor, detail)
            SELECT
                id, version, 'execute_started', 'worker',
                jsonb_build_object('attempt', attempts, 'provider_charge_id', provider_charge_id)
            FROM started
        )
        SELECT id
        FROM started
        "#,
        &rows.charge_ids,
        &rows.outbox_ids,
        &rows.lease_tokens,
        &rows.versions,
        &rows.provider_charge_ids as &[&str],
        &rows.provider_accounts as &[&str],
    )
    .fetch_all(connection)
    .await?;
    Ok(started)
}

/// After a lost reply: the charges that the same statement has already started. Only the lease's holder can have.
pub async fn already_started(
    connection: &mut PgConnection,
    rows: &Rows<'_>,
) -> Result<Vec<Uuid>, DbError> {
    let started = sqlx::query_scalar!(
        r#"
        SELECT charges.id
        FROM unnest($1::uuid[], $2::bigint[], $3::uuid[], $4::integer[], $5::text[])
            AS input (charge_id, outbox_id, lease_token, version, provider_charge_id)
        JOIN charges
            ON charges.id = input.charge_id
            AND charges.version = input.version + 1
            AND charges.stage = 'processing'
            AND charges.money = 'unknown'
            AND charges.provider_charge_id = input.provider_charge_id
            -- A cancel of a charge that waits to be executed again leaves all of the above behind, too.
            AND charges.cancel_requested_at IS NULL
        JOIN outbox
            ON outbox.id = input.outbox_id
            AND outbox.lease_token = input.lease_token
            AND outbox.state = 'leased'
            AND outbox.lease_until > now()
        "#,
        &rows.charge_ids,
        &rows.outbox_ids,
        &rows.lease_tokens,
        &rows.versions,
        &rows.provider_charge_ids as &[&str],
    )
    .fetch_all(connection)
    .await?;
    Ok(started)
}
