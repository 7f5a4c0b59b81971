//! A connection for one command.

use anyhow::Context;
use sqlx::Connection;
use sqlx::postgres::PgConnection;

use super::output::Hinted;
use crate::config::{Config, DatabaseUrl};
use crate::db::migrations;
use crate::db::session::{Durability, connect_options};

pub(super) fn url(config: &Config) -> anyhow::Result<&DatabaseUrl> {
    config.database.url.as_ref().ok_or_else(|| {
        Hinted::new(
            "no database is named",
            "set DATABASE_URL=postgres://user:password@host:port/database",
        )
        .into()
    })
}

/// A connection to a database of whatever schema.
pub(super) async fn open(config: &Config) -> anyhow::Result<PgConnection> {
    let url = url(config)?;
    let limits = config.database.session_limits();
    let options = connect_options(url.options(), limits, Durability::Durable);
    let connecting = PgConnection::connect_with(&options);
    tokio::time::timeout(limits.connect_timeout, connecting)
        .await
        .map_err(anyhow::Error::from)
        .and_then(|connected| connected.map_err(anyhow::Error::from))
        .with_context(|| unreachable(url))
}

/// A connection to a database that has this release's schema.
pub(super) async fn connect(config: &Config) -> anyhow::Result<PgConnection> {
    let mut connection = open(config).await?;
    let pending = migrations::pending(&mut connection).await?;
    if pending.is_empty() {
        return Ok(connection);
    }
    Err(Hinted::new(
        "the database has not this release's schema",
        "run `payonce migrate`",
    )
    .into())
}

fn unreachable(url: &DatabaseUrl) -> Hinted {
    Hinted::new(
        format!("{url} can't be reached"),
        "check that Postgres runs there and that DATABASE_URL is right",
    )
}
