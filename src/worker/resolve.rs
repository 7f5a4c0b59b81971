//! Ends a charge by a person's decision: asks the provider first, learns through the same table as any run, and writes
//! through the same completion. Input: a job that an operator holds. Output: a settlement, or why there is none; the job
//! is the caller's to give back then.
//!
//! Nothing is prepared or executed here. If the process dies, the lease runs out and a worker's run reads the object.

use serde_json::json;
use tokio::time::Instant;

use super::executor::{Executor, Ran};
use super::run::Run;
use crate::batch;
use crate::completion::{Ending, Settled, Settlement};
use crate::db::claimed::{Claimed, Look, Strays};
use crate::domain::charge::State;
use crate::domain::ids::ProviderChargeId;
use crate::domain::outcome::operator::{Decision, Ruling, Why, ended_by_an_operator, rule};
use crate::domain::outcome::{Phase, Step, nothing_was_executed};
use crate::provider::{Provider, Reply};

/// What came of a decision.
#[derive(Debug)]
pub enum Resolved {
    /// The charge ended so, or had.
    Ended(State),
    /// The lease was lost or the charge changed meanwhile: what was learned was learned of another state of the books.
    Changed,
    /// The books say otherwise; written as a discrepancy.
    Disputed,
    /// The database did not take it.
    Unwritten(batch::Refusal),
    /// Nothing was written.
    Refused(Refusal),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub why: RefusedBecause,
    /// The provider's last answer, in a word; empty if it was not asked.
    pub last_answer: &'static str,
    /// The provider's own id of the last request that it answered.
    pub request_id: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedBecause {
    Ruled(Why),
    /// The instruction is of another release.
    PayloadUnreadable,
    /// The object is held by an account that is not configured here.
    AccountNotConfigured,
    /// An object with its stamp is in another account than its own.
    ObjectElsewhere,
    /// The lease has not enough time left for another call.
    NoTimeLeft,
}

impl RefusedBecause {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ruled(why) => why.as_str(),
            Self::PayloadUnreadable => "payload_unreadable",
            Self::AccountNotConfigured => "account_not_configured",
            Self::ObjectElsewhere => "object_elsewhere",
            Self::NoTimeLeft => "no_time_left",
        }
    }
}

/// The next thing to ask. Neither of the calls that make or move anything is among them.
enum Ask {
    Read(ProviderChargeId),
    Cancel(ProviderChargeId),
}

impl<P: Provider> Executor<P> {
    /// Takes a decision for a job that is held until `deadline`, by this process's monotonic clock.
    pub async fn resolve(
        &self,
        claimed: Claimed,
        deadline: Instant,
        decision: Decision,
    ) -> Resolved {
        let log = tracing::debug_span!("resolve", charge.id = %claimed.charge);
        let elsewhere = if claimed.account != self.account() {
            Some(RefusedBecause::AccountNotConfigured)
        } else if claimed.strays == Strays::Elsewhere {
            Some(RefusedBecause::ObjectElsewhere)
        } else {
            None
        };
        let Ok(mut run) = Run::open(claimed, deadline, &log) else {
            return refused_unasked(RefusedBecause::PayloadUnreadable);
        };
        if let Some(why) = elsewhere {
            return refused_unasked(why);
        }
        let adopted = match self.settle_strays(&mut run).await {
            Ok(adopted) => adopted,
            Err(Ran::Settled(Settled::Disputed)) => return Resolved::Disputed,
            Err(Ran::Settled(_)) => return Resolved::Changed,
            Err(Ran::Unwritten(refusal)) => return Resolved::Unwritten(refusal),
        };
        let mut ask = match (adopted, &run.progress.object) {
            (Some(id), _) => match self.start(&mut run, id.clone(), false).await {
                Ok(()) => Ask::Read(id),
                Err(Ran::Settled(_)) => return Resolved::Changed,
                Err(Ran::Unwritten(refusal)) => return Resolved::Unwritten(refusal),
            },
            (None, Some(object)) => Ask::Read(object.id.clone()),
            (None, None) => return self.without_object(&run, decision).await,
        };
        loop {
            if !self.time_is_left(&run) {
                return refused(&run, RefusedBecause::NoTimeLeft);
            }
            let (phase, reply) = match ask {
                Ask::Read(ref id) => (Phase::Read, self.provider.read(id).await),
                Ask::Cancel(ref id) => (Phase::Cancel, self.provider.cancel(id).await),
            };
            ask = match self.follow(&mut run, decision, phase, reply).await {
                Ok(ask) => ask,
                Err(resolved) => return resolved,
            };
        }
    }

    /// Learns from an answer. `Err` is the end.
    async fn follow(
        &self,
        run: &mut Run<'_>,
        decision: Decision,
        phase: Phase,
        reply: Reply,
    ) -> Result<Ask, Resolved> {
        self.learn(run, phase, &reply);
        let step = Self::decide(run, phase, reply);
        let ruling = rule(decision, phase, step, run.canceling.is_some());
        let object = run
            .progress
            .object
            .as_ref()
            .map(|object| object.id.clone())
            .ok_or_else(|| refused(run, RefusedBecause::Ruled(Why::NothingExecuted)))?;
        match ruling {
            Ruling::Read => Ok(Ask::Read(object)),
            Ruling::Cancel(reason) => {
                run.canceling = Some(reason);
                Ok(Ask::Cancel(object))
            }
            Ruling::Refuse(why) => Err(refused(run, RefusedBecause::Ruled(why))),
            Ruling::Write(step) => Err(self.write(run, step).await),
        }
    }

    /// No object is stored and no stray one is left. Only what is stored is ever executed, but the books may be older than
    /// what they stored, after a restore: a sweep must have looked.
    async fn without_object(&self, run: &Run<'_>, decision: Decision) -> Resolved {
        let certain = run.look == Look::Answered;
        match (decision, nothing_was_executed(&run.progress)) {
            (Decision::Failed, Some(proof)) if certain => {
                self.write(run, Step::Fail(ended_by_an_operator(), proof))
                    .await
            }
            (Decision::Completed, _) if certain => {
                refused(run, RefusedBecause::Ruled(Why::NothingExecuted))
            }
            (Decision::Completed | Decision::Failed, _) => {
                refused(run, RefusedBecause::Ruled(Why::NotAsked))
            }
        }
    }

    async fn write(&self, run: &Run<'_>, step: Step) -> Resolved {
        let object = run.progress.object.clone();
        let progress = run.progress.clone();
        let transition = match step {
            Step::Succeed(id) => match object.filter(|object| object.id == id) {
                Some(object) => progress.succeed(object),
                None => return refused(run, RefusedBecause::Ruled(Why::NotAsked)),
            },
            Step::Fail(failure, proof) => progress.fail(failure, proof),
            Step::Canceled(proof) => progress.cancel(proof),
            Step::Execute(_)
            | Step::Read
            | Step::Look
            | Step::Cancel(_)
            | Step::Wait { .. }
            | Step::Park { .. } => {
                return refused(run, RefusedBecause::Ruled(Why::NotAsked));
            }
        };
        let Ok(progress) = transition else {
            return Resolved::Changed;
        };
        let state = progress.state.clone();
        let detail = json!({
            "attempts": progress.attempts,
            "provider_charge_id": progress.object.as_ref().map(|object| object.id.as_str()),
            "provider_request_id": run.request_id,
            "decided_by": "operator",
        });
        let settlement = Settlement {
            hold: run.hold,
            ending: Ending::Finish { progress, detail },
        };
        match self.completion.settle(settlement).await {
            Ok(Settled::Applied | Settled::AlreadySettled) => Resolved::Ended(state),
            Ok(Settled::LeaseLost) => Resolved::Changed,
            Ok(Settled::Disputed) => Resolved::Disputed,
            Err(refusal) => Resolved::Unwritten(refusal),
        }
    }
}

fn refused(run: &Run<'_>, why: RefusedBecause) -> Resolved {
    Resolved::Refused(Refusal {
        why,
        last_answer: run.last_answer,
        request_id: run.request_id.clone(),
    })
}

fn refused_unasked(why: RefusedBecause) -> Resolved {
    Resolved::Refused(Refusal {
        why,
        last_answer: "",
        request_id: None,
    })
}
