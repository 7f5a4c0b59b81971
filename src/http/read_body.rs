//! Takes a body off the wire within its limits of size and time, whether or not it says its length.

use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;

use super::code::Code;
use super::problem::ApiError;

/// How much of a refused body is read and dropped, and for how long, so that the client hears the refusal: to close
/// a connection with unread bytes resets it, and the answer is lost on the way.
const MOST_DISCARDED_BYTES: usize = 8 * 1024 * 1024;
const MOST_DISCARD_TIME: Duration = Duration::from_secs(5);

/// The whole body, of `most` bytes.
pub(super) async fn read(mut body: Body, most: usize, wait: Duration) -> Result<Bytes, ApiError> {
    let read = tokio::time::timeout(wait, collect(&mut body, most)).await;
    match read {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(Refused::TooLarge)) => {
            discard(body).await;
            Err(ApiError::new(
                Code::PayloadTooLarge,
                format!("the body is larger than {most} bytes"),
            ))
        }
        Ok(Err(Refused::Broken)) => Err(ApiError::new(
            Code::MalformedJson,
            "the body ended early or its transfer coding is broken",
        )),
        Err(_) => Err(ApiError::new(
            Code::RequestTimeout,
            format!("the body did not arrive within {} seconds", wait.as_secs()),
        )),
    }
}

/// Reads what a client still sends of a body that nobody wants.
pub(super) async fn discard(mut body: Body) {
    let drain = async {
        let mut length = 0;
        while let Some(Ok(frame)) = body.frame().await {
            length += frame.data_ref().map_or(0, Bytes::len);
            if length > MOST_DISCARDED_BYTES {
                break;
            }
        }
    };
    // Out of time is like out of bytes: the connection is closed.
    let _ = tokio::time::timeout(MOST_DISCARD_TIME, drain).await;
}

enum Refused {
    TooLarge,
    Broken,
}

async fn collect(body: &mut Body, most: usize) -> Result<Bytes, Refused> {
    use axum::body::HttpBody as _;
    if body.size_hint().lower() > most as u64 {
        return Err(Refused::TooLarge);
    }
    // Most bodies are one frame, which is passed on as it is.
    let mut first = Bytes::new();
    let mut joined = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame.map_err(|_| Refused::Broken)?.into_data() else {
            continue;
        };
        if first.len() + joined.len() + frame.len() > most {
            return Err(Refused::TooLarge);
        }
        if first.is_empty() && joined.is_empty() {
            first = frame;
        } else {
            if joined.is_empty() {
                joined.extend_from_slice(&first);
                first = Bytes::new();
            }
            joined.extend_from_slice(&frame);
        }
    }
    Ok(if joined.is_empty() {
        first
    } else {
        joined.freeze()
    })
}
