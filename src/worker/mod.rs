//! Claims jobs and runs them. Input: outbox rows that are due. Output: settlements, through `completion`.
//!
//! A job is held by a lease with a token. No transaction and no row lock is held while the provider is asked. If the
//! process dies, hangs or loses the database, its leases run out and any worker takes the rows back; a holder that wakes
//! up later can write a success and nothing else, and can execute nothing that is not stored.

pub mod breaker;
mod endings;
pub mod executor;
mod fairness;
mod lanes;
mod meters;
pub mod pauses;
mod refunds;
pub mod resolve;
mod run;
pub mod stored;
pub mod strays;
mod unserved;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::batch::Chain;
use crate::budget::Turn;
use crate::db::claim::{self, Most, Shares, Terms};
use crate::db::claimed::{Job, Ours, Unclaimable};
use crate::db::session::Session;
use crate::db::{self, DbError};
use crate::domain::ids::LeaseToken;
use crate::domain::refund::request::RefundInstruction;
use crate::domain::request::Instruction;
use crate::provider::Provider;
use crate::random::Random;
use executor::Executor;
use fairness::{MOST_MERCHANTS, Next};
use lanes::{Ask, Lanes, Round};
pub use meters::WorkerMeters;
use unserved::UnservedAccounts;

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
    lanes: Lanes<P>,
    session: Session,
    limits: WorkerLimits,
    /// Rung when this process accepted charges.
    wake: Arc<Notify>,
    random: Random,
    unserved: UnservedAccounts,
}

impl<P: Provider> Worker<P> {
    /// `executors`: one for each account, the default one's first. `session` is for claims alone and may commit without
    /// waiting for the disk.
    pub fn new(
        executors: Vec<Executor<P>>,
        session: Session,
        limits: WorkerLimits,
        wake: Arc<Notify>,
        random: Random,
    ) -> Self {
        Self {
            lanes: Lanes::new(executors, limits),
            session,
            limits,
            wake,
            random,
            unserved: UnservedAccounts::default(),
        }
    }

    /// Claims and runs until `shutdown`; then stops claiming and waits for the jobs under way, up to the grace. What is
    /// not done by then keeps its lease, and the next worker reads before it sends.
    pub async fn run(mut self, shutdown: CancellationToken) {
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
                self.look_for_pins().await;
                self.look_for_unserved_accounts().await;
                next_take_back = Instant::now() + self.limits.take_back_interval;
            }
            let pause = match self.begin(&mut jobs).await {
                Begun::Some => continue,
                Begun::Nothing(not_before) => {
                    let until = not_before.map(|at| at.saturating_duration_since(Instant::now()));
                    self.idle().min(until.unwrap_or(Duration::MAX))
                }
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

    /// Claims what the free permits and each account's budget and breaker allow and starts it.
    async fn begin(&mut self, jobs: &mut JoinSet<()>) -> Begun {
        let (asks, not_before) = match self.lanes.round(Instant::now()) {
            Round::Ask(asks, not_before) => (asks, not_before),
            Round::NotBefore(at) => return Begun::NotBefore(at),
            Round::NoPermit => return Begun::NoPermit,
        };
        // Taken before the claim, so that a slow answer of the database makes the lease shorter and never longer.
        let deadline = Instant::now() + self.limits.lease - self.limits.slack;
        let (oldest, by_merchant): (Vec<Ask>, Vec<Ask>) =
            asks.into_iter().partition(|ask| ask.next == Next::Oldest);
        // Whose turn it was may have nothing any more; the oldest go on then.
        let mut begun = !by_merchant.is_empty();
        if !oldest.is_empty() {
            match self.claim_oldest(&oldest).await {
                Ok(claimed) => {
                    self.lanes.claimed_oldest(&oldest, &claimed, Instant::now());
                    begun |= !claimed.is_empty();
                    self.run_all(claimed, deadline, jobs).await;
                }
                Err(error) => return unavailable(&error),
            }
        }
        for ask in by_merchant {
            let Next::ByMerchant { look_after } = ask.next else {
                continue;
            };
            match self.claim_shares(ask, look_after).await {
                Ok(claimed) => self.run_all(claimed, deadline, jobs).await,
                Err(error) => return unavailable(&error),
            }
        }
        if begun {
            Begun::Some
        } else {
            Begun::Nothing(not_before)
        }
    }

    async fn run_all(&mut self, claimed: Claims, deadline: Instant, jobs: &mut JoinSet<()>) {
        if claimed.is_empty() {
            return;
        }
        let default = self.lanes.default();
        default.meters.claims.increment(claimed.len() as u64);
        default.pauses.claimed();
        for job in claimed {
            match job {
                Ok(job) => {
                    // What names no account stands in the default one's queue, and may be of one whose lane is shut.
                    let its = self.lanes.of(&job).filter(|(executor, _)| {
                        executor.identity.is_open() || job.queue() == executor.account()
                    });
                    let Some((executor, permit)) = its else {
                        self.leave(&job).await;
                        continue;
                    };
                    let turn = executor.budget.turn(Instant::now());
                    jobs.spawn(run(executor, job, deadline, (turn, permit)));
                }
                Err(unclaimable) => self.park(unclaimable).await,
            }
        }
    }

    /// One statement for all of these lanes.
    async fn claim_oldest(&mut self, asks: &[Ask]) -> Result<Claims, DbError> {
        let limit = |ask: &Ask| i64::try_from(ask.limit).unwrap_or(i64::MAX);
        let due_within = self.lanes.due_within(asks, Instant::now());
        let others = asks.iter().filter(|ask| ask.lane != 0);
        let most: Vec<i64> = others.clone().map(limit).collect();
        let names: Vec<&str> = others.map(|ask| self.lanes.account(ask.lane)).collect();
        let terms = Terms {
            limit: asks.iter().find(|ask| ask.lane == 0).map_or(0, limit),
            due_within,
            accounts: Most {
                names: &names,
                most: &most,
            },
            ..self.terms(self.lanes.default().ours())
        };
        self.session
            .ask(1, async |connection| claim::claim(connection, terms).await)
            .await
    }

    /// A share for each merchant of one lane whose turn it is.
    async fn claim_shares(
        &mut self,
        ask: Ask,
        look_after: Option<Uuid>,
    ) -> Result<Claims, DbError> {
        let default = Arc::clone(self.lanes.default());
        let ours = default.ours();
        let executor = Arc::clone(&self.lanes.lane(ask.lane).executor);
        let account = executor.account();
        if let Some(cursor) = look_after {
            let waiting = self
                .session
                .ask(1, async |connection| {
                    claim::merchants_waiting(connection, cursor, MOST_MERCHANTS, (account, ours))
                        .await
                })
                .await?;
            self.lanes.lane(ask.lane).fairness.looked(&waiting);
        }
        let (merchants, share) = self.lanes.lane(ask.lane).fairness.turn(ask.limit);
        if merchants.is_empty() {
            return Ok(Vec::new());
        }
        let terms = Terms {
            limit: i64::try_from(ask.limit).unwrap_or(i64::MAX),
            shares: Some(Shares {
                account,
                merchants: &merchants,
                each: i64::try_from(share).unwrap_or(i64::MAX),
            }),
            ..self.terms(ours)
        };
        self.session
            .ask(1, async |connection| claim::claim(connection, terms).await)
            .await
    }

    fn terms<'a>(&self, ours: Ours<'a>) -> Terms<'a> {
        Terms {
            limit: 0,
            due_within: None,
            accounts: Most::default(),
            token: LeaseToken::from_uuid(self.random.uuid()),
            lease: self.limits.lease,
            payload_versions: &Instruction::VERSIONS,
            refund_payload_versions: &[RefundInstruction::VERSION],
            ours,
            shares: None,
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
                self.lanes.default().meters.leases_expired.increment(count);
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
            Ok(pauses) => self.lanes.default().pauses.look(pauses),
            Err(error) => {
                tracing::warn!(error = %Chain(&error), "looking for pauses failed");
            }
        }
    }

    async fn look_for_pins(&mut self) {
        let provider = self.lanes.default().provider.profile().provider;
        match self
            .session
            .ask(1, async |connection| {
                db::accounts::list(connection, provider).await
            })
            .await
        {
            Ok(pins) => self.lanes.look(&pins),
            Err(error) => {
                tracing::warn!(error = %Chain(&error), "looking for the accounts that names stand for failed");
            }
        }
    }

    /// Jobs for accounts that no process has wait where they are; the log says so.
    async fn look_for_unserved_accounts(&mut self) {
        let known = self.lanes.accounts();
        let unserved = self
            .session
            .ask(1, async |connection| {
                claim::unserved(connection, &known).await
            })
            .await;
        match unserved {
            Ok(unserved) => {
                self.lanes.others_wait(!unserved.is_empty());
                self.unserved.tell(&unserved, Instant::now());
            }
            Err(error) => {
                tracing::warn!(error = %Chain(&error), "looking for jobs of other accounts failed");
            }
        }
    }

    /// Its charge was begun in an account that was the default one here, or is in none: from now on the job names it too, so
    /// that it is claimed for that account alone.
    async fn leave(&mut self, job: &Job) {
        let (outbox_id, lease) = job.row();
        let left = self
            .session
            .ask(1, async |connection| {
                claim::leave(connection, outbox_id, lease).await
            })
            .await;
        if let Err(error) = left {
            tracing::warn!(error = %Chain(&error), "leaving a job of another account failed; the lease runs out");
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
    /// And from when on an account may begin something that could not now, if one waits for that alone.
    Nothing(Option<Instant>),
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

fn unavailable(error: &DbError) -> Begun {
    tracing::warn!(error = %Chain(error), "claiming failed");
    Begun::Unavailable
}

fn report(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        tracing::error!(code = "job_panicked", %error, "a job panicked; its lease runs out and the next run reads first");
    }
}
