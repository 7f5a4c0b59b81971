//! A connection of its own for a task that sends one statement after the other: no pool, no transaction left open, a
//! time limit on both sides. What fails in doubt is thrown away with its connection.

use std::fmt::Write as _;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection};

use super::{DbError, Fault};

/// The limits of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionLimits {
    /// The most one statement takes; Postgres ends it then.
    pub statement_timeout: Duration,
    /// The most one statement waits for a lock.
    pub lock_timeout: Duration,
    pub connect_timeout: Duration,
}

/// Whether a commit waits until it is on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// For everything that a client or the provider may be told of.
    Durable,
    /// For leases alone: a crash of Postgres that loses one only makes its row ready again, and whatever is committed
    /// durably afterwards has flushed it too.
    Lease,
}

#[derive(Debug)]
pub struct Session {
    base: PgConnectOptions,
    limits: SessionLimits,
    durability: Durability,
    connection: Option<PgConnection>,
}

/// What a connection of ours sets once it is made. Not asked for with the connection itself: a pooler (PgBouncer) refuses
/// that, or drops it without a word.
#[derive(Clone, Debug)]
pub struct SessionSettings(Vec<(&'static str, String)>);

impl SessionSettings {
    pub fn new(limits: SessionLimits, durability: Durability) -> Self {
        let milliseconds = |duration: Duration| duration.as_millis().to_string();
        let (synchronous_commit, bitmap_scans, plans) = match durability {
            // Whatever the role's default is: flushed here and, where `synchronous_standby_names` says so, there. What
            // `remote_apply` adds is for those who read from a standby, and nobody of ours does.
            Durability::Durable => ("on", "on", "auto"),
            // Leases are taken from the head of a queue, in the order of its index. With numbers from when the queue was
            // short Postgres would collect and sort all of it instead, for every claim. And it would plan each claim anew,
            // since one for other numbers looks cheaper: that took as long as the claim itself.
            Durability::Lease => ("off", "off", "force_generic_plan"),
        };
        Self(vec![
            ("statement_timeout", milliseconds(limits.statement_timeout)),
            ("lock_timeout", milliseconds(limits.lock_timeout)),
            (
                "idle_in_transaction_session_timeout",
                milliseconds(limits.statement_timeout),
            ),
            ("synchronous_commit", synchronous_commit.to_owned()),
            // Where there is an index, it is meant. A prepared statement keeps its plan while its tables grow: one made
            // for a table of a few rows must not be one that reads all of them.
            ("enable_seqscan", "off".to_owned()),
            // Nor a walk along the whole index for a few rows that could be looked up in it.
            ("enable_mergejoin", "off".to_owned()),
            // What reads a whole table all the same looks dearer than it is by that, and would be compiled first: for
            // seconds, to save milliseconds.
            ("jit", "off".to_owned()),
            ("enable_bitmapscan", bitmap_scans.to_owned()),
            ("plan_cache_mode", plans.to_owned()),
        ])
    }

    /// The names, and the values: milliseconds, or a word.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.0.iter().map(|(name, value)| (*name, value.as_str()))
    }

    /// Sets all of them, in one round trip.
    pub async fn apply(&self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        let mut sql = String::new();
        for (name, value) in self.iter() {
            let _ = write!(sql, "SET {name} = {value};");
        }
        sqlx::raw_sql(AssertSqlSafe(sql))
            .execute(connection)
            .await?;
        Ok(())
    }
}

/// How connections of ours are made, in the pool and out of it. Each must then be given its [`SessionSettings`].
pub fn connect_options(base: &PgConnectOptions) -> PgConnectOptions {
    base.clone()
        .application_name("payonce")
        // Poolers refuse what they do not know, and all Postgres that we run on are as precise without it.
        .extra_float_digits(None)
        .disable_statement_logging()
}

/// Makes a connection whose settings are in force.
pub async fn connect(
    base: &PgConnectOptions,
    limits: SessionLimits,
    durability: Durability,
) -> Result<PgConnection, DbError> {
    let connecting = async {
        let mut connection = PgConnection::connect_with(&connect_options(base)).await?;
        SessionSettings::new(limits, durability)
            .apply(&mut connection)
            .await?;
        Ok(connection)
    };
    tokio::time::timeout(limits.connect_timeout, connecting)
        .await
        .map_err(|_| DbError::ConnectTimeout)?
        .map_err(DbError::Connect)
}

impl Session {
    pub fn new(base: &PgConnectOptions, limits: SessionLimits, durability: Durability) -> Self {
        Self {
            base: base.clone(),
            limits,
            durability,
            connection: None,
        }
    }

    /// Runs `statements` on the connection, and gives it up where its state is unknown. Each statement is given its time.
    pub async fn ask<R>(
        &mut self,
        statements: u32,
        run: impl AsyncFnOnce(&mut PgConnection) -> Result<R, DbError>,
    ) -> Result<R, DbError> {
        let limit = self.answer_timeout() * statements;
        let connection = self.connection().await?;
        let answer = tokio::time::timeout(limit, run(connection))
            .await
            .unwrap_or(Err(DbError::AnswerTimeout));
        if let Err(error) = &answer
            && matches!(error.fault(), Fault::Unknown | Fault::Refused)
        {
            self.discard();
        }
        answer
    }

    /// The connection, made now if there is none. Nothing was sent if this fails.
    pub async fn connection(&mut self) -> Result<&mut PgConnection, DbError> {
        if self.connection.is_none() {
            let connection = connect(&self.base, self.limits, self.durability).await?;
            self.connection = Some(connection);
        }
        self.connection.as_mut().ok_or(DbError::ConnectTimeout)
    }

    /// How long to wait for an answer before the connection counts as dead: longer than the server's own limit.
    pub fn answer_timeout(&self) -> Duration {
        self.limits.statement_timeout + self.limits.connect_timeout
    }

    /// Closes the connection without a word. A statement under way may still commit.
    pub fn discard(&mut self) {
        self.connection = None;
    }
}
