//! Runs one refund's job: looks at the charge's refunds, sends, learns, writes down.
//!
//! The order is the protocol, and [`crate::domain::refund::outcome`] says what it protects: read the provider's refund by
//! its id if one is stored, else the complete list of the charge's refunds; commit that it is about to be sent and since
//! when; only then send it, under a key that stays the same. Crash windows: before that commit, the next run looks again;
//! after it, sent or not, the next run looks and sends under the same key, within the key's window; after the send, it
//! finds the refund; after the last write, nothing is left.
//!
//! A refund that has ended has a job only to be read again.

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::json;
use time::OffsetDateTime;
use tokio::time::Instant;

use super::executor::{Executor, NOT_OPEN, Ran};
use crate::batch::Refusal;
use crate::budget::{Priority, Turn};
use crate::completion::{LastCall, Settled};
use crate::db::claimed::ClaimedRefund;
use crate::db::refund_steps::{RefundHold, Started};
use crate::domain::charge::InvalidTransition;
use crate::domain::ids::{ProviderChargeId, ProviderRefundId};
use crate::domain::outcome::Answer;
use crate::domain::refund::outcome::{
    self, AskedRefund, RefundAlert, RefundCertainty, RefundObject, RefundPhase, RefundStep,
};
use crate::domain::refund::request::RefundInstruction;
use crate::domain::refund::{RefundProgress, RefundState};
use crate::domain::retry::Pace;
use crate::provider::{Provider, RefundPage, RefundsOf, Reply};
use crate::refund_completion::{RefundEnding, RefundWrite, RefundWritten};

/// The most pages of one charge's refunds: 2000 of them.
const MOST_PAGES: usize = 20;

/// What a run knows; grows as it goes.
struct Run {
    hold: RefundHold,
    progress: RefundProgress,
    attempt: u32,
    instruction: RefundInstruction<'static>,
    asked: AskedRefund,
    claimed_at: OffsetDateTime,
    began: Instant,
    /// Until when calls may still begin.
    deadline: Instant,
    /// That of the first call.
    turn: Option<Turn>,
    request_id: Option<String>,
    last_call: Option<(RefundPhase, &'static str)>,
}

impl Run {
    fn open(claimed: ClaimedRefund, deadline: Instant, turn: Turn) -> Option<Self> {
        let instruction: RefundInstruction<'static> =
            serde_json::from_value(claimed.payload).ok()?;
        let asked = AskedRefund {
            amount: instruction.amount,
            currency: instruction.currency.to_string(),
            stamp: claimed.hold.refund.to_string(),
            charge: ProviderChargeId::parse(&instruction.charge)?,
        };
        Some(Self {
            hold: claimed.hold,
            progress: claimed.progress,
            attempt: u32::try_from(claimed.attempt).unwrap_or(1),
            instruction,
            asked,
            claimed_at: claimed.claimed_at,
            began: Instant::now(),
            deadline,
            turn: Some(turn),
            request_id: None,
            last_call: None,
        })
    }

    fn last_call(&self) -> Option<LastCall> {
        self.last_call.map(|(phase, answer)| LastCall {
            phase: phase.as_str(),
            answer,
            provider_request_id: self.request_id.clone(),
        })
    }

    /// The database's clock at the claim, this process's from there.
    fn now(&self) -> OffsetDateTime {
        self.claimed_at + self.began.elapsed()
    }

    /// The refund's id; after a key that is spent, with a number.
    fn key(&self) -> String {
        let stamp = &self.asked.stamp;
        match self.progress.key_number {
            0 => stamp.clone(),
            number => format!("{stamp}-k{number}"),
        }
    }
}

impl<P: Provider> Executor<P> {
    /// Runs a claimed refund's job to the end of this run, as [`Executor::run`] does for a charge's.
    pub async fn run_refund(&self, claimed: ClaimedRefund, deadline: Instant, turn: Turn) -> Ran {
        let hold = claimed.hold;
        if claimed.account != self.provider.profile().account {
            tracing::error!(code = "account_not_configured", refund.id = %hold.refund, account = %claimed.account, "a refund's charge is in an account that this process does not have");
            let delay = self.limits.retry.delay(Pace::Slow, 1, self.random.unit());
            return self.put_off(hold, "account_not_configured", delay).await;
        }
        if !self.identity.is_open() {
            let delay = self.limits.retry.delay(Pace::Slow, 1, self.random.unit());
            return self.put_off(hold, NOT_OPEN, delay).await;
        }
        let Some(run) = Run::open(claimed, deadline, turn) else {
            tracing::error!(code = "payload_unreadable", refund.id = %hold.refund, "a job's payload can't be read; it is parked");
            let ending = RefundEnding::Park {
                alert: "payload_unreadable",
                object: None,
                call: None,
            };
            return self.settle_refund(hold, ending).await;
        };
        self.drive_refund(run).await
    }

    async fn drive_refund(&self, mut run: Run) -> Ran {
        let mut step = outcome::first(&run.progress);
        loop {
            let next = match step {
                RefundStep::Look(verdict) => match self.look_at_refunds(&mut run).await {
                    Ok(Ok(found)) => {
                        let open = self.key_is_remembered(&run);
                        Ok(outcome::after_look(
                            &found,
                            &run.asked,
                            &run.progress,
                            verdict,
                            open,
                        ))
                    }
                    Ok(Err(answer)) => Ok(outcome::unread(&answer)),
                    Err(ran) => Err(ran),
                },
                // What has ended is looked at and never sent.
                RefundStep::Send | RefundStep::SendAnew if run.progress.state.is_terminal() => {
                    Err(self.settle_refund(run.hold, RefundEnding::Discard).await)
                }
                RefundStep::Send => self.send_refund(&mut run, false).await,
                RefundStep::SendAnew => self.send_refund(&mut run, true).await,
                RefundStep::Read(id) => self.read_refund(&mut run, &id).await,
                RefundStep::Succeed(id) => Err(self.refund_succeeded(&run, id).await),
                RefundStep::Fail(failure, id, proof) => {
                    let known = id.clone().or_else(|| run.progress.object.clone());
                    let state = RefundState::Failed(failure.clone());
                    let ended = run.progress.clone().fail(failure, id, proof);
                    Err(self.refund_ended(&run, ended, state, known).await)
                }
                RefundStep::Canceled(id, proof) => {
                    let ended = run.progress.clone().cancel(id.clone(), proof);
                    let state = RefundState::Canceled;
                    Err(self.refund_ended(&run, ended, state, Some(id)).await)
                }
                RefundStep::Wait {
                    certainty,
                    pace,
                    object,
                } => Err(self.refund_waits(&run, certainty, pace, object).await),
                RefundStep::Park { alert, object } => {
                    Err(self.park_refund(&run, alert, object).await)
                }
            };
            step = match next {
                Ok(step) => step,
                Err(ran) => return ran,
            };
        }
    }

    /// Every refund of the charge, or the answer in the place of one of its pages. `Err` ends the run.
    async fn look_at_refunds(
        &self,
        run: &mut Run,
    ) -> Result<Result<Vec<RefundObject>, Answer<RefundObject>>, Ran> {
        let mut found = Vec::new();
        let mut after: Option<ProviderRefundId> = None;
        for _ in 0..MOST_PAGES {
            self.call_may_begin(run).await?;
            let asked_at = Instant::now();
            let of = RefundsOf::Charge(&run.asked.charge);
            let page = self.provider.list_refunds(of, after.as_ref()).await;
            match page {
                Ok(RefundPage { refunds, next }) => {
                    self.listed(run, asked_at);
                    found.extend(refunds);
                    if next.is_none() {
                        self.count_others(run, &found).await?;
                        return Ok(Ok(found));
                    }
                    after = next;
                }
                Err(answer) => {
                    self.told(run, RefundPhase::ListRefunds, &answer, asked_at);
                    return Ok(Err(*answer));
                }
            }
        }
        // An incomplete list proves nothing.
        Ok(Err(Answer::Unclear {
            reason: crate::domain::outcome::Unclear::Unreadable,
            replayed: false,
        }))
    }

    /// What was refunded outside payonce is counted as soon as somebody sees it.
    async fn count_others(&self, run: &Run, found: &[RefundObject]) -> Result<(), Ran> {
        let others: Vec<RefundObject> = found
            .iter()
            .filter(|refund| refund.stamp.as_deref() != Some(run.asked.stamp.as_str()))
            .cloned()
            .collect();
        if others.is_empty() {
            return Ok(());
        }
        let write = RefundWrite::Count(others);
        match self.refunds.submit(run.hold.charge, write).await {
            Ok(_) => Ok(()),
            Err(refusal) => Err(Ran::Unwritten(refusal)),
        }
    }

    /// Whether the provider is relied on to remember the current key for a send that begins now.
    fn key_is_remembered(&self, run: &Run) -> bool {
        run.progress
            .first_attempted_at
            .is_none_or(|first| run.now() - first < self.relied_on_key_window())
    }

    async fn send_refund(&self, run: &mut Run, new_key: bool) -> Result<RefundStep, Ran> {
        // Before the gate, so that no refund waits for its turn with its money unknown.
        self.call_may_begin(run).await?;
        if self.pauses.any() {
            return Err(self.refund_later(run.hold, "paused").await);
        }
        self.start_refund(run, new_key).await?;
        if !self.time_is_left_until(run.deadline) {
            return Err(self.refund_later(run.hold, "lease_too_short").await);
        }
        let asked_at = Instant::now();
        let reply = self
            .provider
            .refund(run.hold.refund, &run.key(), &run.instruction)
            .await;
        let answer = self.heard(run, RefundPhase::Refund, reply, asked_at);
        let attempts = run.progress.attempts;
        Ok(outcome::after_send(answer, &run.asked, attempts))
    }

    async fn read_refund(&self, run: &mut Run, id: &ProviderRefundId) -> Result<RefundStep, Ran> {
        self.call_may_begin(run).await?;
        let asked_at = Instant::now();
        let reply = self.provider.read_refund(id).await;
        let answer = self.heard(run, RefundPhase::ReadRefund, reply, asked_at);
        Ok(outcome::after_read(answer, &run.asked))
    }

    /// Commits that the refund is about to be sent. `Err` ends the run: nothing may be sent.
    async fn start_refund(&self, run: &mut Run, new_key: bool) -> Result<(), Ran> {
        let progress = run.progress.clone();
        let progress = if new_key {
            progress.take_new_key()
        } else {
            Ok(progress)
        };
        let Ok(progress) = progress.and_then(|progress| progress.start(run.now())) else {
            return Err(self.refund_later(run.hold, "refund_changed").await);
        };
        let write = RefundWrite::Start {
            hold: run.hold,
            key_window: self.relied_on_key_window(),
            new_key,
        };
        match self.refunds.submit(run.hold.charge, write).await {
            Ok(RefundWritten::Started(Started::Yes)) => {
                run.hold.version = progress.version;
                run.progress = progress;
                Ok(())
            }
            Ok(RefundWritten::Started(Started::Paused)) => {
                Err(self.refund_later(run.hold, "paused").await)
            }
            Ok(_) => Err(self.refund_later(run.hold, "refund_changed").await),
            Err(refusal) => Err(Ran::Unwritten(refusal)),
        }
    }

    async fn refund_succeeded(&self, run: &Run, id: ProviderRefundId) -> Ran {
        let ended = run.progress.clone().succeed(id.clone());
        self.refund_ended(run, ended, RefundState::Succeeded, Some(id))
            .await
    }

    /// Writes the end; of a refund that had ended, that it ended otherwise, or that nothing is new.
    async fn refund_ended(
        &self,
        run: &Run,
        ended: Result<RefundProgress, InvalidTransition>,
        state: RefundState,
        id: Option<ProviderRefundId>,
    ) -> Ran {
        let detail = |progress: &RefundProgress| {
            json!({
                "refund_id": run.asked.stamp,
                "attempts": progress.attempts,
                "provider_refund_id": progress.object.as_ref().map(ProviderRefundId::as_str),
                "provider_request_id": run.request_id,
            })
        };
        let corrected = || run.progress.clone().correct(state, id?).ok();
        let ending = match ended {
            Ok(progress) => RefundEnding::Finish {
                detail: detail(&progress),
                progress,
            },
            Err(_) => match corrected() {
                Some(progress) => {
                    tracing::warn!(
                        code = "refund_corrected",
                        refund.id = %run.hold.refund,
                        stage = %progress.state.stage(),
                        "a refund ended otherwise than its merchant was told"
                    );
                    RefundEnding::Correct {
                        detail: detail(&progress),
                        progress,
                    }
                }
                None => RefundEnding::Discard,
            },
        };
        self.settle_refund(run.hold, ending).await
    }

    async fn refund_waits(
        &self,
        run: &Run,
        certainty: RefundCertainty,
        pace: Pace,
        object: Option<ProviderRefundId>,
    ) -> Ran {
        let progress = run.progress.clone();
        let state = certainty.state_after(&progress.state);
        let unsent = if certainty == RefundCertainty::NotSent {
            progress.unsent()
        } else {
            Ok(progress)
        };
        // Of one that has ended, nothing changes until the provider is sure.
        let progress = unsent
            .and_then(|progress| progress.wait(state, object))
            .ok();
        let ending = RefundEnding::Wait {
            progress: progress.filter(|progress| *progress != run.progress),
            delay: self
                .limits
                .retry
                .delay(pace, run.attempt, self.random.unit()),
            reason: run.last_call.map_or("look", |(phase, _)| phase.as_str()),
            call: run.last_call(),
        };
        self.settle_refund(run.hold, ending).await
    }

    async fn park_refund(
        &self,
        run: &Run,
        alert: RefundAlert,
        object: Option<Box<RefundObject>>,
    ) -> Ran {
        tracing::error!(
            code = alert.code(),
            refund.id = %run.hold.refund,
            charge.id = %run.hold.charge,
            provider.request_id = run.request_id,
            "a refund needs an operator; it is parked"
        );
        let ending = RefundEnding::Park {
            alert: alert.code(),
            object,
            call: run.last_call(),
        };
        self.settle_refund(run.hold, ending).await
    }

    /// Gives the job back as it is: its next run begins as soon as it is claimed.
    async fn refund_later(&self, hold: RefundHold, reason: &'static str) -> Ran {
        self.put_off(hold, reason, Duration::ZERO).await
    }

    async fn put_off(&self, hold: RefundHold, reason: &'static str, delay: Duration) -> Ran {
        let ending = RefundEnding::Wait {
            progress: None,
            delay,
            reason,
            call: None,
        };
        match self.write_refund(hold, ending).await {
            Ok(RefundWritten::Settled(settled)) => Ran::Settled(settled),
            Ok(RefundWritten::Started(_) | RefundWritten::Counted) => {
                Ran::Settled(Settled::LeaseLost)
            }
            Err(refusal) => Ran::Unwritten(refusal),
        }
    }

    async fn settle_refund(&self, hold: RefundHold, ending: RefundEnding) -> Ran {
        let changing = match &ending {
            RefundEnding::Finish { .. } | RefundEnding::Correct { .. } => true,
            RefundEnding::Wait { progress, .. } => progress.is_some(),
            RefundEnding::Park { .. } | RefundEnding::Discard => false,
        };
        match self.write_refund(hold, ending).await {
            // The refund is not as this run saw it. If the job is still ours, another run begins from what is so now.
            Ok(RefundWritten::Settled(Settled::LeaseLost)) if changing => {
                self.refund_later(hold, "refund_changed").await
            }
            Ok(RefundWritten::Settled(settled)) => {
                if settled == Settled::Disputed {
                    tracing::error!(code = "discrepancy", refund.id = %hold.refund, "the provider and the books differ");
                }
                Ran::Settled(settled)
            }
            Ok(RefundWritten::Started(_) | RefundWritten::Counted) => {
                Ran::Settled(Settled::LeaseLost)
            }
            Err(refusal) => {
                tracing::error!(code = "completion_unwritten", refund.id = %hold.refund, %refusal, "what a run learned could not be written; the next run looks for itself");
                Ran::Unwritten(refusal)
            }
        }
    }

    async fn write_refund(
        &self,
        hold: RefundHold,
        ending: RefundEnding,
    ) -> Result<RefundWritten, Refusal> {
        let ending = Box::new(ending);
        self.refunds
            .submit(hold.charge, RefundWrite::Settle { hold, ending })
            .await
    }

    /// Waits for the turn of the next call, which then has the time it needs. `Err` ends the run.
    async fn call_may_begin(&self, run: &mut Run) -> Result<(), Ran> {
        match run.turn.take() {
            Some(turn) => turn.comes().await,
            None => self.budget.take(Priority::Charge).await,
        }
        if self.time_is_left_until(run.deadline) {
            Ok(())
        } else {
            Err(self.refund_later(run.hold, "lease_too_short").await)
        }
    }

    fn heard(
        &self,
        run: &mut Run,
        phase: RefundPhase,
        reply: Reply<RefundObject>,
        asked_at: Instant,
    ) -> Answer<RefundObject> {
        if let Some(original) = &reply.original_request_id {
            tracing::debug!(refund.id = %run.hold.refund, provider.request_id = reply.request_id, provider.original_request_id = original, "the provider repeats an answer");
        }
        run.request_id = reply.request_id.or(run.request_id.take());
        self.told(run, phase, &reply.answer, asked_at);
        reply.answer
    }

    fn told(
        &self,
        run: &mut Run,
        phase: RefundPhase,
        answer: &Answer<RefundObject>,
        asked_at: Instant,
    ) {
        let word = answer.word();
        run.last_call = Some((phase, word));
        self.meters.refund_call(phase, word, asked_at.elapsed());
        tracing::debug!(refund.id = %run.hold.refund, phase = phase.as_str(), answer = word, "the provider answered");
        // A key without the right to refunds says nothing of charges.
        let is_forbidden = matches!(answer, Answer::Forbidden);
        self.refunds_are(is_forbidden);
        if !is_forbidden {
            self.record_health(answer.health(), word);
        }
    }

    /// Says so once the provider's word on our right to refunds changes.
    fn refunds_are(&self, forbidden: bool) {
        if self.refunds_forbidden.swap(forbidden, Ordering::Relaxed) == forbidden {
            return;
        }
        if forbidden {
            tracing::error!(
                code = "refunds_denied",
                account = self.account(),
                "the key has no right to refunds (403): they wait, and charges go on"
            );
        } else {
            tracing::info!(
                code = "provider_back",
                account = self.account(),
                "refunds are allowed"
            );
        }
    }

    fn listed(&self, run: &mut Run, asked_at: Instant) {
        let phase = RefundPhase::ListRefunds;
        run.last_call = Some((phase, "listed"));
        self.meters.refund_call(phase, "listed", asked_at.elapsed());
        self.refunds_are(false);
        self.record_health(crate::domain::outcome::Health::Good, "listed");
    }
}
