//! What may follow when a person decides. The provider is asked first and its word stands: what the table says is written
//! when it is sure, whatever was wanted; otherwise a person may have an object canceled, and never more than that.
//!
//! `completed` is the provider's to say, alone. `failed` needs the same proof as ever: an object that is canceled.

use super::{Alert, CanMoveNoMore, Certainty, Object, ObjectStatus, Phase, Reason, Step, failure};
use crate::domain::charge::{Advice, Failure};

/// What a person wants a charge to become.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decision {
    Completed,
    Failed,
}

/// What follows.
#[derive(Clone, Debug, PartialEq)]
pub enum Ruling {
    /// The provider is sure: write it. One of [`Step::Succeed`], [`Step::Fail`] and [`Step::Canceled`].
    Write(Step),
    /// Cancel the object, and learn from the answer.
    Cancel(Reason),
    /// The answer said nothing: read the object.
    Read,
    /// Nothing may be written, and why.
    Refuse(Why),
}

/// Why a decision is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Why {
    /// The object was not executed: no money moved.
    NotExecuted,
    /// The last execution was declined: no money moved.
    Declined,
    /// The customer or the provider is not done with it.
    StillOpen,
    /// The provider does not let go of it, and it may succeed.
    NotCancelable,
    /// The provider did not answer, or not clearly.
    NotAsked,
    /// The provider has no object under the stored id.
    ObjectNotFound,
    /// The provider calls our request wrong.
    Rejected,
    /// The object is not the one that was asked for.
    Differs(Alert),
    /// Money moved, and not as it was asked for.
    SucceededOtherwise(Alert),
    /// No object is stored and the provider has none with our stamp: nothing was executed.
    NothingExecuted,
}

impl Why {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotExecuted => "not_executed",
            Self::Declined => "declined",
            Self::StillOpen => "still_open",
            Self::NotCancelable => "not_cancelable",
            Self::NotAsked => "not_asked",
            Self::ObjectNotFound => "object_not_found",
            Self::Rejected => "request_rejected",
            Self::Differs(alert) => alert.code(),
            Self::SucceededOtherwise(_) => "succeeded_otherwise",
            Self::NothingExecuted => "nothing_executed",
        }
    }
}

/// Rules on a step of the table. `canceled_before`: a cancel was sent already, and this was learned after it.
pub fn rule(decision: Decision, phase: Phase, step: Step, canceled_before: bool) -> Ruling {
    match step {
        Step::Succeed(_) | Step::Fail(..) | Step::Canceled(_) => Ruling::Write(step),
        Step::Read => Ruling::Read,
        // Of a prepare alone, which an operator never sends.
        Step::Look => Ruling::Refuse(Why::NotAsked),
        Step::Execute(_) => refuse_or_cancel(
            decision,
            canceled_before,
            Why::NotExecuted,
            Reason::Failed(ended_by_an_operator()),
        ),
        Step::Cancel(reason) => refuse_or_cancel(decision, canceled_before, Why::Declined, reason),
        Step::Wait { certainty, .. } => match certainty {
            Certainty::CustomersTurn(_) | Certainty::ProvidersTurn => refuse_or_cancel(
                decision,
                canceled_before,
                Why::StillOpen,
                Reason::Failed(ended_by_an_operator()),
            ),
            // The cancel may have been refused because the object succeeded: only a read tells.
            Certainty::Unclear if phase == Phase::Cancel => Ruling::Read,
            Certainty::Unclear | Certainty::AsBefore | Certainty::Unprepared => {
                Ruling::Refuse(Why::NotAsked)
            }
        },
        Step::Park { alert, object } => parked(decision, alert, object.as_deref(), canceled_before),
    }
}

fn refuse_or_cancel(decision: Decision, canceled_before: bool, why: Why, reason: Reason) -> Ruling {
    match decision {
        Decision::Completed => Ruling::Refuse(why),
        Decision::Failed if canceled_before => Ruling::Refuse(Why::NotCancelable),
        Decision::Failed => Ruling::Cancel(reason),
    }
}

/// An object with another amount or currency is still ours by its stamp, and may be canceled. One with another stamp is
/// someone else's payment.
fn parked(
    decision: Decision,
    alert: Alert,
    object: Option<&Object>,
    canceled_before: bool,
) -> Ruling {
    let Some(object) = object else {
        return Ruling::Refuse(match alert {
            Alert::ObjectNotFound => Why::ObjectNotFound,
            Alert::RequestRejected => Why::Rejected,
            Alert::AmountDiffers
            | Alert::CurrencyDiffers
            | Alert::StampDiffers
            | Alert::SecondObjectSucceeded => Why::Differs(alert),
        });
    };
    match (decision, alert, &object.status) {
        (_, Alert::StampDiffers, _) => Ruling::Refuse(Why::Differs(alert)),
        (_, _, ObjectStatus::Succeeded) => Ruling::Refuse(Why::SucceededOtherwise(alert)),
        (_, _, ObjectStatus::Canceled) => Ruling::Write(Step::Fail(
            object.failure.clone().unwrap_or_else(ended_by_an_operator),
            CanMoveNoMore(()),
        )),
        (Decision::Completed, _, _) => Ruling::Refuse(Why::Differs(alert)),
        (Decision::Failed, _, _) => refuse_or_cancel(
            decision,
            canceled_before,
            Why::Differs(alert),
            Reason::Failed(ended_by_an_operator()),
        ),
    }
}

/// What a charge's failure says whose end nobody but an operator wanted.
pub fn ended_by_an_operator() -> Failure {
    failure(
        "ended_by_operator",
        "The payment was ended by an operator; no money moved.",
        Advice::TryAgainLater,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::ProviderChargeId;
    use crate::domain::outcome::{Answer, Asked, Context, Unclear, decide};

    const EVERY_STATUS: [ObjectStatus; 8] = [
        ObjectStatus::RequiresConfirmation,
        ObjectStatus::RequiresPaymentMethod,
        ObjectStatus::RequiresAction,
        ObjectStatus::Processing,
        ObjectStatus::RequiresCapture,
        ObjectStatus::Succeeded,
        ObjectStatus::Canceled,
        ObjectStatus::Unknown,
    ];

    fn object(status: ObjectStatus) -> Object {
        Object {
            id: ProviderChargeId::parse("pi_1").unwrap(),
            status,
            amount: 1000,
            amount_received: 1000,
            currency: "usd".to_owned(),
            stamp: Some("chg_1".to_owned()),
            failure: None,
            next_url: Some("https://bank.example".to_owned()),
        }
    }

    fn ruled(decision: Decision, phase: Phase, answer: Answer, canceled_before: bool) -> Ruling {
        let asked = Asked {
            amount: 1000,
            currency: "usd".to_owned(),
            stamp: "chg_1".to_owned(),
        };
        let canceling = Reason::Failed(ended_by_an_operator());
        let context = Context {
            asked: &asked,
            canceling: canceled_before.then_some(&canceling),
            cancel_requested: false,
            action_expired: false,
            looked: false,
        };
        rule(
            decision,
            phase,
            decide(phase, answer, context),
            canceled_before,
        )
    }

    fn read(decision: Decision, object: Object) -> Ruling {
        let answer = Answer::Object {
            object,
            replayed: false,
        };
        ruled(decision, Phase::Read, answer, false)
    }

    #[test]
    fn completed_is_written_of_a_success_as_asked_and_of_nothing_else() {
        for status in EVERY_STATUS {
            let ruling = read(Decision::Completed, object(status.clone()));
            match status {
                ObjectStatus::Succeeded => {
                    assert!(matches!(ruling, Ruling::Write(Step::Succeed(_))));
                }
                ObjectStatus::Canceled => {
                    assert!(matches!(ruling, Ruling::Write(Step::Fail(..))));
                }
                _ => assert!(
                    matches!(ruling, Ruling::Refuse(_)),
                    "{status:?}: {ruling:?}"
                ),
            }
        }
    }

    #[test]
    fn failed_is_written_of_a_canceled_object_alone_and_what_can_move_money_is_canceled_first() {
        for status in EVERY_STATUS {
            let ruling = read(Decision::Failed, object(status.clone()));
            match status {
                ObjectStatus::Succeeded => {
                    assert!(matches!(ruling, Ruling::Write(Step::Succeed(_))));
                }
                ObjectStatus::Canceled => {
                    assert!(matches!(ruling, Ruling::Write(Step::Fail(..))));
                }
                // A release that does not know the status does not know what a cancel would do.
                ObjectStatus::Unknown => {
                    assert_eq!(ruling, Ruling::Refuse(Why::NotAsked));
                }
                _ => assert!(
                    matches!(ruling, Ruling::Cancel(_)),
                    "{status:?}: {ruling:?}"
                ),
            }
        }
    }

    #[test]
    fn an_object_that_stays_open_after_a_cancel_is_not_canceled_for_ever() {
        for status in EVERY_STATUS {
            let answer = Answer::Object {
                object: object(status.clone()),
                replayed: false,
            };
            let ruling = ruled(Decision::Failed, Phase::Read, answer, true);
            assert!(
                !matches!(ruling, Ruling::Cancel(_) | Ruling::Read),
                "{status:?}"
            );
        }
    }

    #[test]
    fn no_silence_and_no_refusal_of_the_provider_decides_anything() {
        let unclear = |reason| Answer::Unclear {
            reason,
            replayed: false,
        };
        for decision in [Decision::Completed, Decision::Failed] {
            for answer in [
                Answer::NotSent,
                Answer::Denied,
                Answer::Forbidden,
                Answer::NotFound,
                Answer::RateLimited { retry_after: None },
                Answer::Rejected {
                    detail: String::new(),
                },
                unclear(Unclear::Timeout),
                unclear(Unclear::ServerError),
                unclear(Unclear::UnexpectedState),
            ] {
                let ruling = ruled(decision, Phase::Read, answer.clone(), false);
                assert!(
                    matches!(ruling, Ruling::Refuse(_)),
                    "{answer:?}: {ruling:?}"
                );
                let ruling = ruled(decision, Phase::Cancel, answer.clone(), true);
                assert!(
                    matches!(ruling, Ruling::Refuse(_) | Ruling::Read),
                    "{answer:?}: {ruling:?}"
                );
            }
        }
    }

    #[test]
    fn another_amount_is_never_completed_and_fails_only_once_it_is_canceled() {
        let other = |status| Object {
            amount: 999,
            amount_received: 999,
            ..object(status)
        };
        let succeeded = Ruling::Refuse(Why::SucceededOtherwise(Alert::AmountDiffers));
        for decision in [Decision::Completed, Decision::Failed] {
            assert_eq!(read(decision, other(ObjectStatus::Succeeded)), succeeded);
        }
        assert_eq!(
            read(Decision::Completed, other(ObjectStatus::Processing)),
            Ruling::Refuse(Why::Differs(Alert::AmountDiffers))
        );
        assert!(matches!(
            read(Decision::Failed, other(ObjectStatus::Processing)),
            Ruling::Cancel(_)
        ));
        assert!(matches!(
            read(Decision::Failed, other(ObjectStatus::Canceled)),
            Ruling::Write(Step::Fail(..))
        ));
    }

    #[test]
    fn an_object_with_another_stamp_is_never_touched() {
        for status in EVERY_STATUS {
            let strange = Object {
                stamp: Some("chg_2".to_owned()),
                ..object(status)
            };
            for decision in [Decision::Completed, Decision::Failed] {
                assert_eq!(
                    read(decision, strange.clone()),
                    Ruling::Refuse(Why::Differs(Alert::StampDiffers))
                );
            }
        }
    }
}
