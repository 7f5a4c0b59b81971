//! What there is of each account at the provider, for who adds, moves and removes them.

use sqlx::PgConnection;
use time::OffsetDateTime;

use super::DbError;

/// An account that is in the books.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccountStanding {
    pub name: String,
    pub merchants: i64,
    pub open_charges: i64,
    /// Of the open ones.
    pub parked_charges: i64,
    pub open_refunds: i64,
    /// Also of refunds that have ended and are read again.
    pub parked_refunds: i64,
    /// When the last sweep of it came to its end.
    pub swept_at: Option<OffsetDateTime>,
}

impl AccountStanding {
    /// Whether a process must have it.
    pub fn is_needed(&self) -> bool {
        [
            self.merchants,
            self.open_charges,
            self.open_refunds,
            self.parked_refunds,
        ]
        .iter()
        .any(|count| *count > 0)
    }
}

/// Every account in the books, by name. `default` is the account of what names none. An open charge is one that has a job.
pub async fn all(
    connection: &mut PgConnection,
    default: &str,
) -> Result<Vec<AccountStanding>, DbError> {
    let standing =
        sqlx::query_file_as!(AccountStanding, "src/db/sql/account_standing.sql", default)
            .fetch_all(connection)
            .await?;
    Ok(standing)
}
