//! The relations between values. Each rule says what would go wrong, and to what the value must change.

use std::time::Duration;

use reqwest::Url;
use tracing_subscriber::EnvFilter;

use super::error::{ConfigError, ConfigErrors};
use super::values::span::show;
use super::{Config, Roles, Secret, Worker};
use crate::domain::api_key::Mode;

/// The contract's limit for a body.
const LARGEST_BODY: usize = 65_536;
/// Read, prepare, execute: the calls that one hold of a job has time for. A cancel begins only if there is time left.
const CALLS_OF_A_JOB: u32 = 3;

#[derive(Default)]
struct Faults(Vec<ConfigError>);

impl Faults {
    fn unless(&mut self, holds: bool, fault: impl FnOnce() -> ConfigError) {
        if !holds {
            self.0.push(fault());
        }
    }

    /// A count that 0 would bring to a standstill.
    fn at_least_one(&mut self, key: &str, count: usize) {
        self.unless(count >= 1, || {
            ConfigError::new(
                key,
                "nothing could be done with none",
                "set it to 1 or more",
            )
            .with_value(count)
        });
    }

    /// A time that 0 would turn into no time at all, or into a loop without a pause.
    fn some_time(&mut self, key: &str, time: Duration) {
        self.unless(!time.is_zero(), || {
            ConfigError::new(key, "it must not be zero", "set it to 1ms or more")
                .with_value(show(time))
        });
    }

    /// `key` must not be longer than `other`.
    fn not_longer(&mut self, (key, time): (&str, Duration), (other, limit): (&str, Duration)) {
        self.unless(time <= limit, || {
            ConfigError::new(
                key,
                format!("it is longer than {other} = {}", show(limit)),
                format!(
                    "set it to {} or less, or {other} to {} or more",
                    show(limit),
                    show(time)
                ),
            )
            .with_value(show(time))
        });
    }

    fn shorter(&mut self, (key, time): (&str, Duration), (other, limit): (&str, Duration)) {
        self.unless(time < limit, || {
            ConfigError::new(
                key,
                format!("it is not shorter than {other} = {}", show(limit)),
                format!(
                    "set it below {}, or {other} above {}",
                    show(limit),
                    show(time)
                ),
            )
            .with_value(show(time))
        });
    }

    fn result(self) -> Result<(), ConfigErrors> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(ConfigErrors(self.0))
        }
    }
}

pub(super) fn relations(config: &Config) -> Result<(), ConfigErrors> {
    all(config).result()
}

pub(super) fn serving(config: &Config, roles: Roles) -> Result<(), ConfigErrors> {
    let mut faults = all(config);
    faults.0.extend(missing(config, roles));
    faults.result()
}

pub(super) fn missing(config: &Config, roles: Roles) -> Vec<ConfigError> {
    let mut faults = Faults::default();
    faults.unless(config.database.url.is_some(), || {
        ConfigError::new(
            "database.url",
            "it is not set",
            "set DATABASE_URL=postgres://user:password@host:port/database",
        )
    });
    let needs_key = roles.calls_the_provider();
    faults.unless(
        !needs_key || config.provider.stripe.secret_key.is_some(),
        || {
            ConfigError::new(
                "provider.stripe.secret_key",
                "it is not set, and the worker and the reconciler call the provider",
                "set PAYONCE__PROVIDER__STRIPE__SECRET_KEY, or run the api alone (--only api)",
            )
        },
    );
    faults.0
}

fn all(config: &Config) -> Faults {
    let mut faults = Faults::default();
    database(config, &mut faults);
    http(config, &mut faults);
    admin(config, &mut faults);
    intake(config, &mut faults);
    lease(config, &mut faults);
    worker(config, &mut faults);
    reconciler(config, &mut faults);
    key_window(config, &mut faults);
    stripe(config, &mut faults);
    log(config, &mut faults);
    faults
}

fn database(config: &Config, faults: &mut Faults) {
    let database = &config.database;
    faults.unless(database.pool_size >= 1, || {
        ConfigError::new(
            "database.pool_size",
            "reads need a connection",
            "set it to 1 or more",
        )
        .with_value(database.pool_size)
    });
    faults.some_time("database.statement_timeout", database.statement_timeout);
    // Postgres takes 0 for no limit at all.
    faults.some_time("database.lock_timeout", database.lock_timeout);
    faults.some_time("database.connect_timeout", database.connect_timeout);
    faults.some_time("database.sessions_interval", database.sessions_interval);
    faults.shorter(
        ("database.statement_timeout", database.statement_timeout),
        ("intake.give_up_after", config.intake.give_up_after),
    );
    faults.shorter(
        ("database.lock_timeout", database.lock_timeout),
        ("database.statement_timeout", database.statement_timeout),
    );
}

fn http(config: &Config, faults: &mut Faults) {
    let http = &config.http;
    faults.at_least_one("http.max_connections", http.max_connections);
    faults.some_time("http.header_timeout", http.header_timeout);
    faults.some_time("http.request_timeout", http.request_timeout);
    faults.unless((1..=LARGEST_BODY).contains(&http.max_body_bytes), || {
        ConfigError::new(
            "http.max_body_bytes",
            format!("the contract takes bodies up to {LARGEST_BODY} bytes"),
            format!("set it to 1 to {LARGEST_BODY}"),
        )
        .with_value(http.max_body_bytes)
    });
    faults.not_longer(
        ("intake.give_up_after", config.intake.give_up_after),
        ("http.acceptance_timeout", http.acceptance_timeout),
    );
    faults.not_longer(
        ("http.acceptance_timeout", http.acceptance_timeout),
        ("http.request_timeout", http.request_timeout),
    );
}

fn admin(config: &Config, faults: &mut Faults) {
    let listen = config.http.listen;
    faults.unless(
        config.admin.listen != Some(listen) || listen.port() == 0,
        || {
            ConfigError::new(
                "admin.listen",
                "http.listen is the same address",
                "give each its own port",
            )
            .with_value(listen)
        },
    );
    faults.some_time("admin.books_interval", config.admin.books_interval);
}

fn intake(config: &Config, faults: &mut Faults) {
    let intake = &config.intake;
    faults.at_least_one("intake.queue", intake.queue);
    faults.at_least_one("intake.batchers", intake.batchers);
    faults.at_least_one("intake.batch_items", intake.batch_items);
    faults.at_least_one("intake.batch_bytes", intake.batch_bytes);
    faults.unless(intake.batch_items <= intake.queue, || {
        ConfigError::new(
            "intake.batch_items",
            format!(
                "a batch can't be larger than intake.queue = {}",
                intake.queue
            ),
            format!("set it to {} or less", intake.queue),
        )
        .with_value(intake.batch_items)
    });
}

fn lease(config: &Config, faults: &mut Faults) {
    let worker = &config.worker;
    let needed = config
        .provider
        .stripe
        .timeout
        .saturating_mul(CALLS_OF_A_JOB)
        .saturating_add(worker.completion_timeout)
        .saturating_add(worker.slack);
    faults.unless(worker.lease > needed, || {
        ConfigError::new(
            "worker.lease",
            format!(
                "a job may take {CALLS_OF_A_JOB} × provider.stripe.timeout + worker.completion_timeout + worker.slack = {}",
                show(needed)
            ),
            format!("set it above {}, or lower those", show(needed)),
        )
        .with_value(show(worker.lease))
    });
    // Otherwise the rule above is what is wrong.
    if let Some(rate) = config.provider.calls_per_second()
        && worker.lease > needed
    {
        turns(worker, rate, needed, faults);
    }
}

/// Before each of its calls a job may wait until every other one has made one.
fn turns(worker: &Worker, rate: u32, calls: Duration, faults: &mut Faults) {
    let permits = u32::try_from(worker.permits).unwrap_or(u32::MAX);
    let calls_first = permits.saturating_mul(CALLS_OF_A_JOB);
    let waiting = Duration::from_secs(calls_first.div_ceil(rate).into());
    let needed = calls.saturating_add(waiting);
    faults.unless(worker.lease > needed, || {
        let left = worker.lease.saturating_sub(calls).as_secs_f64();
        let most = left * f64::from(rate) / f64::from(CALLS_OF_A_JOB);
        ConfigError::new(
            "worker.permits",
            format!(
                "at {rate} calls a second (provider.stripe.calls_per_second) a job among as many may wait {} for its turns, \
                 and with its calls that is longer than worker.lease = {}",
                show(waiting),
                show(worker.lease)
            ),
            format!(
                "set it below {most:.0}, or worker.lease above {}",
                show(needed)
            ),
        )
        .with_value(worker.permits)
    });
}

fn worker(config: &Config, faults: &mut Faults) {
    let worker = &config.worker;
    faults.at_least_one("worker.permits", worker.permits);
    faults.at_least_one("worker.batch_items", worker.batch_items);
    for (key, time) in [
        ("worker.poll_interval", worker.poll_interval),
        ("worker.take_back_interval", worker.take_back_interval),
        ("worker.fair_after", worker.fair_after),
        ("worker.retry_base", worker.retry_base),
        ("worker.slow_base", worker.slow_base),
        ("worker.breaker_base", worker.breaker_base),
        ("worker.action_expiry", worker.action_expiry),
        ("worker.completion_timeout", worker.completion_timeout),
    ] {
        faults.some_time(key, time);
    }
    faults.unless(worker.breaker_threshold >= 1, || {
        ConfigError::new(
            "worker.breaker_threshold",
            "the breaker would always be open",
            "set it to 1 or more",
        )
        .with_value(worker.breaker_threshold)
    });
    faults.not_longer(
        ("worker.retry_base", worker.retry_base),
        ("worker.retry_cap", worker.retry_cap),
    );
    faults.not_longer(
        ("worker.slow_base", worker.slow_base),
        ("worker.slow_cap", worker.slow_cap),
    );
    faults.not_longer(
        ("worker.breaker_base", worker.breaker_base),
        ("worker.breaker_cap", worker.breaker_cap),
    );
}

fn reconciler(config: &Config, faults: &mut Faults) {
    let reconciler = &config.reconciler;
    faults.some_time("reconciler.threshold", reconciler.threshold);
    faults.some_time("reconciler.interval", reconciler.interval);
    faults.unless(reconciler.batch >= 1, || {
        ConfigError::new(
            "reconciler.batch",
            "it would never look at a charge",
            "set it to 1 or more",
        )
        .with_value(reconciler.batch)
    });
    faults.some_time("reconciler.sweep_interval", reconciler.sweep_interval);
    faults.at_least_one("reconciler.sweep_pages", reconciler.sweep_pages);
    faults.not_longer(
        ("reconciler.sweep_interval", reconciler.sweep_interval),
        ("reconciler.sweep_window", reconciler.sweep_window),
    );
    faults.not_longer(
        ("reconciler.sweep_pause", reconciler.sweep_pause),
        ("provider.stripe.timeout", config.provider.stripe.timeout),
    );
    let calls = config
        .provider
        .stripe
        .timeout
        .saturating_mul(CALLS_OF_A_JOB);
    faults.unless(reconciler.sweep_lease > calls, || {
        ConfigError::new(
            "reconciler.sweep_lease",
            format!(
                "{CALLS_OF_A_JOB} × provider.stripe.timeout is {}",
                show(calls)
            ),
            format!("set it above {}, or lower that", show(calls)),
        )
        .with_value(show(reconciler.sweep_lease))
    });
}

fn key_window(config: &Config, faults: &mut Faults) {
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

fn stripe(config: &Config, faults: &mut Faults) {
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

fn log(config: &Config, faults: &mut Faults) {
    if let Err(error) = EnvFilter::builder().parse(&config.log.filter) {
        faults.0.push(
            ConfigError::new(
                "log.filter",
                error.to_string(),
                "write a level or target=level pairs, as in info,payonce=debug",
            )
            .with_value(&config.log.filter),
        );
    }
}
