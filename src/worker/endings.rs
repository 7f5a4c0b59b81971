//! How a run ends: with an outcome, with a job that goes on later, or with one that waits for an operator.
//!
//! Each end is one write of [`crate::completion`]. If the process dies before it, the lease runs out and the next run looks
//! for itself; after it, nothing is left.

use std::time::Duration;

use serde_json::json;

use super::executor::{Executor, Next, Ran};
use super::run::Run;
use crate::completion::{Ending, Hold, Settled, Settlement};
use crate::domain::charge::{InvalidTransition, Progress, State};
use crate::domain::outcome::{self, Alert, Certainty, Phase};
use crate::domain::retry::Pace;
use crate::provider::Provider;

impl<P: Provider> Executor<P> {
    /// Gives the job back as it is: its next run begins as soon as it is claimed.
    pub(super) async fn later(&self, hold: Hold, reason: &'static str) -> Ran {
        let ending = Ending::Wait {
            progress: None,
            delay: Duration::ZERO,
            reason,
            look_from: None,
            call: None,
        };
        self.settle(hold, ending).await
    }

    /// The charge is not as this run saw it. If the job is still ours all the same, another run begins at once from what
    /// the books say now.
    pub(super) async fn give_back(&self, hold: Hold) -> Ran {
        let ending = Ending::Wait {
            progress: None,
            delay: Duration::ZERO,
            reason: "charge_changed",
            look_from: None,
            call: None,
        };
        match self.completion.settle(Settlement { hold, ending }).await {
            Ok(settled) => Ran::Settled(settled),
            Err(refusal) => Ran::Unwritten(refusal),
        }
    }

    pub(super) async fn end_with(
        &self,
        run: &Run<'_>,
        transition: impl FnOnce(Progress) -> Result<Progress, InvalidTransition>,
    ) -> Next {
        let ending = match transition(run.progress.clone()) {
            Ok(progress) => {
                let detail = json!({
                    "attempts": progress.attempts,
                    "provider_charge_id": progress.object.as_ref().map(|object| object.id.as_str()),
                    "provider_request_id": run.request_id,
                });
                Ending::Finish { progress, detail }
            }
            Err(_) => Ending::Discard,
        };
        let finishes = matches!(ending, Ending::Finish { .. });
        let ran = self.settle(run.hold, ending).await;
        if finishes && matches!(ran, Ran::Settled(Settled::Applied)) {
            // The database's clock up to the claim, this process's from there.
            let before = Duration::try_from(run.claimed_at - run.created_at).unwrap_or_default();
            self.meters.certainty.record(before + run.began.elapsed());
        }
        Next::Ended(ran)
    }

    pub(super) async fn wait(
        &self,
        run: &Run<'_>,
        phase: Phase,
        certainty: &Certainty,
        pace: Pace,
        new_prepare_key: bool,
    ) -> Ran {
        let mut state = certainty.state_after(&run.progress.state);
        let mut longest = Duration::MAX;
        if let State::RequiresAction(action) = &mut state {
            let expires_at = action
                .expires_at
                .unwrap_or(run.claimed_at + self.limits.action_expiry);
            action.expires_at = Some(expires_at);
            // The next look is no later than the customer's time: what is published is kept.
            longest = Duration::try_from(expires_at - run.claimed_at).unwrap_or_default();
        }
        let mut progress = run.progress.clone();
        if new_prepare_key {
            progress.prepares += 1;
            progress.version += 1;
        }
        // What surely did nothing was no attempt.
        if phase == Phase::Execute && *certainty == Certainty::AsBefore {
            progress.attempts -= 1;
            progress.version += 1;
        }
        let progress = progress
            .wait(state)
            .unwrap_or_else(|_| run.progress.clone());
        let changed = (progress != run.progress).then_some(progress);
        let delay = self
            .limits
            .retry
            .delay(pace, run.attempt, self.random.unit())
            .min(longest);
        self.settle(
            run.hold,
            Ending::Wait {
                progress: changed,
                delay,
                reason: phase.as_str(),
                look_from: None,
                call: run.last_call(),
            },
        )
        .await
    }

    pub(super) async fn park(
        &self,
        run: &Run<'_>,
        alert: Alert,
        object: Option<Box<outcome::Object>>,
    ) -> Ran {
        tracing::error!(
            code = alert.code(),
            charge.id = %run.hold.charge,
            provider.request_id = run.request_id,
            "a charge needs an operator; it is parked"
        );
        let ending = match object {
            Some(object) => Ending::Dispute {
                provider: self.provider.profile().provider,
                account: self.account().to_owned(),
                alert,
                object,
            },
            None => Ending::Park {
                reason: alert.code(),
                call: run.last_call(),
            },
        };
        self.settle(run.hold, ending).await
    }

    pub(super) async fn settle(&self, hold: Hold, ending: Ending) -> Ran {
        let changing = matches!(
            ending,
            Ending::Finish { .. }
                | Ending::Wait {
                    progress: Some(_),
                    ..
                }
        );
        match self.completion.settle(Settlement { hold, ending }).await {
            Ok(settled) => {
                if settled == Settled::LeaseLost && changing {
                    return self.give_back(hold).await;
                }
                if settled == Settled::Disputed {
                    tracing::error!(code = "discrepancy", charge.id = %hold.charge, "the provider and the books differ");
                }
                Ran::Settled(settled)
            }
            Err(refusal) => {
                tracing::error!(code = "completion_unwritten", charge.id = %hold.charge, %refusal, "what a run learned could not be written; the next run looks for itself");
                Ran::Unwritten(refusal)
            }
        }
    }
}
