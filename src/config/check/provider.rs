//! The provider's accounts: their keys, their address, and how long it remembers.

use reqwest::Url;

use super::faults::Faults;
use crate::config::error::ConfigError;
use crate::config::{AccountSettings, Config, Secret, Section};
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

/// The most accounts of one process: each has connections, a breaker and a sweeper of its own.
const MOST_ACCOUNTS: usize = 100;

pub(super) fn accounts(config: &Config, faults: &mut Faults) {
    let provider = &config.provider;
    let accounts = provider.accounts().count();
    faults.unless(accounts <= MOST_ACCOUNTS, || {
        ConfigError::new(
            "provider.stripe.accounts",
            format!("there are {accounts} accounts with the default one"),
            format!(
                "one process takes {MOST_ACCOUNTS}; give the others to other processes, with the same default account"
            ),
        )
    });
    // Each keeps one for itself, whatever the others do.
    faults.unless(accounts == 1 || accounts < config.worker.permits, || {
        ConfigError::new(
            "worker.permits",
            format!("there are {accounts} accounts, and each of them needs one at least"),
            format!("set it to {} or more", accounts + 1),
        )
        .with_value(config.worker.permits)
    });
    let mut keys: Vec<(&str, Section<'_>)> = Vec::new();
    let mut secrets: Vec<(&str, Section<'_>)> = Vec::new();
    for account in provider.accounts() {
        let section = account.section;
        let is_default = matches!(section, Section::Default);
        faults.unless(is_default || account.name != provider.account, || {
            ConfigError::new(
                "provider.account",
                format!("[{section}] has the same name, and each account needs one of its own"),
                "rename the one that no charge names yet",
            )
            .with_value(&provider.account)
        });
        if let Some(key) = account.secret_key {
            secret_key(provider.mode, section, key, faults);
            let same = keys.iter().find(|(known, _)| *known == key.reveal());
            if let Some((_, first)) = same {
                faults.0.push(ConfigError::new(
                    format!("{section}.secret_key"),
                    format!("it is the same as {first}.secret_key"),
                    "give each account its own key; several merchants can be on one account",
                ));
            }
            keys.push((key.reveal(), section));
        }
        webhook_secrets(&account, faults);
        // One that another account signs with refuses what its own account delivers, and takes the other's.
        let of_others =
            |secret: &&Secret| secrets.iter().find(|(known, _)| *known == secret.reveal());
        if let Some((_, first)) = account
            .webhook_secrets
            .iter()
            .find_map(|secret| of_others(&secret))
        {
            faults.0.push(ConfigError::new(
                format!("{section}.webhook_secrets"),
                format!("one of them is among {first}.webhook_secrets"),
                "each account has an endpoint of its own at Stripe, which has a secret of its own",
            ));
        }
        secrets.extend(
            account
                .webhook_secrets
                .iter()
                .map(|secret| (secret.reveal(), section)),
        );
    }
}

fn webhook_secrets(account: &AccountSettings<'_>, faults: &mut Faults) {
    let all_known = account
        .webhook_secrets
        .iter()
        .all(|secret| secret.reveal().starts_with("whsec_"));
    faults.unless(all_known, || {
        ConfigError::new(
            format!("{}.webhook_secrets", account.section),
            "one of them does not begin with whsec_",
            "take the endpoint's signing secret from Stripe's dashboard, without blanks around it",
        )
    });
}

fn secret_key(mode: Mode, section: Section<'_>, key: &Secret, faults: &mut Faults) {
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
                format!("{section}.secret_key is a {} key", of_key.as_str()),
                "change one of the two",
            )
            .with_value(mode.as_str())
        }),
        None => faults.0.push(ConfigError::new(
            format!("{section}.secret_key"),
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
