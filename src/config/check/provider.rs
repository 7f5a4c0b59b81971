//! The provider's account: its keys, its address, and how long it remembers.

use reqwest::Url;

use super::faults::Faults;
use crate::config::error::ConfigError;
use crate::config::{Config, Secret};
use crate::domain::api_key::Mode;

pub(super) fn key_window(config: &Config, faults: &mut Faults) {
    let stripe = &config.provider.stripe;
    faults.shorter(
        (
            "provider.stripe.key_window_margin",
            stripe.key_window_margin,
        ),
        ("provider.stripe.key_window", stripe.key_window),
    );
    // A run that begins within the window sends its last prepare before its lease is over: still within the window.
    faults.not_longer(
        ("worker.lease", config.worker.lease),
        (
            "provider.stripe.key_window_margin",
            stripe.key_window_margin,
        ),
    );
    faults.not_longer(
        ("provider.stripe.key_window", stripe.key_window),
        ("idempotency.retention", config.idempotency.retention),
    );
}

pub(super) fn stripe(config: &Config, faults: &mut Faults) {
    let provider = &config.provider;
    let stripe = &provider.stripe;
    faults.unless(!provider.account.is_empty(), || {
        ConfigError::new("provider.account", "it is empty", "give the account a name")
    });
    faults.unless(!stripe.api_version.is_empty(), || {
        ConfigError::new(
            "provider.stripe.api_version",
            "it is empty",
            "leave it at its default",
        )
    });
    faults.some_time("provider.stripe.timeout", stripe.timeout);
    faults.some_time("provider.stripe.connect_timeout", stripe.connect_timeout);
    // In test mode a simulator may stand on another host of a private network.
    let may_be_plain = provider.mode == Mode::Test && stripe.base_url.starts_with("http://");
    faults.unless(may_be_plain || is_protected(&stripe.base_url), || {
        ConfigError::new(
            "provider.stripe.base_url",
            "it is not an https address, and not plain http in test mode or on the loopback interface",
            "use https://",
        )
        .with_value(&stripe.base_url)
    });
    if let Some(key) = &stripe.secret_key {
        secret_key(provider.mode, key, faults);
    }
    let secrets = &stripe.webhook_secrets;
    faults.unless(
        secrets
            .iter()
            .all(|secret| secret.reveal().starts_with("whsec_")),
        || {
            ConfigError::new(
                "provider.stripe.webhook_secrets",
                "one of them does not begin with whsec_",
                "take the endpoint's signing secret from Stripe's dashboard, without blanks around it",
            )
        },
    );
    faults.some_time(
        "provider.stripe.webhook_tolerance",
        stripe.webhook_tolerance,
    );
    faults.some_time(
        "provider.stripe.webhook_retention",
        stripe.webhook_retention,
    );
    faults.at_least_one(
        "provider.stripe.webhook_body_bytes",
        stripe.webhook_body_bytes,
    );
}

fn secret_key(mode: Mode, key: &Secret, faults: &mut Faults) {
    let begins = |prefixes: [&str; 2]| {
        prefixes
            .iter()
            .any(|prefix| key.reveal().starts_with(prefix))
    };
    let of_key = if begins(["sk_test_", "rk_test_"]) {
        Some(Mode::Test)
    } else if begins(["sk_live_", "rk_live_"]) {
        Some(Mode::Live)
    } else {
        None
    };
    match of_key {
        Some(of_key) => faults.unless(of_key == mode, || {
            ConfigError::new(
                "provider.mode",
                format!("provider.stripe.secret_key is a {} key", of_key.as_str()),
                "change one of the two",
            )
            .with_value(mode.as_str())
        }),
        None => faults.0.push(ConfigError::new(
            "provider.stripe.secret_key",
            "it does not begin with sk_test_, rk_test_, sk_live_ or rk_live_",
            "take the secret key from Stripe's dashboard, without blanks around it",
        )),
    }
}

/// Whether what is sent there can't be read on the way.
fn is_protected(address: &str) -> bool {
    let Ok(url) = Url::parse(address) else {
        return false;
    };
    let host = url.host_str().unwrap_or_default();
    let ip = host
        .trim_start_matches('[')
        .trim_end_matches(']')
        .parse::<std::net::IpAddr>();
    let loopback = host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback());
    match url.scheme() {
        "https" => !host.is_empty(),
        "http" => loopback,
        _ => false,
    }
}
