//! What goes back over the wire: an answer with Stripe's headers, half of one, or nothing.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderName, HeaderValue};
use axum::http::{Response, StatusCode};
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::Sleep;

use super::requests::Outcome;

#[derive(Debug)]
pub(super) enum Fate {
    Answered(Reply),
    /// Headers and half of the body, then the connection is closed.
    Truncated(Reply),
    /// The connection is closed without a byte.
    Dropped,
}

#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) content_type: &'static str,
    pub(super) body: Vec<u8>,
    pub(super) headers: Vec<(&'static str, String)>,
}

impl Reply {
    pub(super) fn json(status: u16, body: Vec<u8>) -> Self {
        Self {
            status,
            content_type: "application/json",
            body,
            headers: Vec::new(),
        }
    }

    pub(super) fn html(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self {
            status,
            content_type: "text/html; charset=utf-8",
            body: body.into(),
            headers: Vec::new(),
        }
    }

    pub(super) fn text(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self {
            status,
            content_type: "text/plain; charset=utf-8",
            body: body.into(),
            headers: Vec::new(),
        }
    }

    pub(super) fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub(super) fn should_retry(self, whether: bool) -> Self {
        self.header(
            "stripe-should-retry",
            if whether { "true" } else { "false" },
        )
    }

    pub(super) fn retry_after_s(self, seconds: u32) -> Self {
        self.header("retry-after", seconds.to_string())
    }

    pub(super) fn challenge(self) -> Self {
        self.header("www-authenticate", "Basic realm=\"Stripe\"")
    }

    fn into_response(self, truncated: bool) -> Response<ReplyBody> {
        let body = Bytes::from(self.body);
        let length = body.len();
        let mut response = Response::new(if truncated {
            ReplyBody::cut(&body)
        } else {
            ReplyBody::Whole(Full::new(body))
        });
        *response.status_mut() =
            StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
        for (name, value) in self.headers {
            // A key with bytes that no header may have cannot have come in with one either.
            if let Ok(value) = HeaderValue::try_from(value) {
                headers.insert(HeaderName::from_static(name), value);
            }
        }
        response
    }
}

impl Fate {
    pub(super) fn outcome(&self) -> Outcome {
        match self {
            Self::Answered(reply) | Self::Truncated(reply) => Outcome::Answered(reply.status),
            Self::Dropped => Outcome::Dropped,
        }
    }

    /// An error closes the connection: that is how hyper treats a service that fails.
    pub(super) fn into_response(self) -> Result<Response<ReplyBody>, Closed> {
        match self {
            Self::Answered(reply) => Ok(reply.into_response(false)),
            Self::Truncated(reply) => Ok(reply.into_response(true)),
            Self::Dropped => Err(Closed),
        }
    }
}

/// The connection is closed on purpose.
#[derive(Debug, thiserror::Error)]
#[error("closed on purpose")]
pub(super) struct Closed;

pub(super) enum ReplyBody {
    Whole(Full<Bytes>),
    Cut {
        half: Option<Bytes>,
        pause: Pin<Box<Sleep>>,
    },
}

impl ReplyBody {
    fn cut(body: &Bytes) -> Self {
        // Long enough for the half to be flushed before the connection goes.
        let pause = Box::pin(tokio::time::sleep(Duration::from_millis(20)));
        Self::Cut {
            half: Some(body.slice(..body.len() / 2)),
            pause,
        }
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = Closed;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Closed>>> {
        match self.get_mut() {
            Self::Whole(full) => Pin::new(full)
                .poll_frame(context)
                .map_err(|never: Infallible| match never {}),
            Self::Cut { half, pause } => {
                if let Some(half) = half.take() {
                    return Poll::Ready(Some(Ok(Frame::data(half))));
                }
                ready!(pause.as_mut().poll(context));
                Poll::Ready(Some(Err(Closed)))
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(full) => full.size_hint(),
            Self::Cut { .. } => SizeHint::default(),
        }
    }
}
