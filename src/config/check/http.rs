//! What is listened on, and what clients may take of it.

use super::faults::Faults;
use crate::config::Config;
use crate::config::error::ConfigError;
use crate::config::values::span::show;
use crate::http::limits::{MOST_BODY_BYTES, MOST_URI_LENGTH};

/// An address as long as the contract takes, and as much again for the headers.
const SMALLEST_HEAD: usize = 2 * MOST_URI_LENGTH;
/// Beyond this, heads that never end would hold more memory than requests.
const LARGEST_HEAD: usize = 1 << 20;

pub(super) fn requests(config: &Config, faults: &mut Faults) {
    let http = &config.http;
    faults.at_least_one("http.max_connections", http.max_connections);
    faults.some_time("http.header_timeout", http.header_timeout);
    faults.some_time("http.request_timeout", http.request_timeout);
    faults.unless((1..=MOST_BODY_BYTES).contains(&http.max_body_bytes), || {
        ConfigError::new(
            "http.max_body_bytes",
            format!("the contract takes bodies up to {MOST_BODY_BYTES} bytes"),
            format!("set it to 1 to {MOST_BODY_BYTES}"),
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

pub(super) fn bounds(config: &Config, faults: &mut Faults) {
    let http = &config.http;
    faults.at_least_one("http.max_requests", http.max_requests);
    faults.some_time("http.wait_poll_interval", http.wait_poll_interval);
    faults.some_time("http.write_timeout", http.write_timeout);
    faults.at_least_one("http.max_headers", http.max_headers);
    faults.shorter(
        ("http.header_timeout", http.header_timeout),
        ("http.idle_timeout", http.idle_timeout),
    );
    faults.unless(http.max_waiting < http.max_requests, || {
        ConfigError::new(
            "http.max_waiting",
            format!(
                "requests that wait could take every place of http.max_requests = {}",
                http.max_requests
            ),
            "set it below that",
        )
        .with_value(http.max_waiting)
    });
    faults.unless(
        (SMALLEST_HEAD..=LARGEST_HEAD).contains(&http.max_head_bytes),
        || {
            ConfigError::new(
                "http.max_head_bytes",
                format!("the contract takes addresses of {MOST_URI_LENGTH} characters, and a head beside them"),
                format!("set it to {SMALLEST_HEAD} to {LARGEST_HEAD}"),
            )
            .with_value(http.max_head_bytes)
        },
    );
    faults.unless(
        http.requests_burst == 0 || http.requests_per_second > 0,
        || {
            ConfigError::new(
                "http.requests_burst",
                "it bounds nothing while http.requests_per_second is 0",
                "set that too, or this to 0",
            )
            .with_value(http.requests_burst)
        },
    );
    faults.unless(http.unknown_keys_per_second >= 1, || {
        ConfigError::new(
            "http.unknown_keys_per_second",
            "no key could ever be asked for",
            "set it to 1 or more",
        )
        .with_value(http.unknown_keys_per_second)
    });
    faults.unless(http.request_timeout != http.acceptance_timeout, || {
        ConfigError::new(
            "http.request_timeout",
            format!(
                "a body has what is left of it beside http.acceptance_timeout = {} to arrive, and that is nothing",
                show(http.acceptance_timeout)
            ),
            "set it longer than that",
        )
        .with_value(show(http.request_timeout))
    });
}

pub(super) fn admin(config: &Config, faults: &mut Faults) {
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
