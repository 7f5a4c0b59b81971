//! One HTTP call to Stripe: one deadline over all of it, one bound on what is read, and what is known when it fails.
//!
//! The client repeats nothing by its own decision. One repeat is left that can't be switched off through `reqwest`: a
//! request that was handed to a kept-alive connection and came back before its first byte was written goes out again
//! on another connection (`hyper-util`'s `retry_canceled_requests`). It is the same request to the last byte, the
//! idempotency key included, and it was never written before.

use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{
    AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, USER_AGENT,
};
use reqwest::{Client, Method, Request, Response, Url};

use super::wire::{self, Called};
use super::{StripeError, StripeSettings};
use crate::domain::outcome::{Answer, Unclear};
use crate::domain::refund::outcome::RefundObject;
use crate::provider::{Page, RefundPage, Reply, Whose};

/// A `PaymentIntent` has a few kilobytes; what is larger than this is none.
const MOST_OF_AN_OBJECT: usize = 1024 * 1024;
/// A hundred objects, each with fifty metadata entries of five hundred characters.
const MOST_OF_A_PAGE: usize = 16 * 1024 * 1024;
/// Shorter than Stripe's side keeps a connection, so that a request seldom meets one that is closing.
const IDLE: Duration = Duration::from_secs(30);

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const STRIPE_VERSION: HeaderName = HeaderName::from_static("stripe-version");

#[derive(Debug)]
pub(super) struct Transport {
    client: Client,
}

pub(super) fn post(url: Url, key: Option<HeaderValue>, form: Option<String>) -> Request {
    let mut request = Request::new(Method::POST, url);
    request.headers_mut().insert(
        CONTENT_TYPE,
        HeaderValue::from_static("application/x-www-form-urlencoded"),
    );
    if let Some(key) = key {
        request.headers_mut().insert(IDEMPOTENCY_KEY, key);
    }
    // An empty body still says its length.
    *request.body_mut() = Some(form.unwrap_or_default().into());
    request
}

impl Transport {
    pub(super) fn new(settings: &StripeSettings, tls: bool) -> Result<Self, StripeError> {
        let mut headers = HeaderMap::new();
        headers.insert(
            AUTHORIZATION,
            settings
                .secret_key
                .bearer()
                .ok_or(StripeError::Setting("secret_key"))?,
        );
        let version = HeaderValue::from_str(&settings.api_version)
            .ok()
            .filter(|version| !version.is_empty())
            .ok_or(StripeError::Setting("api_version"))?;
        headers.insert(STRIPE_VERSION, version);
        headers.insert(
            USER_AGENT,
            HeaderValue::from_static(concat!("payonce/", env!("CARGO_PKG_VERSION"))),
        );
        // reqwest takes the process's provider. Somebody may have installed one already; then that one is used.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let builder = Client::builder()
            .default_headers(headers)
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            .no_proxy()
            // No repeats at all rather than none in scope: then the request isn't cloned for one either.
            .retry(reqwest::retry::never().max_retries_per_request(0))
            .http1_only()
            .tcp_nodelay(true)
            // Over the whole call. A read timeout starts anew with each byte, and never fires on a trickle.
            .timeout(settings.timeout)
            .connect_timeout(settings.connect_timeout)
            .pool_max_idle_per_host(settings.pool_idle)
            .pool_idle_timeout(IDLE);
        // The platform's roots must exist to be loaded, and a machine that talks to a simulator may have none.
        let builder = if tls {
            builder.https_only(true)
        } else {
            builder.tls_certs_only([])
        };
        let client = builder.build().map_err(StripeError::Client)?;
        Ok(Self { client })
    }

    pub(super) async fn call<C: Called>(&self, request: Request, called: C) -> Reply<C::Object> {
        let mut response = match self.client.execute(request).await {
            Ok(response) => response,
            Err(error) => {
                return Reply {
                    answer: failed(&error),
                    request_id: None,
                    original_request_id: None,
                };
            }
        };
        match read(&mut response, MOST_OF_AN_OBJECT).await {
            Ok(body) => wire::decode(
                response.status().as_u16(),
                response.headers(),
                &body,
                called,
            ),
            Err(reason) => wire::unread(reason, response.headers()),
        }
    }

    pub(super) async fn whose(&self, request: Request) -> Whose {
        let mut response = match self.client.execute(request).await {
            Ok(response) => response,
            Err(error) => return Whose::Unanswered(failed(&error)),
        };
        match read(&mut response, MOST_OF_AN_OBJECT).await {
            Ok(body) => wire::decode_account(response.status().as_u16(), response.headers(), &body),
            Err(reason) => Whose::Unanswered(wire::unread(reason, response.headers()).answer),
        }
    }

    pub(super) async fn page(&self, request: Request) -> Result<Page, Box<Answer>> {
        let mut response = self
            .client
            .execute(request)
            .await
            .map_err(|error| Box::new(failed(&error)))?;
        match read(&mut response, MOST_OF_A_PAGE).await {
            Ok(body) => wire::decode_page(response.status().as_u16(), response.headers(), &body),
            Err(reason) => Err(Box::new(wire::unread(reason, response.headers()).answer)),
        }
    }

    pub(super) async fn refunds(
        &self,
        request: Request,
    ) -> Result<RefundPage, Box<Answer<RefundObject>>> {
        let mut response = self
            .client
            .execute(request)
            .await
            .map_err(|error| Box::new(failed(&error)))?;
        match read(&mut response, MOST_OF_A_PAGE).await {
            Ok(body) => wire::decode_refunds(response.status().as_u16(), response.headers(), &body),
            Err(reason) => Err(Box::new(wire::unread(reason, response.headers()).answer)),
        }
    }
}

/// The body up to `most` bytes. Most answers come in one chunk and are not copied.
async fn read(response: &mut Response, most: usize) -> Result<Bytes, Unclear> {
    let declared = response.content_length().unwrap_or(0);
    if usize::try_from(declared).map_or(true, |declared| declared > most) {
        return Err(Unclear::Unreadable);
    }
    let mut first = Bytes::new();
    let mut rest = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| lost(&error))? {
        if first.len() + rest.len() + chunk.len() > most {
            return Err(Unclear::Unreadable);
        }
        if first.is_empty() && rest.is_empty() {
            first = chunk;
        } else {
            if rest.is_empty() {
                rest.extend_from_slice(&std::mem::take(&mut first));
            }
            rest.extend_from_slice(&chunk);
        }
    }
    Ok(if rest.is_empty() { first } else { rest.into() })
}

/// No answer came. Only what failed before there was a connection (refused, DNS, TLS handshake, the connect timeout)
/// surely sent nothing; the deadline of the whole call may have struck at any point.
fn failed<O>(error: &reqwest::Error) -> Answer<O> {
    if error.is_connect() {
        Answer::NotSent
    } else {
        Answer::Unclear {
            reason: lost(error),
            replayed: false,
        }
    }
}

fn lost(error: &reqwest::Error) -> Unclear {
    if error.is_timeout() {
        Unclear::Timeout
    } else {
        Unclear::ConnectionLost
    }
}
