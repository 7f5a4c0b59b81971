//! Claims jobs and runs them. Input: outbox rows that are due. Output: settlements, through `completion`.
//!
//! A job is held by a lease with a token. No transaction and no row lock is held while the provider is asked. If the
//! process dies, hangs or loses the database, its leases run out and any worker takes the rows back; a holder that wakes
//! up later can write a success and nothing else, and can execute nothing that is not stored.

pub mod breaker;
pub mod executor;
mod fairness;
mod meters;
pub mod pauses;
mod refunds;
pub mod resolve;
pub mod stored;
pub mod strays;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::batch::Chain;
use crate::budget::{Room, Turn};
use crate::db::claim::{self, Job, Shares, Terms, Unclaimable};
use crate::db::session::Session;
use crate::db::{self, DbError};
use crate::domain::ids::LeaseToken;
use crate::domain::refund::request::RefundInstruction;
use crate::domain::request::Instruction;
use crate::provider::Provider;
use crate::random::Random;
use breaker::Allowance;
use executor::Executor;
use fairness::{Fairness, MOST_MERCHANTS, Next};
pub use meters::WorkerMeters;

#[derive(Clone, Copy, Debug)]
pub struct WorkerLimits {
    /// How many jobs run at once in this process.
    pub permits: usize,
    pub lease: Duration,
    /// What is kept of a lease for clocks and scheduling.
    pub slack: Duration,
    /// How often an idle worker looks for jobs that other processes made.
    pub poll_interval: Duration,
    /// How often expired leases are taken back, and pauses looked at.
    pub take_back_interval: Duration,
    /// How long the oldest job may wait before merchants take turns.
    pub fair_after: Duration,
    /// How long running jobs may take after a shutdown was asked for.
    pub grace: Duration,
}

pub struct Worker<P> {
    executor: Arc<Executor<P>>,
    session: Session,
    limits: WorkerLimits,
    /// Rung when this process accepted charges.
    wake: Arc<Notify>,
    random: Random,
    fairness: Fairness,
}

impl<P: Provider> Worker<P> {
    /// `session` is for claims alone and may commit without waiting for the disk.
    pub fn new(
        executor: Executor<P>,
        session: Session,
        limits: WorkerLimits,
        wake: Arc<Notify>,
        random: Random,
    ) -> Self {
        Self {
            executor: Arc::new(executor),
            session,
            limits,
            wake,
            random,
            fairness: Fairness::new(limits.fair_after),
        }
    }

    /// Claims and runs until `shutdown`; then stops claiming and waits for the jobs under way, up to the grace. What is
    /// not done by then keeps its lease, and the next worker reads before it sends.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let permits = Arc::new(Semaphore::new(self.limits.permits));
        let mut jobs = JoinSet::new();
        let mut next_take_back = Instant::now();
        loop {
            while let Some(ended) = jobs.try_join_next() {
                report(ended);
            }
            if shutdown.is_cancelled() {
                break;
            }
            if Instant::now() >= next_take_back {
                self.take_back().await;
                self.look_for_pauses().await;
                next_take_back = Instant::now() + self.limits.take_back_interval;
            }
            let pause = match self.begin(&permits, &mut jobs).await {
                Begun::Some => continue,
                Begun::Nothing => self.idle(),
                Begun::NoPermit => self.limits.take_back_interval,
                Begun::NotBefore(at) => at.saturating_duration_since(Instant::now()),
                Begun::Unavailable => self.idle() * 2,
            };
            let pause = pause.min(next_take_back.saturating_duration_since(Instant::now()));
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = self.wake.notified() => {}
                () = tokio::time::sleep(pause) => {}
                Some(ended) = jobs.join_next(), if !jobs.is_empty() => report(ended),
            }
        }
        let drained = async {
            while let Some(ended) = jobs.join_next().await {
                report(ended);
            }
        };
        if tokio::time::timeout(self.limits.grace, drained)
            .await
            .is_err()
        {
            tracing::warn!("jobs were still running at the end of the grace; their leases run out");
        }
    }

    /// Claims what the free permits, the budget and the breaker allow and starts it.
    async fn begin(&mut self, permits: &Arc<Semaphore>, jobs: &mut JoinSet<()>) -> Begun {
        let free = permits.available_permits();
        if free == 0 {
            return Begun::NoPermit;
        }
        // A job that is claimed makes its first call at once: no lease ticks while it waits for its turn.
        let room = match self.executor.budget.room(Instant::now()) {
            Room::Unbounded => free,
            Room::Calls(calls) => calls.min(free),
            Room::NoneBefore(at) => return Begun::NotBefore(at),
        };
        let (limit, probe) = match self.executor.breaker.allowance(Instant::now()) {
            Allowance::All => (room, false),
            Allowance::Probe => (1, true),
            Allowance::NoneBefore(at) => return Begun::NotBefore(at),
        };
        // Taken before the claim, so that a slow answer of the database makes the lease shorter and never longer.
        let deadline = Instant::now() + self.limits.lease - self.limits.slack;
        let next = if probe {
            Next::Oldest
        } else {
            self.fairness.next()
        };
        let claimed = match self.claim(next, limit).await {
            Ok(claimed) => claimed,
            Err(error) => {
                tracing::warn!(error = %Chain(&error), "claiming failed");
                return Begun::Unavailable;
            }
        };
        self.executor.meters.claims.increment(claimed.len() as u64);
        if claimed.is_empty() {
            if probe {
                self.executor.breaker.probe_unused(Instant::now());
            }
            return match next {
                Next::Oldest => Begun::Nothing,
                // Whose turn it was has nothing any more; the oldest go on.
                Next::ByMerchant { .. } => Begun::Some,
            };
        }
        self.executor.pauses.claimed();
        for job in claimed {
            match job {
                Ok(job) => {
                    let permit = permits.clone().try_acquire_owned().ok();
                    let turn = self.executor.budget.turn(Instant::now());
                    jobs.spawn(run(self.executor.clone(), job, deadline, (turn, permit)));
                }
                Err(unclaimable) => self.park(unclaimable).await,
            }
        }
        Begun::Some
    }

    async fn claim(&mut self, next: Next, limit: usize) -> Result<Claims, DbError> {
        let token = LeaseToken::from_uuid(self.random.uuid());
        let executor = Arc::clone(&self.executor);
        let terms = Terms {
            limit: i64::try_from(limit).unwrap_or(i64::MAX),
            token,
            lease: self.limits.lease,
            payload_versions: &[Instruction::VERSION],
            refund_payload_versions: &[RefundInstruction::VERSION],
            ours: executor.ours(),
            shares: None,
        };
        match next {
            Next::Oldest => {
                let claimed = self
                    .session
                    .ask(1, async move |connection| {
                        claim::claim(connection, terms).await
                    })
                    .await?;
                let waited = claimed
                    .iter()
                    .flatten()
                    .map(Job::waited)
                    .max()
                    .and_then(|waited| Duration::try_from(waited).ok());
                self.fairness.claimed_oldest(claimed.len() == limit, waited);
                Ok(claimed)
            }
            Next::ByMerchant { look_after } => {
                if let Some(cursor) = look_after {
                    let waiting = self
                        .session
                        .ask(1, async move |connection| {
                            claim::merchants_waiting(connection, cursor, MOST_MERCHANTS).await
                        })
                        .await?;
                    self.fairness.looked(&waiting);
                }
                let (merchants, share) = self.fairness.turn(limit);
                if merchants.is_empty() {
                    return Ok(Vec::new());
                }
                let shares = Some(Shares {
                    merchants: &merchants,
                    each: i64::try_from(share).unwrap_or(i64::MAX),
                });
                self.session
                    .ask(1, async |connection| {
                        claim::claim(connection, Terms { shares, ..terms }).await
                    })
                    .await
            }
        }
    }

    async fn take_back(&mut self) {
        match self
            .session
            .ask(1, async |connection| {
                claim::take_back_expired(connection, 1000).await
            })
            .await
        {
            Ok(0) => {}
            Ok(count) => {
                self.executor.meters.leases_expired.increment(count);
                tracing::warn!(
                    code = "leases_expired",
                    count,
                    "leases had run out; their jobs are ready again"
                );
            }
            Err(error) => {
                tracing::warn!(error = %Chain(&error), "taking back expired leases failed");
            }
        }
    }

    async fn look_for_pauses(&mut self) {
        match self
            .session
            .ask(1, async |connection| db::pauses::list(connection).await)
            .await
        {
            Ok(pauses) => self.executor.pauses.look(pauses),
            Err(error) => {
                tracing::warn!(error = %Chain(&error), "looking for pauses failed");
            }
        }
    }

    /// A row that can't be read is left to an operator and never failed.
    async fn park(&mut self, row: Unclaimable) {
        tracing::error!(code = "job_unreadable", outbox.id = row.outbox_id, error = %Chain(&row.error), "a job can't be read; it is parked");
        let parked = self
            .session
            .ask(1, async |connection| {
                claim::park(connection, row.outbox_id, row.lease, "job_unreadable").await
            })
            .await;
        if let Err(error) = parked {
            tracing::warn!(error = %Chain(&error), "parking failed; the lease runs out");
        }
    }

    /// The idle pause with jitter, so that processes do not look all at once.
    fn idle(&self) -> Duration {
        self.limits.poll_interval.mul_f64(0.5 + self.random.unit())
    }
}

type Claims = Vec<Result<Job, Unclaimable>>;

enum Begun {
    Some,
    Nothing,
    NoPermit,
    NotBefore(Instant),
    Unavailable,
}

async fn run<P: Provider>(
    executor: Arc<Executor<P>>,
    job: Job,
    deadline: Instant,
    (turn, permit): (Turn, Option<OwnedSemaphorePermit>),
) {
    match job {
        Job::Charge(job) => {
            let charge = job.charge;
            let ran = executor.run(*job, deadline, turn).await;
            executor.meters.ran(&ran);
            tracing::debug!(charge.id = %charge, ?ran, "a run ended");
        }
        Job::Refund(job) => {
            let refund = job.hold.refund;
            let ran = executor.run_refund(*job, deadline, turn).await;
            executor.meters.ran(&ran);
            tracing::debug!(refund.id = %refund, ?ran, "a run ended");
        }
    }
    drop(permit);
}

fn report(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        tracing::error!(code = "job_panicked", %error, "a job panicked; its lease runs out and the next run reads first");
    }
}
