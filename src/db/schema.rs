//! Which migrations the database has.

use sqlx::PgConnection;

use super::DbError;

/// The highest migration that was applied in full. A database that was never migrated has no such table: an error.
pub async fn applied_version(connection: &mut PgConnection) -> Result<Option<i64>, DbError> {
    // Not checked at compile time: the table is the migrator's, not the migrations'.
    let version = sqlx::query_scalar::<_, Option<i64>>(
        "SELECT max(version) FROM _sqlx_migrations WHERE success",
    )
    .fetch_one(connection)
    .await?;
    Ok(version)
}
