//! The sections, as `defaults.toml` documents them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::values::{self, CallRate, DatabaseUrl, Secret, mode, span};
use crate::domain::api_key::Mode;
use crate::reconciler::SuccessAfterFailed;

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Database {
    #[serde(deserialize_with = "values::database_url")]
    pub url: Option<DatabaseUrl>,
    pub pool_size: u32,
    #[serde(with = "span")]
    pub statement_timeout: Duration,
    #[serde(with = "span")]
    pub lock_timeout: Duration,
    #[serde(with = "span")]
    pub connect_timeout: Duration,
    #[serde(with = "span")]
    pub sessions_interval: Duration,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Http {
    pub listen: SocketAddr,
    pub max_connections: usize,
    pub max_requests: usize,
    pub max_waiting: usize,
    #[serde(with = "span")]
    pub wait_poll_interval: Duration,
    #[serde(with = "span")]
    pub header_timeout: Duration,
    #[serde(with = "span")]
    pub idle_timeout: Duration,
    #[serde(with = "span")]
    pub write_timeout: Duration,
    pub max_head_bytes: usize,
    pub max_headers: usize,
    pub requests_per_second: u32,
    pub requests_burst: u32,
    pub unknown_keys_per_second: u32,
    #[serde(with = "span")]
    pub request_timeout: Duration,
    #[serde(with = "span")]
    pub acceptance_timeout: Duration,
    pub max_body_bytes: usize,
    #[serde(with = "span")]
    pub shutdown_grace: Duration,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Admin {
    /// `None` for no admin listener, and nothing measured.
    #[serde(deserialize_with = "values::listener")]
    pub listen: Option<SocketAddr>,
    #[serde(with = "span")]
    pub books_interval: Duration,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Intake {
    pub queue: usize,
    pub queue_bytes: usize,
    pub batchers: usize,
    pub batch_items: usize,
    pub batch_bytes: usize,
    #[serde(with = "span")]
    pub give_up_after: Duration,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Worker {
    pub permits: usize,
    #[serde(with = "span")]
    pub lease: Duration,
    #[serde(with = "span")]
    pub poll_interval: Duration,
    #[serde(with = "span")]
    pub take_back_interval: Duration,
    #[serde(with = "span")]
    pub fair_after: Duration,
    #[serde(with = "span")]
    pub slack: Duration,
    #[serde(with = "span")]
    pub retry_base: Duration,
    #[serde(with = "span")]
    pub retry_cap: Duration,
    #[serde(with = "span")]
    pub slow_base: Duration,
    #[serde(with = "span")]
    pub slow_cap: Duration,
    #[serde(with = "span")]
    pub action_expiry: Duration,
    pub batch_items: usize,
    pub refund_batchers: usize,
    #[serde(with = "span")]
    pub completion_timeout: Duration,
    pub breaker_threshold: u32,
    #[serde(with = "span")]
    pub breaker_base: Duration,
    #[serde(with = "span")]
    pub breaker_cap: Duration,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Reconciler {
    #[serde(with = "span")]
    pub threshold: Duration,
    #[serde(with = "span")]
    pub interval: Duration,
    pub batch: u32,
    #[serde(with = "span")]
    pub sweep_interval: Duration,
    #[serde(with = "span")]
    pub sweep_window: Duration,
    #[serde(with = "span")]
    pub sweep_pause: Duration,
    pub sweep_pages: usize,
    #[serde(with = "span")]
    pub sweep_lease: Duration,
    #[serde(with = "span")]
    pub refund_recheck_after: Duration,
    #[serde(with = "span")]
    pub refund_recheck_for: Duration,
    pub success_after_failed: SuccessAfterFailed,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Webhooks {
    pub deliver: bool,
    #[serde(with = "span")]
    pub poll_interval: Duration,
    pub permits: usize,
    pub endpoint_permits: u32,
    #[serde(with = "span")]
    pub timeout: Duration,
    #[serde(with = "span")]
    pub connect_timeout: Duration,
    #[serde(with = "span")]
    pub lease: Duration,
    #[serde(with = "values::spans")]
    pub retry_delays: Vec<Duration>,
    #[serde(with = "span")]
    pub disable_after: Duration,
    #[serde(with = "span")]
    pub secret_overlap: Duration,
    #[serde(with = "span")]
    pub retention: Duration,
    pub endpoints_per_merchant: u32,
    pub allow_loopback: bool,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Idempotency {
    #[serde(with = "span")]
    pub retention: Duration,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Provider {
    #[serde(with = "mode")]
    pub mode: Mode,
    pub account: String,
    pub stripe: Stripe,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Stripe {
    pub base_url: String,
    #[serde(
        deserialize_with = "values::secret",
        serialize_with = "values::show_key"
    )]
    pub secret_key: Option<Secret>,
    #[serde(deserialize_with = "values::secrets")]
    pub webhook_secrets: Vec<Secret>,
    /// Accounts besides that of `secret_key`, by their names.
    #[serde(default)]
    pub accounts: BTreeMap<String, StripeAccount>,
    #[serde(with = "span")]
    pub webhook_tolerance: Duration,
    pub webhook_body_bytes: usize,
    #[serde(with = "span")]
    pub webhook_retention: Duration,
    pub api_version: String,
    #[serde(with = "span")]
    pub timeout: Duration,
    #[serde(with = "span")]
    pub connect_timeout: Duration,
    #[serde(with = "span")]
    pub key_window: Duration,
    #[serde(with = "span")]
    pub key_window_margin: Duration,
    pub pool_idle: usize,
    pub calls_per_second: CallRate,
}

/// What an account does not share with the others.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct StripeAccount {
    #[serde(
        default,
        deserialize_with = "values::secret",
        serialize_with = "values::show_key"
    )]
    pub secret_key: Option<Secret>,
    #[serde(default, deserialize_with = "values::secrets")]
    pub webhook_secrets: Vec<Secret>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Log {
    pub filter: String,
    pub format: LogFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    Auto,
    Pretty,
    Json,
}
