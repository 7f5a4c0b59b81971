//! What an answer about a refund means: pure, as [`crate::domain::outcome`] is for charges, and over the same answers.
//!
//! A refund has no two phases at the provider: the call that makes it moves the money. What keeps it to one:
//!
//! 1. **Look, then send.** Before every send the complete list of the charge's refunds is read, and nothing is sent while
//!    one of them has our stamp. It is read also before the first send, so that a refund whose rows were lost in a failover
//!    or a restore is found again, however old.
//! 2. **One key.** What the list can't show is a send that is still on its way. It went out under the same key as the next
//!    one, so the provider answers with what the first one did. This holds while the key is remembered: `first_attempted_at`
//!    is committed before the first byte leaves, and nothing is sent later than the key window less its margin from then.
//! 3. **After the window: look only.** A refund that is found is taken over. If none is, it is not sent again: nobody can
//!    know that the earlier send never lands, and the provider's own bound, the charge's amount, lets a second partial
//!    refund through. The job is parked for a person, and its amount stays reserved.
//! 4. **Another key** is taken in one case: the provider *replays* an error under the last one. The answer is stored then, so
//!    that key has run to its end and will never do anything more; a complete list read after the replay shows that it did
//!    nothing.
//!
//! What is left: a process that stands still between its last look at the clock and the first byte of a send for longer
//! than the key window, and then wakes up with its connection intact, sends under a forgotten key.
//!
//! **Failed** is said of a refund only if the provider's own object says so, or if it was refused for good, every other send
//! under the key is accounted for (there was none, or the refusal was replayed, which is the same), and a list read after
//! the refusal has none with our stamp. Silence, error pages and the number of attempts never say it.

use uuid::Uuid;

use super::{RefundProgress, RefundState};
use crate::domain::charge::{Advice, Failure};
use crate::domain::ids::{ProviderChargeId, ProviderRefundId, RefundId};
use crate::domain::outcome::{Answer, Unclear, Worded};
use crate::domain::retry::Pace;

/// What was asked of the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefundPhase {
    /// Make the refund; moves money.
    Refund,
    /// Read the provider's refund by its id.
    ReadRefund,
    /// List all refunds of the charge.
    ListRefunds,
}

impl RefundPhase {
    pub const ALL: [Self; 3] = [Self::Refund, Self::ReadRefund, Self::ListRefunds];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Refund => "refund",
            Self::ReadRefund => "read_refund",
            Self::ListRefunds => "list_refunds",
        }
    }
}

/// The provider's refund.
#[derive(Clone, Debug, PartialEq)]
pub struct RefundObject {
    pub id: ProviderRefundId,
    /// The object of the charge that it goes back from.
    pub charge: Option<ProviderChargeId>,
    pub status: RefundStatus,
    /// In the provider's units.
    pub amount: i64,
    /// In lower case.
    pub currency: String,
    /// Our stamp in its metadata.
    pub stamp: Option<String>,
    /// Why it failed, in the provider's word.
    pub failure_reason: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefundStatus {
    Pending,
    RequiresAction,
    Succeeded,
    Failed,
    Canceled,
    /// A status this release does not know.
    Unknown,
}

impl RefundStatus {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::RequiresAction => "requires_action",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Canceled => "canceled",
            Self::Unknown => "unknown_status",
        }
    }

    /// Whether it takes from what is left of the charge.
    pub const fn takes(self) -> bool {
        match self {
            Self::Pending | Self::RequiresAction | Self::Succeeded | Self::Unknown => true,
            Self::Failed | Self::Canceled => false,
        }
    }
}

impl RefundObject {
    /// The refund of ours that its stamp names.
    pub fn of_ours(&self) -> Option<Uuid> {
        let id: RefundId = self.stamp.as_deref()?.parse().ok()?;
        Some(id.as_uuid())
    }

    /// Every [`Answer::word`] about a refund.
    pub const WORDS: &'static [&'static str] = &[
        "pending",
        "requires_action",
        "succeeded",
        "failed",
        "canceled",
        "unknown_status",
        "listed",
        "refused",
        "not_sent",
        "rate_limited",
        "denied",
        "forbidden",
        "not_found",
        "rejected",
        "timeout",
        "connection_lost",
        "server_error",
        "key_in_use",
        "idempotency_error",
        "unexpected_state",
        "unreadable_answer",
        "redirect",
    ];
}

impl Worded for RefundObject {
    fn word(&self) -> &'static str {
        self.status.as_str()
    }
}

/// What was asked for, to compare a refund with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskedRefund {
    /// In the provider's units.
    pub amount: i64,
    pub currency: String,
    pub stamp: String,
    pub charge: ProviderChargeId,
}

/// A proof that the provider never makes this refund, or has undone it. Only the table makes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeverRefunds(());

impl NeverRefunds {
    #[cfg(test)]
    pub(crate) const fn for_test() -> Self {
        Self(())
    }
}

/// What this run has learned of the current key.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// Refused for good, and no other send under the key can do anything.
    Refused(Failure),
    /// An error is replayed under the key: it has run to its end.
    KeySpent,
}

/// What an operator must look at. The code is stable: alerts match on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefundAlert {
    /// The provider's refund is not the one that was asked for.
    Differs,
    /// Several refunds have the stamp.
    SecondRefund,
    ObjectNotFound,
    RequestRejected,
    /// It may have been sent, the provider may have forgotten the key, and no refund is found.
    KeyWindowOver,
}

impl RefundAlert {
    pub const fn code(self) -> &'static str {
        match self {
            Self::Differs => "refund_differs",
            Self::SecondRefund => "second_refund",
            Self::ObjectNotFound => "object_not_found",
            Self::RequestRejected => "request_rejected",
            Self::KeyWindowOver => "key_window_over",
        }
    }
}

/// What is known while a job waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefundCertainty {
    /// Nothing was learned: what was known before stands.
    AsBefore,
    /// This send surely did nothing.
    NotSent,
    /// The money may have moved.
    Unclear,
    CustomersTurn,
    ProvidersTurn,
}

impl RefundCertainty {
    /// The state to show, given the state so far.
    pub fn state_after(self, before: &RefundState) -> RefundState {
        match self {
            Self::AsBefore | Self::NotSent => before.clone(),
            Self::Unclear => RefundState::RequiresReconciliation,
            Self::CustomersTurn => RefundState::RequiresAction,
            Self::ProvidersTurn => RefundState::Processing,
        }
    }
}

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub enum RefundStep {
    /// Read the complete list of the charge's refunds.
    Look(Option<Verdict>),
    /// Commit that it is about to be sent, then send it.
    Send,
    /// Write down that the last key is spent, then send under another.
    SendAnew,
    Read(ProviderRefundId),
    Succeed(ProviderRefundId),
    Fail(Failure, Option<ProviderRefundId>, NeverRefunds),
    Canceled(ProviderRefundId, NeverRefunds),
    Wait {
        certainty: RefundCertainty,
        pace: Pace,
        object: Option<ProviderRefundId>,
    },
    /// Leave it to an operator, and say why. What is known stands.
    Park {
        alert: RefundAlert,
        object: Option<Box<RefundObject>>,
    },
}

/// The first step of a run.
pub fn first(progress: &RefundProgress) -> RefundStep {
    match &progress.object {
        Some(id) => RefundStep::Read(id.clone()),
        None => RefundStep::Look(None),
    }
}

/// After the complete list of the charge's refunds. `window_open`: the provider is relied on to remember the current key.
pub fn after_look(
    found: &[RefundObject],
    asked: &AskedRefund,
    progress: &RefundProgress,
    verdict: Option<Verdict>,
    window_open: bool,
) -> RefundStep {
    let mut ours = found
        .iter()
        .filter(|refund| refund.stamp.as_deref() == Some(asked.stamp.as_str()));
    match (ours.next(), ours.next()) {
        (Some(_), Some(second)) => RefundStep::Park {
            alert: RefundAlert::SecondRefund,
            object: Some(Box::new(second.clone())),
        },
        (Some(refund), None) => from_object(refund.clone(), asked),
        (None, _) => match verdict {
            Some(Verdict::Refused(failure)) => RefundStep::Fail(failure, None, NeverRefunds(())),
            Some(Verdict::KeySpent) => RefundStep::SendAnew,
            None if progress.attempts == 0 || window_open => RefundStep::Send,
            None => RefundStep::Park {
                alert: RefundAlert::KeyWindowOver,
                object: None,
            },
        },
    }
}

/// After a send. `attempts` counts it.
pub fn after_send(answer: Answer<RefundObject>, asked: &AskedRefund, attempts: i32) -> RefundStep {
    match answer {
        // A picture of the past: it may have failed since.
        Answer::Object {
            object,
            replayed: true,
        } if mismatch(&object, asked).is_none() => RefundStep::Read(object.id),
        Answer::Object { object, .. } => from_object(object, asked),
        Answer::Refused { failure, replayed } => {
            if replayed || attempts <= 1 {
                RefundStep::Look(Some(Verdict::Refused(failure)))
            } else {
                // An earlier send may still land. Sent again, the refusal comes back as a replay, or something else does.
                wait(RefundCertainty::Unclear, Pace::Backoff)
            }
        }
        Answer::NotSent | Answer::Denied | Answer::Forbidden => {
            wait(RefundCertainty::NotSent, Pace::Backoff)
        }
        Answer::RateLimited { retry_after } => wait(
            RefundCertainty::NotSent,
            retry_after.map_or(Pace::Backoff, Pace::After),
        ),
        Answer::NotFound => park(RefundAlert::ObjectNotFound),
        Answer::Rejected { detail: _ } => park(RefundAlert::RequestRejected),
        Answer::Unclear {
            reason: Unclear::IdempotencyError,
            ..
        } => wait(RefundCertainty::Unclear, Pace::Backoff),
        Answer::Unclear { replayed: true, .. } => RefundStep::Look(Some(Verdict::KeySpent)),
        Answer::Unclear { .. } => wait(RefundCertainty::Unclear, Pace::Backoff),
    }
}

/// After a read by id.
pub fn after_read(answer: Answer<RefundObject>, asked: &AskedRefund) -> RefundStep {
    match answer {
        Answer::Object { object, .. } => from_object(object, asked),
        answer => unread(&answer),
    }
}

/// No object and no list came back: nothing is learned.
pub fn unread(answer: &Answer<RefundObject>) -> RefundStep {
    match answer {
        Answer::NotFound => park(RefundAlert::ObjectNotFound),
        Answer::Rejected { detail: _ } => park(RefundAlert::RequestRejected),
        Answer::RateLimited {
            retry_after: Some(after),
        } => wait(RefundCertainty::AsBefore, Pace::After(*after)),
        Answer::RateLimited { retry_after: None }
        | Answer::Object { .. }
        | Answer::Refused { .. }
        | Answer::NotSent
        | Answer::Denied
        | Answer::Forbidden
        | Answer::Unclear { .. } => wait(RefundCertainty::AsBefore, Pace::Backoff),
    }
}

fn from_object(object: RefundObject, asked: &AskedRefund) -> RefundStep {
    if let Some(alert) = mismatch(&object, asked) {
        return RefundStep::Park {
            alert,
            object: Some(Box::new(object)),
        };
    }
    let id = object.id;
    match object.status {
        RefundStatus::Succeeded => RefundStep::Succeed(id),
        RefundStatus::Failed => RefundStep::Fail(
            failure(object.failure_reason.as_deref()),
            Some(id),
            NeverRefunds(()),
        ),
        RefundStatus::Canceled => RefundStep::Canceled(id, NeverRefunds(())),
        RefundStatus::Pending => RefundStep::Wait {
            certainty: RefundCertainty::ProvidersTurn,
            pace: Pace::Slow,
            object: Some(id),
        },
        RefundStatus::RequiresAction => RefundStep::Wait {
            certainty: RefundCertainty::CustomersTurn,
            pace: Pace::Slow,
            object: Some(id),
        },
        RefundStatus::Unknown => RefundStep::Wait {
            certainty: RefundCertainty::Unclear,
            pace: Pace::Slow,
            object: Some(id),
        },
    }
}

fn mismatch(object: &RefundObject, asked: &AskedRefund) -> Option<RefundAlert> {
    let same = object.stamp.as_deref() == Some(asked.stamp.as_str())
        && object.amount == asked.amount
        && object.currency == asked.currency
        && object
            .charge
            .as_ref()
            .is_none_or(|charge| *charge == asked.charge);
    (!same).then_some(RefundAlert::Differs)
}

fn wait(certainty: RefundCertainty, pace: Pace) -> RefundStep {
    RefundStep::Wait {
        certainty,
        pace,
        object: None,
    }
}

fn park(alert: RefundAlert) -> RefundStep {
    RefundStep::Park {
        alert,
        object: None,
    }
}

/// Why a refund failed at the bank, from the provider's word.
pub fn failure(reason: Option<&str>) -> Failure {
    let (code, message, advice) = match reason {
        Some("expired_or_canceled_card" | "lost_or_stolen_card") => (
            "refund_not_receivable",
            "The customer's card or account takes the money no more: pay it back in another way.",
            Advice::DoNotTryAgain,
        ),
        Some("charge_for_pending_refund_disputed") => (
            "charge_disputed",
            "The customer has disputed the charge.",
            Advice::DoNotTryAgain,
        ),
        Some("insufficient_funds") => (
            "insufficient_funds",
            "The balance at the payment provider does not cover the refund.",
            Advice::TryAgainLater,
        ),
        Some(_) | None => (
            "refund_failed",
            "The refund failed at the customer's bank.",
            Advice::TryAgainLater,
        ),
    };
    Failure {
        code: code.to_owned(),
        message: message.to_owned(),
        provider_code: reason.map(str::to_owned),
        advice,
    }
}

#[cfg(test)]
mod tests;
