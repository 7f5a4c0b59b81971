//! The configuration: `defaults.toml`, which documents every key, under a file, under the environment.
//!
//! Nothing starts with limits that contradict each other: [`Config::check`] names every fault at once, with its mend.
//! Secrets are shown nowhere, in no error and in no output; of the provider's keys their kind and their last four, which tell
//! them apart.

mod check;
mod error;
mod load;
mod sections;
mod show;
#[cfg(test)]
mod tests;
mod values;

use std::num::NonZeroU32;
use std::time::Duration;

use reqwest::Url;
use serde::Serialize;

pub use self::error::{ConfigError, ConfigErrors};
pub use self::load::Sources;
pub use self::sections::{
    Admin, Database, Http, Idempotency, Intake, Log, LogFormat, Provider, Reconciler, Stripe,
    StripeAccount, Webhooks, Worker,
};
pub use self::values::{CallRate, DatabaseUrl, InvalidDatabaseUrl, Secret};

use crate::batch::BatchLimits;
use crate::db::session::SessionLimits;
use crate::domain::api_key::Mode;
use crate::domain::endpoint_url::Reach;
use crate::domain::retry::RetryPolicy;
use crate::http::limits::RequestRate;
use crate::http::{HttpLimits, ServerLimits, WebhookRules};
use crate::reconciler::sweep::SweepLimits;
use crate::webhooks::{DelivererLimits, Schedule, SenderLimits};

#[derive(Clone, Debug, Serialize)]
pub struct Config {
    pub database: Database,
    pub http: Http,
    pub admin: Admin,
    pub intake: Intake,
    pub worker: Worker,
    pub reconciler: Reconciler,
    pub webhooks: Webhooks,
    pub idempotency: Idempotency,
    pub provider: Provider,
    pub log: Log,
}

/// What one process of `serve` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Roles {
    pub api: bool,
    pub worker: bool,
    pub reconciler: bool,
}

impl Roles {
    pub const ALL: Self = Self {
        api: true,
        worker: true,
        reconciler: true,
    };

    /// Whether it calls the provider.
    pub fn calls_the_provider(self) -> bool {
        self.worker || self.reconciler
    }
}

impl Config {
    /// Reads the sources. What each value says is sound by itself then; [`Config::check`] compares them.
    pub fn load(sources: &Sources) -> Result<Self, ConfigErrors> {
        load::load(sources)
    }

    /// Whether the values fit together.
    pub fn check(&self) -> Result<(), ConfigErrors> {
        check::relations(self)
    }

    /// As [`Config::check`], and whether everything is there that `serve` needs in these roles.
    pub fn check_for(&self, roles: Roles) -> Result<(), ConfigErrors> {
        check::serving(self, roles)
    }

    /// What `serve` needs in these roles and nobody has set.
    pub fn missing_for(&self, roles: Roles) -> Vec<ConfigError> {
        check::missing(self, roles)
    }

    /// What bounds a request.
    pub fn http_limits(&self) -> HttpLimits {
        let http = &self.http;
        HttpLimits {
            body_bytes: http.max_body_bytes,
            body_read: http.request_timeout.saturating_sub(http.acceptance_timeout),
            intake_wait: http.acceptance_timeout,
            database_wait: self.database.connect_timeout,
            key_window: self.provider.stripe.relied_on_key_window(),
            request_rate: http.request_rate(),
            unknown_keys: NonZeroU32::new(http.unknown_keys_per_second).unwrap_or(NonZeroU32::MIN),
            webhooks: WebhookRules {
                reach: self.webhooks.reach(),
                most_endpoints: self.webhooks.endpoints_per_merchant,
                secret_overlap: self.webhooks.secret_overlap,
            },
        }
    }

    /// What is in force, as TOML with dotted keys; secrets masked.
    pub fn effective(&self) -> String {
        show::effective(self)
    }
}

impl Database {
    pub fn session_limits(&self) -> SessionLimits {
        SessionLimits {
            statement_timeout: self.statement_timeout,
            lock_timeout: self.lock_timeout,
            connect_timeout: self.connect_timeout,
        }
    }
}

impl Http {
    /// What one merchant may send; `None` for no limit.
    pub fn request_rate(&self) -> Option<RequestRate> {
        let per_second = NonZeroU32::new(self.requests_per_second)?;
        let burst = NonZeroU32::new(self.requests_burst).unwrap_or(per_second);
        Some(RequestRate { per_second, burst })
    }

    pub fn server_limits(&self) -> ServerLimits {
        ServerLimits {
            connections: self.max_connections,
            requests: self.max_requests,
            head_read: self.header_timeout,
            idle: self.idle_timeout,
            write: self.write_timeout,
            head_bytes: self.max_head_bytes,
            headers: self.max_headers,
            grace: self.shutdown_grace,
        }
    }
}

impl Intake {
    pub fn batch_limits(&self) -> BatchLimits {
        BatchLimits {
            queue: self.queue,
            queue_bytes: self.queue_bytes / self.batchers.max(1),
            items: self.batch_items,
            bytes: self.batch_bytes,
            give_up_after: self.give_up_after,
        }
    }
}

impl Stripe {
    /// How long a key is relied on after its first use.
    pub fn relied_on_key_window(&self) -> Duration {
        self.key_window.saturating_sub(self.key_window_margin)
    }
}

impl Reconciler {
    pub fn sweep_limits(&self, key_window: Duration) -> SweepLimits {
        SweepLimits {
            poll: self.interval,
            every: self.sweep_interval,
            window: self.sweep_window,
            pause: self.sweep_pause,
            pages: self.sweep_pages,
            lease: self.sweep_lease,
            key_window,
        }
    }
}

impl Worker {
    /// The most bytes a batch of outcomes takes; an outcome is small, so the number of items ends a batch first.
    const BATCH_BYTES: usize = 1 << 20;

    /// The limits of each of its batchers: a job waits in one of them at a time, so no more than permits do.
    pub fn batch_limits(&self) -> BatchLimits {
        BatchLimits {
            queue: self.permits.max(self.batch_items),
            // A job is at one place at a time, and there are no more than permits.
            queue_bytes: usize::MAX,
            items: self.batch_items,
            bytes: Self::BATCH_BYTES,
            // Later than this somebody else has the job, and looks for itself.
            give_up_after: self.lease,
        }
    }

    pub fn retry_policy(&self) -> RetryPolicy {
        RetryPolicy {
            base: self.retry_base,
            cap: self.retry_cap,
            slow_base: self.slow_base,
            slow_cap: self.slow_cap,
        }
    }
}

impl Webhooks {
    pub fn reach(&self) -> Reach {
        if self.allow_loopback {
            Reach::Loopback
        } else {
            Reach::Public
        }
    }

    pub fn limits(&self, grace: Duration) -> DelivererLimits {
        DelivererLimits {
            permits: self.permits,
            endpoint_permits: self.endpoint_permits,
            poll_interval: self.poll_interval,
            lease: self.lease,
            schedule: Schedule::new(self.retry_delays.clone()),
            disable_after: self.disable_after,
            retention: self.retention,
            grace,
            sender: SenderLimits {
                timeout: self.timeout,
                connect_timeout: self.connect_timeout,
                reach: self.reach(),
            },
        }
    }
}

/// One account at the provider: its name and what it does not share with the others.
#[derive(Clone, Copy, Debug)]
pub struct AccountSettings<'a> {
    pub name: &'a str,
    /// The section of its keys.
    pub section: Section<'a>,
    pub secret_key: Option<&'a Secret>,
    pub webhook_secrets: &'a [Secret],
}

/// Where an account's keys stand.
#[derive(Clone, Copy, Debug)]
pub enum Section<'a> {
    /// That of the default account.
    Default,
    Named(&'a str),
}

impl std::fmt::Display for Section<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Default => f.write_str("provider.stripe"),
            Self::Named(name) => write!(f, "provider.stripe.accounts.{name}"),
        }
    }
}

impl Provider {
    /// The default account first, then the others by their names.
    pub fn accounts(&self) -> impl Iterator<Item = AccountSettings<'_>> {
        let stripe = &self.stripe;
        let default = AccountSettings {
            name: &self.account,
            section: Section::Default,
            secret_key: stripe.secret_key.as_ref(),
            webhook_secrets: &stripe.webhook_secrets,
        };
        let named = stripe
            .accounts
            .iter()
            .map(|(name, account)| AccountSettings {
                name,
                section: Section::Named(name),
                secret_key: account.secret_key.as_ref(),
                webhook_secrets: &account.webhook_secrets,
            });
        std::iter::once(default).chain(named)
    }

    /// Whether there is an account of this name here.
    pub fn has_account(&self, name: &str) -> bool {
        self.accounts().any(|account| account.name == name)
    }

    /// How many calls a second this process may begin; `None` for no bound.
    pub fn calls_per_second(&self) -> Option<u32> {
        match self.stripe.calls_per_second {
            CallRate::PerSecond(calls) => Some(calls).filter(|calls| *calls > 0),
            CallRate::Auto if !self.stripe.is_stripe_itself() => None,
            // Nine tenths of what Stripe takes by default (<https://docs.stripe.com/rate-limits>): in live mode 25 a second
            // at each endpoint, and a charge is a call to one and then to another; in a sandbox 25 in all.
            CallRate::Auto => Some(match self.mode {
                Mode::Live => 45,
                Mode::Test => 22,
            }),
        }
    }
}

impl Stripe {
    /// Rather than a simulator.
    fn is_stripe_itself(&self) -> bool {
        Url::parse(&self.base_url).is_ok_and(|url| url.host_str() == Some("api.stripe.com"))
    }
}
