//! Lists the charges of one merchant, newest first.

use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use super::DbError;
use super::charges::ChargeRow;
use crate::domain::charge::{Charge, Stage};
use crate::domain::ids::{ChargeId, MerchantId, ProviderChargeId};

/// The largest page and the one charge more that tells of a next page; `list_charges.sql` is cut at it.
pub const MOST: u8 = 101;

/// What to list. Every condition holds for every charge that is found.
#[derive(Clone, Debug)]
pub struct Wanted<'a> {
    pub merchant: MerchantId,
    /// All of them for no filter.
    pub stages: &'a [Stage],
    /// The charge that an idempotency key names.
    pub charge: Option<ChargeId>,
    /// The one object of this provider.
    pub object: Option<(&'a str, &'a ProviderChargeId)>,
    pub reference: Option<&'a str>,
    pub from: OffsetDateTime,
    /// What comes after this one in the order of the list: by time and, of one time, by id.
    pub below: (OffsetDateTime, Uuid),
    /// At most [`MOST`].
    pub limit: u8,
}

impl Wanted<'_> {
    /// The walk of `list_charges.sql` that reads the fewest charges.
    fn walk(&self) -> &'static str {
        if self.charge.is_some() {
            "key"
        } else if self.object.is_some() {
            "object"
        } else if self.reference.is_some() {
            "reference"
        } else if self.stages.contains(&Stage::Succeeded) {
            // Most charges have succeeded: they are found where the newest are.
            "newest"
        } else {
            "stages"
        }
    }
}

pub async fn list(
    connection: &mut PgConnection,
    wanted: &Wanted<'_>,
) -> Result<Vec<Charge>, DbError> {
    let stages: Vec<&str> = wanted.stages.iter().map(|stage| stage.as_str()).collect();
    let rows = sqlx::query_file_as!(
        ChargeRow,
        "src/db/sql/list_charges.sql",
        wanted.merchant.as_uuid(),
        wanted.walk(),
        &stages as &[&str],
        wanted.from,
        wanted.below.0,
        wanted.below.1,
        i64::from(wanted.limit.min(MOST)),
        wanted.reference,
        wanted.object.map(|(provider, _)| provider),
        wanted.object.map(|(_, object)| object.as_str()),
        wanted.charge.map(ChargeId::as_uuid),
    )
    .fetch_all(connection)
    .await?;
    rows.into_iter().map(Charge::try_from).collect()
}
