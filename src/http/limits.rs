//! What bounds a request: its size, and how long each of its waits may take.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::domain::endpoint_url::Reach;

/// The largest body, in bytes; part of the contract.
pub const MOST_BODY_BYTES: usize = 64 * 1024;

/// The longest request target: room for any query of this API, and small enough to keep out of a log.
pub const MOST_URI_LENGTH: usize = 8192;

/// What one merchant may send to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestRate {
    pub per_second: NonZeroU32,
    /// At once.
    pub burst: NonZeroU32,
}

#[derive(Clone, Copy, Debug)]
pub struct HttpLimits {
    /// The largest body: [`MOST_BODY_BYTES`] or less.
    pub body_bytes: usize,
    /// How long a body may take to arrive. A body is at most 64 KiB: 10 s is 52 kbit/s.
    pub body_read: Duration,
    /// How long a request waits for intake's verdict before it is answered `acceptance_unknown`; the batch goes on.
    pub intake_wait: Duration,
    /// How long a read of the database may take, the wait for a connection included.
    pub database_wait: Duration,
    /// `None` for no limit.
    pub request_rate: Option<RequestRate>,
    /// Unknown keys that the database is asked for, a second.
    pub unknown_keys: NonZeroU32,
    /// How young a charge must be for a cancel to be certain without the provider: while it would remember what rows that
    /// were lost have sent.
    pub key_window: Duration,
    pub webhooks: WebhookRules,
}

/// What endpoints of merchants must keep to.
#[derive(Clone, Copy, Debug)]
pub struct WebhookRules {
    pub reach: Reach,
    /// Of one merchant.
    pub most_endpoints: u32,
    /// How long a secret that was replaced signs too.
    pub secret_overlap: Duration,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            body_bytes: MOST_BODY_BYTES,
            request_rate: None,
            unknown_keys: NonZeroU32::MIN.saturating_add(99),
            body_read: Duration::from_secs(10),
            intake_wait: Duration::from_secs(10),
            database_wait: Duration::from_secs(3),
            key_window: Duration::from_hours(23),
            webhooks: WebhookRules {
                reach: Reach::Public,
                most_endpoints: 100,
                secret_overlap: Duration::from_hours(24),
            },
        }
    }
}
