//! Answers that are given without executing anything, in Stripe's words as far as they are known.

use std::io;

use super::model::{Answer, ApiError};
use super::reply::Reply;

pub(super) fn unauthorized(secret: Option<&str>) -> Reply {
    let message = match secret {
        None => {
            "You did not provide an API key. You need to provide your API key in the Authorization header, using Bearer auth (e.g. 'Authorization: Bearer YOUR_SECRET_KEY').".to_owned()
        }
        Some(secret) => {
            let tail = secret.char_indices().rev().nth(3).map_or("", |(at, _)| &secret[at..]);
            format!("Invalid API Key provided: ****{tail}")
        }
    };
    error_reply(401, ApiError::invalid(message)).challenge()
}

pub(super) fn unknown_url(method: &str, path: &str) -> Reply {
    error_reply(
        404,
        ApiError::invalid(format!(
            "Unrecognized request URL ({method}: {path}). Please see https://stripe.com/docs or we can help at https://support.stripe.com/."
        )),
    )
}

pub(super) fn key_too_long() -> Reply {
    error_reply(
        400,
        ApiError::invalid("The idempotency key is too long: it can have up to 255 characters."),
    )
}

pub(super) fn key_in_use(key: &str) -> Reply {
    let message = format!(
        "There is currently another in-progress request using this Idempotent Key (that probably means you submitted twice, and the other request is still going through): {key}. Please try again later."
    );
    // Not `idempotency_error`, as one might think.
    error_reply(
        409,
        ApiError::invalid(message).code("idempotency_key_in_use"),
    )
    .should_retry(true)
}

pub(super) fn other_parameters(key: &str) -> Reply {
    let message = format!(
        "Keys for idempotent requests can only be used with the same parameters they were first used with. Try using a key other than '{key}' if you meant to execute a different request."
    );
    error_reply(400, ApiError::new("idempotency_error", message))
}

pub(super) fn other_path(key: &str, path: &str, first: &str) -> Reply {
    let message = format!(
        "Keys for idempotent requests can only be used for the same endpoint they were first used for ('{path}' vs '{first}'). Try using a key other than '{key}' if you meant to execute a different request."
    );
    error_reply(400, ApiError::new("idempotency_error", message))
}

pub(super) fn unsaved() -> Reply {
    error_reply(
        400,
        ApiError::invalid("The request could not be processed."),
    )
}

pub(super) fn rate_limited() -> Reply {
    let message = "Request rate limit exceeded. Learn more about rate limits here https://stripe.com/docs/rate-limits.";
    error_reply(429, ApiError::invalid(message).code("rate_limit"))
        .should_retry(true)
        .retry_after_s(1)
}

pub(super) fn unavailable() -> Reply {
    error_reply(
        503,
        ApiError::new(
            "api_error",
            "Stripe is temporarily unavailable. Please try again later.",
        ),
    )
    .should_retry(true)
}

pub(super) fn internal() -> Answer {
    Answer::error(
        500,
        ApiError::new("api_error", "An unknown error occurred. Sorry about that."),
    )
}

/// The simulator's own fault: its journal could not be written, so nothing took effect.
pub(super) fn journal(error: &io::Error) -> Reply {
    error_reply(
        500,
        ApiError::new(
            "api_error",
            format!("The simulator could not write its journal: {error}"),
        ),
    )
}

/// An error of the API in the place of an object.
fn error_reply(status: u16, error: ApiError) -> Reply {
    Reply::json(status, Answer::error(status, error).body(None))
}
