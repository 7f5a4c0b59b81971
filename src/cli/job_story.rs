//! What a job waits for, in words: of charges and of refunds.

use std::fmt::{self, Write};

use serde_json::{Value, json};
use time::{Duration, OffsetDateTime};

use super::output::{self, time};
use crate::db::charge_events::Event;
use crate::db::outbox::Job;
use crate::db::pauses::Pause;

/// Why the last run did not finish, with what the provider answered if that ended it.
pub(super) fn why(error: Option<&str>, call: Option<&Value>) -> Option<String> {
    let error = error?;
    // The call of an earlier run says nothing of this one.
    let answer = call
        .filter(|call| call["phase"] == error)
        .and_then(|call| call["answer"].as_str());
    Some(answer.map_or_else(|| error.to_owned(), |answer| format!("{error}: {answer}")))
}

/// A job, and what else says when it goes on.
#[derive(Clone, Copy)]
pub(super) struct Waits<'a> {
    pub(super) job: &'a Job,
    pub(super) pauses: &'a [Pause],
    /// The account that it needs, if the configuration here does not have it.
    pub(super) missing_account: Option<&'a str>,
}

/// Of what has no job.
pub(super) fn none(has_ended: bool) -> &'static str {
    if has_ended {
        "nothing: it has ended"
    } else {
        "the reconciler gives it a job: it is open and has none, which should not be"
    }
}

/// Why it is parked, and how that is mended.
pub(super) fn parked(job: &Job, mend: impl Fn(&str) -> &'static str, lines: &mut Vec<String>) {
    let error = job.last_error.as_deref().unwrap_or("unknown");
    lines.push(format!(
        "nothing by itself: parked, {error}; an operator must act"
    ));
    lines.push(mend(error).to_owned());
}

/// How it is mended, whatever it is of.
pub(super) fn mend(error: &str) -> &'static str {
    match error {
        "request_rejected" => {
            "the provider calls a parameter of the request wrong: look it up in the provider's log"
        }
        "payload_unreadable" | "job_unreadable" => {
            "this release can't read the job: run the release that wrote it, or a later one"
        }
        _ => "look into the worker's log for the code",
    }
}

/// Of a job that another release wrote.
pub(super) fn unknown_version(job: &Job) -> String {
    format!(
        "waits for a worker of the release that knows payload version {}",
        job.payload_version
    )
}

/// Who has it.
pub(super) fn leased(job: &Job, lines: &mut Vec<String>) {
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

/// Of a job that is ready: when it runs, what its next run does first, and what holds it until then.
pub(super) fn ready(waits: Waits<'_>, first: &str, lines: &mut Vec<String>) {
    let job = waits.job;
    for pause in waits.pauses {
        lines.push(format!(
            "sending is paused since {} ({}): {}",
            time(pause.since),
            pause.kind,
            pause.reason
        ));
    }
    if let Some(account) = waits.missing_account {
        lines.push(format!(
            "it waits for the account `{account}`, which is not in the configuration here: a worker that has it takes it"
        ));
    }
    let held = !waits.pauses.is_empty() || waits.missing_account.is_some();
    let takes = if held {
        "then a worker takes it"
    } else {
        "a worker takes it"
    };
    let due = if job.run_at <= job.now {
        format!("{takes}: due since {}", span(job.now - job.run_at))
    } else {
        format!(
            "{takes} in {}, at {}",
            span(job.run_at - job.now),
            time(job.run_at)
        )
    };
    lines.push(format!("{due}; it {first}"));
    let error = job.last_error.as_deref();
    lines.push(match (job.attempt, error) {
        (0, _) if held => "no worker has had it yet".to_owned(),
        (0, _) => "no worker has had it yet: if that lasts, none is running".to_owned(),
        (1, None) => "1 run so far".to_owned(),
        (runs, None) => format!("{runs} runs so far"),
        (runs, Some(error)) => format!(
            "{} so far; the last one ended with {}",
            output::counted(runs.into(), "run"),
            last(error)
        ),
    });
}

/// Why a run did not finish: the phase whose answer ended it, or a word of its own.
fn last(error: &str) -> String {
    match error {
        "prepare" | "execute" | "read" | "cancel" | "list_refunds" | "refund" | "read_refund" => {
            format!("the provider's answer to {error}, which did not settle it")
        }
        "lease_expired" => {
            "a lease that ran out: the worker hung, crashed or lost the database".to_owned()
        }
        "holder_gone" => "a process that was gone".to_owned(),
        "lease_too_short" => "no time left in its lease for another call".to_owned(),
        "charge_changed" => "a charge that changed meanwhile".to_owned(),
        "refund_changed" => "a refund that changed meanwhile".to_owned(),
        "account_not_configured" => {
            "a worker that has not the account which holds the object, or an object in another account than its own: the log says which"
                .to_owned()
        }
        _ => error.to_owned(),
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

/// How long it took to end, or for how long it has been open.
pub(super) fn age(
    created_at: OffsetDateTime,
    finished_at: Option<OffsetDateTime>,
    now: OffsetDateTime,
) -> String {
    match finished_at {
        Some(at) => format!("ended after {}", span(at - created_at)),
        None => format!("open for {}", span(now - created_at)),
    }
}

/// The provider's own ids of requests, oldest first, as far as the history kept them.
pub(super) fn request_ids(events: &[Event]) -> Vec<&str> {
    events
        .iter()
        .filter_map(|event| event.detail.as_ref()?.get("provider_request_id")?.as_str())
        .collect()
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        _ => value.to_string(),
    }
}

pub(super) fn job(job: &Job) -> Value {
    json!({
        "id": job.id,
        "kind": job.kind,
        "payload_version": job.payload_version,
        "state": job.state,
        "attempt": job.attempt,
        "run_at": time(job.run_at),
        "lease_token": job.lease_token,
        "lease_until": job.lease_until.map(time),
        "last_error": job.last_error,
        "last_call": job.last_call,
        "created_at": time(job.created_at),
    })
}

pub(super) fn event(event: &Event) -> Value {
    json!({
        "at": time(event.at),
        "version": event.version,
        "kind": event.kind,
        "actor": event.actor,
        "reason": event.reason,
        "detail": event.detail,
    })
}

/// What is there, what comes next, and the heading of what was asked.
pub(super) fn head(
    text: &mut String,
    fields: Vec<(&'static str, Value)>,
    next: Vec<String>,
) -> fmt::Result {
    for (name, value) in fields {
        writeln!(text, "{name:<20}{}", plain(&value))?;
    }
    writeln!(text, "\nnext")?;
    for line in next {
        writeln!(text, "  {line}")?;
    }
    writeln!(text, "\ncalls")
}

/// What was asked last, and the ids to ask the provider by.
pub(super) fn calls(text: &mut String, job: Option<&Job>, events: &[Event]) -> fmt::Result {
    if let Some(last) = job.and_then(|job| job.last_call.as_ref()) {
        writeln!(text, "  the last one: {}", call(last))?;
    }
    let request_ids = request_ids(events);
    if !request_ids.is_empty() {
        writeln!(text, "  provider's request ids: {}", request_ids.join(", "))?;
    }
    Ok(())
}

pub(super) fn about_job(text: &mut String, of: Option<&Job>) -> fmt::Result {
    if let Some(Value::Object(entries)) = of.map(job) {
        writeln!(text, "\njob")?;
        for (name, value) in entries.iter().filter(|(_, value)| !value.is_null()) {
            writeln!(text, "  {name:<18}{}", plain(value))?;
        }
    }
    Ok(())
}

pub(super) fn history(
    text: &mut String,
    accepted_at: OffsetDateTime,
    events: &[Event],
) -> fmt::Result {
    writeln!(text, "\nhistory\n  {}  v1  accepted", time(accepted_at))?;
    for event in events {
        write!(
            text,
            "  {}  v{}  {} by {}",
            time(event.at),
            event.version,
            event.kind,
            event.actor
        )?;
        if let Some(reason) = &event.reason {
            write!(text, ": {reason}")?;
        }
        if let Some(detail) = &event.detail {
            write!(text, "  {detail}")?;
        }
        writeln!(text)?;
    }
    Ok(())
}

/// In the two largest units of days, hours, minutes and seconds; parts of a second only below one.
pub(super) fn span(duration: Duration) -> String {
    const UNITS: [u64; 4] = [86_400, 3_600, 60, 1];
    let duration = duration.unsigned_abs();
    let seconds = duration.as_secs();
    let Some(largest) = UNITS.iter().position(|unit| seconds >= *unit) else {
        return output::span(std::time::Duration::from_millis(
            duration.subsec_millis().into(),
        ));
    };
    let smallest = UNITS.get(largest + 1).unwrap_or(&1);
    output::span(std::time::Duration::from_secs(seconds - seconds % smallest))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_span_is_told_in_two_units() {
        assert_eq!(span(Duration::milliseconds(120)), "120ms");
        assert_eq!(span(Duration::milliseconds(3_700)), "3s");
        assert_eq!(span(Duration::seconds(3_723)), "1h 2m");
        assert_eq!(span(Duration::seconds(-5)), "5s");
        assert_eq!(span(Duration::seconds(90_061)), "1 day 1h");
    }

    #[test]
    fn the_answer_is_told_of_the_run_that_it_ended() {
        let call = json!({"phase": "prepare", "answer": "denied"});
        let why = |error| why(Some(error), Some(&call)).unwrap();
        assert_eq!(why("prepare"), "prepare: denied");
        assert_eq!(why("paused"), "paused");
    }
}
