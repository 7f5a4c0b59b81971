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
    /// Headers, then a byte at a time.
    Trickling(Reply),
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

    fn into_response(self, sent: impl FnOnce(Bytes) -> ReplyBody) -> Response<ReplyBody> {
        let length = self.body.len();
        let mut response = Response::new(sent(self.body.into()));
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
            Self::Answered(reply) | Self::Truncated(reply) | Self::Trickling(reply) => {
                Outcome::Answered(reply.status)
            }
            Self::Dropped => Outcome::Dropped,
        }
    }

    /// An error closes the connection: that is how hyper treats a service that fails.
    pub(super) fn into_response(self) -> Result<Response<ReplyBody>, Closed> {
        match self {
            Self::Answered(reply) => {
                Ok(reply.into_response(|body| ReplyBody::Whole(Full::new(body))))
            }
            Self::Truncated(reply) => Ok(reply.into_response(ReplyBody::cut)),
            Self::Trickling(reply) => Ok(reply.into_response(ReplyBody::trickle)),
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
    /// Half of it, and an end that comes too early.
    Cut {
        half: Option<Bytes>,
        pause: Pin<Box<Sleep>>,
    },
    /// A byte after each pause.
    Trickle {
        rest: Bytes,
        pause: Pin<Box<Sleep>>,
    },
}

/// Long enough for the half to be flushed before the connection goes.
const FLUSHED: Duration = Duration::from_millis(20);

/// Shorter than any read timeout, so that a deadline alone ends it.
const BETWEEN_BYTES: Duration = Duration::from_millis(250);

impl ReplyBody {
    fn cut(mut body: Bytes) -> Self {
        body.truncate(body.len() / 2);
        Self::Cut {
            half: Some(body),
            pause: Box::pin(tokio::time::sleep(FLUSHED)),
        }
    }

    fn trickle(body: Bytes) -> Self {
        Self::Trickle {
            rest: body,
            pause: Box::pin(tokio::time::sleep(BETWEEN_BYTES)),
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
            Self::Trickle { rest, .. } if rest.is_empty() => Poll::Ready(None),
            Self::Trickle { rest, pause } => {
                ready!(pause.as_mut().poll(context));
                let next = pause.deadline() + BETWEEN_BYTES;
                pause.as_mut().reset(next);
                Poll::Ready(Some(Ok(Frame::data(rest.split_to(1)))))
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(full) => full.size_hint(),
            Self::Cut { .. } | Self::Trickle { .. } => SizeHint::default(),
        }
    }
}
