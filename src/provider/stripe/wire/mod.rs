//! What is sent to Stripe and what its answers mean: pure, no I/O, no clock.
//!
//! [`decode`] is total: whatever comes back is one row of its table, and what no row knows is unclear. It never reads
//! the object that some errors embed: that one is as old as the error, and the caller reads by id.

mod account;
mod event;
mod failure;
mod form;
mod object;
mod refund;
#[cfg(test)]
mod tests;

use std::time::Duration;

use reqwest::header::{DATE, HeaderMap, HeaderValue, RETRY_AFTER};
use serde::Deserialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc2822;

pub(super) use self::event::event;
use self::failure::ErrorObject;
pub(super) use self::form::{execute, list, list_refunds, prepare, refund};
use super::super::{Page, RefundPage, Reply, Whose};
use crate::domain::charge::Failure;
use crate::domain::outcome::{Answer, Object, Phase, Unclear};
use crate::domain::refund::outcome::{RefundObject, RefundPhase};

/// The longest wait taken from a `Retry-After`: more is no hint of a rate limiter, and would hold jobs for nothing.
const LONGEST_RETRY_AFTER: Duration = Duration::from_hours(1);

#[derive(Deserialize)]
struct ErrorBody<'a> {
    #[serde(borrow)]
    error: ErrorObject<'a>,
}

/// What was called: a call about a charge's object, or one about a refund. It says what comes back when all is well and
/// which errors are final.
pub trait Called: Copy {
    type Object;

    fn object(body: &[u8]) -> Option<Self::Object>;
    /// Whether a `resource_missing` means that the object asked for by its id is not there.
    fn is_missing(self, error: &ErrorObject<'_>) -> bool;
    fn final_refusal(self, error: &ErrorObject<'_>) -> Option<Failure>;
}

impl Called for Phase {
    type Object = Object;

    fn object(body: &[u8]) -> Option<Object> {
        object::intent(body)
    }

    fn is_missing(self, error: &ErrorObject<'_>) -> bool {
        self != Self::Prepare && !matches!(error.param(), "payment_method" | "customer")
    }

    fn final_refusal(self, error: &ErrorObject<'_>) -> Option<Failure> {
        failure::is_final_refusal(error).then(|| error.failure())
    }
}

impl Called for RefundPhase {
    type Object = RefundObject;

    fn object(body: &[u8]) -> Option<RefundObject> {
        refund::refund(body)
    }

    fn is_missing(self, _error: &ErrorObject<'_>) -> bool {
        true
    }

    fn final_refusal(self, error: &ErrorObject<'_>) -> Option<Failure> {
        (self == Self::Refund)
            .then(|| refund::final_refusal(error))
            .flatten()
    }
}

/// Turns one whole response into an answer.
pub fn decode<C: Called>(
    status: u16,
    headers: &HeaderMap,
    body: &[u8],
    called: C,
) -> Reply<C::Object> {
    let replayed = is_true(headers, "idempotent-replayed");
    let answer = if status == 200 {
        C::object(body).map_or(
            Answer::Unclear {
                reason: Unclear::Unreadable,
                replayed,
            },
            |object| Answer::Object { object, replayed },
        )
    } else {
        from_error(status, headers, body, called)
    };
    reply(answer, headers)
}

/// Turns one whole page of a list of refunds into what is read of it, or the answer that stands in its place.
pub fn decode_refunds(
    status: u16,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<RefundPage, Box<Answer<RefundObject>>> {
    if status != 200 {
        let phase = RefundPhase::ListRefunds;
        return Err(Box::new(from_error(status, headers, body, phase)));
    }
    refund::page(body).ok_or_else(|| {
        Box::new(Answer::Unclear {
            reason: Unclear::Unreadable,
            replayed: false,
        })
    })
}

/// Turns one whole page of a list into its objects with a stamp of ours, or the answer that stands in its place.
pub fn decode_page(status: u16, headers: &HeaderMap, body: &[u8]) -> Result<Page, Box<Answer>> {
    if status != 200 {
        return Err(Box::new(from_error(status, headers, body, Phase::Read)));
    }
    object::page(body).ok_or_else(|| {
        Box::new(Answer::Unclear {
            reason: Unclear::Unreadable,
            replayed: false,
        })
    })
}

/// Turns one whole answer to the question whose account the key opens into what it says.
pub(super) fn decode_account(status: u16, headers: &HeaderMap, body: &[u8]) -> Whose {
    if status == 403
        && let Some(whose) = account::may_not_ask(body)
    {
        return whose;
    }
    match decode(status, headers, body, account::Account).answer {
        Answer::Object { object, .. } => Whose::Account(object),
        answer => Whose::Unanswered(answer),
    }
}

/// The answer in place of a body that was not read to its end, with the request id that came with its head.
pub(super) fn unread<O>(reason: Unclear, headers: &HeaderMap) -> Reply<O> {
    let replayed = is_true(headers, "idempotent-replayed");
    reply(Answer::Unclear { reason, replayed }, headers)
}

fn reply<O>(answer: Answer<O>, headers: &HeaderMap) -> Reply<O> {
    let id = |name: &'static str| {
        let id = headers.get(name).and_then(|id| id.to_str().ok())?;
        (1..=255).contains(&id.len()).then(|| id.to_owned())
    };
    let request_id = id("request-id");
    // The first answer under a key names itself.
    let original_request_id = id("original-request").filter(|id| Some(id) != request_id.as_ref());
    Reply {
        answer,
        request_id,
        original_request_id,
    }
}

fn from_error<C: Called>(
    status: u16,
    headers: &HeaderMap,
    body: &[u8],
    called: C,
) -> Answer<C::Object> {
    let replayed = is_true(headers, "idempotent-replayed");
    let unclear = |reason| Answer::Unclear { reason, replayed };
    let answer = match status {
        300..=399 => unclear(Unclear::Redirect),
        500..=599 => unclear(Unclear::ServerError),
        400..=499 => {
            let parsed = serde_json::from_slice::<ErrorBody<'_>>(body).ok();
            from_client_error(status, headers, parsed.map(|body| body.error), called)
        }
        _ => unclear(Unclear::UnknownStatus),
    };
    match answer {
        // These say what is so now; a replay says what was so once, for as long as the key lives.
        Answer::Rejected { .. }
        | Answer::NotFound
        | Answer::Denied
        | Answer::Forbidden
        | Answer::RateLimited { .. }
            if replayed =>
        {
            unclear(Unclear::ServerError)
        }
        answer => answer,
    }
}

fn from_client_error<C: Called>(
    status: u16,
    headers: &HeaderMap,
    error: Option<ErrorObject<'_>>,
    called: C,
) -> Answer<C::Object> {
    let replayed = is_true(headers, "idempotent-replayed");
    let unclear = |reason| Answer::Unclear { reason, replayed };
    let (kind, code) = error
        .as_ref()
        .map_or(("", ""), |error| (error.kind(), error.code()));

    // What Stripe names decides before the status: it has moved these between 400, 409 and 429.
    match (kind, code) {
        ("idempotency_error", code) if code != "idempotency_key_in_use" => {
            return unclear(Unclear::IdempotencyError);
        }
        // Somebody else holds the key or the object, most likely an earlier try of ours.
        (_, "idempotency_key_in_use" | "lock_timeout") => return unclear(Unclear::KeyInUse),
        // Says that the object has moved on, not whereto.
        (
            _,
            "payment_intent_unexpected_state"
            | "intent_invalid_state"
            | "payment_intent_payment_attempt_expired",
        ) => return unclear(Unclear::UnexpectedState),
        _ => {}
    }
    if status != 429 && (kind == "api_error" || is_true(headers, "stripe-should-retry")) {
        return unclear(Unclear::ServerError);
    }
    match (status, error) {
        (429, _) => Answer::RateLimited {
            retry_after: retry_after(headers),
        },
        (401, _) => Answer::Denied,
        (403, _) => Answer::Forbidden,
        (400 | 402 | 404, None) => unclear(Unclear::Unreadable),
        (400 | 402 | 404, Some(error)) => named(status, &error, called, replayed),
        // 409 without a code that is known, 424 and whatever else.
        _ => unclear(Unclear::UnknownStatus),
    }
}

/// A 400, 402 or 404 in Stripe's own words.
fn named<C: Called>(
    status: u16,
    error: &ErrorObject<'_>,
    called: C,
    replayed: bool,
) -> Answer<C::Object> {
    let unclear = |reason| Answer::Unclear { reason, replayed };
    match error.kind() {
        "card_error" => Answer::Refused {
            failure: error.failure(),
            replayed,
        },
        "invalid_request_error" => {
            if status == 404 && error.code() == "resource_missing" && called.is_missing(error) {
                Answer::NotFound
            } else if let Some(failure) = called.final_refusal(error) {
                Answer::Refused { failure, replayed }
            } else if status == 402 {
                unclear(Unclear::UnknownStatus)
            } else {
                Answer::Rejected {
                    detail: detail(status, error),
                }
            }
        }
        _ if status == 402 => unclear(Unclear::UnknownStatus),
        _ => unclear(Unclear::Unreadable),
    }
}

/// Names alone, never a value: it goes to logs.
fn detail(status: u16, error: &ErrorObject<'_>) -> String {
    let mut detail = format!("status {status}");
    for (name, text) in [("code", error.code()), ("parameter", error.param())] {
        let sane = (1..=100).contains(&text.len())
            && text
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"_-.[]".contains(&b));
        if sane {
            detail.push_str(", ");
            detail.push_str(name);
            detail.push(' ');
            detail.push_str(text);
        }
    }
    detail
}

fn is_true(headers: &HeaderMap, name: &'static str) -> bool {
    headers
        .get(name)
        .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"true"))
}

/// Whole seconds, or a date that counts from the response's own `Date`: nobody else's clock is asked.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = if !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit()) {
        // More digits than fit is still only too long.
        Duration::from_secs(value.parse().unwrap_or(u64::MAX))
    } else {
        let until = OffsetDateTime::parse(value, &Rfc2822).ok()?;
        let from = headers.get(DATE).and_then(date)?;
        (until - from).try_into().ok()?
    };
    Some(wait.min(LONGEST_RETRY_AFTER))
}

fn date(value: &HeaderValue) -> Option<OffsetDateTime> {
    OffsetDateTime::parse(value.to_str().ok()?.trim(), &Rfc2822).ok()
}
