//! What came of sending one delivery, and what is written of it.

use uuid::Uuid;

use super::schedule::Schedule;
use crate::db;
use crate::db::webhook_deliveries::Settled;
use crate::domain::ids::LeaseToken;

/// What came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// 2xx.
    Delivered(u16),
    /// 410: nobody is there any more.
    Gone,
    /// Any other answer.
    Refused(u16),
    /// No answer, in a word.
    Failed(&'static str),
    /// It will never be sent, in a word.
    Impossible(&'static str),
}

impl Sent {
    pub(super) fn of_status(status: u16) -> Self {
        match status {
            200..=299 => Self::Delivered(status),
            410 => Self::Gone,
            _ => Self::Refused(status),
        }
    }
}

#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) id: Uuid,
    pub(super) endpoint: Uuid,
    pub(super) token: LeaseToken,
    pub(super) tries: i32,
    pub(super) sent: Sent,
}

impl Outcome {
    pub(super) fn write_into(&self, rows: &mut Settled, schedule: &Schedule, jitter: f64) {
        let (result, status, error) = match self.sent {
            Sent::Delivered(status) => ("delivered", Some(status), None),
            Sent::Gone => ("gone", Some(410), None),
            Sent::Refused(status) => ("refused", Some(status), None),
            Sent::Failed(word) => ("refused", None, Some(word)),
            Sent::Impossible(word) => ("impossible", None, Some(word)),
        };
        let delay = match self.sent {
            Sent::Delivered(_) | Sent::Impossible(_) => None,
            Sent::Gone | Sent::Refused(_) | Sent::Failed(_) => schedule.after(self.tries, jitter),
        };
        rows.ids.push(self.id);
        rows.lease_tokens.push(self.token.as_uuid());
        rows.results.push(result);
        rows.statuses.push(status.map(i32::from));
        rows.errors.push(error);
        rows.delays.push(delay.map(db::interval));
    }
}
