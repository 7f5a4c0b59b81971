//! A connection for one command.

use anyhow::Context;
use sqlx::postgres::PgConnection;

use super::output::Hinted;
use crate::config::{Config, DatabaseUrl};
use crate::db::migrations;
use crate::db::session::{self, Durability};
use crate::db::sessions::{self, SessionsError};

/// What to do about a pooler.
pub(super) const POOLER: &str =
    "let payonce connect to Postgres itself, or set pool_mode = session for it in PgBouncer";

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
    match sessions::check(url.options(), limits).await {
        Ok(()) => {}
        Err(SessionsError::Db(error)) => {
            return Err(anyhow::Error::from(error).context(unreachable(url)));
        }
        Err(error) => {
            let hinted = Hinted::new(format!("{url} can't be used"), POOLER);
            return Err(anyhow::Error::from(error).context(hinted));
        }
    }
    session::connect(url.options(), limits, Durability::Durable)
        .await
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
