//! Leases, turns and pauses of who runs jobs, and of who walks the books.

use std::time::Duration;

use super::CALLS_OF_A_JOB;
use super::faults::Faults;
use crate::config::error::ConfigError;
use crate::config::values::span::show;
use crate::config::{Config, Worker};

pub(super) fn lease(config: &Config, faults: &mut Faults) {
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

pub(super) fn worker(config: &Config, faults: &mut Faults) {
    let worker = &config.worker;
    faults.at_least_one("worker.permits", worker.permits);
    faults.at_least_one("worker.batch_items", worker.batch_items);
    faults.at_least_one("worker.refund_batchers", worker.refund_batchers);
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

pub(super) fn reconciler(config: &Config, faults: &mut Faults) {
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
    faults.some_time(
        "reconciler.refund_recheck_after",
        reconciler.refund_recheck_after,
    );
    faults.not_longer(
        (
            "reconciler.refund_recheck_after",
            reconciler.refund_recheck_after,
        ),
        (
            "reconciler.refund_recheck_for",
            reconciler.refund_recheck_for,
        ),
    );
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
