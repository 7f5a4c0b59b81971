//! The relations between values. Each rule says what would go wrong, and to what the value must change.

mod faults;
mod http;
mod provider;
mod webhooks;
mod worker;

use tracing_subscriber::EnvFilter;

use self::faults::Faults;
use super::error::{ConfigError, ConfigErrors};
use super::{Config, Roles};

/// Read, prepare, execute: the calls that one hold of a job has time for. A cancel begins only if there is time left.
const CALLS_OF_A_JOB: u32 = 3;

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
    for account in config.provider.accounts() {
        faults.unless(!needs_key || account.secret_key.is_some(), || {
            let key = format!("{}.secret_key", account.section);
            let variable = key.to_uppercase().replace('.', "__");
            ConfigError::new(
                key,
                "it is not set, and the worker and the reconciler call the provider",
                format!("set PAYONCE__{variable}, or run the api alone (--only api)"),
            )
        });
    }
    faults.0
}

fn all(config: &Config) -> Faults {
    let mut faults = Faults::default();
    database(config, &mut faults);
    http::requests(config, &mut faults);
    http::bounds(config, &mut faults);
    http::admin(config, &mut faults);
    intake(config, &mut faults);
    worker::lease(config, &mut faults);
    worker::worker(config, &mut faults);
    worker::reconciler(config, &mut faults);
    webhooks::webhooks(config, &mut faults);
    provider::key_window(config, &mut faults);
    provider::stripe(config, &mut faults);
    provider::accounts(config, &mut faults);
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

fn intake(config: &Config, faults: &mut Faults) {
    let intake = &config.intake;
    faults.at_least_one("intake.queue", intake.queue);
    faults.at_least_one("intake.batchers", intake.batchers);
    faults.at_least_one("intake.batch_items", intake.batch_items);
    faults.at_least_one("intake.batch_bytes", intake.batch_bytes);
    let bytes_each = config.intake.batch_limits().queue_bytes;
    faults.unless(intake.batch_bytes <= bytes_each, || {
        ConfigError::new(
            "intake.queue_bytes",
            format!(
                "each of intake.batchers = {} has its part of it, and that is less than intake.batch_bytes = {}",
                intake.batchers, intake.batch_bytes
            ),
            format!(
                "set it to {} or more",
                intake.batch_bytes.saturating_mul(intake.batchers)
            ),
        )
        .with_value(intake.queue_bytes)
    });
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
