//! What comes next for a charge, and why, in words.

use crate::cli::job_story::{self, Waits};
use crate::cli::output::time;
use crate::db::outbox::Job;
use crate::domain::charge::{Charge, State};
use crate::domain::request::Instruction;

/// What comes next, why, and what a person can do about it; a line a thought.
pub(super) fn next(charge: &Charge, waits: Option<Waits<'_>>) -> Vec<String> {
    let Some(waits) = waits else {
        return vec![job_story::none(charge.progress.state.is_terminal()).to_owned()];
    };
    let job = waits.job;
    let mut lines = Vec::new();
    match job.state.as_str() {
        "parked" => parked(charge, job, &mut lines),
        "leased" => job_story::leased(job, &mut lines),
        _ if !Instruction::VERSIONS.contains(&job.payload_version) => {
            lines.push(job_story::unknown_version(job));
        }
        _ => ready(charge, waits, &mut lines),
    }
    lines.extend(money(&charge.progress.state));
    lines
}

fn parked(charge: &Charge, job: &Job, lines: &mut Vec<String>) {
    job_story::parked(job, what_to_do, lines);
    lines.push(format!(
        "then: payonce charges retry {} --reason TEXT, or payonce charges resolve {} --as failed|completed --reason TEXT",
        charge.id, charge.id
    ));
}

/// What parks a job, and how it is mended.
fn what_to_do(error: &str) -> &'static str {
    match error {
        "object_not_found" => {
            "the provider does not know the stored object: most often the secret key is another account's; mend provider.stripe.secret_key"
        }
        "amount_differs" | "currency_differs" => {
            "the provider's object has another amount or currency: compare it with the discrepancy in the history below"
        }
        "stamp_differs" => {
            "the stored object is not this charge's by its stamp: compare it with the discrepancy in the history below"
        }
        "second_success" => {
            "another object with this charge's stamp has moved the money: see `payonce discrepancies list`, settle it, then resolve the discrepancy"
        }
        "object_refused" => "the database refused the object's id: look into the worker's log",
        _ => job_story::mend(error),
    }
}

fn ready(charge: &Charge, waits: Waits<'_>, lines: &mut Vec<String>) {
    let first = match &charge.progress.object {
        None => "prepares an object",
        Some(_) => "reads the stored object first",
    };
    job_story::ready(waits, first, lines);
    if let State::RequiresAction(action) = &charge.progress.state
        && let Some(at) = action.expires_at
    {
        lines.push(format!(
            "the customer has until {}, then it is canceled",
            time(at)
        ));
    }
}

fn money(state: &State) -> Option<String> {
    match state {
        State::RequiresReconciliation => Some(
            "the money may have moved: only the provider's object tells, and each run reads it"
                .to_owned(),
        ),
        State::Processing { sent: true } => Some(
            "the money may have moved: execute was sent, or the provider works on it".to_owned(),
        ),
        State::RequiresAction(_) => Some(
            "the customer must act, and may be doing so: the money may move any moment".to_owned(),
        ),
        State::Pending
        | State::Processing { sent: false }
        | State::Succeeded
        | State::Failed(_)
        | State::Canceled => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_alert_that_parks_a_job_has_its_mend() {
        use crate::domain::outcome::Alert;
        for alert in [
            Alert::AmountDiffers,
            Alert::CurrencyDiffers,
            Alert::StampDiffers,
            Alert::ObjectNotFound,
            Alert::RequestRejected,
        ] {
            assert_ne!(
                what_to_do(alert.code()),
                what_to_do("?"),
                "{}",
                alert.code()
            );
        }
    }
}
