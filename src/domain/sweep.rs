//! Compares one object of the provider with the charge that its stamp names: pure, no I/O.
//!
//! A sweep writes down what differs and lets jobs run; it ends no charge. What an object becomes is learned by the
//! charge's own job, through the table in [`super::outcome`].

use super::charge::{Stage, Status};
use super::ids::ProviderChargeId;
use super::outcome::{Alert, Asked, Object, ObjectStatus, mismatch};

/// A charge, as far as it is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ours {
    pub stage: Stage,
    pub object: Option<ProviderChargeId>,
    /// `None` where today's rules can't tell what was asked for.
    pub asked: Option<Asked>,
}

/// How provider and books differ. The words are stable: they are stored, and alerts match on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Difference {
    /// Money moved, or may move, for a charge that the books do not have.
    TheirsOnly,
    /// The books say that money moved, and the provider's object has not moved it, or is not there.
    OursOnly,
    AmountDiffers,
    CurrencyDiffers,
    /// Money moved twice for one stamp.
    SecondSuccess,
    /// Money moved for a charge that was told failed. Held for a person: the client may have paid under a new key.
    SuccessAfterFailed,
}

impl Difference {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TheirsOnly => "theirs_only",
            Self::OursOnly => "ours_only",
            Self::AmountDiffers => "amount_differs",
            Self::CurrencyDiffers => "currency_differs",
            Self::SecondSuccess => "second_success",
            Self::SuccessAfterFailed => "success_after_failed",
        }
    }
}

/// What follows from the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    Agrees,
    /// The object has come to its end and the charge has not: its job has news to read.
    Nudge,
    /// Not the object that the charge stores: its job must settle it before it goes on. With a difference if money moved
    /// or may move and there is no charge.
    Stray(Option<Difference>),
    /// The charge is final without it: it must not move money any more.
    Cancel,
    Differs(Difference),
}

pub fn compare(object: &Object, ours: Option<&Ours>) -> Finding {
    let Some(ours) = ours else {
        return match object.status {
            ObjectStatus::Canceled => Finding::Agrees,
            // Never executed, or declined: whoever sends the key again goes on with it.
            ObjectStatus::RequiresConfirmation | ObjectStatus::RequiresPaymentMethod => {
                Finding::Stray(None)
            }
            ObjectStatus::RequiresAction
            | ObjectStatus::Processing
            | ObjectStatus::RequiresCapture
            | ObjectStatus::Unknown
            | ObjectStatus::Succeeded => Finding::Stray(Some(Difference::TheirsOnly)),
        };
    };
    let stored = ours.object.as_ref() == Some(&object.id);
    let reached = match object.status {
        ObjectStatus::Succeeded => Reached::Moved,
        ObjectStatus::Canceled => Reached::NeverMoves,
        ObjectStatus::RequiresConfirmation
        | ObjectStatus::RequiresPaymentMethod
        | ObjectStatus::RequiresAction
        | ObjectStatus::Processing
        | ObjectStatus::RequiresCapture => Reached::MayMove,
        ObjectStatus::Unknown => Reached::NotKnown,
    };
    match (ours.stage.status(), stored, reached) {
        (Status::Failed, _, Reached::Moved) => Finding::Differs(Difference::SuccessAfterFailed),
        (Status::Failed, _, Reached::MayMove | Reached::NotKnown)
        | (Status::Completed, false, Reached::MayMove | Reached::NotKnown) => Finding::Cancel,
        (Status::Completed, false, Reached::Moved) => Finding::Differs(Difference::SecondSuccess),
        (Status::Completed, true, Reached::MayMove | Reached::NeverMoves) => {
            Finding::Differs(Difference::OursOnly)
        }
        (Status::Completed, true, Reached::Moved) => ours
            .asked
            .as_ref()
            .and_then(|asked| mismatch(object, asked))
            .map_or(Finding::Agrees, difference),
        (Status::InProgress, true, Reached::Moved | Reached::NeverMoves) => Finding::Nudge,
        (Status::InProgress, false, Reached::Moved | Reached::MayMove | Reached::NotKnown) => {
            Finding::Stray(None)
        }
        // What says nothing contradicts nothing: the books have it from an answer that did.
        (Status::Completed, true, Reached::NotKnown)
        | (Status::InProgress, true, Reached::MayMove | Reached::NotKnown)
        | (Status::Failed | Status::InProgress | Status::Completed, _, Reached::NeverMoves) => {
            Finding::Agrees
        }
    }
}

/// What an object can still do.
#[derive(Clone, Copy)]
enum Reached {
    Moved,
    MayMove,
    NeverMoves,
    /// A status that this release does not know: it may move for all that is known, and may have moved.
    NotKnown,
}

fn difference(alert: Alert) -> Finding {
    match alert {
        Alert::AmountDiffers => Finding::Differs(Difference::AmountDiffers),
        Alert::CurrencyDiffers => Finding::Differs(Difference::CurrencyDiffers),
        // The stamp is how the charge was found, and the others are no comparison.
        Alert::StampDiffers
        | Alert::ObjectNotFound
        | Alert::RequestRejected
        | Alert::SecondObjectSucceeded => Finding::Agrees,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::ChargeId;

    const STAMP: &str = "chg_03510a50e711533aba21e1dd9ddf20be";

    fn object(status: ObjectStatus) -> Object {
        Object {
            id: ProviderChargeId::parse("pi_1").unwrap(),
            status,
            amount: 1999,
            amount_received: 1999,
            currency: "usd".to_owned(),
            stamp: Some(STAMP.to_owned()),
            failure: None,
            next_url: None,
        }
    }

    fn ours(stage: Stage, object: Option<&str>) -> Ours {
        assert!(STAMP.parse::<ChargeId>().is_ok());
        Ours {
            stage,
            object: object.and_then(ProviderChargeId::parse),
            asked: Some(Asked {
                amount: 1999,
                currency: "usd".to_owned(),
                stamp: STAMP.to_owned(),
            }),
        }
    }

    #[test]
    fn money_that_moved_is_told_from_the_books() {
        let paid = object(ObjectStatus::Succeeded);
        for (books, finding) in [
            (None, Finding::Stray(Some(Difference::TheirsOnly))),
            (Some(ours(Stage::Succeeded, Some("pi_1"))), Finding::Agrees),
            (
                Some(ours(Stage::Succeeded, Some("pi_2"))),
                Finding::Differs(Difference::SecondSuccess),
            ),
            (
                Some(ours(Stage::Failed, Some("pi_1"))),
                Finding::Differs(Difference::SuccessAfterFailed),
            ),
            (
                Some(ours(Stage::Canceled, None)),
                Finding::Differs(Difference::SuccessAfterFailed),
            ),
            (Some(ours(Stage::Processing, Some("pi_1"))), Finding::Nudge),
            (Some(ours(Stage::Processing, None)), Finding::Stray(None)),
        ] {
            assert_eq!(compare(&paid, books.as_ref()), finding, "{books:?}");
        }
    }

    #[test]
    fn what_may_still_move_money_is_left_to_its_job_or_canceled() {
        let open = object(ObjectStatus::RequiresConfirmation);
        for (books, finding) in [
            (None, Finding::Stray(None)),
            (
                Some(ours(Stage::Succeeded, Some("pi_1"))),
                Finding::Differs(Difference::OursOnly),
            ),
            (Some(ours(Stage::Succeeded, Some("pi_2"))), Finding::Cancel),
            (Some(ours(Stage::Failed, Some("pi_1"))), Finding::Cancel),
            (Some(ours(Stage::Canceled, None)), Finding::Cancel),
            (Some(ours(Stage::Processing, Some("pi_1"))), Finding::Agrees),
            (Some(ours(Stage::Pending, None)), Finding::Stray(None)),
        ] {
            assert_eq!(compare(&open, books.as_ref()), finding, "{books:?}");
        }
    }

    #[test]
    fn a_status_that_is_not_known_is_no_difference_and_no_reason_to_let_an_object_be() {
        let strange = object(ObjectStatus::Unknown);
        for (books, finding) in [
            (None, Finding::Stray(Some(Difference::TheirsOnly))),
            (Some(ours(Stage::Succeeded, Some("pi_1"))), Finding::Agrees),
            (Some(ours(Stage::Succeeded, Some("pi_2"))), Finding::Cancel),
            (Some(ours(Stage::Failed, Some("pi_1"))), Finding::Cancel),
            (Some(ours(Stage::Processing, Some("pi_1"))), Finding::Agrees),
            (Some(ours(Stage::Pending, None)), Finding::Stray(None)),
        ] {
            assert_eq!(compare(&strange, books.as_ref()), finding, "{books:?}");
        }
    }

    #[test]
    fn what_never_moves_money_is_in_nobodys_way() {
        let gone = object(ObjectStatus::Canceled);
        for (books, finding) in [
            (None, Finding::Agrees),
            (
                Some(ours(Stage::Succeeded, Some("pi_1"))),
                Finding::Differs(Difference::OursOnly),
            ),
            (Some(ours(Stage::Succeeded, Some("pi_2"))), Finding::Agrees),
            (Some(ours(Stage::Failed, Some("pi_1"))), Finding::Agrees),
            (Some(ours(Stage::Processing, Some("pi_1"))), Finding::Nudge),
            (Some(ours(Stage::Pending, None)), Finding::Agrees),
        ] {
            assert_eq!(compare(&gone, books.as_ref()), finding, "{books:?}");
        }
    }

    #[test]
    fn a_completed_charge_of_another_amount_or_currency_differs() {
        let books = ours(Stage::Succeeded, Some("pi_1"));
        let mut less = object(ObjectStatus::Succeeded);
        less.amount_received = 5;
        assert_eq!(
            compare(&less, Some(&books)),
            Finding::Differs(Difference::AmountDiffers)
        );
        let mut other = object(ObjectStatus::Succeeded);
        other.currency = "eur".to_owned();
        assert_eq!(
            compare(&other, Some(&books)),
            Finding::Differs(Difference::CurrencyDiffers)
        );
    }
}
