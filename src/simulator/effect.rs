//! The effect of a request that was let in, in one hold of the lock.

use std::io;

use super::admission::{Run, Work};
use super::call::Operation;
use super::faults::{Fault, Phase};
use super::intents::{self, Context, Proposal};
use super::keys::Replay;
use super::model::Answer;
use super::state::{State, UnderKey};
use super::{listing, refunds, refusals, search};

/// What came of it, to be put into words once the lock is released.
pub(super) enum Landed {
    /// Of a read, or a refusal before anything was executed.
    Answer(Answer),
    /// Of what was executed: under a key it is kept.
    Executed(Answer),
    Replay(Replay),
    Body(Vec<u8>),
    /// The journal could not be written, so nothing took effect.
    Unwritten(io::Error),
    /// Everything was forgotten meanwhile.
    Gone,
}

impl Run {
    /// `busy` leaves the key in use: the answer goes out later.
    pub(super) fn land(&self, busy: bool) -> Landed {
        let ticket = match &self.work {
            Work::Replay(replay) => return Landed::Replay(replay.clone()),
            Work::Execute(ticket) => *ticket,
        };
        let mut state = self.shared.lock();
        if state.epoch != self.epoch {
            return Landed::Gone;
        }
        let now_ms = self.shared.now_ms(&mut state);
        match self.call.phase {
            Phase::Read | Phase::ReadRefunds | Phase::Account => self.read(&state, now_ms),
            Phase::Refund => self.refund(&mut state, ticket, busy, now_ms),
            Phase::Prepare | Phase::Execute | Phase::Cancel => {
                self.write(&mut state, ticket, busy, now_ms)
            }
        }
    }

    fn read(&self, state: &State, now_ms: i64) -> Landed {
        if matches!(
            self.fault,
            Some(Fault::Error500BeforeCharge | Fault::Error500AfterCharge)
        ) {
            return Landed::Answer(refusals::internal());
        }
        let account = state.accounts.get(&self.owner.id);
        let form = &self.call.form;
        let body = match &self.call.operation {
            Operation::Retrieve(id) => {
                return Landed::Answer(match account.and_then(|account| account.snapshot(id)) {
                    Some(intent) => Answer::object(intent.clone()),
                    None => Answer::error(404, intents::missing("payment_intent", id, "intent")),
                });
            }
            Operation::List => listing::list(account, form),
            Operation::RetrieveRefund(id) => {
                return Landed::Answer(match account.and_then(|account| account.refund(id)) {
                    Some(refund) => Answer::refund(refund.clone()),
                    None => Answer::error(404, intents::missing("refund", id, "id")),
                });
            }
            Operation::ListRefunds => refunds::list(account, form),
            Operation::Search => {
                search::search(account, form, now_ms, state.settings.search_lag_ms)
            }
            Operation::Events => listing::events(account, form),
            Operation::Balance => Ok(listing::balance(&self.owner)),
            _ => Ok(listing::account(&self.owner)),
        };
        match body {
            Ok(body) => Landed::Body(body),
            Err(error) => Landed::Answer(Answer::error(400, error)),
        }
    }

    fn write(&self, state: &mut State, ticket: Option<u64>, busy: bool, now_ms: i64) -> Landed {
        let Proposal {
            answer,
            change,
            executed,
        } = self.proposal(state, now_ms);
        let claimed = self.call.key.as_deref().zip(ticket);
        let mut written = Ok(());
        if executed {
            let under = claimed.map(|(key, ticket)| UnderKey {
                key,
                ticket,
                first: self.call.first(),
                answer: answer.clone(),
                busy,
            });
            written = state.commit(
                &self.owner,
                change,
                under,
                Some(&self.call.request_id),
                now_ms,
            );
            if written.is_ok() && self.fault == Some(Fault::ForgetKeys) {
                written = state.forget_keys(&self.owner, self.call.phase.is_of_refunds());
            }
        }
        if let (Some((key, ticket)), true) = (claimed, !executed || written.is_err()) {
            state.account_mut(&self.owner).keys.release(key, ticket);
        }
        match written {
            Ok(()) if executed => Landed::Executed(answer),
            Ok(()) => Landed::Answer(answer),
            Err(error) => Landed::Unwritten(error),
        }
    }

    fn refund(&self, state: &mut State, ticket: Option<u64>, busy: bool, now_ms: i64) -> Landed {
        let mut made = match self.fault {
            Some(Fault::Error500BeforeCharge) => refunds::Made {
                answer: refusals::internal(),
                refund: None,
                executed: true,
            },
            Some(Fault::DeclineThenDrop) => refunds::Made::failed(refunds::without_funds()),
            _ => {
                // Twenty-four random characters behind `re_`, as Stripe's ids have.
                let id = state.fresh_id("re_3", 23);
                let now = now_ms.div_euclid(1000);
                refunds::create(state.account_mut(&self.owner), &self.call.form, id, now)
            }
        };
        if made.executed && self.fault == Some(Fault::Error500AfterCharge) {
            made.answer = refusals::internal();
        }
        let claimed = self.call.key.as_deref().zip(ticket);
        let mut written = Ok(());
        if made.executed {
            let under = claimed.map(|(key, ticket)| UnderKey {
                key,
                ticket,
                first: self.call.first(),
                answer: made.answer.clone(),
                busy,
            });
            written = state.commit_refund(&self.owner, made.refund, under, now_ms);
            if written.is_ok() && self.fault == Some(Fault::ForgetKeys) {
                written = state.forget_keys(&self.owner, self.call.phase.is_of_refunds());
            }
        }
        if let (Some((key, ticket)), true) = (claimed, !made.executed || written.is_err()) {
            state.account_mut(&self.owner).keys.release(key, ticket);
        }
        match written {
            Ok(()) if made.executed => Landed::Executed(made.answer),
            Ok(()) => Landed::Answer(made.answer),
            Err(error) => Landed::Unwritten(error),
        }
    }

    fn proposal(&self, state: &mut State, now_ms: i64) -> Proposal {
        if self.fault == Some(Fault::Error500BeforeCharge) {
            return Proposal {
                answer: refusals::internal(),
                change: None,
                executed: true,
            };
        }
        let context = Context {
            now: now_ms.div_euclid(1000),
            livemode: self.owner.livemode,
            base_url: &self.shared.base_url,
            version: self.call.version.as_deref(),
            declined: self.fault == Some(Fault::DeclineThenDrop),
        };
        let form = &self.call.form;
        let mut proposal = match &self.call.operation {
            Operation::Confirm(id) | Operation::Cancel(id) => match state
                .account_mut(&self.owner)
                .snapshot(id)
            {
                None => Proposal {
                    answer: Answer::error(404, intents::missing("payment_intent", id, "intent")),
                    change: None,
                    executed: true,
                },
                Some(current) if self.call.phase == Phase::Cancel => {
                    intents::cancel(current, form, &context)
                }
                Some(current) => intents::confirm(current, form, &context),
            },
            // Twenty-four random characters behind `pi_`, as Stripe's ids have.
            _ => intents::create(form, state.fresh_id("pi_3", 23), &context),
        };
        if proposal.executed && self.fault == Some(Fault::Error500AfterCharge) {
            proposal.answer = refusals::internal();
        }
        proposal
    }
}
