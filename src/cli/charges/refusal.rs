//! Why a charge was not resolved, and what to do, in words.

use crate::cli::output::Hinted;
use crate::domain::ids::ChargeId;
use crate::domain::outcome::operator::Why;
use crate::worker::resolve::{Refusal, RefusedBecause};

pub(super) fn said(id: ChargeId, wanted: &str, refusal: &Refusal) -> Hinted {
    let (why, hint) = words(refusal.why);
    let asked = match (refusal.last_answer, &refusal.request_id) {
        ("", _) => String::new(),
        (answer, None) => format!(" (the provider's last answer: {answer})"),
        (answer, Some(request)) => {
            format!(" (the provider's last answer: {answer}, request {request})")
        }
    };
    Hinted::new(
        format!("{id} was not resolved as {wanted}: {why}{asked}"),
        hint,
    )
}

fn words(why: RefusedBecause) -> (&'static str, &'static str) {
    match why {
        RefusedBecause::Ruled(why) => ruled(why),
        RefusedBecause::PayloadUnreadable => (
            "its instruction is of another release",
            "use the release that accepted it, or a later one",
        ),
        RefusedBecause::ObjectElsewhere => (
            "another account than its own has an object with its stamp",
            "docs/operations.md, the provider's keys and accounts, says how the charge is given to that account",
        ),
        RefusedBecause::AccountNotConfigured => (
            "its object is held by an account that is not configured here",
            "use the settings of the workers that run it",
        ),
        RefusedBecause::NoTimeLeft => (
            "the calls took longer than the lease",
            "decide again when the provider answers faster, or raise worker.lease",
        ),
    }
}

fn ruled(why: Why) -> (&'static str, &'static str) {
    match why {
        Why::NotExecuted => (
            "the provider has not executed it, no money moved",
            "`payonce charges retry` lets it be executed; --as failed cancels it",
        ),
        Why::Declined => (
            "the provider declined it, no money moved",
            "`payonce charges retry` or --as failed ends it as failed",
        ),
        Why::StillOpen => (
            "the provider or the customer is not done with it",
            "wait; --as failed tries to cancel it",
        ),
        Why::NotCancelable => (
            "the provider does not let it be canceled, and it may still succeed",
            "wait for the provider's word: `payonce charges retry` asks again",
        ),
        Why::NotAsked => (
            "the provider did not say clearly where it stands",
            "decide again when the provider answers",
        ),
        Why::ObjectNotFound => (
            "the provider has no object under the stored id, so nobody here knows whether money moved",
            "check that provider.stripe.secret_key belongs to the account that made it",
        ),
        Why::Rejected => (
            "the provider calls our request wrong",
            "look at the request in the provider's log; a release of payonce must be mended",
        ),
        Why::Differs(_) => (
            "the provider's object is not what was asked for",
            "compare both with `payonce charges show` and the provider's own page",
        ),
        Why::SucceededOtherwise(_) => (
            "money moved at the provider, and not as it was asked for",
            "give it back at the provider; the charge stays open until the books can say so",
        ),
        Why::NothingExecuted => (
            "nothing was executed for it: no object is stored, and the provider has none with its stamp",
            "`payonce charges retry` lets it be charged; --as failed ends it",
        ),
    }
}
