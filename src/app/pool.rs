//! The pool for reads.

use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

use crate::config::{Config, DatabaseUrl};
use crate::db::session::{Durability, connect_options};

/// Connections for single reads. Nothing begins a transaction on them: in sqlx 0.9.0 a `begin` that is cancelled leaves
/// its connection inside one. They are not tested before use, which would cost every read a round trip; one that died
/// fails its read and is replaced.
pub(super) fn reads(config: &Config, database: &DatabaseUrl) -> PgPool {
    let limits = config.database.session_limits();
    PgPoolOptions::new()
        .max_connections(config.database.pool_size)
        .acquire_timeout(limits.connect_timeout)
        .test_before_acquire(false)
        .connect_lazy_with(connect_options(
            database.options(),
            limits,
            Durability::Durable,
        ))
}
