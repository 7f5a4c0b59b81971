//! Charges of all merchants, for operators: newest first, and never more than asked for.

use std::time::Duration;

use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use super::{DbError, interval};
use crate::domain::charge::Stage;
use crate::domain::ids::MerchantId;

/// What to look for; what is `None` is not looked at.
#[derive(Clone, Debug)]
pub struct Search<'a> {
    /// At one of these.
    pub stages: &'a [Stage],
    pub parked: bool,
    pub merchant: Option<MerchantId>,
    pub reference: Option<&'a str>,
    pub older_than: Option<Duration>,
    pub account: Option<InAccount<'a>>,
    pub limit: i64,
}

/// What is, or is to be made, in one account.
#[derive(Clone, Copy, Debug)]
pub struct InAccount<'a> {
    pub name: &'a str,
    /// Whether it is that of what names none.
    pub is_default: bool,
}

impl<'a> InAccount<'a> {
    /// Split for a statement.
    pub(super) fn parts(account: Option<Self>) -> (Option<&'a str>, bool) {
        account.map_or((None, false), |account| {
            (Some(account.name), account.is_default)
        })
    }
}

/// A charge as a list shows it, with its job where it has one.
#[derive(Clone, Debug)]
pub struct FoundCharge {
    pub id: Uuid,
    pub merchant: Option<String>,
    pub idempotency_key: String,
    pub reference: Option<String>,
    pub amount: i64,
    pub currency: String,
    pub stage: String,
    pub money: String,
    pub attempts: i32,
    /// Where it is made; `None` for the default one, until there is an object.
    pub account: Option<String>,
    pub provider_charge_id: Option<String>,
    pub created_at: OffsetDateTime,
    pub updated_at: OffsetDateTime,
    pub finished_at: Option<OffsetDateTime>,
    pub job_state: Option<String>,
    pub run_at: Option<OffsetDateTime>,
    pub lease_until: Option<OffsetDateTime>,
    pub last_error: Option<String>,
    pub last_call: Option<serde_json::Value>,
    /// The database's clock.
    pub now: OffsetDateTime,
}

/// Open charges, by way of their jobs: as few as there is work, however many charges have ended.
pub async fn open(
    connection: &mut PgConnection,
    search: &Search<'_>,
) -> Result<Vec<FoundCharge>, DbError> {
    let (account, is_default) = InAccount::parts(search.account);
    let found = sqlx::query_file_as!(
        FoundCharge,
        "src/db/sql/list_open.sql",
        search.parked,
        &words(search.stages) as &[&str],
        search.merchant.map(MerchantId::as_uuid),
        search.reference,
        search.older_than.map(interval) as _,
        search.limit,
        account,
        is_default,
    )
    .fetch_all(connection)
    .await?;
    Ok(found)
}

/// Charges at whatever stage. `parked` is not looked at: only open charges are.
pub async fn all(
    connection: &mut PgConnection,
    search: &Search<'_>,
) -> Result<Vec<FoundCharge>, DbError> {
    let (account, is_default) = InAccount::parts(search.account);
    let found = sqlx::query_file_as!(
        FoundCharge,
        "src/db/sql/list_all.sql",
        &words(search.stages) as &[&str],
        search.merchant.map(MerchantId::as_uuid),
        search.reference,
        search.older_than.map(interval) as _,
        search.limit,
        account,
        is_default,
    )
    .fetch_all(connection)
    .await?;
    Ok(found)
}

fn words(stages: &[Stage]) -> Vec<&'static str> {
    stages.iter().map(|stage| stage.as_str()).collect()
}
