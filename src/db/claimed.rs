//! What was claimed, read from the rows that a claim returns. A row that can't be read is told apart from the others and
//! left to an operator.

use std::collections::BTreeMap;
use std::time::Duration;

use time::OffsetDateTime;
use uuid::Uuid;

use super::refund_steps::RefundHold;
use super::{DbError, charges, refunds};
use crate::domain::charge::Progress;
use crate::domain::ids::{ChargeId, LeaseToken, ProviderChargeId, RefundId};
use crate::domain::refund::RefundProgress;

/// A leased outbox row with the charge it is for, as both stood at the claim.
#[derive(Debug)]
pub struct Claimed {
    pub outbox_id: i64,
    pub lease: LeaseToken,
    /// How often the row was claimed, this time included.
    pub attempt: i32,
    pub charge: ChargeId,
    /// The instruction as it was frozen at intake.
    pub payload: serde_json::Value,
    pub progress: Progress,
    /// Where the object is or is to be made.
    pub account: String,
    /// The account in whose claims its row stands: the one that the row names, or the default one.
    pub queue: String,
    /// Since when it could have been claimed.
    pub due_at: OffsetDateTime,
    pub created_at: OffsetDateTime,
    /// The client asked for a cancel.
    pub cancel_requested: bool,
    /// The database's clock at the claim.
    pub claimed_at: OffsetDateTime,
    pub look: Look,
    /// Objects with the charge's stamp that are not its own and not settled.
    pub strays: Strays,
}

/// A leased outbox row of a refund, as both stood at the claim.
#[derive(Debug)]
pub struct ClaimedRefund {
    pub hold: RefundHold,
    /// How often the row was claimed, this time included.
    pub attempt: i32,
    /// The instruction as it was frozen at acceptance.
    pub payload: serde_json::Value,
    pub progress: RefundProgress,
    /// The account that holds the charge's object.
    pub account: String,
    /// The account in whose claims its row stands.
    pub queue: String,
    pub due_at: OffsetDateTime,
    /// The database's clock at the claim.
    pub claimed_at: OffsetDateTime,
}

/// What was claimed.
#[derive(Debug)]
pub enum Job {
    Charge(Box<Claimed>),
    Refund(Box<ClaimedRefund>),
}

impl Job {
    /// How long it could have been claimed before it was.
    pub fn waited(&self) -> time::Duration {
        match self {
            Self::Charge(job) => job.claimed_at - job.due_at,
            Self::Refund(job) => job.claimed_at - job.due_at,
        }
    }

    /// The account that it is run in, and in no other.
    pub fn account(&self) -> &str {
        match self {
            Self::Charge(job) => &job.account,
            Self::Refund(job) => &job.account,
        }
    }

    /// Its outbox row, and who holds it.
    pub fn row(&self) -> (i64, LeaseToken) {
        match self {
            Self::Charge(job) => (job.outbox_id, job.lease),
            Self::Refund(job) => (job.hold.outbox_id, job.hold.lease),
        }
    }

    /// The account in whose claims it stands. Another than its own, where its row names none and its charge does.
    pub fn queue(&self) -> &str {
        match self {
            Self::Charge(job) => &job.queue,
            Self::Refund(job) => &job.queue,
        }
    }
}

/// Where a job's look for its object stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// None was asked for, or so long ago that the provider may have forgotten a key that was used since.
    NotAsked,
    /// It waits for a sweep.
    Asked,
    /// A sweep that began after it has seen every object with the charge's stamp; what it found is among the strays.
    Answered,
}

impl Look {
    /// `swept_at`: when the newest sweep began that walked as far back as was asked for and came to its end.
    pub(super) fn judge(
        asked_at: Option<OffsetDateTime>,
        swept_at: Option<OffsetDateTime>,
        now: OffsetDateTime,
        key_window: Duration,
    ) -> Self {
        let relied_from = now - key_window;
        let answers = |began_at| began_at > relied_from && asked_at.is_none_or(|at| began_at > at);
        if swept_at.is_some_and(answers) {
            Self::Answered
        } else if asked_at.is_some_and(|at| at > relied_from) {
            Self::Asked
        } else {
            Self::NotAsked
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Strays {
    /// In the account that the charge is run in.
    Here(Vec<ProviderChargeId>),
    /// One of them is in another account.
    Elsewhere,
}

/// A row that was leased and can't be read.
#[derive(Debug)]
pub struct Unclaimable {
    pub outbox_id: i64,
    pub lease: LeaseToken,
    /// The account in whose claims it stands.
    pub queue: String,
    pub error: DbError,
}

impl Strays {
    /// `accounts`: that of each object, by the object's id; `None` if there is none. `own`: that of the charge.
    pub(super) fn read(
        charge: ChargeId,
        accounts: Option<serde_json::Value>,
        own: &str,
    ) -> Result<Self, DbError> {
        let unreadable = || DbError::Unreadable {
            charge,
            column: "strays",
        };
        let accounts: BTreeMap<String, String> = accounts
            .map_or_else(|| Ok(BTreeMap::new()), serde_json::from_value)
            .map_err(|_| unreadable())?;
        if accounts.values().any(|account| account != own) {
            return Ok(Self::Elsewhere);
        }
        let parsed: Option<Vec<_>> = accounts
            .keys()
            .map(|id| ProviderChargeId::parse(id))
            .collect();
        parsed.map(Self::Here).ok_or_else(unreadable)
    }
}

/// What the claiming process has, to judge looks and strays by.
#[derive(Clone, Copy, Debug)]
pub struct Ours<'a> {
    /// The default account, for what names none.
    pub account: &'a str,
    /// How long the provider is relied on to remember a key.
    pub key_window: Duration,
}

/// What the claim returns of each row.
pub(super) struct Row {
    pub(super) outbox_id: i64,
    pub(super) attempt: i32,
    pub(super) payload: serde_json::Value,
    pub(super) run_at: OffsetDateTime,
    pub(super) queue: String,
    pub(super) charge_id: Uuid,
    pub(super) stage: String,
    pub(super) money: String,
    pub(super) version: i32,
    pub(super) attempts: i32,
    pub(super) prepares: i32,
    pub(super) provider_account: Option<String>,
    pub(super) provider_charge_id: Option<String>,
    pub(super) failure: Option<serde_json::Value>,
    pub(super) next_action: Option<serde_json::Value>,
    pub(super) created_at: OffsetDateTime,
    pub(super) cancel_requested: bool,
    pub(super) claimed_at: OffsetDateTime,
    pub(super) look_asked_at: Option<OffsetDateTime>,
    pub(super) swept_at: Option<OffsetDateTime>,
    pub(super) strays: Option<serde_json::Value>,
    pub(super) refund_id: Option<Uuid>,
    pub(super) refund_stage: Option<String>,
    pub(super) refund_version: Option<i32>,
    pub(super) refund_attempts: Option<i32>,
    pub(super) refund_key_number: Option<i32>,
    pub(super) refund_first_attempted_at: Option<OffsetDateTime>,
    pub(super) provider_refund_id: Option<String>,
    pub(super) refund_account: Option<String>,
    pub(super) refund_failure: Option<serde_json::Value>,
}

impl Row {
    pub(super) fn job(self, lease: LeaseToken, ours: Ours<'_>) -> Result<Job, Unclaimable> {
        let Some(refund) = self.refund_id else {
            return Ok(Job::Charge(Box::new(self.claimed(lease, ours)?)));
        };
        let (outbox_id, queue) = (self.outbox_id, self.queue.clone());
        self.refund(RefundId::from_uuid(refund), lease)
            .map(|job| Job::Refund(Box::new(job)))
            .map_err(|error| Unclaimable {
                outbox_id,
                lease,
                queue,
                error,
            })
    }

    fn refund(self, refund: RefundId, lease: LeaseToken) -> Result<ClaimedRefund, DbError> {
        let charge = ChargeId::from_uuid(self.charge_id);
        let unreadable = |column| DbError::Unreadable { charge, column };
        let version = self
            .refund_version
            .ok_or_else(|| unreadable("refund.version"))?;
        let stage = self
            .refund_stage
            .ok_or_else(|| unreadable("refund.stage"))?;
        Ok(ClaimedRefund {
            hold: RefundHold {
                refund,
                charge,
                outbox_id: self.outbox_id,
                lease,
                version,
            },
            attempt: self.attempt,
            payload: self.payload,
            progress: RefundProgress {
                version,
                state: refunds::state(charge, &stage, self.refund_failure)?,
                attempts: self.refund_attempts.unwrap_or_default(),
                key_number: self.refund_key_number.unwrap_or_default(),
                first_attempted_at: self.refund_first_attempted_at,
                object: refunds::object(charge, self.provider_refund_id.as_deref())?,
            },
            account: self
                .refund_account
                .ok_or_else(|| unreadable("refund.provider_account"))?,
            queue: self.queue,
            due_at: self.run_at,
            claimed_at: self.claimed_at,
        })
    }

    fn claimed(self, lease: LeaseToken, ours: Ours<'_>) -> Result<Claimed, Unclaimable> {
        let charge = ChargeId::from_uuid(self.charge_id);
        let unclaimable = |error| Unclaimable {
            outbox_id: self.outbox_id,
            lease,
            queue: self.queue.clone(),
            error,
        };
        let account = self
            .provider_account
            .clone()
            .unwrap_or_else(|| ours.account.to_owned());
        Ok(Claimed {
            outbox_id: self.outbox_id,
            lease,
            attempt: self.attempt,
            charge,
            payload: self.payload,
            progress: Progress {
                version: self.version,
                state: charges::state(
                    charge,
                    &self.stage,
                    &self.money,
                    self.failure,
                    self.next_action,
                )
                .map_err(unclaimable)?,
                attempts: self.attempts,
                prepares: self.prepares,
                object: charges::object(
                    charge,
                    self.provider_charge_id.as_deref(),
                    self.provider_account,
                )
                .map_err(unclaimable)?,
            },
            due_at: self.run_at,
            created_at: self.created_at,
            cancel_requested: self.cancel_requested,
            claimed_at: self.claimed_at,
            look: Look::judge(
                self.look_asked_at,
                self.swept_at,
                self.claimed_at,
                ours.key_window,
            ),
            strays: Strays::read(charge, self.strays, &account).map_err(unclaimable)?,
            account,
            queue: self.queue,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_is_answered_by_a_sweep_that_began_after_it_and_within_the_key_window() {
        let at = |hours: i64| OffsetDateTime::UNIX_EPOCH + time::Duration::hours(1000 + hours);
        let window = Duration::from_hours(23);
        for (asked, swept, look) in [
            (None, None, Look::NotAsked),
            (Some(-1), None, Look::Asked),
            (Some(-1), Some(-2), Look::Asked),
            (Some(-2), Some(-1), Look::Answered),
            // The provider may have forgotten a key that was used since.
            (Some(-30), Some(-24), Look::NotAsked),
            (Some(-30), Some(-22), Look::Answered),
            (Some(-24), None, Look::NotAsked),
        ] {
            let judged = Look::judge(asked.map(at), swept.map(at), at(0), window);
            assert_eq!(judged, look, "asked {asked:?}, swept {swept:?}");
        }
    }
}
