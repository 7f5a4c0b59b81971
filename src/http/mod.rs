//! The HTTP side: reads requests to the letter of the contract, hands valid ones to intake, tells charges and problems.
//!
//! It decides nothing about a charge: what it takes in goes through [`crate::intake`], what it shows is read from
//! [`crate::db`]. If the process dies between a commit and its answer, the client sends the same request again and is
//! answered as a duplicate.

mod admin;
mod answer;
mod auth;
pub mod body;
mod cancel;
pub mod charge_body;
pub mod charge_list;
mod charges;
pub mod code;
mod cursor;
mod docs;
mod edge;

pub mod event_body;
pub mod event_list;
pub mod head_scan;
pub mod headers;
mod health;
mod json;
pub mod limits;
mod meters;
pub mod openapi;
pub mod openapi_3_0;
mod openapi_parts;
mod openapi_reads;
mod openapi_refunds;
mod openapi_webhooks;
pub mod policy;
pub mod prefer;
pub mod problem;
pub mod provider_events;
mod query;
mod rate_limit;
mod read_body;
pub mod refund_body;
pub mod refund_list;
mod refunds;
mod request_id;
mod server;
pub mod timeline;
pub mod webhook_endpoints;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use bytes::Bytes;
use tokio_util::sync::CancellationToken;

pub use admin::admin_router;
pub use charge_body::{ChargeBody, CreateCharge};
pub use code::Code;
pub use event_body::Message;
pub use health::Readiness;
pub use limits::{HttpLimits, WebhookRules};
pub use meters::HttpMeters;
pub use problem::Problem;
pub use provider_events::{EventEndpoints, EventMeters, EventParts};
pub use server::{ServerLimits, ServerMeters, ServerSettings, serve};

use crate::db::pool::Pool;
use crate::domain::request::ProviderRules;
use crate::intake::Intake;
use crate::intake::refunds::RefundIntake;
use crate::random::Random;
use crate::watches::Waits;
use auth::Authenticator;
use problem::ApiError;

/// What the HTTP side is wired to.
#[derive(Clone)]
pub struct HttpParts {
    pub intake: Intake,
    pub refunds: RefundIntake,
    /// For reads: charges and API keys.
    pub pool: Pool,
    pub rules: ProviderRules,
    /// Whether the provider moves real money; API keys of the other mode are refused.
    pub live: bool,
    /// Whether `po_dev_key` is taken.
    pub dev: bool,
    /// How long a request's record is kept after its charge has ended; told, not used.
    pub retention: Duration,
    /// The newest migration that this release was built with.
    pub schema_version: i64,
    pub random: Random,
    pub limits: HttpLimits,
    pub meters: HttpMeters,
    /// What the provider delivers.
    pub events: EventEndpoints,
    pub waits: Waits,
    /// Ends the waits that clients asked for, when the server closes.
    pub closing: CancellationToken,
}

impl HttpParts {
    pub fn readiness(&self) -> Readiness {
        Readiness {
            pool: self.pool.clone(),
            schema_version: self.schema_version,
            wait: self.limits.database_wait,
        }
    }
}

/// [`HttpParts`] in use; a clone is one counter.
#[derive(Clone)]
pub struct HttpState(Arc<Shared>);

struct Shared {
    parts: HttpParts,
    auth: Authenticator,
    policy: Bytes,
    docs: Bytes,
}

impl HttpState {
    pub fn new(parts: HttpParts) -> Self {
        let auth = Authenticator::new(&parts);
        let policy = policy::render(&parts);
        let docs = docs::render(openapi::COMMITTED);
        Self(Arc::new(Shared {
            parts,
            auth,
            policy,
            docs,
        }))
    }

    fn parts(&self) -> &HttpParts {
        &self.0.parts
    }

    fn auth(&self) -> &Authenticator {
        &self.0.auth
    }

    fn policy(&self) -> Bytes {
        self.0.policy.clone()
    }

    fn docs(&self) -> Bytes {
        self.0.docs.clone()
    }
}

/// All routes of the public listener.
pub fn router(state: HttpState) -> Router {
    let edge = edge::EdgeLayer {
        random: state.parts().random.clone(),
        meters: Some(state.parts().meters.clone()),
    };
    Router::new()
        .route("/v1/charges", post(charges::create).get(charge_list::list))
        .route("/v1/charges/{id}", get(charges::show))
        .route("/v1/charges/{id}/cancel", post(cancel::cancel))
        .route("/v1/charges/{id}/timeline", get(timeline::show))
        .route("/v1/charges/{id}/refunds", post(refunds::create))
        .route("/v1/refunds", get(refund_list::list))
        .route("/v1/refunds/{id}", get(refunds::show))
        .route("/v1/events", get(event_list::list))
        .route(
            "/v1/webhook_endpoints",
            post(webhook_endpoints::create).get(webhook_endpoints::list),
        )
        .route(
            "/v1/webhook_endpoints/{id}",
            get(webhook_endpoints::show)
                .patch(webhook_endpoints::update)
                .delete(webhook_endpoints::delete),
        )
        .route(
            "/v1/webhook_endpoints/{id}/rotate_secret",
            post(webhook_endpoints::rotate_secret),
        )
        .route(
            "/v1/webhook_endpoints/{id}/test",
            post(webhook_endpoints::deliveries::test),
        )
        .route(
            "/v1/webhook_endpoints/{id}/deliveries",
            get(webhook_endpoints::deliveries::list),
        )
        .route(
            "/v1/webhook_endpoints/{id}/deliveries/{delivery}/retry",
            post(webhook_endpoints::deliveries::retry),
        )
        .route("/v1/policy", get(policy::show))
        .route("/webhooks/stripe", post(provider_events::deliver))
        .route(
            "/webhooks/stripe/{account}",
            post(provider_events::deliver_to),
        )
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready))
        .route("/openapi.json", get(document))
        .route("/openapi-3.0.json", get(document_3_0))
        .route("/docs", get(docs::page))
        .route("/docs/style.css", get(docs::style))
        .route("/problems/{code}", get(problem_page))
        .method_not_allowed_fallback(other_method)
        .fallback(nothing_here)
        .with_state(state)
        .layer(edge)
}

/// The committed document, byte for byte.
async fn document() -> Response {
    json_text(openapi::COMMITTED)
}

async fn document_3_0() -> Response {
    json_text(openapi_3_0::COMMITTED)
}

fn json_text(text: &'static str) -> Response {
    let json = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, json)], text).into_response()
}

async fn problem_page(code: Result<Path<String>, PathRejection>) -> Result<Response, ApiError> {
    let known = code.ok().and_then(|Path(code)| Code::parse(&code));
    known
        .map(|code| docs::html(code.page()))
        .ok_or_else(|| ApiError::new(Code::NotFound, "there is no such code"))
}

async fn nothing_here(request: Request) -> ApiError {
    read_body::discard(request.into_body()).await;
    let detail = "there is nothing at this address; mind the slash at the end";
    ApiError::new(Code::NotFound, detail)
}

async fn other_method(request: Request) -> ApiError {
    read_body::discard(request.into_body()).await;
    let detail = "the Allow header names the methods that this address takes";
    ApiError::new(Code::MethodNotAllowed, detail)
}

#[cfg(test)]
mod tests;
