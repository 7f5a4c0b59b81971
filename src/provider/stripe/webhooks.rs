//! What Stripe delivers to a webhook endpoint: first who sent it, then what it says. Pure but for the clock that it is
//! given.

use std::sync::Arc;
use std::time::Duration;

use super::signature::{self, WebhookSecret};
use super::wire;
use crate::clock::Clock;
use crate::domain::provider_event::{EventRefused, OpenEvent};

/// What an endpoint's deliveries are checked with.
#[derive(Clone, Debug)]
pub struct WebhookSettings {
    /// At least one; all of them hold.
    pub secrets: Vec<WebhookSecret>,
    /// How far the time of a signature may be from the clock, before it and behind it.
    pub tolerance: Duration,
}

pub fn open_with(settings: WebhookSettings, clock: Clock) -> OpenEvent {
    let WebhookSettings { secrets, tolerance } = settings;
    Arc::new(move |header, body| {
        let header = header.ok_or(EventRefused::SignatureUnreadable)?;
        signature::verify(header, body, &secrets, clock.now(), tolerance)?;
        wire::event(body).ok_or(EventRefused::Unreadable)
    })
}
