//! The one error of the HTTP side and the one form in which it is told: `application/problem+json` (RFC 9457).
//!
//! A handler returns an [`ApiError`]; the edge, which knows the request's id, logs it where somebody must know, and
//! writes the [`Problem`]. What a client sent is never told back: a problem names places and rules, not values.

use std::borrow::Cow;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use super::body;
use super::code::{Code, Retry};
use crate::db::DbError;
use crate::domain::ids::ChargeId;
use crate::domain::request::Violation;

/// The most faults that one problem lists: a body of 64 KiB can have thousands.
const MOST_FAULTS: usize = 100;

#[derive(Debug)]
pub struct ApiError {
    code: Code,
    retry: Retry,
    detail: Cow<'static, str>,
    faults: Vec<Fault>,
    charge: Option<ChargeId>,
    source: Option<Box<dyn Error + Send + Sync>>,
    /// When to send again, in seconds, where that is known.
    retry_after: Option<u64>,
}

/// One fault of a request, and its mend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub place: Place,
    pub rule: &'static str,
    pub detail: Cow<'static, str>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A JSON pointer into the body: `#/amount`.
    Pointer(String),
    Header(&'static str),
    /// A parameter of the query: a name that may be told back.
    Parameter(Cow<'static, str>),
}

impl From<Violation> for Fault {
    fn from(violation: Violation) -> Self {
        Self {
            place: Place::Pointer(body::safe(violation.pointer)),
            rule: violation.rule,
            detail: violation.detail,
        }
    }
}

impl ApiError {
    pub fn new(code: Code, detail: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code,
            retry: code.retry(),
            detail: detail.into(),
            faults: Vec::new(),
            charge: None,
            source: None,
            retry_after: None,
        }
    }

    /// A request that breaks rules, all of them named at once.
    pub fn invalid_request(violations: Vec<Violation>) -> Self {
        let faults = violations.into_iter().map(Fault::from).collect();
        Self::broken(Code::InvalidRequest, faults)
    }

    /// A query whose parameters can't be used, all of them named at once.
    pub fn invalid_parameters(faults: Vec<Fault>) -> Self {
        Self::broken(Code::InvalidParameter, faults)
    }

    fn broken(code: Code, mut faults: Vec<Fault>) -> Self {
        let detail = match faults.len() {
            1 => "1 rule is broken; errors[] names it".to_owned(),
            n if n <= MOST_FAULTS => format!("{n} rules are broken; errors[] names them"),
            n => format!("{n} rules are broken; errors[] names the first {MOST_FAULTS}"),
        };
        faults.truncate(MOST_FAULTS);
        Self::new(code, detail).with_faults(faults)
    }

    /// A header that can't be used.
    pub fn header(
        code: Code,
        header: &'static str,
        rule: &'static str,
        detail: impl Into<Cow<'static, str>>,
    ) -> Self {
        let detail = detail.into();
        let place = Place::Header(header);
        let fault = Fault {
            place,
            rule,
            detail: detail.clone(),
        };
        Self::new(code, detail).with_faults(vec![fault])
    }

    /// The database did not do as asked: unavailable, unless the fault is ours.
    pub fn database(error: DbError) -> Self {
        if is_outage(&error) {
            return Self::unavailable().with_source(error);
        }
        Self::internal().with_source(error)
    }

    pub fn unavailable() -> Self {
        Self::new(
            Code::Unavailable,
            "the database can't be reached; nothing was stored",
        )
    }

    pub fn not_migrated() -> Self {
        Self::new(
            Code::Unavailable,
            "the database lacks migrations of this release",
        )
    }

    pub fn internal() -> Self {
        Self::new(
            Code::Internal,
            "the service has a fault; the request id names it in the log",
        )
    }

    #[must_use]
    pub fn with_faults(self, faults: Vec<Fault>) -> Self {
        Self { faults, ..self }
    }

    #[must_use]
    pub fn with_charge(self, charge: ChargeId) -> Self {
        let charge = Some(charge);
        Self { charge, ..self }
    }

    /// Though others with this code may come to something, this request never will.
    #[must_use]
    pub fn for_good(self) -> Self {
        let retry = Retry::Never;
        Self { retry, ..self }
    }

    /// Whole seconds, and never none at all.
    #[must_use]
    pub fn with_retry_after(self, wait: Duration) -> Self {
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        let retry_after = Some(seconds.max(1));
        Self {
            retry_after,
            ..self
        }
    }

    #[must_use]
    pub fn with_source(self, source: impl Error + Send + Sync + 'static) -> Self {
        let source: Option<Box<dyn Error + Send + Sync>> = Some(Box::new(source));
        Self { source, ..self }
    }

    pub fn code(&self) -> Code {
        self.code
    }

    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }

    /// Says a 5xx once, with the chain of its causes.
    pub(super) fn log(&self, request_id: &str) {
        let mut chain = String::new();
        let mut next = self.source.as_deref().map(|e| e as &dyn Error);
        while let Some(error) = next {
            chain.push_str(": ");
            chain.push_str(&error.to_string());
            next = error.source();
        }
        let code = self.code.as_str();
        match self.code {
            Code::Internal => {
                tracing::error!(request.id = request_id, code, "a request failed{chain}");
            }
            Code::Unavailable | Code::AcceptanceUnknown | Code::OutcomeUnknown => {
                tracing::warn!(
                    request.id = request_id,
                    code,
                    "a request was not served{chain}"
                );
            }
            _ => tracing::debug!(request.id = request_id, code, "a request was refused"),
        }
    }

    /// The answer, as it goes out.
    pub(super) fn render(&self, request_id: &str) -> Response {
        let code = self.code;
        let body = self.body(request_id);
        let mut response = (code.status(), body).into_response();
        let mut set = |name: HeaderName, value: &'static str| {
            response
                .headers_mut()
                .insert(name, HeaderValue::from_static(value));
        };
        set(header::CONTENT_TYPE, "application/problem+json");
        match code.status() {
            StatusCode::UNAUTHORIZED => set(header::WWW_AUTHENTICATE, "Bearer"),
            // A second is enough for a batch to drain and for a pool to connect again.
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                let seconds = HeaderValue::from(self.retry_after.unwrap_or(1));
                response.headers_mut().insert(header::RETRY_AFTER, seconds);
            }
            _ => {}
        }
        if code.closes() {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(header::CONNECTION, close);
        }
        response
    }

    /// The answer as the bytes of HTTP/1.1, for who has no request to answer. The connection closes after it.
    pub(super) fn on_the_wire(&self, request_id: &str) -> Vec<u8> {
        let body = self.body(request_id);
        let status = self.code.status();
        let mut answer = format!(
            "HTTP/1.1 {} {}\r\ncontent-type: application/problem+json\r\ncontent-length: {}\r\nx-request-id: {request_id}\r\n\
             connection: close\r\n\r\n",
            status.as_u16(),
            status.canonical_reason().unwrap_or_default(),
            body.len()
        )
        .into_bytes();
        answer.extend_from_slice(&body);
        answer
    }

    /// The problem as JSON.
    pub fn body(&self, request_id: &str) -> Vec<u8> {
        let code = self.code;
        let problem = Problem {
            r#type: format!("/problems/{}", code.as_str()),
            title: code.title(),
            status: code.status().as_u16(),
            detail: &self.detail,
            code: code.as_str(),
            request_id,
            retry: self.retry.as_str(),
            errors: self.faults.iter().map(ProblemError::from).collect(),
            charge_id: self.charge.map(|charge| charge.to_string()),
        };
        serde_json::to_vec(&problem).unwrap_or_default()
    }
}

/// Whether the database is away, overloaded or out of its depth, as opposed to being asked something wrong.
fn is_outage(error: &DbError) -> bool {
    let error = match error {
        DbError::Sqlx(error) => error,
        DbError::Connect(_)
        | DbError::ConnectTimeout
        | DbError::AnswerTimeout
        | DbError::ReadOnly
        | DbError::WinnersVanish => return true,
        DbError::AfterCommit(error) => return is_outage(error),
        DbError::Unreadable { .. } => return false,
    };
    match error {
        sqlx::Error::Database(error) => error.code().is_some_and(|code| {
            // Connection, resources, operator intervention, rollback, lock not available, read only.
            ["08", "53", "57", "58", "40", "55P03", "25006"]
                .iter()
                .any(|class| code.starts_with(class))
        }),
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::WorkerCrashed => true,
        _ => false,
    }
}

/// The edge takes this out of the response and writes the problem, because it knows the request's id.
#[derive(Clone, Debug)]
pub(super) struct Unwritten(pub(super) Arc<ApiError>);

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = self.code.status().into_response();
        response.extensions_mut().insert(Unwritten(Arc::new(self)));
        response
    }
}

/// What every error looks like.
#[derive(Serialize, ToSchema)]
pub struct Problem<'a> {
    /// The address of a page that says what the code means and what to do.
    #[schema(format = "uri-reference", example = "/problems/invalid_request")]
    r#type: String,
    /// The code in words; the same for every problem of that code.
    #[schema(example = "The request breaks a rule")]
    title: &'a str,
    /// The HTTP status again.
    #[schema(minimum = 400, maximum = 599, example = 422)]
    status: u16,
    /// What is wrong with this request, for people.
    #[schema(example = "1 rule is broken; errors[] names it")]
    detail: &'a str,
    /// Match on this. New codes may come: take an unknown one by its status and `retry`.
    #[schema(example = "invalid_request", extensions(("x-extensible-enum" = json!(code_words()))))]
    code: &'a str,
    /// Names this request in the service's log.
    #[schema(example = "0b0e4b0c-3f5c-4d0a-9b0e-7f6f3f1c2d4e")]
    request_id: &'a str,
    #[schema(value_type = RetryAdvice, example = "after_fix")]
    retry: &'a str,
    /// Every fault of the request, each with its mend.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<ProblemError<'a>>,
    /// The charge that the problem is about, where one is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "chg_03510a50e711533aba21e1dd9ddf20be")]
    charge_id: Option<String>,
}

/// One fault: exactly one of `pointer`, `header` and `parameter` says where it is.
#[derive(Serialize, ToSchema)]
pub struct ProblemError<'a> {
    /// Where in the body, as a JSON pointer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "#/amount")]
    pointer: Option<&'a str>,
    /// Which header.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "Idempotency-Key")]
    header: Option<&'a str>,
    /// Which parameter of the path or the query.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "limit")]
    parameter: Option<&'a str>,
    /// The rule that is broken, in a word.
    #[schema(example = "range")]
    rule: &'a str,
    /// What would keep the rule.
    #[schema(example = "must be a whole number of minor units from 1 to 999999999999")]
    detail: &'a str,
}

impl<'a> From<&'a Fault> for ProblemError<'a> {
    fn from(fault: &'a Fault) -> Self {
        let (pointer, header, parameter) = match &fault.place {
            Place::Pointer(pointer) => (Some(pointer.as_str()), None, None),
            Place::Header(header) => (None, Some(*header), None),
            Place::Parameter(parameter) => (None, None, Some(parameter.as_ref())),
        };
        Self {
            pointer,
            header,
            parameter,
            rule: fault.rule,
            detail: &fault.detail,
        }
    }
}

/// Whether to send again: `same_request` as it is, `after_fix` corrected (nothing was stored, the key is free), or
/// `never` before somebody has looked.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub enum RetryAdvice {
    SameRequest,
    AfterFix,
    Never,
}

fn code_words() -> Vec<&'static str> {
    Code::ALL.iter().map(|code| code.as_str()).collect()
}
