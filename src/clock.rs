//! Where the time comes from. Everything that needs the wall clock takes a [`Clock`], so that a test can move it.
//!
//! Decisions about leases, retries and retention never use it: they compare times in Postgres, by the database's clock.

use std::fmt;
use std::sync::Arc;

use time::format_description::BorrowedFormatItem;
use time::macros::format_description;
use time::{OffsetDateTime, UtcOffset};

/// RFC 3339 in UTC, always with the six digits that the books have, so that times are as long as one another.
const FOR_PEOPLE: &[BorrowedFormatItem<'_>] =
    format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:6]Z");

/// A time as operators see it, in the log and at the command line.
pub fn shown(at: OffsetDateTime) -> String {
    at.to_offset(UtcOffset::UTC)
        .format(FOR_PEOPLE)
        .unwrap_or_else(|_| at.to_string())
}

#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> OffsetDateTime + Send + Sync>);

impl Clock {
    /// The machine's clock, in UTC.
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that reads the machine's clock"
    )]
    pub fn system() -> Self {
        Self(Arc::new(OffsetDateTime::now_utc))
    }

    /// A clock that answers whatever `now` answers.
    pub fn from_fn(now: impl Fn() -> OffsetDateTime + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    pub fn now(&self) -> OffsetDateTime {
        (self.0)()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}
