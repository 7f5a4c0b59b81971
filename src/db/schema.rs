//! Which migrations the database has.

use sqlx::PgConnection;

use super::DbError;

/// The highest migration that was applied in full. A database that was never migrated has no such table: an error. So is
/// one that takes no writes: a standby, a primary that was demoted.
pub async fn applied_version(connection: &mut PgConnection) -> Result<Option<i64>, DbError> {
    // Not checked at compile time: the table is the migrator's, not the migrations'.
    let (version, read_only) = sqlx::query_as::<_, (Option<i64>, bool)>(
        "SELECT max(version), current_setting('transaction_read_only')::boolean FROM _sqlx_migrations WHERE success",
    )
    .fetch_one(connection)
    .await?;
    if read_only {
        return Err(DbError::ReadOnly);
    }
    Ok(version)
}
