//! One delivery by HTTP: one deadline over all of it, no redirects, no proxy, and of the answer the status alone.

use std::error::Error;
use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Response};
use tokio::time::Instant;

use super::outcome::Sent;
use super::resolver::{Guarded, Refused};
use crate::clock::Clock;
use crate::db::webhook_deliveries::Claimed;
use crate::domain::endpoint_url::{EndpointUrl, Reach};

/// Read of an answer's body, so that its connection can be used again; with more the connection is closed.
const MOST_OF_AN_ANSWER: usize = 16 * 1024;
/// How long an idle connection is kept.
const IDLE: Duration = Duration::from_secs(30);
const IDLE_PER_HOST: usize = 2;

const ID: HeaderName = HeaderName::from_static("webhook-id");
const TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");
const ATTEMPT: HeaderName = HeaderName::from_static("payonce-delivery-attempt");

#[derive(Clone, Debug)]
pub struct SenderLimits {
    pub timeout: Duration,
    pub connect_timeout: Duration,
    pub reach: Reach,
}

#[derive(Debug, thiserror::Error)]
#[error("the client for webhooks can't be made")]
pub struct SenderError(#[source] reqwest::Error);

pub(super) struct Sender {
    client: Client,
    timeout: Duration,
    reach: Reach,
    clock: Clock,
}

impl Sender {
    pub(super) fn new(limits: &SenderLimits, clock: Clock) -> Result<Self, SenderError> {
        // reqwest takes the process's provider. Somebody may have installed one already; then that one is used.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let builder = Client::builder()
            .user_agent(concat!("payonce-webhooks/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            // A proxy would choose the address itself.
            .no_proxy()
            .retry(reqwest::retry::never().max_retries_per_request(0))
            .http1_only()
            .dns_resolver(Guarded(limits.reach))
            .connect_timeout(limits.connect_timeout)
            .pool_max_idle_per_host(IDLE_PER_HOST)
            .pool_idle_timeout(IDLE);
        let builder = match limits.reach {
            Reach::Public => builder.https_only(true),
            Reach::Loopback => builder,
        };
        Ok(Self {
            client: builder.build().map_err(SenderError)?,
            timeout: limits.timeout,
            reach: limits.reach,
            clock,
        })
    }

    pub(super) async fn send(&self, claimed: &Claimed, body: String, lease: Instant) -> Sent {
        // An address in numbers is asked of no resolver, and what was allowed once need not be now.
        let Ok(address) = EndpointUrl::parse(&claimed.url, self.reach) else {
            return Sent::Failed("address_refused");
        };
        let Some(headers) = self.headers(claimed, &body) else {
            return Sent::Impossible("event_expired");
        };
        let deadline = (Instant::now() + self.timeout).min(lease);
        let request = self
            .client
            .post(address.url().clone())
            .headers(headers)
            .body(body)
            .send();
        match tokio::time::timeout_at(deadline, request).await {
            Ok(Ok(response)) => {
                let sent = Sent::of_status(response.status().as_u16());
                // The status has been said; what follows it is only read to use the connection again.
                let _ = tokio::time::timeout_at(deadline, drain(response)).await;
                sent
            }
            Ok(Err(error)) => Sent::Failed(word(&error)),
            Err(_) => Sent::Failed("timeout"),
        }
    }

    fn headers(&self, claimed: &Claimed, body: &str) -> Option<HeaderMap> {
        let id = claimed.event?.to_string();
        let timestamp = self.clock.now().unix_timestamp();
        let signatures: Vec<String> = claimed
            .secrets
            .iter()
            .map(|secret| secret.sign(&id, timestamp, body.as_bytes()))
            .collect();
        let text = |text: String| HeaderValue::try_from(text).ok();
        Some(HeaderMap::from_iter([
            (CONTENT_TYPE, HeaderValue::from_static("application/json")),
            (ID, text(id)?),
            (TIMESTAMP, HeaderValue::from(timestamp)),
            (SIGNATURE, text(signatures.join(" "))?),
            (ATTEMPT, HeaderValue::from(claimed.attempt)),
        ]))
    }
}

async fn drain(mut response: Response) {
    let mut read = 0;
    while let Ok(Some(chunk)) = response.chunk().await {
        read += chunk.len();
        if read > MOST_OF_AN_ANSWER {
            return;
        }
    }
}

/// Why there was no answer.
fn word(error: &reqwest::Error) -> &'static str {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if error.downcast_ref::<Refused>().is_some() {
            return "address_refused";
        }
        cause = error.source();
    }
    if error.is_timeout() {
        "timeout"
    } else if error.is_connect() {
        "no_connection"
    } else {
        "no_answer"
    }
}
