//! Where the time comes from. Everything that needs the wall clock takes a [`Clock`], so that a test can move it.
//!
//! Decisions about leases, retries and retention never use it: they compare times in Postgres, by the database's clock.

use std::fmt;
use std::sync::Arc;

use time::{OffsetDateTime, UtcOffset};

/// RFC 3339 in UTC with exactly six digits of fraction, as Postgres keeps them.
#[derive(Clone, Copy, Debug)]
pub struct Instant(OffsetDateTime);

impl fmt::Display for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.0;
        let (year, month, day) = at.to_calendar_date();
        let (hour, minute, second, micro) = at.to_hms_micro();
        write!(
            f,
            "{year:04}-{:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micro:06}Z",
            u8::from(month)
        )
    }
}

/// A time as it is told: by the API, in the log and at the command line.
pub fn shown(at: OffsetDateTime) -> Instant {
    Instant(at.to_offset(UtcOffset::UTC))
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
