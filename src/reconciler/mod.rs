//! Converges what is stuck: walks all charges in bounded pages, gives an open charge without a job its job back, makes
//! request rows say what their charges say, and purges request rows whose time is over.
//!
//! It asks no provider and fails nothing: the job it makes reads the provider's object first, like any other. Jobs that
//! were never attempted and leases that hold belong to the queue and are left alone. Safe to run on every replica at once
//! and twice: each repair is one guarded statement. If the process dies, the next page of the next walk finds the same.

mod compare;
mod refund_walk;
mod refunds;
pub mod returned;
pub mod sweep;
mod walk;

use std::time::Duration;

use metrics::Counter;
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::batch::Chain;
use crate::db::session::Session;
use crate::db::{self, DbError, reconcile};
use crate::domain::ids::ChargeId;
use crate::domain::request::{ChargeRequest, Instruction, ProviderRules};
use crate::meters::Meters;
use crate::random::Random;

#[derive(Clone, Copy, Debug)]
pub struct ReconcilerLimits {
    /// How long a charge may stand still before it counts as stuck.
    pub threshold: Duration,
    /// The pause between two walks, and the longest between two pages.
    pub interval: Duration,
    /// Charges a page.
    pub batch: i64,
    /// How long a request row outlives its charge's last transition.
    pub retention: Duration,
    /// When a refund whose re-read was asked for and came to nothing is read again.
    pub recheck_again: Duration,
    /// How long an event of the provider's is remembered.
    pub event_retention: Duration,
    /// Whether money that moved for a charge that was told failed goes back by itself.
    pub success_after_failed: SuccessAfterFailed,
}

/// What becomes of money that moved for a charge that was told failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SuccessAfterFailed {
    /// It is held for a person: the client may have paid under a new key, or may have delivered all the same.
    Hold,
    /// It goes back.
    Refund,
}

/// How many events are forgotten for each charge that a page may hold: a charge has a few.
const EVENTS_A_CHARGE: i64 = 8;

/// Between two pages of one walk: keeps a walk over small pages from being a loop of statements.
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);

/// What is measured of the reconciler.
#[derive(Clone)]
pub struct ReconcilerMeters {
    pages: Counter,
    pages_failed: Counter,
    jobs_made: Counter,
    requests_aligned: Counter,
    requests_purged: Counter,
    events_purged: Counter,
}

impl ReconcilerMeters {
    pub fn new(meters: &Meters) -> Self {
        let pages = |result| {
            meters.counter(
                "payonce_reconciler_pages_total",
                "Pages of charges that were walked, or failed and are walked again.",
                &[("result", result)],
            )
        };
        let repairs = |repair| {
            meters.counter(
                "payonce_reconciler_repairs_total",
                "Where the books did not agree and were repaired: an open charge without a job, a request row that did not \
                 say what its charge says.",
                &[("repair", repair)],
            )
        };
        Self {
            pages: pages("walked"),
            pages_failed: pages("failed"),
            jobs_made: repairs("job_made"),
            requests_aligned: repairs("request_aligned"),
            requests_purged: meters.counter(
                "payonce_reconciler_requests_purged_total",
                "Request rows that were purged after their retention.",
                &[],
            ),
            events_purged: meters.counter(
                "payonce_reconciler_events_purged_total",
                "Events of the provider's that were forgotten after their retention.",
                &[],
            ),
        }
    }

    fn count(&self, swept: &Result<Swept, DbError>) {
        match swept {
            Ok(swept) => {
                self.pages.increment(1);
                self.jobs_made.increment(swept.jobs_made);
                self.requests_aligned.increment(swept.requests_aligned);
                self.requests_purged.increment(swept.requests_purged);
                self.events_purged.increment(swept.events_purged);
            }
            Err(_) => self.pages_failed.increment(1),
        }
    }
}

pub struct Reconciler {
    session: Session,
    limits: ReconcilerLimits,
    rules: ProviderRules,
    random: Random,
    meters: ReconcilerMeters,
    cursor: Uuid,
    refund_cursor: Uuid,
}

/// What one page came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    pub jobs_made: u64,
    pub requests_aligned: u64,
    pub requests_purged: u64,
    pub events_purged: u64,
    pub at_the_end: bool,
}

impl Reconciler {
    pub fn new(
        session: Session,
        limits: ReconcilerLimits,
        rules: ProviderRules,
        random: Random,
        meters: ReconcilerMeters,
    ) -> Self {
        Self {
            session,
            limits,
            rules,
            random,
            meters,
            cursor: Uuid::nil(),
            refund_cursor: Uuid::nil(),
        }
    }

    /// Walks page after page until `shutdown`: a small table once an interval, a large one without a stop and in a tenth
    /// of the time, so that the walk never takes the database from charges.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let mut pause = self.interval();
        let mut next_look = Instant::now() + pause;
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
            let started = Instant::now();
            // Each statement is whole by itself, and a database that has fallen silent must not hold up the end.
            let swept = tokio::select! {
                () = shutdown.cancelled() => return,
                swept = self.sweep_page() => swept,
            };
            self.meters.count(&swept);
            pause = match swept {
                Ok(swept) if swept.at_the_end => self.interval(),
                Ok(_) => (started.elapsed() * 9).clamp(
                    SHORTEST_PAUSE.min(self.limits.interval),
                    self.limits.interval,
                ),
                Err(error) => {
                    tracing::warn!(error = %Chain(&error), "a page of the reconciler failed; it is walked again");
                    self.interval()
                }
            };
            if Instant::now() >= next_look {
                next_look = Instant::now() + self.limits.interval;
                let looked = tokio::select! {
                    () = shutdown.cancelled() => return,
                    looked = self.look() => looked,
                };
                if let Err(error) = looked {
                    tracing::warn!(error = %Chain(&error), "looking for stuck jobs failed");
                }
            }
        }
    }

    /// With jitter, so that replicas do not walk in step.
    fn interval(&self) -> Duration {
        self.limits
            .interval
            .mul_f64(0.75 + self.random.unit() / 2.0)
    }

    /// Tells an operator of jobs that do not come to an end by themselves.
    async fn look(&mut self) -> Result<(), DbError> {
        let threshold = self.limits.threshold;
        let backlog = self
            .session
            .ask(1, async |connection| {
                reconcile::backlog(connection, threshold).await
            })
            .await?;
        if backlog.parked > 0 {
            tracing::error!(
                code = "jobs_parked",
                count = backlog.parked,
                "parked jobs wait for an operator"
            );
        }
        if backlog.stuck > 0 {
            tracing::error!(
                code = "jobs_stuck",
                count = backlog.stuck,
                "jobs were attempted and are still not done"
            );
        }
        Ok(())
    }

    /// Walks one page. What fails is walked again.
    pub async fn sweep_page(&mut self) -> Result<Swept, DbError> {
        let (limits, rules, cursor) = (self.limits, self.rules, self.cursor);
        // A page is five statements and one for each charge without a job.
        let (swept, next) = self
            .session
            .ask(5, async |connection| {
                sweep(connection, limits, &rules, cursor).await
            })
            .await?;
        self.cursor = next.unwrap_or_else(Uuid::nil);
        let of_refunds = self.sweep_refunds().await?;
        let swept = Swept {
            jobs_made: swept.jobs_made + of_refunds.jobs_made,
            requests_aligned: swept.requests_aligned + of_refunds.requests_aligned,
            requests_purged: swept.requests_purged + of_refunds.requests_purged,
            at_the_end: swept.at_the_end && of_refunds.at_the_end,
            ..swept
        };
        if swept.jobs_made > 0 || swept.requests_aligned > 0 {
            tracing::error!(
                code = "books_repaired",
                jobs_made = swept.jobs_made,
                requests_aligned = swept.requests_aligned,
                "the books did not agree and were repaired: find out why"
            );
        }
        Ok(swept)
    }

    async fn sweep_refunds(&mut self) -> Result<Swept, DbError> {
        let (limits, rules, cursor) = (self.limits, self.rules, self.refund_cursor);
        let (swept, next) = self
            .session
            .ask(5, async |connection| {
                if limits.success_after_failed == SuccessAfterFailed::Refund {
                    returned::by_policy(connection, &rules, limits.batch).await?;
                }
                refunds::recheck(connection, limits, &rules).await?;
                refunds::sweep(connection, limits, &rules, cursor).await
            })
            .await?;
        self.refund_cursor = next.unwrap_or_else(Uuid::nil);
        Ok(swept)
    }
}

async fn sweep(
    connection: &mut PgConnection,
    limits: ReconcilerLimits,
    rules: &ProviderRules,
    cursor: Uuid,
) -> Result<(Swept, Option<Uuid>), DbError> {
    let page = reconcile::page(connection, cursor, limits.batch, limits.threshold).await?;
    let mut swept = Swept {
        at_the_end: page.next.is_none(),
        ..Swept::default()
    };
    for (id, version) in page.without_job {
        if make_job(connection, rules, id, version).await? {
            swept.jobs_made += 1;
        }
    }
    swept.requests_aligned = reconcile::align_requests(connection, cursor, page.next).await?;
    swept.requests_purged =
        reconcile::purge_requests(connection, cursor, page.next, limits.retention).await?;
    swept.events_purged = db::provider_events::purge(
        connection,
        limits.event_retention,
        limits.batch * EVENTS_A_CHARGE,
    )
    .await?;
    Ok((swept, page.next))
}

/// The instruction is made again from the charge, which keeps every field of the request.
async fn make_job(
    connection: &mut PgConnection,
    rules: &ProviderRules,
    id: Uuid,
    version: i32,
) -> Result<bool, DbError> {
    let charge = match db::charges::find_all(connection, &[id]).await {
        Ok(mut found) => found.pop(),
        // Of another release's making, or damaged: it must not keep the walk from the others.
        Err(DbError::Unreadable { charge, column }) => {
            tracing::error!(
                code = "job_not_makeable",
                charge.id = %charge,
                column,
                "an open charge has no job and can't be read"
            );
            return Ok(false);
        }
        Err(error) => return Err(error),
    };
    let Some((charge, _)) = charge else {
        return Ok(false);
    };
    let Ok(request) = ChargeRequest::judge(charge.request, rules) else {
        tracing::error!(
            code = "job_not_makeable",
            charge.id = %ChargeId::from_uuid(id),
            "an open charge has no job and its request can't be sent by today's rules"
        );
        return Ok(false);
    };
    let payload = serde_json::to_value(request.instruction())
        .expect("an instruction of strings and numbers is always valid JSON");
    reconcile::make_job(connection, id, version, Instruction::VERSION, &payload).await
}
