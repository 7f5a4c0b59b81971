//! Brings the schema to what this release needs. Forward only; several processes may do it at once.

use sqlx::migrate::{MigrateError, Migrator};
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{Connection, Executor};

use super::DbError;
use super::session::connect_options;

/// The migrations, embedded.
pub static MIGRATOR: Migrator = sqlx::migrate!();

/// Applies what is pending, on a connection of its own. Processes that do this at the same moment wait for each other
/// at an advisory lock, so the connection has no time limits: a limit would end the wait too.
pub async fn migrate(options: &PgConnectOptions) -> Result<(), MigrateError> {
    let options = connect_options(options).application_name("payonce migrate");
    let mut connection = PgConnection::connect_with(&options).await?;
    // The address or the role may set some.
    connection
        .execute("SET statement_timeout = 0; SET lock_timeout = 0; SET idle_in_transaction_session_timeout = 0")
        .await?;
    MIGRATOR.run(&mut connection).await?;
    connection.close().await?;
    Ok(())
}

/// The newest migration that this release was built with.
pub fn newest() -> i64 {
    MIGRATOR
        .iter()
        .map(|migration| migration.version)
        .max()
        .unwrap_or(0)
}

/// Versions of migrations that this release has and the database has not, in their order.
pub async fn pending(connection: &mut PgConnection) -> Result<Vec<i64>, DbError> {
    // Not checked at compile time: the table is the migrator's, not the migrations'.
    let migrated: bool = sqlx::query_scalar("SELECT to_regclass('_sqlx_migrations') IS NOT NULL")
        .fetch_one(&mut *connection)
        .await?;
    let applied: Vec<i64> = if migrated {
        sqlx::query_scalar("SELECT version FROM _sqlx_migrations WHERE success")
            .fetch_all(connection)
            .await?
    } else {
        Vec::new()
    };
    Ok(MIGRATOR
        .iter()
        .filter(|migration| migration.migration_type.is_up_migration())
        .map(|migration| migration.version)
        .filter(|version| !applied.contains(version))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embedded_postgres::{EmbeddedPostgres, Options};

    #[tokio::test]
    async fn several_processes_migrate_at_once_and_all_succeed() {
        let postgres = EmbeddedPostgres::start(Options::throw_away())
            .await
            .unwrap();
        postgres.ensure_database("books").await.unwrap();
        let options: PgConnectOptions = postgres.url("books").parse().unwrap();
        // A limit of the role's must not end the wait for the others.
        let hasty = options.clone().options([("lock_timeout", "1ms")]);
        let mut connection = PgConnection::connect_with(&options).await.unwrap();
        assert_eq!(
            pending(&mut connection).await.unwrap().len(),
            MIGRATOR.iter().count()
        );
        let all = [&options, &hasty, &options, &hasty].map(migrate);
        for done in futures_util::future::join_all(all).await {
            done.unwrap();
        }
        assert!(pending(&mut connection).await.unwrap().is_empty());
    }
}
