//! Every code that a problem can have: its status, its title, whether to send again, and the page that explains it.

use axum::http::StatusCode;

/// What a client matches on. A code once published is never renamed or taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Code {
    IdempotencyKeyMissing,
    IdempotencyKeyInvalid,
    MalformedRequest,
    MalformedJson,
    InvalidParameter,
    InvalidSignature,
    Unauthenticated,
    Forbidden,
    NotFound,
    MethodNotAllowed,
    RequestTimeout,
    ChargeNotCancelable,
    ChargeNotRefundable,
    PayloadTooLarge,
    UriTooLong,
    HeadersTooLarge,
    UnsupportedMediaType,
    InvalidRequest,
    IdempotencyKeyReused,
    RefundExceedsCharge,
    RateLimited,
    Internal,
    Overloaded,
    Unavailable,
    AcceptanceUnknown,
    OutcomeUnknown,
}

/// Whether sending again is safe, and what to change before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Send it again as it is.
    SameRequest,
    /// Nothing was stored and the key is free: correct it and send.
    AfterFix,
    Never,
}

impl Retry {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SameRequest => "same_request",
            Self::AfterFix => "after_fix",
            Self::Never => "never",
        }
    }
}

/// A code's row in the table.
struct Entry {
    word: &'static str,
    status: StatusCode,
    title: &'static str,
    retry: Retry,
    meaning: &'static str,
    mend: &'static str,
}

impl Code {
    pub const ALL: &'static [Self] = &[
        Self::IdempotencyKeyMissing,
        Self::IdempotencyKeyInvalid,
        Self::MalformedRequest,
        Self::MalformedJson,
        Self::InvalidParameter,
        Self::InvalidSignature,
        Self::Unauthenticated,
        Self::Forbidden,
        Self::NotFound,
        Self::MethodNotAllowed,
        Self::RequestTimeout,
        Self::ChargeNotCancelable,
        Self::ChargeNotRefundable,
        Self::PayloadTooLarge,
        Self::UriTooLong,
        Self::HeadersTooLarge,
        Self::UnsupportedMediaType,
        Self::InvalidRequest,
        Self::IdempotencyKeyReused,
        Self::RefundExceedsCharge,
        Self::RateLimited,
        Self::Internal,
        Self::Overloaded,
        Self::Unavailable,
        Self::AcceptanceUnknown,
        Self::OutcomeUnknown,
    ];

    pub const fn as_str(self) -> &'static str {
        self.entry().word
    }

    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.as_str() == word)
    }

    pub const fn status(self) -> StatusCode {
        self.entry().status
    }

    pub const fn title(self) -> &'static str {
        self.entry().title
    }

    pub const fn retry(self) -> Retry {
        self.entry().retry
    }

    /// What it means.
    pub const fn meaning(self) -> &'static str {
        self.entry().meaning
    }

    /// What to do.
    pub const fn mend(self) -> &'static str {
        self.entry().mend
    }

    /// Whether the connection ends with it: what was not read of the request can't be told from the next one.
    pub const fn closes(self) -> bool {
        matches!(
            self,
            Self::RequestTimeout | Self::MalformedRequest | Self::HeadersTooLarge
        )
    }

    /// The code for an answer that the framework gave by its own.
    pub fn of_status(status: StatusCode) -> Self {
        match status {
            StatusCode::NOT_FOUND => Self::NotFound,
            StatusCode::METHOD_NOT_ALLOWED => Self::MethodNotAllowed,
            StatusCode::REQUEST_TIMEOUT => Self::RequestTimeout,
            StatusCode::PAYLOAD_TOO_LARGE => Self::PayloadTooLarge,
            StatusCode::URI_TOO_LONG => Self::UriTooLong,
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => Self::HeadersTooLarge,
            StatusCode::UNSUPPORTED_MEDIA_TYPE => Self::UnsupportedMediaType,
            status if status.is_client_error() => Self::InvalidParameter,
            _ => Self::Internal,
        }
    }

    /// `/problems/<code>` as a page.
    pub fn page(self) -> String {
        let Entry {
            word,
            status,
            title,
            retry,
            meaning,
            mend,
        } = self.entry();
        let (status, retry) = (status.as_u16(), retry.as_str());
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width\">\n\
             <title>{word}: payonce</title>\n<h1><code>{word}</code>: {title}</h1>\n\
             <p>Status {status}, <code>retry</code>: <code>{retry}</code></p>\n\
             <h2>What it means</h2>\n<p>{meaning}</p>\n<h2>What to do</h2>\n<p>{mend}</p>\n</html>\n"
        )
    }

    #[expect(clippy::too_many_lines, reason = "a table")]
    const fn entry(self) -> Entry {
        use Retry::{AfterFix, Never, SameRequest};
        let (word, status, title, retry, meaning, mend) = match self {
            Self::IdempotencyKeyMissing => (
                "idempotency_key_missing",
                StatusCode::BAD_REQUEST,
                "The Idempotency-Key header is missing",
                AfterFix,
                "The request moves money and says no key, so a lost answer could not be told from a new payment. Nothing was stored.",
                "Make one key for each purchase and each refund, keep it, and send it in the Idempotency-Key header with the first try and with every retry.",
            ),
            Self::IdempotencyKeyInvalid => (
                "idempotency_key_invalid",
                StatusCode::BAD_REQUEST,
                "The Idempotency-Key header can't be read",
                AfterFix,
                "There is more than one such header, or its value is not 1 to 255 visible ASCII characters other than the quotation mark, the backslash and the comma. Nothing was stored.",
                "Send exactly one header line with a valid key, bare or in quotation marks.",
            ),
            Self::MalformedRequest => (
                "malformed_request",
                StatusCode::BAD_REQUEST,
                "The request is not HTTP/1.1",
                AfterFix,
                "The request line or a header can't be read, Host is missing or repeated, or the length of the body is said twice and not \
                 in the same way: by two different Content-Length, or by one and Transfer-Encoding. Nothing was stored, and the \
                 connection is closed.",
                "Look at what stands between: a client library or proxy of today does not send such a request.",
            ),
            Self::MalformedJson => (
                "malformed_json",
                StatusCode::BAD_REQUEST,
                "The body is not JSON",
                AfterFix,
                "The body is not one JSON text in UTF-8, or it ended early, or it is nested too deep. Nothing was stored.",
                "Send one JSON object, in UTF-8 and without a byte order mark.",
            ),
            Self::InvalidParameter => (
                "invalid_parameter",
                StatusCode::BAD_REQUEST,
                "A parameter can't be used",
                AfterFix,
                "A parameter of the address is unknown, repeated or has a value that can't be used. A misspelt filter is refused, because it would answer with something else than was asked for.",
                "Correct the parameters that errors[] names.",
            ),
            Self::InvalidSignature => (
                "invalid_signature",
                StatusCode::BAD_REQUEST,
                "The delivery is not signed by the provider",
                AfterFix,
                "Of webhooks alone: the provider's signature is missing, was made with a secret that is not configured or over another body, or its time is too far from this machine's clock. Nothing was stored.",
                "Set the endpoint's signing secret in the service's configuration, hand the body on as it came, and set the clock. The provider delivers the event again.",
            ),
            Self::Unauthenticated => (
                "unauthenticated",
                StatusCode::UNAUTHORIZED,
                "No valid API key was given",
                AfterFix,
                "The Authorization header is missing, or its key is unknown, revoked or made for the other mode. Nothing was stored.",
                "Send Authorization: Bearer and an API key of this service and mode.",
            ),
            Self::Forbidden => (
                "forbidden",
                StatusCode::FORBIDDEN,
                "The API key may not do this",
                AfterFix,
                "The key is valid and may only read. Nothing was stored.",
                "Use a key with the scope write.",
            ),
            Self::NotFound => (
                "not_found",
                StatusCode::NOT_FOUND,
                "There is nothing at this address",
                AfterFix,
                "The address is unknown, or the charge does not exist or is another merchant's.",
                "Check the path, without a slash at its end, and the id.",
            ),
            Self::MethodNotAllowed => (
                "method_not_allowed",
                StatusCode::METHOD_NOT_ALLOWED,
                "The address does not take this method",
                AfterFix,
                "The address exists and takes other methods.",
                "Use one of the methods in the Allow header.",
            ),
            Self::RequestTimeout => (
                "request_timeout",
                StatusCode::REQUEST_TIMEOUT,
                "The request did not arrive in time",
                SameRequest,
                "The headers or the body took too long to arrive. Nothing was stored.",
                "Send the same request again.",
            ),
            Self::ChargeNotCancelable => (
                "charge_not_cancelable",
                StatusCode::CONFLICT,
                "The charge can't be canceled any more",
                Never,
                "The charge has succeeded or ended, or the provider no longer lets it be canceled.",
                "Read the charge: its status says how it ended.",
            ),
            Self::ChargeNotRefundable => (
                "charge_not_refundable",
                StatusCode::CONFLICT,
                "The charge can't be refunded",
                AfterFix,
                "Only a completed charge can be refunded: this one is still on its way, or has failed (retry is never then). \
                 Nothing was stored.",
                "Read the charge. Once its status is completed, send the same request again; of a failed charge nothing goes back.",
            ),
            Self::PayloadTooLarge => (
                "payload_too_large",
                StatusCode::PAYLOAD_TOO_LARGE,
                "The body is too large",
                AfterFix,
                "A body may have up to 65536 bytes, or what GET /v1/policy says. Nothing was stored.",
                "Send a smaller body.",
            ),
            Self::UriTooLong => (
                "uri_too_long",
                StatusCode::URI_TOO_LONG,
                "The address is too long",
                AfterFix,
                "An address may have up to 8192 characters.",
                "Send a shorter one.",
            ),
            Self::HeadersTooLarge => (
                "headers_too_large",
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                "The headers are too large",
                AfterFix,
                "The request line and the headers together are too large, or too many. Nothing was stored, and the connection is \
                 closed.",
                "Send fewer headers: a cookie or a trace that grows with each hop is the usual reason.",
            ),
            Self::UnsupportedMediaType => (
                "unsupported_media_type",
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "The body's content type is not taken",
                AfterFix,
                "The body must be application/json in UTF-8, not compressed. Nothing was stored.",
                "Send Content-Type: application/json.",
            ),
            Self::InvalidRequest => (
                "invalid_request",
                StatusCode::UNPROCESSABLE_ENTITY,
                "The request breaks a rule",
                AfterFix,
                "The body is JSON, and some of its fields break a rule. Nothing was stored and the key is free.",
                "Correct everything that errors[] names, and send it with the same key.",
            ),
            Self::IdempotencyKeyReused => (
                "idempotency_key_reused",
                StatusCode::UNPROCESSABLE_ENTITY,
                "The key belongs to another request",
                Never,
                "An earlier request with this key asked for something else. Most often it is the same purchase with a changed field.",
                "Read the charge that charge_id names before anything else: a new key pays a second time. Use a new key only for a new purchase.",
            ),
            Self::RefundExceedsCharge => (
                "refund_exceeds_charge",
                StatusCode::UNPROCESSABLE_ENTITY,
                "The refund is more than is left of the charge",
                AfterFix,
                "Completed refunds, those in progress and those made outside payonce leave less of the charge than this. Nothing was stored.",
                "Read the charge's refunds. What one that fails has reserved is free again.",
            ),
            Self::RateLimited => (
                "rate_limited",
                StatusCode::TOO_MANY_REQUESTS,
                "Too many requests",
                SameRequest,
                "The merchant sent more requests than its limit, which GET /v1/policy tells, or too many keys that nobody knows were sent at once. \
                 Nothing was stored.",
                "Send the same request again, with the same key, after the seconds in Retry-After.",
            ),
            Self::Internal => (
                "internal",
                StatusCode::INTERNAL_SERVER_ERROR,
                "Something went wrong here",
                SameRequest,
                "The service has a fault. Whether the request was accepted is not known.",
                "Send the same request again, with the same key: it makes at most one charge. Give the request_id to whoever runs the service.",
            ),
            Self::Overloaded => (
                "overloaded",
                StatusCode::SERVICE_UNAVAILABLE,
                "Too much work at the moment",
                SameRequest,
                "The service takes no more requests for a moment. Nothing was stored.",
                "Send the same request again, with the same key, after the seconds in Retry-After.",
            ),
            Self::Unavailable => (
                "unavailable",
                StatusCode::SERVICE_UNAVAILABLE,
                "The database can't be reached",
                SameRequest,
                "The service can't reach its database. Nothing was stored.",
                "Send the same request again, with the same key, after the seconds in Retry-After.",
            ),
            Self::AcceptanceUnknown => (
                "acceptance_unknown",
                StatusCode::SERVICE_UNAVAILABLE,
                "The request may have been accepted",
                SameRequest,
                "The answer of the database did not come: the request may have been accepted or not. charge_id names the charge that it would be, if it makes one.",
                "Send the same request again, with the same key if it has one: it makes at most one charge. Never take a new key.",
            ),
            Self::OutcomeUnknown => (
                "outcome_unknown",
                StatusCode::SERVICE_UNAVAILABLE,
                "What was asked for may have been done",
                Never,
                "The answer of the database did not come, and to ask twice is not the same as to ask once. detail names what may be there now.",
                "Look for it before you send again: its secret was told to nobody.",
            ),
        };
        Entry {
            word,
            status,
            title,
            retry,
            meaning,
            mend,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_read_as_it_is_written_and_has_a_page() {
        for code in Code::ALL {
            assert_eq!(Code::parse(code.as_str()), Some(*code));
            assert!(code.page().contains(code.as_str()));
            assert!(code.status().is_client_error() || code.status().is_server_error());
        }
        assert_eq!(Code::parse("nope"), None);
    }
}
