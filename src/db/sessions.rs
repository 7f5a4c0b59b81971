//! Whether each connection of ours is a session of its own in Postgres.
//!
//! Time-outs, durability and prepared statements belong to a session. A pooler that gives one session to several
//! connections, a transaction or a statement at a time, mixes them: a commit that a client hears of could be one that did
//! not wait for the disk. It does not say that it is there, so a few connections are made and asked, again and again,
//! which session they are in and what is set there.

use std::collections::HashMap;

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, Row};

use super::DbError;
use super::session::{Durability, SessionLimits, SessionSettings, connect};

/// Connections at once: more than the processes of one pooler that listen at one address, which share no sessions.
const CONNECTIONS: usize = 4;
/// How often each is asked: a pooler that gives each the next of its sessions shows itself the second time, and one that
/// others use at the same time may do so later.
const ROUNDS: usize = 4;

#[derive(Debug, thiserror::Error)]
pub enum SessionsError {
    #[error("the database can't be asked")]
    Db(#[from] DbError),
    #[error("a connection pooler gives one session of Postgres to several connections")]
    Shared,
    #[error("{0} was set and is not in force")]
    NotInForce(&'static str),
}

/// Fails when connections to `base` share sessions, or a setting of ours does not last.
pub async fn check(base: &PgConnectOptions, limits: SessionLimits) -> Result<(), SessionsError> {
    // Both kinds, so that sessions that are shared contradict themselves.
    let durabilities = [Durability::Durable, Durability::Lease];
    let mut connections = Vec::with_capacity(CONNECTIONS);
    for durability in durabilities.into_iter().cycle().take(CONNECTIONS) {
        let settings = SessionSettings::new(limits, durability);
        connections.push((connect(base, limits, durability).await?, settings));
    }
    let mut sessions = HashMap::new();
    for _ in 0..ROUNDS {
        for (index, (connection, settings)) in connections.iter_mut().enumerate() {
            let asking = session(connection, settings);
            let asked = tokio::time::timeout(limits.connect_timeout, asking).await;
            let (session, lost) = asked.map_err(|_| DbError::AnswerTimeout)??;
            if *sessions.entry(session).or_insert(index) != index
                || sessions.values().filter(|known| **known == index).count() > 1
            {
                return Err(SessionsError::Shared);
            }
            if let Some(name) = lost {
                return Err(SessionsError::NotInForce(name));
            }
        }
    }
    Ok(())
}

/// The session that a connection is in now, and a setting that is not in force there.
async fn session(
    connection: &mut PgConnection,
    settings: &SessionSettings,
) -> Result<(i32, Option<&'static str>), DbError> {
    let in_force: Vec<String> = settings
        .iter()
        .map(|(name, value)| match value.parse::<u64>() {
            // Shown in whatever unit is shortest.
            Ok(milliseconds) => {
                format!("current_setting('{name}')::interval = '{milliseconds} ms'::interval")
            }
            Err(_) => format!("current_setting('{name}') = '{value}'"),
        })
        .collect();
    // A statement without a name: those with one may fail in a session that is shared.
    let sql = format!("SELECT pg_backend_pid(), {}", in_force.join(", "));
    let row = sqlx::raw_sql(AssertSqlSafe(sql))
        .fetch_one(connection)
        .await?;
    for (column, (name, _)) in settings.iter().enumerate() {
        if !row.try_get::<bool, _>(column + 1)? {
            return Ok((row.try_get(0)?, Some(name)));
        }
    }
    Ok((row.try_get(0)?, None))
}
