//! Pauses: while there is one, no job is claimed and nothing new is executed, by any process.

use sqlx::PgConnection;
use time::OffsetDateTime;

use super::DbError;

/// Who holds sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A person, until they resume.
    Operator,
    /// A recovery, until the books agree with the provider.
    Recovery,
}

impl Kind {
    pub const ALL: [Self; 2] = [Self::Operator, Self::Recovery];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::Recovery => "recovery",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pause {
    /// A later release may know more kinds.
    pub kind: String,
    pub reason: String,
    pub since: OffsetDateTime,
}

/// Pauses sending. Returns whether this is new: a pause of the same kind stays as it is, with its reason and its time.
pub async fn insert(
    connection: &mut PgConnection,
    kind: Kind,
    reason: &str,
) -> Result<bool, DbError> {
    let done = sqlx::query!(
        "INSERT INTO pauses (kind, reason) VALUES ($1, $2) ON CONFLICT (kind) DO NOTHING",
        kind.as_str(),
        reason,
    )
    .execute(connection)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Ends the pause of this kind and returns it as it was. Sending goes on when no other is left.
pub async fn delete(connection: &mut PgConnection, kind: Kind) -> Result<Option<Pause>, DbError> {
    let was = sqlx::query_as!(
        Pause,
        "DELETE FROM pauses WHERE kind = $1 RETURNING kind, reason, since",
        kind.as_str(),
    )
    .fetch_optional(connection)
    .await?;
    Ok(was)
}

/// What holds sending now; nothing if it goes on.
pub async fn list(connection: &mut PgConnection) -> Result<Vec<Pause>, DbError> {
    let pauses = sqlx::query_as!(
        Pause,
        "SELECT kind, reason, since FROM pauses ORDER BY kind"
    )
    .fetch_all(connection)
    .await?;
    Ok(pauses)
}

/// The jobs that workers hold: what a pause lets end by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    pub count: i64,
    /// When the last of their leases ends.
    pub until: Option<OffsetDateTime>,
}

pub async fn held(connection: &mut PgConnection) -> Result<Held, DbError> {
    let held = sqlx::query_as!(
        Held,
        r#"
        SELECT count(*) AS "count!", max(lease_until) AS until
        FROM outbox
        WHERE state = 'leased'
        "#,
    )
    .fetch_one(connection)
    .await?;
    Ok(held)
}
