//! What routes have in common: to ask the database within its time, to write within it, and to answer in JSON.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use serde::Serialize;

use super::HttpState;
use super::code::Code;
use super::problem::ApiError;
use crate::db::{DbError, Fault};

/// What the database said, or why it can't be told now. For what only reads: whatever comes of it, nothing was stored.
pub(super) async fn in_time<T>(
    state: &HttpState,
    asked: impl Future<Output = Result<T, DbError>>,
) -> Result<T, ApiError> {
    tokio::time::timeout(state.parts().limits.database_wait, asked)
        .await
        .map_err(|_| ApiError::unavailable())?
        .map_err(ApiError::database)
}

/// What came of a write, or why it did not come about; `unknown` where it may have, all the same.
pub(super) async fn stored<T>(
    state: &HttpState,
    asked: impl Future<Output = Result<T, DbError>>,
    unknown: impl FnOnce() -> ApiError,
) -> Result<T, ApiError> {
    match tokio::time::timeout(state.parts().limits.database_wait, asked).await {
        Ok(Ok(written)) => Ok(written),
        Ok(Err(error)) if error.fault() == Fault::Unknown => Err(unknown().with_source(error)),
        Ok(Err(error)) => Err(ApiError::database(error)),
        Err(_) => Err(unknown()),
    }
}

/// It may have been written, and the same request again does no harm.
pub(super) fn send_again(what_may_be: &'static str) -> ApiError {
    let detail = format!("{what_may_be}; send the same request again");
    ApiError::new(Code::AcceptanceUnknown, detail)
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

/// JSON of what is found at this address.
pub(super) fn json_at(
    status: StatusCode,
    address: &str,
    body: &impl Serialize,
) -> Result<Response, ApiError> {
    let mut response = json(status, body)?;
    if let Ok(location) = HeaderValue::try_from(address) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

/// Marks the answer to a duplicate.
pub(super) fn replayed(response: &mut Response) {
    let replayed = HeaderValue::from_static("true");
    response
        .headers_mut()
        .insert("idempotent-replayed", replayed);
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
