//! When all work is done, and whether the books and the simulator's ledger then say the same.

use std::collections::HashSet;
use std::time::Duration;

use payonce::domain::ids::ChargeId;
use sqlx::{Connection, PgConnection};
use time::OffsetDateTime;
use tokio::time::Instant;
use uuid::Uuid;

use super::books::Books;
use super::simulator::Simulator;

/// Seldom enough to cost nothing beside what is measured, whose end is the last completion by the database's clock.
const PAUSE: Duration = Duration::from_millis(20);
/// Whatever is measured goes on for a few seconds; what stands still this long is a fault.
const PATIENCE: Duration = Duration::from_mins(2);

/// Waits until no job is left.
pub(crate) async fn no_job_left(books: &Books) -> anyhow::Result<()> {
    let mut connection = books.connect().await?;
    let patience = Instant::now() + PATIENCE;
    while is_open(&mut connection).await? {
        anyhow::ensure!(Instant::now() < patience, "some jobs are never done");
        tokio::time::sleep(PAUSE).await;
    }
    connection.close().await?;
    Ok(())
}

/// How the charges of a round stood when the last was completed.
pub(crate) struct Done {
    pub(crate) at: OffsetDateTime,
    /// Of each charge, from its acceptance to its completion.
    pub(crate) micros: Vec<u32>,
}

/// Holds `count` charges against the ledger, one by one.
pub(crate) async fn check(
    books: &Books,
    simulator: &Simulator,
    count: usize,
) -> anyhow::Result<Done> {
    let mut connection = books.connect().await?;
    let completed: HashSet<String> = ids(
        &mut connection,
        "SELECT id FROM charges WHERE stage = 'succeeded'",
    )
    .await?;
    let answering = ids(
        &mut connection,
        "SELECT charge_id FROM idempotent_requests WHERE status = 'completed'",
    )
    .await?;
    let moved = simulator.ledger().await?;
    anyhow::ensure!(
        completed.len() == count && answering == completed && moved == completed,
        "of {count} charges {} are completed, {} requests say so, and {} moved money",
        completed.len(),
        answering.len(),
        moved.len()
    );
    let disputed: i64 = sqlx::query_scalar("SELECT count(*) FROM discrepancies")
        .fetch_one(&mut connection)
        .await?;
    anyhow::ensure!(disputed == 0, "{disputed} discrepancies");
    let at = sqlx::query_scalar("SELECT max(finished_at) FROM charges")
        .fetch_one(&mut connection)
        .await?;
    let micros: Vec<i32> = sqlx::query_scalar(
        "SELECT (extract(epoch FROM finished_at - created_at) * 1000000)::integer FROM charges",
    )
    .fetch_all(&mut connection)
    .await?;
    Ok(Done {
        at,
        micros: micros
            .into_iter()
            .map(u32::try_from)
            .collect::<Result<_, _>>()?,
    })
}

/// Looks at the youngest job, which is the last to go: the dead rows of the others are not walked over.
async fn is_open(connection: &mut PgConnection) -> anyhow::Result<bool> {
    let youngest: Option<i64> =
        sqlx::query_scalar("SELECT id FROM outbox ORDER BY id DESC LIMIT 1")
            .fetch_optional(connection)
            .await?;
    Ok(youngest.is_some())
}

async fn ids(
    connection: &mut PgConnection,
    query: &'static str,
) -> anyhow::Result<HashSet<String>> {
    let ids: Vec<Uuid> = sqlx::query_scalar(query).fetch_all(connection).await?;
    Ok(ids
        .into_iter()
        .map(|id| ChargeId::from_uuid(id).to_string())
        .collect())
}
