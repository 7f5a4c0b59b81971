//! What comes next for a charge, and why, in words.

use serde_json::Value;
use time::{Duration, OffsetDateTime};

use crate::cli::output::time;
use crate::db::charge_events::Event;
use crate::db::outbox::Job;
use crate::domain::charge::{Charge, State};
use crate::domain::request::Instruction;

/// What comes next, why, and what a person can do about it; a line a thought.
pub(super) fn next(charge: &Charge, job: Option<&Job>) -> Vec<String> {
    let Some(job) = job else {
        return vec![without_job(&charge.progress.state)];
    };
    let mut lines = Vec::new();
    match job.state.as_str() {
        "parked" => parked(charge, job, &mut lines),
        "leased" => leased(job, &mut lines),
        _ if !Instruction::VERSIONS.contains(&job.payload_version) => lines.push(format!(
            "waits for a worker of the release that knows payload version {}",
            job.payload_version
        )),
        _ => ready(charge, job, &mut lines),
    }
    lines.extend(money(&charge.progress.state));
    lines
}

fn without_job(state: &State) -> String {
    if state.is_terminal() {
        "nothing: it has ended".to_owned()
    } else {
        "the reconciler gives it a job: it is open and has none, which should not be".to_owned()
    }
}

fn parked(charge: &Charge, job: &Job, lines: &mut Vec<String>) {
    let error = job.last_error.as_deref().unwrap_or("unknown");
    lines.push(format!(
        "nothing by itself: parked, {error}; an operator must act"
    ));
    lines.push(what_to_do(error).to_owned());
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
        "request_rejected" => {
            "the provider calls a parameter of the request wrong: look it up in the provider's log"
        }
        "amount_differs" | "currency_differs" => {
            "the provider's object has another amount or currency: compare it with the discrepancy in the history below"
        }
        "stamp_differs" => {
            "the stored object is not this charge's by its stamp: compare it with the discrepancy in the history below"
        }
        "payload_unreadable" | "job_unreadable" => {
            "this release can't read the job: run the release that wrote it, or a later one"
        }
        "second_success" => {
            "another object with this charge's stamp has moved the money: see `payonce discrepancies list`, settle it, then resolve the discrepancy"
        }
        "object_refused" => "the database refused the object's id: look into the worker's log",
        _ => "look into the worker's log for the code",
    }
}

fn leased(job: &Job, lines: &mut Vec<String>) {
    let until = job.lease_until.unwrap_or(job.now);
    let holder = job
        .lease_token
        .map_or_else(|| "unknown".to_owned(), |token| token.to_string());
    if until < job.now {
        lines.push(format!(
            "a worker takes it back: its holder's lease {holder} ran out at {} ({} ago)",
            time(until),
            span(job.now - until)
        ));
    } else {
        lines.push(format!(
            "it runs at this moment: held by lease {holder} until {} (for {} more)",
            time(until),
            span(until - job.now)
        ));
    }
}

fn ready(charge: &Charge, job: &Job, lines: &mut Vec<String>) {
    let due = if job.run_at <= job.now {
        format!(
            "a worker takes it: due since {}",
            span(job.now - job.run_at)
        )
    } else {
        format!(
            "a worker takes it in {}, at {}",
            span(job.run_at - job.now),
            time(job.run_at)
        )
    };
    let first = match &charge.progress.object {
        None => "prepares an object",
        Some(_) => "reads the stored object first",
    };
    lines.push(format!("{due}; it {first}"));
    lines.push(match (job.attempt, job.last_error.as_deref()) {
        (0, _) => "no worker has had it yet: if that lasts, none is running".to_owned(),
        (runs, None) => format!("{runs} runs so far"),
        (runs, Some(error)) => format!(
            "{runs} runs so far; the last one ended with {}",
            last(error)
        ),
    });
    if let State::RequiresAction(action) = &charge.progress.state
        && let Some(at) = action.expires_at
    {
        lines.push(format!(
            "the customer has until {}, then it is canceled",
            time(at)
        ));
    }
}

/// What was asked last, and what came back.
pub(super) fn call(call: &Value) -> String {
    let text = |name: &str| call[name].as_str();
    let told = format!(
        "{} answered {}",
        text("phase").unwrap_or("a call"),
        text("answer").unwrap_or("nothing known")
    );
    [
        ("at", "at"),
        ("the provider's request id", "provider_request_id"),
    ]
    .into_iter()
    .filter_map(|(before, name)| Some((before, text(name)?)))
    .fold(told, |told, (before, value)| {
        format!("{told}, {before} {value}")
    })
}

/// Why a run did not finish: the phase whose answer ended it, or a word of its own.
fn last(error: &str) -> String {
    match error {
        "prepare" | "execute" | "read" | "cancel" => {
            format!("the provider's answer to {error}, which did not settle it")
        }
        "lease_expired" => {
            "a lease that ran out: the worker hung, crashed or lost the database".to_owned()
        }
        "holder_gone" => "a process that was gone".to_owned(),
        "lease_too_short" => "no time left in its lease for another call".to_owned(),
        "charge_changed" => "a charge that changed meanwhile".to_owned(),
        "account_not_configured" => {
            "a worker that has not the account which holds the object, or an object in another account than its own: the log says which"
                .to_owned()
        }
        _ => error.to_owned(),
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

/// The provider's own ids of requests, oldest first, as far as the history kept them.
pub(super) fn request_ids(events: &[Event]) -> Vec<&str> {
    events
        .iter()
        .filter_map(|event| event.detail.as_ref()?.get("provider_request_id")?.as_str())
        .collect()
}

/// How long it took to end, or for how long it has been open.
pub(super) fn age(charge: &Charge, now: OffsetDateTime) -> String {
    match charge.finished_at {
        Some(at) => format!("ended after {}", span(at - charge.created_at)),
        None => format!("open for {}", span(now - charge.created_at)),
    }
}

/// In the two largest units; parts of a second only below one.
fn span(duration: Duration) -> String {
    let duration = duration.unsigned_abs();
    let whole = if duration.as_secs() == 0 {
        std::time::Duration::from_millis(duration.as_millis().try_into().unwrap_or(0))
    } else {
        std::time::Duration::from_secs(duration.as_secs())
    };
    let text = humantime::format_duration(whole).to_string();
    text.split(' ').take(2).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_told_in_two_units() {
        assert_eq!(span(Duration::milliseconds(120)), "120ms");
        assert_eq!(span(Duration::milliseconds(3_700)), "3s");
        assert_eq!(span(Duration::seconds(3_723)), "1h 2m");
        assert_eq!(span(Duration::seconds(-5)), "5s");
    }

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
