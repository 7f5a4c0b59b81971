//! Makes databases within the cluster.

use std::time::{Duration, Instant};

use sqlx::postgres::{PgConnectOptions, PgSslMode};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, PgConnection};

use super::{EmbeddedPostgres, EmbeddedPostgresError};

/// How long a template may still have sessions: those of a pool that was just closed end a moment later.
const TEMPLATE_PATIENCE: Duration = Duration::from_secs(5);

const DUPLICATE_DATABASE: &str = "42P04";
const OBJECT_IN_USE: &str = "55006";

impl EmbeddedPostgres {
    /// Creates the database if there is none of that name.
    pub async fn ensure_database(&self, name: &str) -> Result<(), EmbeddedPostgresError> {
        check_name(name)?;
        match self.create(name, &format!("CREATE DATABASE {name}")).await {
            Err(EmbeddedPostgresError::Database { source, .. })
                if has_code(&source, DUPLICATE_DATABASE) =>
            {
                Ok(())
            }
            done => done,
        }
    }

    /// Creates the database as a copy of `template`, which nobody may be connected to.
    pub async fn clone_database(
        &self,
        template: &str,
        name: &str,
    ) -> Result<(), EmbeddedPostgresError> {
        check_name(template)?;
        check_name(name)?;
        let statement = format!("CREATE DATABASE {name} TEMPLATE {template}");
        let started = Instant::now();
        loop {
            match self.create(name, &statement).await {
                Err(EmbeddedPostgresError::Database { source, .. })
                    if has_code(&source, OBJECT_IN_USE)
                        && started.elapsed() < TEMPLATE_PATIENCE =>
                {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                done => return done,
            }
        }
    }

    /// One at a time: while a template is copied, another copy of it is refused.
    async fn create(&self, name: &str, statement: &str) -> Result<(), EmbeddedPostgresError> {
        let failed = |source| EmbeddedPostgresError::Database {
            doing: format!("create the database {name}"),
            source,
        };
        let _one_at_a_time = self.creating.lock().await;
        let mut connection = self.connect().await.map_err(failed)?;
        // The names in it have been checked.
        sqlx::query(AssertSqlSafe(statement))
            .execute(&mut connection)
            .await
            .map_err(failed)?;
        connection.close().await.map_err(failed)
    }

    /// A connection to the maintenance database.
    pub(super) async fn connect(&self) -> Result<PgConnection, sqlx::Error> {
        let options = PgConnectOptions::new_without_pgpass()
            .host("127.0.0.1")
            .port(self.port())
            .username("payonce")
            .password(&self.home.password)
            .database("postgres")
            .ssl_mode(PgSslMode::Disable)
            .disable_statement_logging();
        PgConnection::connect_with(&options).await
    }
}

pub(super) fn has_code(error: &sqlx::Error, code: &str) -> bool {
    error
        .as_database_error()
        .and_then(sqlx::error::DatabaseError::code)
        .is_some_and(|found| found == code)
}

/// Only names that need no quotes, so that they mean the same everywhere.
fn check_name(name: &str) -> Result<(), EmbeddedPostgresError> {
    let starts_well = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
    let goes_on_well = name
        .chars()
        .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if starts_well && goes_on_well && name.len() <= 63 {
        return Ok(());
    }
    Err(EmbeddedPostgresError::InvalidName(name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::check_name;

    #[test]
    fn names_that_would_need_quotes_are_refused() {
        assert!(check_name("payonce_test_1").is_ok());
        for refused in [
            "",
            "1st",
            "Payonce",
            "a b",
            "a\"; DROP DATABASE x; --",
            &"a".repeat(64),
        ] {
            assert!(check_name(refused).is_err(), "{refused}");
        }
    }
}
