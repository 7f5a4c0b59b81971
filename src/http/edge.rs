//! The outermost layer around every route: names the request, catches a panic, and writes every error, the
//! framework's own included, as a problem. No reply leaves without its request id, none under `/v1` without
//! `Cache-Control: no-store`.

use std::any::Any;
use std::convert::Infallible;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::extract::{MatchedPath, Request};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use futures_util::FutureExt;
use tower::{Layer, Service};

use super::code::Code;
use super::limits::MOST_URI_LENGTH;
use super::meters::HttpMeters;
use super::problem::{ApiError, Unwritten};
use super::request_id;
use crate::random::Random;

#[derive(Clone)]
pub(super) struct EdgeLayer {
    pub(super) random: Random,
    /// Absent where nobody's requests are counted.
    pub(super) meters: Option<HttpMeters>,
}

impl<S> Layer<S> for EdgeLayer {
    type Service = Edge<S>;

    fn layer(&self, inner: S) -> Edge<S> {
        Edge {
            inner,
            random: self.random.clone(),
            meters: self.meters.clone(),
        }
    }
}

#[derive(Clone)]
pub(super) struct Edge<S> {
    inner: S,
    random: Random,
    meters: Option<HttpMeters>,
}

impl<S> Service<Request> for Edge<S>
where
    S: Service<Request, Response = Response, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request) -> Self::Future {
        let id = request_id::request_id(request.headers(), &self.random);
        let path = request.uri().path();
        let private = path == "/v1" || path.starts_with("/v1/");
        let counted = self.meters.clone().map(|meters| (meters, route(&request)));
        let told = tracing::enabled!(tracing::Level::DEBUG).then(|| Told::of(&request));
        let too_long = request
            .uri()
            .path_and_query()
            .is_some_and(|target| target.as_str().len() > MOST_URI_LENGTH);
        // By the connection, before it came here.
        let refused = request.extensions_mut().remove::<Unwritten>();
        let inner = (!too_long && refused.is_none()).then(|| self.inner.call(request));
        Box::pin(async move {
            let outcome = match inner {
                Some(inner) => AssertUnwindSafe(inner).catch_unwind().await,
                None => Ok(Ok(match refused {
                    Some(Unwritten(error)) => {
                        error.log(text(&id));
                        error.render(text(&id))
                    }
                    None => uri_too_long(&id),
                })),
            };
            let mut response = match outcome {
                Ok(Ok(response)) => response,
                Ok(Err(never)) => match never {},
                Err(panic) => panicked(&id, panic.as_ref()),
            };
            if response.status().is_client_error() || response.status().is_server_error() {
                response = as_problem(response, &id);
            }
            if let Some((meters, route)) = counted {
                meters.answered(route, response.status());
            }
            if let Some(told) = told {
                told.log(&id, response.status());
            }
            let headers = response.headers_mut();
            headers.insert(request_id::HEADER, id);
            if private {
                headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
            }
            Ok(response)
        })
    }
}

/// What of a request may be logged: never its path as it came, its headers or its body.
struct Told {
    method: Method,
    route: &'static str,
}

impl Told {
    fn of(request: &Request) -> Self {
        Self {
            method: request.method().clone(),
            route: route(request),
        }
    }

    fn log(&self, id: &HeaderValue, status: StatusCode) {
        tracing::debug!(
            request.id = text(id),
            request.method = self.method.as_str(),
            request.route = self.route,
            response.status = status.as_u16(),
            "a request was answered"
        );
    }
}

/// Every route that is told in logs and counted, as the router has it.
pub(super) const ROUTES: &[&str] = &[
    "/v1/charges",
    "/v1/charges/{id}",
    "/v1/charges/{id}/cancel",
    "/v1/charges/{id}/refunds",
    "/v1/charges/{id}/timeline",
    "/v1/refunds",
    "/v1/refunds/{id}",
    "/v1/policy",
    "/v1/events",
    "/v1/webhook_endpoints",
    "/v1/webhook_endpoints/{id}",
    "/v1/webhook_endpoints/{id}/rotate_secret",
    "/v1/webhook_endpoints/{id}/test",
    "/v1/webhook_endpoints/{id}/deliveries",
    "/v1/webhook_endpoints/{id}/deliveries/{delivery_id}/retry",
    "/docs",
    "/docs/style.css",
    "/healthz",
    "/readyz",
    "/openapi.json",
    "/openapi-3.0.json",
    "/problems/{code}",
    "/webhooks/stripe",
    "/webhooks/stripe/{account}",
    UNKNOWN,
];

/// Of an address that is none of ours.
const UNKNOWN: &str = "unknown";

/// The route that the request was given to; a path as it came could hold anything.
fn route(request: &Request) -> &'static str {
    let matched = request.extensions().get::<MatchedPath>();
    let matched = matched.map_or(UNKNOWN, MatchedPath::as_str);
    let known = ROUTES.iter().copied().find(|known| *known == matched);
    known.unwrap_or(UNKNOWN)
}

fn text(id: &HeaderValue) -> &str {
    id.to_str().unwrap_or_default()
}

fn uri_too_long(id: &HeaderValue) -> Response {
    let detail = format!("the address is longer than {MOST_URI_LENGTH} characters");
    ApiError::new(Code::UriTooLong, detail).render(text(id))
}

fn panicked(id: &HeaderValue, panic: &(dyn Any + Send)) -> Response {
    // A formatted message could hold what the client sent: only a fixed one is told.
    let message = panic.downcast_ref::<&'static str>().unwrap_or(&"");
    tracing::error!(
        request.id = text(id),
        code = Code::Internal.as_str(),
        "a request panicked: {message}"
    );
    ApiError::internal().render(text(id))
}

/// Writes an error of ours, or one that the framework gave without a word.
fn as_problem(mut response: Response, id: &HeaderValue) -> Response {
    let is_problem = response
        .headers()
        .get(header::CONTENT_TYPE)
        .is_some_and(|value| value == "application/problem+json");
    if is_problem {
        return response;
    }
    let error = match response.extensions_mut().remove::<Unwritten>() {
        Some(Unwritten(error)) => error,
        None => Arc::new(of_framework(response.status())),
    };
    error.log(text(id));
    let mut problem = error.render(text(id));
    if let Some(allow) = response.headers_mut().remove(header::ALLOW) {
        problem.headers_mut().insert(header::ALLOW, allow);
    }
    problem
}

fn of_framework(status: StatusCode) -> ApiError {
    let code = Code::of_status(status);
    ApiError::new(code, code.title())
}
