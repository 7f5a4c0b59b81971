//! What routes have in common: to ask the database within its time, and to answer in JSON.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use serde::Serialize;

use super::HttpState;
use super::problem::ApiError;
use crate::db::DbError;

/// What the database said, or why it can't be told now.
pub(super) async fn in_time<T>(
    state: &HttpState,
    asked: impl Future<Output = Result<T, DbError>>,
) -> Result<T, ApiError> {
    tokio::time::timeout(state.parts().limits.database_wait, asked)
        .await
        .map_err(|_| ApiError::unavailable())?
        .map_err(ApiError::database)
}

pub(super) fn json(status: StatusCode, body: &impl Serialize) -> Result<Response, ApiError> {
    // A charge without long texts fits: no second allocation.
    let mut json = Vec::with_capacity(1024);
    serde_json::to_writer(&mut json, body)
        .map_err(|error| ApiError::internal().with_source(error))?;
    let mut response = written(json);
    *response.status_mut() = status;
    Ok(response)
}

/// 200 with a JSON text.
pub(super) fn written(json: impl Into<Body>) -> Response {
    let mut response = Response::new(json.into());
    let content_type = HeaderValue::from_static("application/json");
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, content_type);
    response
}
