//! How the services of a run are configured.

use crate::provider::{DEFAULT, SIDE};

/// Leases that run out during a run, as short as start-up takes them.
pub const SETTINGS: [(&str, &str); 35] = [
    ("PAYONCE__HTTP__LISTEN", "127.0.0.1:0"),
    ("PAYONCE__ADMIN__LISTEN", "127.0.0.1:0"),
    ("PAYONCE__HTTP__SHUTDOWN_GRACE", "5s"),
    ("PAYONCE__DATABASE__STATEMENT_TIMEOUT", "2s"),
    ("PAYONCE__DATABASE__CONNECT_TIMEOUT", "1s"),
    ("PAYONCE__PROVIDER__MODE", "test"),
    ("PAYONCE__PROVIDER__STRIPE__SECRET_KEY", DEFAULT.secret_key),
    (
        "PAYONCE__PROVIDER__STRIPE__WEBHOOK_SECRETS",
        DEFAULT.webhook_secret,
    ),
    (
        "PAYONCE__PROVIDER__STRIPE__ACCOUNTS__SIDE__SECRET_KEY",
        SIDE.secret_key,
    ),
    (
        "PAYONCE__PROVIDER__STRIPE__ACCOUNTS__SIDE__WEBHOOK_SECRETS",
        SIDE.webhook_secret,
    ),
    ("PAYONCE__PROVIDER__STRIPE__TIMEOUT", "1s"),
    ("PAYONCE__PROVIDER__STRIPE__CONNECT_TIMEOUT", "300ms"),
    ("PAYONCE__WORKER__LEASE", "4s"),
    ("PAYONCE__WORKER__SLACK", "250ms"),
    ("PAYONCE__WORKER__COMPLETION_TIMEOUT", "500ms"),
    ("PAYONCE__WORKER__TAKE_BACK_INTERVAL", "200ms"),
    ("PAYONCE__WORKER__RETRY_BASE", "20ms"),
    ("PAYONCE__WORKER__RETRY_CAP", "1s"),
    ("PAYONCE__WORKER__SLOW_BASE", "100ms"),
    ("PAYONCE__WORKER__SLOW_CAP", "1s"),
    ("PAYONCE__WORKER__BREAKER_BASE", "10ms"),
    ("PAYONCE__WORKER__BREAKER_CAP", "50ms"),
    ("PAYONCE__WORKER__ACTION_EXPIRY", "10s"),
    ("PAYONCE__RECONCILER__THRESHOLD", "5s"),
    ("PAYONCE__RECONCILER__INTERVAL", "1s"),
    ("PAYONCE__RECONCILER__SWEEP_PAUSE", "2ms"),
    ("PAYONCE__RECONCILER__SWEEP_LEASE", "4s"),
    // Read again twice, so that nothing is left to be read when all has ended.
    ("PAYONCE__RECONCILER__REFUND_RECHECK_AFTER", "1500ms"),
    ("PAYONCE__RECONCILER__REFUND_RECHECK_FOR", "3s"),
    ("PAYONCE__WEBHOOKS__ALLOW_LOOPBACK", "true"),
    ("PAYONCE__WEBHOOKS__TIMEOUT", "1s"),
    ("PAYONCE__WEBHOOKS__CONNECT_TIMEOUT", "300ms"),
    ("PAYONCE__WEBHOOKS__LEASE", "5s"),
    ("PAYONCE__WEBHOOKS__ENDPOINT_PERMITS", "16"),
    (
        "PAYONCE__WEBHOOKS__RETRY_DELAYS",
        "100ms,300ms,1s,1s,2s,2s,5s,5s,5s,5s,5s,5s",
    ),
];
