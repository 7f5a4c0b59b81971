//! What an answer of the provider means: one pure table from (phase, answer) to the next step.
//!
//! Two questions are kept apart: what is known (certainty) and when to ask again (pace). Unknown is a class of its own:
//! no silence, no number of attempts and no error page ever becomes `failed`. The worker, the reconciler and the model
//! in `tests/` all go through [`decide`].

pub mod operator;
pub mod strays;

use std::time::Duration;

use super::charge::{Advice, Failure, NextAction, Progress, State};
use super::ids::ProviderChargeId;
use super::retry::Pace;

/// What was asked of the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Make the object; moves no money.
    Prepare,
    /// Execute the stored object; the one step that moves money.
    Execute,
    /// Read the stored object by its id.
    Read,
    /// Make the stored object unable to move money.
    Cancel,
}

impl Phase {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Prepare => "prepare",
            Self::Execute => "execute",
            Self::Read => "read",
            Self::Cancel => "cancel",
        }
    }
}

/// What came back, in no provider's words. `O` is what was asked for: a charge's object, or a refund.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer<O = Object> {
    /// The object as it is; as it was at the first answer, if `replayed`.
    Object {
        object: O,
        replayed: bool,
    },
    /// A documented, final refusal of this payment: a decline, an unknown payment method, an amount too small.
    Refused {
        failure: Failure,
        replayed: bool,
    },
    /// It surely never left this machine: connection refused, DNS, TLS handshake.
    NotSent,
    RateLimited {
        retry_after: Option<Duration>,
    },
    /// The provider does not take our credentials (401).
    Denied,
    /// Our credentials have no right to this call (403).
    Forbidden,
    /// The provider has no object under the stored id.
    NotFound,
    /// The provider calls a parameter of ours wrong, and not the payment.
    Rejected {
        detail: String,
    },
    /// Anything else: it may have happened or not.
    Unclear {
        reason: Unclear,
        replayed: bool,
    },
}

/// Why an answer says nothing about the money.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unclear {
    Timeout,
    ConnectionLost,
    ServerError,
    KeyInUse,
    IdempotencyError,
    UnexpectedState,
    Unreadable,
    UnknownStatus,
    Redirect,
}

impl Unclear {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::ConnectionLost => "connection_lost",
            Self::ServerError => "server_error",
            Self::KeyInUse => "key_in_use",
            Self::IdempotencyError => "idempotency_error",
            Self::UnexpectedState => "unexpected_state",
            Self::Unreadable => "unreadable_answer",
            Self::UnknownStatus => "unknown_status",
            Self::Redirect => "redirect",
        }
    }
}

/// The provider's object.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    pub id: ProviderChargeId,
    pub status: ObjectStatus,
    /// In the provider's units.
    pub amount: i64,
    /// In the provider's units; what really came in.
    pub amount_received: i64,
    /// In lower case.
    pub currency: String,
    /// Our stamp in its metadata.
    pub stamp: Option<String>,
    /// Why its last execution was declined.
    pub failure: Option<Failure>,
    /// Where the customer must go.
    pub next_url: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ObjectStatus {
    RequiresConfirmation,
    RequiresPaymentMethod,
    RequiresAction,
    Processing,
    RequiresCapture,
    Succeeded,
    Canceled,
    /// A status this release does not know.
    Unknown,
}

impl ObjectStatus {
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::RequiresConfirmation => "requires_confirmation",
            Self::RequiresPaymentMethod => "requires_payment_method",
            Self::RequiresAction => "requires_action",
            Self::Processing => "processing",
            Self::RequiresCapture => "requires_capture",
            Self::Succeeded => "succeeded",
            Self::Canceled => "canceled",
            Self::Unknown => "unknown_status",
        }
    }
}

/// What was asked for, to compare an object with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// In the provider's units.
    pub amount: i64,
    pub currency: String,
    pub stamp: String,
}

/// A proof that the provider can no longer move the money of a charge. Only the table makes one: from an object that is
/// canceled, or from a refusal to make an object at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CanMoveNoMore(());

impl CanMoveNoMore {
    #[cfg(test)]
    pub(crate) const fn for_test() -> Self {
        Self(())
    }
}

/// The proof for a charge that no object is stored for: only a stored object is ever executed, and none can be stored any
/// more once the charge is canceled.
pub fn nothing_was_executed(progress: &Progress) -> Option<CanMoveNoMore> {
    progress.object.is_none().then_some(CanMoveNoMore(()))
}

/// What is known while a job waits.
#[derive(Clone, Debug, PartialEq)]
pub enum Certainty {
    /// This try did nothing; what was known before stands.
    AsBefore,
    /// Prepare may have made an object; no object was executed.
    Unprepared,
    /// The money may have moved.
    Unclear,
    /// The customer must act.
    CustomersTurn(NextAction),
    /// The provider works on it.
    ProvidersTurn,
}

impl Certainty {
    /// The state to show, given the state so far. An open question is never closed by a try that did nothing.
    pub fn state_after(&self, before: &State) -> State {
        match (self, before) {
            (Self::Unprepared, State::Pending) => State::Processing { sent: false },
            // The customer's page stays up while a read fails.
            (Self::AsBefore | Self::Unprepared, _) | (Self::Unclear, State::RequiresAction(_)) => {
                before.clone()
            }
            (Self::Unclear, _) => State::RequiresReconciliation,
            // The expiry was set when the action was first seen and is kept.
            (Self::CustomersTurn(action), State::RequiresAction(seen)) => {
                State::RequiresAction(NextAction {
                    url: action.url.clone(),
                    expires_at: seen.expires_at,
                })
            }
            (Self::CustomersTurn(action), _) => State::RequiresAction(action.clone()),
            (Self::ProvidersTurn, _) => State::Processing { sent: true },
        }
    }
}

/// What an operator must look at. The code is stable: alerts match on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Alert {
    AmountDiffers,
    CurrencyDiffers,
    StampDiffers,
    ObjectNotFound,
    RequestRejected,
    /// Another object than the stored one has moved the money.
    SecondObjectSucceeded,
}

impl Alert {
    pub const fn code(self) -> &'static str {
        match self {
            Self::AmountDiffers => "amount_differs",
            Self::CurrencyDiffers => "currency_differs",
            Self::StampDiffers => "stamp_differs",
            Self::ObjectNotFound => "object_not_found",
            Self::RequestRejected => "request_rejected",
            Self::SecondObjectSucceeded => "second_success",
        }
    }
}

/// Why an object is canceled; what its charge becomes once it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It was declined, or nobody acted in time.
    Failed(Failure),
    /// The client asked for it.
    Client,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Commit the object's id and that the money is unknown, then execute it.
    Execute(ProviderChargeId),
    /// Read the stored object.
    Read,
    /// Wait for a sweep that began after now and saw every object with our stamp; then adopt one, or prepare if there is
    /// none.
    Look,
    /// Cancel the stored object; what comes back decides between failed and completed.
    Cancel(Reason),
    Succeed(ProviderChargeId),
    Fail(Failure, CanMoveNoMore),
    /// The charge ends as the client asked.
    Canceled(CanMoveNoMore),
    Wait {
        certainty: Certainty,
        pace: Pace,
        /// Use a new provider key for the next prepare: the last one replays an error.
        new_prepare_key: bool,
    },
    /// Leave it to an operator, and say why. What is known stands.
    Park {
        alert: Alert,
        object: Option<Box<Object>>,
    },
}

/// What decides besides the answer.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    pub asked: &'a Asked,
    /// Why the object is being canceled, in [`Phase::Cancel`].
    pub canceling: Option<&'a Reason>,
    /// The client asked for a cancel: nothing is executed any more.
    pub cancel_requested: bool,
    /// The customer's time is over, by the database's clock.
    pub action_expired: bool,
    /// A sweep has looked for objects with our stamp, and none is left.
    pub looked: bool,
}

pub fn decide(phase: Phase, answer: Answer, context: Context<'_>) -> Step {
    match answer {
        Answer::Object { object, replayed } => from_object(phase, object, replayed, context),
        Answer::Refused { failure, replayed } => match (phase, replayed) {
            // No object was made under this key, and one that is not stored is never executed. Replayed, it is what an
            // earlier run was told and maybe passed on: another key could bring another answer.
            (Phase::Prepare, _) => Step::Fail(failure, CanMoveNoMore(())),
            (Phase::Execute, false) => Step::Cancel(Reason::Failed(failure)),
            // A picture of the past.
            (Phase::Execute, true) => Step::Read,
            (Phase::Read | Phase::Cancel, _) => unclear(),
        },
        Answer::NotSent | Answer::Denied | Answer::Forbidden => Step::Wait {
            certainty: Certainty::AsBefore,
            pace: Pace::Backoff,
            new_prepare_key: false,
        },
        Answer::RateLimited { retry_after } => Step::Wait {
            certainty: Certainty::AsBefore,
            pace: retry_after.map_or(Pace::Backoff, Pace::After),
            new_prepare_key: false,
        },
        Answer::NotFound => match phase {
            Phase::Prepare => Step::Park {
                alert: Alert::RequestRejected,
                object: None,
            },
            Phase::Execute | Phase::Read | Phase::Cancel => Step::Park {
                alert: Alert::ObjectNotFound,
                object: None,
            },
        },
        Answer::Rejected { detail: _ } => Step::Park {
            alert: Alert::RequestRejected,
            object: None,
        },
        // An earlier request of ours, in other words, has the key and may have made an object. It will for as long as the
        // key lives, so once a look has found none, another key is taken.
        Answer::Unclear {
            reason: Unclear::IdempotencyError,
            replayed: _,
        } if phase == Phase::Prepare => {
            if context.looked {
                unprepared(true)
            } else {
                Step::Look
            }
        }
        Answer::Unclear {
            reason: _,
            replayed,
        } => match phase {
            Phase::Prepare => unprepared(replayed),
            Phase::Execute | Phase::Read | Phase::Cancel => unclear(),
        },
    }
}

fn unprepared(new_prepare_key: bool) -> Step {
    Step::Wait {
        certainty: Certainty::Unprepared,
        pace: Pace::Backoff,
        new_prepare_key,
    }
}

fn unclear() -> Step {
    Step::Wait {
        certainty: Certainty::Unclear,
        pace: Pace::Backoff,
        new_prepare_key: false,
    }
}

fn from_object(phase: Phase, object: Object, replayed: bool, context: Context<'_>) -> Step {
    if let Some(alert) = mismatch(&object, context.asked) {
        return Step::Park {
            alert,
            object: Some(Box::new(object)),
        };
    }
    match object.status {
        // Final, also in a picture of the past.
        ObjectStatus::Succeeded => Step::Succeed(object.id),
        ObjectStatus::Canceled if phase != Phase::Prepare => ended(object.failure, context),
        // Canceled before we stored it: it can't be used, and another key makes another.
        ObjectStatus::Canceled => unprepared(true),
        ObjectStatus::RequiresConfirmation => match phase {
            Phase::Read if context.cancel_requested => Step::Cancel(Reason::Client),
            Phase::Prepare | Phase::Read => Step::Execute(object.id),
            Phase::Execute | Phase::Cancel => unclear(),
        },
        ObjectStatus::RequiresPaymentMethod
        | ObjectStatus::RequiresAction
        | ObjectStatus::Processing
        | ObjectStatus::RequiresCapture
        | ObjectStatus::Unknown => match (phase, replayed) {
            // Not stored yet: store it, and what execute answers leads to a read.
            (Phase::Prepare, _) => Step::Execute(object.id),
            (Phase::Execute | Phase::Read | Phase::Cancel, true) => Step::Read,
            (Phase::Cancel, false) => unclear(),
            (Phase::Execute | Phase::Read, false) => from_executed(object, context),
        },
    }
}

/// What a charge becomes whose object is canceled: as the cancel that we sent meant it, else by what the object says,
/// else by what the client asked.
fn ended(failure: Option<Failure>, context: Context<'_>) -> Step {
    match (context.canceling, failure) {
        (Some(Reason::Failed(failure)), _) => Step::Fail(failure.clone(), CanMoveNoMore(())),
        (Some(Reason::Client), _) => Step::Canceled(CanMoveNoMore(())),
        (None, Some(failure)) => Step::Fail(failure, CanMoveNoMore(())),
        // Canceled by a run that ended before it could say why.
        (None, None) if context.cancel_requested => Step::Canceled(CanMoveNoMore(())),
        (None, None) if context.action_expired => {
            Step::Fail(authentication_expired(), CanMoveNoMore(()))
        }
        (None, None) => Step::Fail(canceled_at_the_provider(), CanMoveNoMore(())),
    }
}

fn from_executed(object: Object, context: Context<'_>) -> Step {
    match object.status {
        ObjectStatus::RequiresPaymentMethod => {
            Step::Cancel(Reason::Failed(object.failure.unwrap_or_else(declined)))
        }
        ObjectStatus::RequiresAction if context.cancel_requested => Step::Cancel(Reason::Client),
        ObjectStatus::RequiresAction if context.action_expired => {
            Step::Cancel(Reason::Failed(authentication_expired()))
        }
        ObjectStatus::RequiresAction => match object.next_url {
            Some(url) => Step::Wait {
                certainty: Certainty::CustomersTurn(NextAction {
                    url,
                    expires_at: None,
                }),
                pace: Pace::Slow,
                new_prepare_key: false,
            },
            // Nowhere to send the customer to: nobody can act.
            None => Step::Cancel(Reason::Failed(
                object.failure.unwrap_or_else(authentication_required),
            )),
        },
        ObjectStatus::Processing | ObjectStatus::RequiresCapture => Step::Wait {
            certainty: Certainty::ProvidersTurn,
            pace: Pace::Slow,
            new_prepare_key: false,
        },
        ObjectStatus::Unknown
        | ObjectStatus::RequiresConfirmation
        | ObjectStatus::Succeeded
        | ObjectStatus::Canceled => unclear(),
    }
}

/// Whether the object is the one we asked for. What came in counts once it succeeded, what was asked before that.
pub(super) fn mismatch(object: &Object, asked: &Asked) -> Option<Alert> {
    let amount = match object.status {
        ObjectStatus::Succeeded => object.amount_received,
        ObjectStatus::RequiresConfirmation
        | ObjectStatus::RequiresPaymentMethod
        | ObjectStatus::RequiresAction
        | ObjectStatus::Processing
        | ObjectStatus::RequiresCapture
        | ObjectStatus::Canceled
        | ObjectStatus::Unknown => object.amount,
    };
    if object.stamp.as_deref() != Some(asked.stamp.as_str()) {
        Some(Alert::StampDiffers)
    } else if object.currency != asked.currency {
        Some(Alert::CurrencyDiffers)
    } else if amount != asked.amount {
        Some(Alert::AmountDiffers)
    } else {
        None
    }
}

fn failure(code: &str, message: &str, advice: Advice) -> Failure {
    Failure {
        code: code.to_owned(),
        message: message.to_owned(),
        provider_code: None,
        advice,
    }
}

fn canceled_at_the_provider() -> Failure {
    failure(
        "canceled_at_provider",
        "The payment was canceled at the provider.",
        Advice::TryAgainLater,
    )
}

fn declined() -> Failure {
    failure(
        "declined",
        "The payment was declined.",
        Advice::UseAnotherPaymentMethod,
    )
}

fn authentication_required() -> Failure {
    failure(
        "authentication_required",
        "The customer must authenticate this payment and was not there to do so.",
        Advice::UseAnotherPaymentMethod,
    )
}

fn authentication_expired() -> Failure {
    failure(
        "authentication_expired",
        "The customer did not authenticate the payment in time.",
        Advice::TryAgainLater,
    )
}

/// What an answer says of the provider as a whole; drives the breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    Good,
    /// Unreachable or answering with errors.
    Ailing,
    Throttled(Option<Duration>),
    Denied,
}

/// What an answer's object is in a word.
pub trait Worded {
    fn word(&self) -> &'static str;
}

impl Worded for Object {
    fn word(&self) -> &'static str {
        self.status.as_str()
    }
}

impl<O: Worded> Answer<O> {
    pub fn health(&self) -> Health {
        match self {
            Self::Object { .. } | Self::Refused { .. } | Self::NotFound | Self::Rejected { .. } => {
                Health::Good
            }
            Self::NotSent => Health::Ailing,
            Self::RateLimited { retry_after } => Health::Throttled(*retry_after),
            Self::Denied | Self::Forbidden => Health::Denied,
            Self::Unclear { reason, replayed } => match reason {
                Unclear::Timeout
                | Unclear::ConnectionLost
                | Unclear::ServerError
                | Unclear::Unreadable => {
                    if *replayed {
                        Health::Good
                    } else {
                        Health::Ailing
                    }
                }
                Unclear::KeyInUse
                | Unclear::IdempotencyError
                | Unclear::UnexpectedState
                | Unclear::UnknownStatus
                | Unclear::Redirect => Health::Good,
            },
        }
    }

    /// In a word, for logs, events and `last_error`.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Object { object, .. } => object.word(),
            Self::Refused { .. } => "refused",
            Self::NotSent => "not_sent",
            Self::RateLimited { .. } => "rate_limited",
            Self::Denied => "denied",
            Self::Forbidden => "forbidden",
            Self::NotFound => "not_found",
            Self::Rejected { .. } => "rejected",
            Self::Unclear { reason, .. } => reason.as_str(),
        }
    }
}

impl Answer {
    /// Every [`Answer::word`].
    pub const WORDS: &'static [&'static str] = &[
        "requires_confirmation",
        "requires_payment_method",
        "requires_action",
        "processing",
        "requires_capture",
        "succeeded",
        "canceled",
        "unknown_status",
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

#[cfg(test)]
mod tests;
