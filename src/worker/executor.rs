//! Runs one job: asks the provider, learns, writes down, asks again, until the run ends or its lease has no time left.
//!
//! The order is the protocol: prepare an object that moves no money; commit its id and that the money is unknown; only
//! then execute it. A run that finds a stored id reads it first. Crash windows: before the id is stored, the next run
//! prepares again and what was prepared before is never executed; after it, the next run reads the object and goes on
//! from its state; after execute, the same; after the completion, nothing is left.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde_json::json;
use time::OffsetDateTime;
use tokio::time::Instant;

use super::breaker::Breaker;
use super::meters::WorkerMeters;
use super::pauses::Pauses;
use super::run::{Call, Run};
use super::stored::{Start, Started, StoreObject};
use super::strays::SettleStrays;
use crate::batch::{Queue, Refusal};
use crate::budget::{Budget, Priority, Turn};
use crate::completion::{Completion, Ending, Hold, Settled};
use crate::db::claimed::{Claimed, Look, Ours, Strays};
use crate::domain::charge::{Progress, State, StoredObject};
use crate::domain::ids::ProviderChargeId;
use crate::domain::outcome::{self, CanMoveNoMore, Certainty, Context, Health, Phase, Step};
use crate::domain::retry::{Pace, RetryPolicy};
use crate::identity::Identity;
use crate::provider::{Provider, Reply};
use crate::random::Random;
use crate::refund_completion::RefundWrites;

#[derive(Clone, Copy, Debug)]
pub struct ExecutorLimits {
    pub retry: RetryPolicy,
    /// How long a customer may take to act.
    pub action_expiry: Duration,
    /// A job older than the provider's key window less this was maybe prepared under a key that is forgotten.
    pub key_window_margin: Duration,
    /// What must be left of a lease for the run's last write.
    pub completion_timeout: Duration,
}

pub struct Executor<P> {
    pub provider: Arc<P>,
    pub identity: Arc<Identity>,
    pub store: Queue<StoreObject>,
    pub completion: Completion,
    pub strays: Queue<SettleStrays>,
    pub refunds: RefundWrites,
    pub breaker: Arc<Breaker>,
    /// The provider's last word on our right to refunds.
    pub refunds_forbidden: AtomicBool,
    pub budget: Budget,
    pub pauses: Arc<Pauses>,
    pub limits: ExecutorLimits,
    pub random: Random,
    pub meters: WorkerMeters,
}

/// Why a job waits whose account's key was not checked, or is another account's.
pub(super) const NOT_OPEN: &str = "account_not_verified";

/// How a run ended; for the loop and for tests.
#[derive(Debug)]
pub enum Ran {
    Settled(Settled),
    /// The books could not be written: the lease runs out, and the next run looks.
    Unwritten(Refusal),
}

impl<P: Provider> Executor<P> {
    /// Runs a claimed job to the end of this run. `deadline` is when its lease ends, by this process's monotonic clock
    /// read before the claim; `turn` is that of its first call.
    pub async fn run(&self, claimed: Claimed, deadline: Instant, turn: Turn) -> Ran {
        let hold = Hold {
            charge: claimed.charge,
            outbox_id: claimed.outbox_id,
            lease: claimed.lease,
            version: claimed.progress.version,
        };
        if claimed.progress.state.is_terminal() {
            return self.settle(hold, Ending::Discard).await;
        }
        let account = &self.provider.profile().account;
        if claimed.account != *account || claimed.strays == Strays::Elsewhere {
            tracing::error!(code = "account_not_configured", charge.id = %hold.charge, account = claimed.account, "a charge has an object in another account than its own: it waits until somebody has looked");
            let attempt = u32::try_from(claimed.attempt).unwrap_or(1);
            let delay = self
                .limits
                .retry
                .delay(Pace::Slow, attempt, self.random.unit());
            return self
                .settle(
                    hold,
                    Ending::Wait {
                        progress: None,
                        delay,
                        reason: "account_not_configured",
                        look_from: None,
                        call: None,
                    },
                )
                .await;
        }
        if !self.identity.is_open() {
            return self.settle(hold, self.until_it_is_open()).await;
        }
        // Also of an instruction that can't be read.
        if claimed.cancel_requested
            && claimed.strays == Strays::Here(Vec::new())
            && (claimed.look == Look::Answered
                || !self.key_may_be_forgotten(claimed.created_at, claimed.claimed_at))
            && let Some(proof) = outcome::nothing_was_executed(&claimed.progress)
        {
            return self.cancel_unexecuted(hold, &claimed.progress, proof).await;
        }
        let log =
            tracing::debug_span!("job", charge.id = %hold.charge, job.attempt = claimed.attempt);
        let run = match Run::open(claimed, deadline, &log) {
            Ok(run) => run,
            Err(error) => {
                tracing::error!(code = "payload_unreadable", charge.id = %hold.charge, %error, "a job's payload can't be read; it is parked");
                let reason = "payload_unreadable";
                return self.settle(hold, Ending::Park { reason, call: None }).await;
            }
        };
        self.drive(run, turn).await
    }

    async fn drive(&self, mut run: Run<'_>, turn: Turn) -> Ran {
        let mut call = match self.first_call(&mut run).await {
            Ok(call) => call,
            Err(ran) => return ran,
        };
        let mut turn = Some(turn);
        loop {
            // Before the gate, so that no charge waits for its turn with its money unknown.
            if call.asks() {
                match turn.take() {
                    Some(turn) => turn.comes().await,
                    None => self.budget.take(Priority::Charge).await,
                }
            }
            if !self.time_is_left(&run) {
                return self.later(run.hold, "lease_too_short").await;
            }
            if self.pauses.any() && matches!(call, Call::Prepare | Call::Execute(_)) {
                return self.later(run.hold, "paused").await;
            }
            let mut asked_at = Instant::now();
            let (phase, reply) = match call {
                Call::Adopt(id) => {
                    call = match self.start(&mut run, id.clone(), false).await {
                        Ok(()) => Call::Read(id),
                        Err(ran) => return ran,
                    };
                    continue;
                }
                Call::Prepare => (Phase::Prepare, self.prepare(&run).await),
                Call::Execute(ref id) => {
                    if let Err(ran) = self.start(&mut run, id.clone(), true).await {
                        return ran;
                    }
                    if !self.time_is_left(&run) {
                        return self.later(run.hold, "lease_too_short").await;
                    }
                    asked_at = Instant::now();
                    (Phase::Execute, self.execute(&run, id).await)
                }
                Call::Read(ref id) => (Phase::Read, self.provider.read(id).await),
                Call::Cancel(ref id) => (Phase::Cancel, self.provider.cancel(id).await),
            };
            self.meters.call(phase, &reply.answer, asked_at.elapsed());
            self.learn(&run, phase, &reply);
            let step = Self::decide(&mut run, phase, reply);
            call = match self.take(&mut run, phase, step).await {
                Next::Call(next) => next,
                Next::Ended(ran) => return ran,
            };
        }
    }

    /// A stored object is read, whatever was known of it. Strays are dealt with before anything else is sent. Without an
    /// object, a job so old that the provider may have forgotten our key waits until a sweep has looked for one.
    async fn first_call(&self, run: &mut Run<'_>) -> Result<Call, Ran> {
        if let Some(id) = self.settle_strays(run).await? {
            return Ok(Call::Adopt(id));
        }
        if let Some(object) = &run.progress.object {
            return Ok(Call::Read(object.id.clone()));
        }
        if run.look != Look::Answered && self.key_may_be_forgotten(run.created_at, run.claimed_at) {
            return Err(self.look(run).await);
        }
        match outcome::nothing_was_executed(&run.progress) {
            Some(proof) if run.cancel_requested => {
                Err(self.cancel_unexecuted(run.hold, &run.progress, proof).await)
            }
            Some(_) | None => Ok(Call::Prepare),
        }
    }

    async fn cancel_unexecuted(
        &self,
        hold: Hold,
        progress: &Progress,
        proof: CanMoveNoMore,
    ) -> Ran {
        let ending = match progress.clone().cancel(proof) {
            Ok(progress) => Ending::Finish {
                progress,
                detail: json!({ "before": "anything was executed" }),
            },
            Err(_) => Ending::Discard,
        };
        self.settle(hold, ending).await
    }

    /// The lane was shut after the job was claimed.
    fn until_it_is_open(&self) -> Ending {
        Ending::Wait {
            progress: None,
            delay: self.limits.retry.delay(Pace::Slow, 1, self.random.unit()),
            reason: NOT_OPEN,
            look_from: None,
            call: None,
        }
    }

    /// Whether the provider may have forgotten our key, so that preparing again would make a second object.
    pub(super) fn key_may_be_forgotten(
        &self,
        created_at: OffsetDateTime,
        claimed_at: OffsetDateTime,
    ) -> bool {
        claimed_at - created_at >= self.relied_on_key_window()
    }

    pub(super) fn relied_on_key_window(&self) -> Duration {
        self.provider
            .profile()
            .key_window
            .saturating_sub(self.limits.key_window_margin)
    }

    pub fn account(&self) -> &str {
        &self.provider.profile().account
    }

    /// What the claims of a process are told whose default account is this executor's.
    pub fn ours(&self) -> Ours<'_> {
        Ours {
            account: &self.provider.profile().account,
            key_window: self.relied_on_key_window(),
        }
    }

    /// Ends the run until a sweep has seen every object that may be this charge's.
    async fn look(&self, run: &Run<'_>) -> Ran {
        // Clocks differ, and the rows may have been lost and made again: the object can be older than its charge, and no
        // older than the key that made it.
        let from = run.created_at - self.provider.profile().key_window * 2;
        let state = Certainty::Unprepared.state_after(&run.progress.state);
        let progress = run.progress.clone().wait(state).ok();
        let ending = Ending::Wait {
            progress: progress.filter(|progress| *progress != run.progress),
            delay: self
                .limits
                .retry
                .delay(Pace::Backoff, run.attempt, self.random.unit()),
            reason: "look",
            look_from: (run.look == Look::NotAsked).then_some(from),
            call: run.last_call(),
        };
        self.settle(run.hold, ending).await
    }

    /// Whether a call that begins now, and the write that follows, end before the lease does.
    pub(super) fn time_is_left(&self, run: &Run<'_>) -> bool {
        self.time_is_left_until(run.deadline)
    }

    pub(super) fn time_is_left_until(&self, deadline: Instant) -> bool {
        let needed = self.provider.profile().call_timeout + self.limits.completion_timeout;
        Instant::now() + needed < deadline
    }

    async fn prepare(&self, run: &Run<'_>) -> Reply {
        let stamp = &run.asked.stamp;
        let key = match run.progress.prepares {
            0 => stamp.clone(),
            number => format!("{stamp}-p{number}"),
        };
        self.provider
            .prepare(run.hold.charge, &key, &run.instruction)
            .await
    }

    async fn execute(&self, run: &Run<'_>, object: &ProviderChargeId) -> Reply {
        let key = format!("{}-x{}", run.asked.stamp, run.progress.attempts);
        self.provider.execute(object, &key, &run.instruction).await
    }

    pub(super) fn learn(&self, run: &Run<'_>, phase: Phase, reply: &Reply) {
        let _entered = run.log.enter();
        let answer = reply.answer.word();
        tracing::debug!(
            phase = phase.as_str(),
            answer,
            provider.request_id = reply.request_id,
            provider.original_request_id = reply.original_request_id,
            "the provider answered"
        );
        self.record_health(reply.answer.health(), answer);
    }

    pub(super) fn record_health(&self, health: Health, answer: &'static str) {
        self.breaker.learn(self.account(), health, answer);
    }

    pub(super) fn decide(run: &mut Run<'_>, phase: Phase, reply: Reply) -> Step {
        run.request_id = reply.request_id.or(run.request_id.take());
        run.last_answer = reply.answer.word();
        run.last_phase = phase;
        let action_expired = match &run.progress.state {
            State::RequiresAction(action) => {
                action.expires_at.is_some_and(|at| run.claimed_at >= at)
            }
            State::Pending
            | State::Processing { .. }
            | State::RequiresReconciliation
            | State::Succeeded
            | State::Failed(_)
            | State::Canceled => false,
        };
        let context = Context {
            asked: &run.asked,
            canceling: run.canceling.as_ref(),
            cancel_requested: run.cancel_requested,
            action_expired,
            looked: run.look == Look::Answered,
        };
        outcome::decide(phase, reply.answer, context)
    }

    /// Takes a step: the next call, or the end of this run.
    async fn take(&self, run: &mut Run<'_>, phase: Phase, step: Step) -> Next {
        match step {
            Step::Execute(id) => Next::Call(Call::Execute(id)),
            Step::Read => match &run.progress.object {
                Some(object) => Next::Call(Call::Read(object.id.clone())),
                None => Next::Call(Call::Prepare),
            },
            Step::Look => Next::Ended(self.look(run).await),
            Step::Cancel(reason) => match &run.progress.object {
                Some(object) => {
                    run.canceling = Some(reason);
                    Next::Call(Call::Cancel(object.id.clone()))
                }
                None => Next::Call(Call::Prepare),
            },
            Step::Succeed(id) => {
                let object = StoredObject {
                    id,
                    account: self.provider.profile().account.clone(),
                };
                self.end_with(run, |progress| progress.succeed(object))
                    .await
            }
            Step::Fail(failure, proof) => {
                self.end_with(run, |progress| progress.fail(failure, proof))
                    .await
            }
            Step::Canceled(proof) => self.end_with(run, |progress| progress.cancel(proof)).await,
            Step::Wait {
                certainty,
                pace,
                new_prepare_key,
            } => Next::Ended(
                self.wait(run, phase, &certainty, pace, new_prepare_key)
                    .await,
            ),
            Step::Park { alert, object } => Next::Ended(self.park(run, alert, object).await),
        }
    }

    /// Commits the object's id and that the money is unknown, to execute it or to read it. `Err` ends the run: nothing may
    /// be sent.
    pub(super) async fn start(
        &self,
        run: &mut Run<'_>,
        id: ProviderChargeId,
        executes: bool,
    ) -> Result<(), Ran> {
        let object = StoredObject {
            id,
            account: self.provider.profile().account.clone(),
        };
        let progress = run.progress.clone();
        let started = match if executes {
            progress.start_execute(object.clone())
        } else {
            progress.adopt(object.clone())
        } {
            Ok(progress) => match self
                .store
                .submit(Start {
                    hold: run.hold,
                    object,
                    executes,
                })
                .await
            {
                Ok(Started::Yes) => Some(progress),
                Ok(Started::No) => None,
                Ok(Started::Paused) => return Err(self.later(run.hold, "paused").await),
                Err(Refusal::Data) => {
                    return Err(self
                        .settle(
                            run.hold,
                            Ending::Park {
                                reason: "object_refused",
                                call: run.last_call(),
                            },
                        )
                        .await);
                }
                Err(refusal) => return Err(Ran::Unwritten(refusal)),
            },
            Err(_) => None,
        };
        match started {
            Some(progress) => {
                run.hold = run.hold.at(&progress);
                run.progress = progress;
                Ok(())
            }
            None => Err(self.give_back(run.hold).await),
        }
    }
}

pub(super) enum Next {
    Call(Call),
    Ended(Ran),
}
