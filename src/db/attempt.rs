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
    /// Whether execute is to be sent; else the object is stored to be read.
    pub executes: Vec<bool>,
}

/// What may go on. Of the others the lease is lost or the charge has changed.
#[derive(Debug, Default)]
pub struct Passed {
    pub started: Vec<Uuid>,
    /// Nothing new is executed while there is a pause.
    pub paused: Vec<Uuid>,
}

/// Stores the objects' ids and counts an attempt where one follows, if the lease still holds, the charge is as the worker saw it, no
/// other object is stored, no stray one is in the way and sending is not paused.
pub async fn start_execute(
    connection: &mut PgConnection,
    rows: &Rows<'_>,
) -> Result<Passed, DbError> {
    let rows = sqlx::query_file!(
        "src/db/sql/start_execute.sql",
        &rows.charge_ids,
        &rows.outbox_ids,
        &rows.lease_tokens,
        &rows.versions,
        &rows.provider_charge_ids as &[&str],
        &rows.provider_accounts as &[&str],
        &rows.executes,
    )
    .fetch_all(connection)
    .await?;
    let mut passed = Passed::default();
    for row in rows {
        let list = if row.started {
            &mut passed.started
        } else {
            &mut passed.paused
        };
        list.push(row.charge_id);
    }
    Ok(passed)
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
