//! How the books stand, for who watches them.

use std::time::Duration;

use sqlx::PgConnection;

use super::{DbError, interval, webhook_deliveries};

/// Jobs of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Jobs {
    /// Counted up to [`MOST_COUNTED`].
    pub count: i64,
    pub oldest_age_seconds: f64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Standing {
    /// Ready and due; the age is how long the oldest is overdue.
    pub ready: Jobs,
    /// Ready at a later time: retries, and charges whose customers have their turn.
    pub later: i64,
    /// At a worker; the age is since the claim.
    pub leased: Jobs,
    pub parked: Jobs,
    /// Of charges that require reconciliation, whatever else the job is.
    pub unclear: Jobs,
    pub discrepancies: i64,
    /// Since the newest sweep that came to its end began.
    pub sweep_age_seconds: f64,
    pub paused_by_operator: bool,
    pub paused_by_recovery: bool,
    pub webhooks: webhook_deliveries::Standing,
}

/// Enough to see that something is wrong, and little to count.
pub const MOST_COUNTED: i64 = 10_000;

/// Walks each partial index up to [`MOST_COUNTED`], so that it costs the same however many jobs wait. `lease` is how long
/// workers lease: when a lease was taken is told by its end. `accounts`: those that are swept.
pub async fn standing(
    connection: &mut PgConnection,
    lease: Duration,
    accounts: &[String],
) -> Result<Standing, DbError> {
    let row = sqlx::query_file!(
        "src/db/sql/standing.sql",
        MOST_COUNTED,
        interval(lease),
        accounts,
    )
    .fetch_one(&mut *connection)
    .await?;
    let webhooks = webhook_deliveries::standing(connection).await?;
    let jobs = |count, age: Option<f64>| Jobs {
        count,
        oldest_age_seconds: age.unwrap_or_default().max(0.0),
    };
    Ok(Standing {
        ready: jobs(row.ready, row.ready_age),
        later: row.later,
        leased: jobs(row.leased, row.leased_age),
        parked: jobs(row.parked, row.parked_age),
        unclear: jobs(row.unclear, row.unclear_age),
        discrepancies: row.discrepancies,
        sweep_age_seconds: row.sweep_age.unwrap_or_default().max(0.0),
        paused_by_operator: row.paused_by_operator,
        paused_by_recovery: row.paused_by_recovery,
        webhooks,
    })
}
