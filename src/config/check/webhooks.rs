//! What is sent to merchants.

use std::time::Duration;

use super::faults::Faults;
use crate::config::Config;
use crate::config::error::ConfigError;
use crate::config::values::span::show;
use crate::domain::api_key::Mode;

pub(super) fn webhooks(config: &Config, faults: &mut Faults) {
    let webhooks = &config.webhooks;
    faults.at_least_one("webhooks.permits", webhooks.permits);
    faults.at_least_one("webhooks.endpoint_permits", webhooks.endpoint_permits);
    faults.at_least_one(
        "webhooks.endpoints_per_merchant",
        webhooks.endpoints_per_merchant,
    );
    for (key, time) in [
        ("webhooks.poll_interval", webhooks.poll_interval),
        ("webhooks.timeout", webhooks.timeout),
        ("webhooks.connect_timeout", webhooks.connect_timeout),
        ("webhooks.disable_after", webhooks.disable_after),
    ] {
        faults.some_time(key, time);
    }
    faults.not_longer(
        ("webhooks.connect_timeout", webhooks.connect_timeout),
        ("webhooks.timeout", webhooks.timeout),
    );
    // What came of a delivery is written by one statement, maybe on a new connection.
    let needed = webhooks
        .timeout
        .saturating_add(config.database.statement_timeout)
        .saturating_add(config.database.connect_timeout);
    faults.unless(webhooks.lease > needed, || {
        ConfigError::new(
            "webhooks.lease",
            format!(
                "a delivery may take webhooks.timeout + database.statement_timeout + database.connect_timeout = {}",
                show(needed)
            ),
            format!("set it above {}, or lower those", show(needed)),
        )
        .with_value(show(webhooks.lease))
    });
    let whole = webhooks
        .retry_delays
        .iter()
        .fold(Duration::ZERO, |whole, delay| whole.saturating_add(*delay));
    faults.unless(webhooks.retention > whole, || {
        ConfigError::new(
            "webhooks.retention",
            format!(
                "webhooks.retry_delays go on for {}, and what is sent must be kept as long",
                show(whole)
            ),
            format!("set it above {}", show(whole)),
        )
        .with_value(show(webhooks.retention))
    });
    faults.unless(
        !webhooks.allow_loopback || config.provider.mode == Mode::Test,
        || {
            ConfigError::new(
                "webhooks.allow_loopback",
                "in live mode merchants could reach what listens on this host alone",
                "leave it at false",
            )
            .with_value(webhooks.allow_loopback)
        },
    );
}
