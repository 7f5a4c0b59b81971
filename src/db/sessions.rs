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
            let (session, in_force) = asked.map_err(|_| DbError::AnswerTimeout)??;
            if *sessions.entry(session).or_insert(index) != index
                || sessions.values().filter(|known| **known == index).count() > 1
            {
                return Err(SessionsError::Shared);
            }
            for (name, value) in settings.iter() {
                if in_force.get(name).map(String::as_str) != Some(value) {
                    return Err(SessionsError::NotInForce(name));
                }
            }
        }
    }
    Ok(())
}

/// The session that a connection is in now, and what is set there.
async fn session(
    connection: &mut PgConnection,
    settings: &SessionSettings,
) -> Result<(i32, HashMap<String, String>), DbError> {
    // A statement without a name: those with one may fail in a session that is shared.
    let names: Vec<&str> = settings.iter().map(|(name, _)| name).collect();
    let sql = format!(
        "SELECT pg_backend_pid(), name, setting FROM pg_settings WHERE name IN ('{}')",
        names.join("', '")
    );
    let rows = sqlx::raw_sql(AssertSqlSafe(sql))
        .fetch_all(connection)
        .await?;
    let mut in_force = HashMap::with_capacity(rows.len());
    let mut session = 0;
    for row in rows {
        session = row.try_get(0)?;
        in_force.insert(row.try_get(1)?, row.try_get(2)?);
    }
    Ok((session, in_force))
}
