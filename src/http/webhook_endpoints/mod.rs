//! `/v1/webhook_endpoints`: where a merchant wants its events.
//!
//! A secret is told by the call that makes it, and by no other. Addresses are judged here by [`EndpointUrl`] and by what
//! their names resolve to now; each connection is judged again.

mod body;
pub mod deliveries;

use std::time::Duration;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use self::body::Asked;
#[cfg(test)]
pub(super) use self::body::FIELDS;
use super::auth::Principal;
use super::charge_body::{Shown, shown};
use super::code::Code;
use super::limits::HttpLimits;
use super::problem::ApiError;
use super::{HttpState, answer, headers, read_body};
use crate::clock::Instant;
use crate::db::webhook_endpoints::{self as endpoints, Changes, Endpoint, New};
use crate::domain::endpoint_url::{EndpointUrl, Reach, may_be_reached};
use crate::domain::event::{EndpointId, TYPES};
use crate::domain::request::Violation;
use crate::domain::signing::SigningSecret;

/// How long a name may take to resolve when an endpoint is made. One that does not is taken: it may be set up later.
const RESOLVE: Duration = Duration::from_secs(2);

/// Where events are sent.
#[derive(Serialize, ToSchema)]
#[schema(as = WebhookEndpoint)]
pub struct EndpointBody<'a> {
    #[schema(value_type = String, pattern = "^whe_[0-9a-f]{32}$", example = "whe_5a1d0b7c3f0e4e6d9a43c1b2d3e4f506")]
    id: Shown<EndpointId>,
    #[schema(
        format = "uri",
        max_length = 2048,
        example = "https://shop.example.com/payonce"
    )]
    url: &'a str,
    /// The types that are sent; empty for all.
    #[schema(example = json!(["charge.completed", "charge.failed"]), max_items = 32)]
    events: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, min_length = 1, max_length = 500)]
    description: Option<&'a str>,
    /// Whether anything is sent.
    #[schema(example = true)]
    enabled: bool,
    /// Why not: `merchant` (asked for), `gone` (it answered 410) or `failing` (it took nothing for days).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "failing", extensions(("x-extensible-enum" = json!(["merchant", "gone", "failing"]))))]
    disabled_reason: Option<&'a str>,
    /// The first failure after the last success, if deliveries fail now.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, nullable = false, format = DateTime)]
    failing_since: Option<Shown<Instant>>,
    /// What deliveries are signed with. Told by the call that made it, and never again.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(
        nullable = false,
        pattern = "^whsec_[A-Za-z0-9+/=]+$",
        example = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwAAAAAAAAAAA="
    )]
    secret: Option<String>,
    /// Until when deliveries are signed with the secret before this one too.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, nullable = false, format = DateTime)]
    previous_secret_until: Option<Shown<Instant>>,
    #[schema(value_type = String, format = DateTime, example = "2026-11-29T20:15:00.104233Z")]
    created_at: Shown<Instant>,
    #[schema(value_type = String, format = DateTime, example = "2026-11-29T20:15:00.104233Z")]
    updated_at: Shown<Instant>,
}

/// All endpoints of a merchant, oldest first.
#[derive(Serialize, ToSchema)]
#[schema(as = WebhookEndpointList)]
pub struct EndpointListBody<'a> {
    data: Vec<EndpointBody<'a>>,
}

/// An endpoint to make. Unknown fields are refused; null for an optional field counts as absent.
#[derive(ToSchema)]
#[schema(example = json!({"url": "https://shop.example.com/payonce"}))]
pub struct CreateWebhookEndpoint {
    /// An https address of the public internet, without user, password and fragment, with port 443 or one from 1024 on.
    #[schema(
        format = "uri",
        max_length = 2048,
        example = "https://shop.example.com/payonce"
    )]
    pub url: String,
    /// The types that are wanted; all if absent or empty.
    #[schema(nullable = false, max_items = 32, example = json!(["charge.completed", "charge.failed"]))]
    pub events: Option<Vec<String>>,
    /// For people, without control characters.
    #[schema(nullable = false, max_length = 500, example = "Orders")]
    pub description: Option<String>,
    /// Whether anything is sent.
    #[schema(nullable = false, default = true)]
    pub enabled: Option<bool>,
}

/// What to change of an endpoint; what is absent or null stays as it is.
#[derive(ToSchema)]
#[schema(example = json!({"enabled": false}))]
pub struct UpdateWebhookEndpoint {
    /// As for a new one.
    #[schema(nullable = false, format = "uri", max_length = 2048)]
    pub url: Option<String>,
    /// The types that are wanted; all if empty.
    #[schema(nullable = false, max_items = 32)]
    pub events: Option<Vec<String>>,
    /// Empty for none.
    #[schema(nullable = false, max_length = 500)]
    pub description: Option<String>,
    /// What waits is sent when it is enabled again; what happens while it is not is not sent.
    #[schema(nullable = false)]
    pub enabled: Option<bool>,
}

impl<'a> EndpointBody<'a> {
    fn new(endpoint: &'a Endpoint, secret: Option<&SigningSecret>) -> Self {
        Self {
            id: Shown::of(EndpointId::from_uuid(endpoint.id)),
            url: &endpoint.url,
            events: &endpoint.events,
            description: endpoint.description.as_deref(),
            enabled: endpoint.enabled,
            disabled_reason: endpoint.disabled_reason.as_deref(),
            failing_since: endpoint.failing_since.map(shown),
            secret: secret.map(SigningSecret::reveal),
            previous_secret_until: endpoint.previous_secret_until.map(shown),
            created_at: shown(endpoint.created_at),
            updated_at: shown(endpoint.updated_at),
        }
    }
}

pub(super) async fn create(
    State(state): State<HttpState>,
    request: Request,
) -> Result<Response, ApiError> {
    let (principal, asked) = take_in(&state, request).await?;
    let rules = state.parts().limits.webhooks;
    let Changes {
        url,
        events,
        description,
        enabled,
    } = judge(asked, rules.reach, true).await?;
    let secret = SigningSecret::new(state.parts().random.bytes());
    let (url, events) = (url.unwrap_or_default(), events.unwrap_or_default());
    let new = New {
        id: EndpointId::from_uuid(state.parts().random.uuid()),
        merchant: principal.merchant,
        url: &url,
        events: &events,
        description: description.as_deref().filter(|text| !text.is_empty()),
        enabled: enabled.unwrap_or(true),
        secret: &secret,
    };
    let most = rules.most_endpoints;
    let write = state
        .parts()
        .pool
        .ask(async |connection| endpoints::insert(connection, &new, most.into()).await);
    let endpoint = answer::stored(&state, write, || unknown_endpoint(new.id)).await?;
    let endpoint = endpoint.ok_or_else(|| {
        ApiError::invalid_request(vec![Violation::new(
            "#",
            "limit",
            format!("must not be one more than {most} endpoints: delete one first"),
        )])
    })?;
    let mut response = answer::json(
        StatusCode::CREATED,
        &EndpointBody::new(&endpoint, Some(&secret)),
    )?;
    if let Ok(location) = HeaderValue::try_from(format!("/v1/webhook_endpoints/{}", new.id)) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

pub(super) async fn list(
    State(state): State<HttpState>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let merchant = state.auth().authenticate(&headers).await?.merchant;
    let read = state
        .parts()
        .pool
        .ask(async |connection| endpoints::list(connection, Some(merchant)).await);
    let found = answer::in_time(&state, read).await?;
    let data = found
        .iter()
        .map(|each| EndpointBody::new(each, None))
        .collect();
    answer::json(StatusCode::OK, &EndpointListBody { data })
}

pub(super) async fn show(
    State(state): State<HttpState>,
    id: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let merchant = state.auth().authenticate(&headers).await?.merchant;
    let id = path_id(id)?;
    let read = state
        .parts()
        .pool
        .ask(async |connection| endpoints::find(connection, merchant, id).await);
    let endpoint = answer::in_time(&state, read).await?.ok_or_else(absent)?;
    answer::json(StatusCode::OK, &EndpointBody::new(&endpoint, None))
}

pub(super) async fn update(
    State(state): State<HttpState>,
    id: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Response, ApiError> {
    let (principal, asked) = take_in(&state, request).await?;
    let id = path_id(id)?;
    let changes = judge(asked, state.parts().limits.webhooks.reach, false).await?;
    let write = state.parts().pool.ask(async |connection| {
        endpoints::update(connection, principal.merchant, id, &changes).await
    });
    let unknown = || answer::send_again("the endpoint may have been changed");
    let endpoint = answer::stored(&state, write, unknown).await?;
    let endpoint = endpoint.ok_or_else(absent)?;
    answer::json(StatusCode::OK, &EndpointBody::new(&endpoint, None))
}

pub(super) async fn delete(
    State(state): State<HttpState>,
    id: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Response, ApiError> {
    let principal = writer_without_body(&state, request).await?;
    let id = path_id(id)?;
    let write = state
        .parts()
        .pool
        .ask(async |connection| endpoints::delete(connection, principal.merchant, id).await);
    let unknown = || answer::send_again("the endpoint may have been deleted");
    if !answer::stored(&state, write, unknown).await? {
        return Err(absent());
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}

pub(super) async fn rotate_secret(
    State(state): State<HttpState>,
    id: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Response, ApiError> {
    let principal = writer_without_body(&state, request).await?;
    let id = path_id(id)?;
    let secret = SigningSecret::new(state.parts().random.bytes());
    let overlap = state.parts().limits.webhooks.secret_overlap;
    let write = state.parts().pool.ask(async |connection| {
        endpoints::rotate(connection, principal.merchant, id, &secret, overlap).await
    });
    let endpoint = answer::stored(&state, write, || unknown_secret(id)).await?;
    let endpoint = endpoint.ok_or_else(absent)?;
    answer::json(StatusCode::OK, &EndpointBody::new(&endpoint, Some(&secret)))
}

/// Who asks, who must be allowed to change something, and what is asked.
async fn take_in(state: &HttpState, request: Request) -> Result<(Principal, Asked), ApiError> {
    let (head, body) = request.into_parts();
    let admitted = match writer(state, &head.headers).await {
        Ok(principal) => headers::json_content(&head.headers).map(|()| principal),
        Err(refusal) => Err(refusal),
    };
    let principal = match admitted {
        Ok(principal) => principal,
        Err(refusal) => {
            read_body::discard(body).await;
            return Err(refusal);
        }
    };
    let HttpLimits {
        body_bytes,
        body_read,
        ..
    } = state.parts().limits;
    let bytes = read_body::read(body, body_bytes, body_read).await?;
    Ok((principal, Asked::read(&bytes)?))
}

/// Nothing in a body counts, and nothing is expected in one.
async fn writer_without_body(state: &HttpState, request: Request) -> Result<Principal, ApiError> {
    let (head, body) = request.into_parts();
    read_body::discard(body).await;
    writer(state, &head.headers).await
}

async fn writer(state: &HttpState, headers: &HeaderMap) -> Result<Principal, ApiError> {
    state.auth().writer(headers, "this API key may only read; to change or test an endpoint takes a key with the scope write").await
}

/// What is asked for, if all of it keeps the rules.
async fn judge(mut asked: Asked, reach: Reach, is_new: bool) -> Result<Changes, ApiError> {
    if is_new
        && asked.changes.url.is_none()
        && !asked.is_at_fault("#/url")
        && !asked.is_at_fault("#")
    {
        asked.refuse("#/url", "required", "url is required");
    }
    if let Some(url) = &asked.changes.url {
        match EndpointUrl::parse(url, reach) {
            Ok(url) => {
                if !leads_out(&url, reach).await {
                    asked.refuse(
                        "#/url",
                        "address",
                        "must not lead to an address that is not of the public internet",
                    );
                }
            }
            Err(mend) => asked.refuse("#/url", "url", mend),
        }
    }
    asked.finish()
}

/// Whether a name has no address that may not be reached, as far as it has any now.
async fn leads_out(url: &EndpointUrl, reach: Reach) -> bool {
    let url = url.url();
    let Some(name) = url.domain() else {
        // In numbers, and judged already.
        return true;
    };
    let found = tokio::net::lookup_host((name, 0));
    match tokio::time::timeout(RESOLVE, found).await {
        Ok(Ok(mut found)) => found.all(|at| may_be_reached(at.ip(), reach)),
        Ok(Err(_)) | Err(_) => true,
    }
}

/// The endpoint that a path names; what is no id names none.
fn path_id(id: Result<Path<String>, PathRejection>) -> Result<EndpointId, ApiError> {
    let id = id.ok().and_then(|Path(id)| EndpointId::parse(&id));
    id.ok_or_else(absent)
}

fn absent() -> ApiError {
    ApiError::new(Code::NotFound, "there is no such webhook endpoint")
}

/// A second one would be told everything twice, and nobody could verify what this one sends.
fn unknown_endpoint(id: EndpointId) -> ApiError {
    let detail = format!(
        "the endpoint {id} may have been made: if GET /v1/webhook_endpoints/{id} finds it, delete it, and make it again"
    );
    ApiError::new(Code::OutcomeUnknown, detail)
}

/// A second new one would take the place of the one that receivers know.
fn unknown_secret(id: EndpointId) -> ApiError {
    let detail = format!(
        "the secret may have been replaced: previous_secret_until of GET /v1/webhook_endpoints/{id} tells until when the one \
         before signs too, and to replace it again ends that at once"
    );
    ApiError::new(Code::OutcomeUnknown, detail)
}

/// What the types of a list must be of.
fn known_types() -> String {
    format!("must be one of {}", TYPES.join(", "))
}
