//! The operators' listener: metrics, health and discrepancies. It takes no keys, so it listens on the loopback interface unless it is
//! told otherwise, and nothing that is a merchant's is on it.

use std::future::Future;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use serde_json::json;

use super::health::{self, Readiness};
use super::problem::ApiError;
use super::{edge, nothing_here, other_method};
use crate::db;
use crate::random::Random;

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// The most discrepancies that are shown at once.
const MOST_SHOWN: i64 = 1000;

/// The type of Prometheus' text format.
const TEXT_FORMAT: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4");

/// All routes of the admin listener. `scrape` writes down what was measured.
pub fn admin_router<S, F>(scrape: S, readiness: Readiness, random: Random) -> Router
where
    S: Fn() -> F + Clone + Send + Sync + 'static,
    F: Future<Output = String> + Send + 'static,
{
    Router::new()
        .route("/metrics", get(metrics::<S, F>))
        .with_state(scrape)
        .route(
            "/readyz",
            get(async |State(readiness): State<Readiness>| readiness.answer().await),
        )
        .route(
            "/discrepancies",
            get(async |State(readiness): State<Readiness>| discrepancies(readiness).await),
        )
        .with_state(readiness)
        .route("/healthz", get(health::alive))
        .method_not_allowed_fallback(other_method)
        .fallback(nothing_here)
        .layer(edge::EdgeLayer {
            random,
            meters: None,
        })
}

/// What the provider and the books differ in, oldest first, and nobody has resolved.
async fn discrepancies(readiness: Readiness) -> Result<Response, ApiError> {
    let ask = readiness
        .pool
        .ask(async |connection| db::discrepancies::open(connection, None, MOST_SHOWN).await);
    let open = tokio::time::timeout(readiness.wait, ask)
        .await
        .map_err(|_| ApiError::unavailable())?
        .map_err(ApiError::database)?;
    let body = json!({ "data": open }).to_string();
    Ok(([(header::CONTENT_TYPE, JSON)], body).into_response())
}

async fn metrics<S, F>(State(scrape): State<S>) -> Response
where
    S: Fn() -> F,
    F: Future<Output = String>,
{
    ([(header::CONTENT_TYPE, TEXT_FORMAT)], scrape().await).into_response()
}
