//! Which of several objects with one charge's stamp goes on. Strays come from lost replies, and from rows that a restore
//! or a failover lost; some of them may have been executed by whoever stored them then.
//!
//! One object is left over before anything is stored or executed: every other one is canceled first. Otherwise a request
//! that lands late could still execute the other.

use super::{Asked, Object, ObjectStatus, mismatch};
use crate::domain::ids::ProviderChargeId;

/// The next step towards one object. What is canceled is read again, and the question asked anew.
#[derive(Clone, Debug, PartialEq)]
pub enum Among {
    /// It can still move money and is not the one that goes on.
    Cancel(ProviderChargeId),
    /// The only one that is left, or the one that succeeded: store it, and go on from its state.
    Adopt(ProviderChargeId),
    /// Another object than the stored one has moved the money.
    Dispute(Box<Object>),
    /// None is in the way.
    None,
}

/// Decides among `strays`, as they were just read. `stored` is the charge's own object and none of them.
pub fn among(strays: &[Object], stored: Option<&ProviderChargeId>, asked: &Asked) -> Among {
    let succeeded = |object: &&Object| object.status == ObjectStatus::Succeeded;
    let goes_on = match stored {
        Some(_) => None,
        None => strays
            .iter()
            .filter(|object| may_go_on(object, asked))
            .min_by_key(|object| rank(&object.status)),
    };
    let other_open = strays.iter().find(|object| {
        !matches!(
            object.status,
            ObjectStatus::Succeeded | ObjectStatus::Canceled
        ) && goes_on.is_none_or(|best| best.id != object.id)
    });
    if let Some(object) = other_open {
        return Among::Cancel(object.id.clone());
    }
    match (goes_on, strays.iter().find(succeeded)) {
        (Some(best), _) => Among::Adopt(best.id.clone()),
        (None, Some(object)) => Among::Dispute(Box::new(object.clone())),
        (None, None) => Among::None,
    }
}

/// A success is a fact, whatever it is of. What did not move money yet goes on only if it is what is asked for now: after
/// a restore a key may have come back with another request.
fn may_go_on(object: &Object, asked: &Asked) -> bool {
    match object.status {
        ObjectStatus::Succeeded => true,
        ObjectStatus::Canceled => false,
        ObjectStatus::RequiresConfirmation
        | ObjectStatus::RequiresPaymentMethod
        | ObjectStatus::RequiresAction
        | ObjectStatus::Processing
        | ObjectStatus::RequiresCapture
        | ObjectStatus::Unknown => mismatch(object, asked).is_none(),
    }
}

/// What moved money first, then what is nearest to it.
const fn rank(status: &ObjectStatus) -> u8 {
    match status {
        ObjectStatus::Succeeded => 0,
        ObjectStatus::Processing | ObjectStatus::RequiresCapture => 1,
        ObjectStatus::RequiresAction => 2,
        ObjectStatus::Unknown => 3,
        ObjectStatus::RequiresConfirmation => 4,
        ObjectStatus::RequiresPaymentMethod => 5,
        ObjectStatus::Canceled => 6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked() -> Asked {
        Asked {
            amount: 1999,
            currency: "usd".to_owned(),
            stamp: "chg_1".to_owned(),
        }
    }

    fn object(id: &str, status: ObjectStatus) -> Object {
        Object {
            id: ProviderChargeId::parse(id).unwrap(),
            status,
            amount: 1999,
            amount_received: 1999,
            currency: "usd".to_owned(),
            stamp: Some("chg_1".to_owned()),
            failure: None,
            next_url: None,
        }
    }

    fn id(text: &str) -> ProviderChargeId {
        ProviderChargeId::parse(text).unwrap()
    }

    #[test]
    fn the_one_that_moved_money_goes_on_and_all_others_are_canceled_first() {
        use ObjectStatus::{Canceled, RequiresConfirmation, Succeeded};
        let mut strays = [
            object("pi_1", RequiresConfirmation),
            object("pi_2", Succeeded),
            object("pi_3", RequiresConfirmation),
        ];
        assert_eq!(among(&strays, None, &asked()), Among::Cancel(id("pi_1")));
        strays[0].status = Canceled;
        assert_eq!(among(&strays, None, &asked()), Among::Cancel(id("pi_3")));
        strays[2].status = Canceled;
        assert_eq!(among(&strays, None, &asked()), Among::Adopt(id("pi_2")));
    }

    #[test]
    fn of_those_that_moved_nothing_one_is_left() {
        let mut strays = [
            object("pi_1", ObjectStatus::RequiresConfirmation),
            object("pi_2", ObjectStatus::Processing),
        ];
        assert_eq!(among(&strays, None, &asked()), Among::Cancel(id("pi_1")));
        strays[0].status = ObjectStatus::Canceled;
        assert_eq!(among(&strays, None, &asked()), Among::Adopt(id("pi_2")));
        strays[1].status = ObjectStatus::Canceled;
        assert_eq!(among(&strays, None, &asked()), Among::None);
        assert_eq!(among(&[], None, &asked()), Among::None);
    }

    /// The rows were lost, and the key came back with another amount.
    #[test]
    fn what_is_no_longer_asked_for_is_canceled_unless_it_moved_money() {
        let mut other = object("pi_1", ObjectStatus::RequiresConfirmation);
        other.amount = 5;
        assert_eq!(
            among(std::slice::from_ref(&other), None, &asked()),
            Among::Cancel(id("pi_1"))
        );
        other.status = ObjectStatus::Succeeded;
        other.amount_received = 5;
        assert_eq!(among(&[other], None, &asked()), Among::Adopt(id("pi_1")));
    }

    #[test]
    fn beside_a_stored_object_a_stray_is_canceled_or_disputed() {
        let stored = id("pi_0");
        let open = object("pi_1", ObjectStatus::RequiresConfirmation);
        assert_eq!(
            among(&[open], Some(&stored), &asked()),
            Among::Cancel(id("pi_1"))
        );
        let paid = object("pi_1", ObjectStatus::Succeeded);
        assert_eq!(
            among(std::slice::from_ref(&paid), Some(&stored), &asked()),
            Among::Dispute(Box::new(paid))
        );
    }
}
