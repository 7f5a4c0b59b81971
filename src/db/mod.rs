//! All SQL, one function a statement, over a connection that the caller owns: nothing here begins or commits. The long
//! statements stand in `sql/`.
//!
//! What a holder writes names its row by id and by token. A token stands on leased rows alone, so their state is not named
//! beside it: Postgres would take the index of leased rows then, which holds every lease since the last vacuum, and walk
//! all of them for each batch.

pub mod account_standing;
pub mod accounts;
pub mod api_keys;
pub mod attempt;
pub mod books;
pub mod cancel;
pub mod charge_events;
pub mod charge_lists;
pub mod charge_search;
pub mod charges;
pub mod claim;
pub mod claimed;
pub mod completion;
pub mod discrepancies;
pub mod discrepancy_refunds;
pub mod events;
pub mod external_refunds;
pub mod intake;
pub mod merchants;
pub mod migrations;
pub mod operate;
pub mod outbox;
pub mod pauses;
pub mod pool;
pub mod provider_events;
pub mod reconcile;
pub mod recovery;
pub mod refund_reconcile;
pub mod refund_steps;
pub mod refunds;
pub mod schema;
pub mod session;
pub mod sessions;
pub mod strays;
pub mod sweep_pages;
pub mod sweeps;
pub mod webhook_deliveries;
pub mod webhook_endpoints;

use std::time::Duration;

use sqlx::postgres::types::PgInterval;
use time::OffsetDateTime;
use time::macros::datetime;
use uuid::Uuid;

use crate::domain::ids::ChargeId;

/// Where a list begins that goes from the newest on: before all that can be in it.
pub const NEWEST: (OffsetDateTime, Uuid) = (datetime!(9999-12-31 23:59:59 UTC), Uuid::max());

#[derive(Debug, thiserror::Error)]
pub enum DbError {
    #[error("the database did not answer as asked")]
    Sqlx(#[from] sqlx::Error),
    #[error("the database took no connection")]
    Connect(#[source] sqlx::Error),
    #[error("the database did not take a connection in time")]
    ConnectTimeout,
    #[error("the database did not answer in time")]
    AnswerTimeout,
    #[error("the database takes no writes")]
    ReadOnly,
    #[error("requests that won a key were rolled back again and again")]
    WinnersVanish,
    #[error("a statement failed after the one before it was committed")]
    AfterCommit(#[source] Box<DbError>),
    #[error("column {column} of charge {charge} holds what this release can't read")]
    Unreadable {
        charge: ChargeId,
        column: &'static str,
    },
}

/// What follows from a failed statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Postgres rolled it back for reasons that pass: deadlock, serialization.
    Conflict,
    /// Some row was locked for longer than this statement may wait.
    Locked,
    /// Postgres refused the data: it will do so again.
    Data,
    /// Postgres refused it for now (no space, read only, shutting down, too slow): nothing was committed.
    Refused,
    /// No answer: it may have been committed or not.
    Unknown,
}

impl DbError {
    pub fn fault(&self) -> Fault {
        match self {
            Self::Sqlx(sqlx::Error::Database(error)) => {
                let code = error.code();
                match code.as_deref().unwrap_or_default() {
                    "40001" | "40P01" => Fault::Conflict,
                    "55P03" => Fault::Locked,
                    // The server says itself that it doesn't know; or it ended the connection, maybe after the commit.
                    "40003" | "08007" | "57P01" | "57P02" | "57P03" => Fault::Unknown,
                    code if code.starts_with("22") || code.starts_with("23") => Fault::Data,
                    _ => Fault::Refused,
                }
            }
            // It will be as unreadable the next time.
            Self::Unreadable { .. }
            | Self::Sqlx(
                sqlx::Error::ColumnDecode { .. }
                | sqlx::Error::Decode(_)
                | sqlx::Error::TypeNotFound { .. },
            ) => Fault::Data,
            Self::Sqlx(_) | Self::AnswerTimeout => Fault::Unknown,
            Self::AfterCommit(error) => match error.fault() {
                Fault::Data => Fault::Data,
                Fault::Conflict | Fault::Locked | Fault::Refused | Fault::Unknown => Fault::Unknown,
            },
            // Without a connection nothing was sent.
            Self::Connect(_) | Self::ConnectTimeout | Self::ReadOnly => Fault::Refused,
            Self::WinnersVanish => Fault::Conflict,
        }
    }

    /// The same after a statement that was committed.
    #[must_use]
    pub fn after_commit(self) -> Self {
        Self::AfterCommit(Box::new(self))
    }

    /// The SQLSTATE, where Postgres gave one: unlike its message, it never holds data.
    pub fn sqlstate(&self) -> Option<String> {
        match self {
            Self::Sqlx(sqlx::Error::Database(error))
            | Self::Connect(sqlx::Error::Database(error)) => {
                error.code().map(std::borrow::Cow::into_owned)
            }
            Self::AfterCommit(error) => error.sqlstate(),
            Self::Sqlx(_)
            | Self::Connect(_)
            | Self::ConnectTimeout
            | Self::AnswerTimeout
            | Self::ReadOnly
            | Self::WinnersVanish
            | Self::Unreadable { .. } => None,
        }
    }
}

/// Durations come from the configuration and are far below what an interval holds.
pub fn interval(duration: Duration) -> PgInterval {
    PgInterval {
        months: 0,
        days: 0,
        microseconds: i64::try_from(duration.as_micros()).unwrap_or(i64::MAX),
    }
}
