//! One API request from its arrival to its fate: authentication, faults, the idempotency key, the effect, the answer.
//!
//! A request that has to wait runs as a task of its own, so a client that hangs up changes nothing about its effect. One
//! that need not wait runs through without a suspension, for the same end at less cost.

use std::sync::Arc;
use std::time::Duration;

use axum::http::request::Parts;

use super::Shared;
use super::call::{self, Call, Operation};
use super::faults::{Fault, Phase};
use super::holds::{Hold, When};
use super::intents::{self, Context, Proposal};
use super::keys::Claim;
use super::listing;
use super::model::{Answer, ApiError};
use super::refusals;
use super::reply::{Fate, Reply};
use super::requests::Outcome;
use super::search;
use super::state::{Owner, State, UnderKey};

enum Work {
    Replay(Answer),
    /// The ticket and fingerprint of the claimed key, where there is one.
    Execute(Option<(u64, [u8; 16])>),
}

struct Run {
    shared: Arc<Shared>,
    number: u64,
    call: Call,
    owner: Owner,
    fault: Option<Fault>,
    hold: Option<Hold>,
    work: Work,
    latency: Duration,
    slow: Duration,
    late: Duration,
}

pub(super) async fn answer(shared: &Arc<Shared>, parts: &Parts, body: &[u8]) -> Fate {
    let begun = {
        let mut state = shared.lock();
        let now_ms = shared.now_ms(&mut state);
        let target = parts
            .uri
            .path_and_query()
            .map_or("/", |target| target.as_str());
        let number =
            state
                .requests
                .open(parts.method.as_str(), target, &parts.headers, body, now_ms);
        let call = Call::read(parts, body, state.fresh_id("req_", 14));
        begin(shared, &mut state, number, call, now_ms)
            .inspect_err(|fate| state.requests.close(number, fate.outcome()))
    };
    match begun {
        Err(fate) => fate,
        Ok(run) if run.fault == Some(Fault::LandLate) => {
            shared.lock().requests.close(run.number, Outcome::Dropped);
            tokio::spawn(run.until_stopped());
            Fate::Dropped
        }
        Ok(run) if run.waits() => tokio::spawn(run.until_stopped())
            .await
            .unwrap_or(Fate::Dropped),
        Ok(run) => run.carry_out().await,
    }
}

/// All that comes before the effect.
fn begin(
    shared: &Arc<Shared>,
    state: &mut State,
    number: u64,
    call: Call,
    now_ms: i64,
) -> Result<Run, Fate> {
    let refuse = |reply: Reply| Fate::Answered(stamped(reply, &call));
    let Some(owner) = call.secret.as_deref().and_then(call::owner) else {
        return Err(refuse(refusals::unauthorized(call.secret.as_deref())));
    };
    if call.operation == Operation::Unknown {
        return Err(refuse(refusals::unknown_url(
            call.method.as_str(),
            &call.path,
        )));
    }
    if call.key.as_ref().is_some_and(|key| key.len() > 255) {
        return Err(refuse(refusals::key_too_long()));
    }
    let mut fault = state.dice.draw(call.phase);
    if let Some(fate) = fault.and_then(|fault| early(fault, &call)) {
        return Err(fate);
    }
    if fault == Some(Fault::ForgetKeys) {
        state
            .forget_keys(&owner)
            .map_err(|error| refuse(refusals::journal(&error)))?;
    }
    let fingerprint = call.form.fingerprint(call.method.as_str(), &call.path);
    let window_s = i64::try_from(state.settings.key_window_s).unwrap_or(i64::MAX);
    let work = match &call.key {
        None => Work::Execute(None),
        Some(key) => match state.account_mut(&owner).keys.claim(
            key,
            fingerprint,
            now_ms.div_euclid(1000),
            window_s,
        ) {
            Claim::Ours(ticket) => Work::Execute(Some((ticket, fingerprint))),
            Claim::Replay(answer) => Work::Replay(answer),
            Claim::InUse => return Err(refuse(refusals::key_in_use(key))),
            Claim::OtherRequest => return Err(refuse(refusals::other_request(key))),
        },
    };
    if fault.is_none() && call.phase == Phase::Execute {
        fault = of_payment_method(state, &owner, &call, matches!(work, Work::Replay(_)))
            .map_err(|error| refuse(refusals::journal(&error)))?;
        if let Some(fate) = fault.and_then(|fault| early(fault, &call)) {
            if let (Some(key), Work::Execute(Some((ticket, _)))) = (&call.key, &work) {
                state.account_mut(&owner).keys.release(key, *ticket);
            }
            return Err(fate);
        }
    }
    let hold = state.holds.take(call.phase);
    let settings = &state.settings;
    let [latency, slow, late] =
        [settings.latency_ms, settings.slow_ms, settings.land_late_ms].map(Duration::from_millis);
    Ok(Run {
        shared: Arc::clone(shared),
        number,
        owner,
        fault,
        hold,
        work,
        latency,
        slow,
        late,
        call,
    })
}

/// A fault that has no effect: neither is anything executed nor a key taken.
fn early(fault: Fault, call: &Call) -> Option<Fate> {
    let reply = match fault {
        Fault::DropBeforeCharge => return Some(Fate::Dropped),
        Fault::Unsaved400 => refusals::unsaved(),
        Fault::KeyInUse => refusals::key_in_use(call.key.as_deref().unwrap_or_default()),
        Fault::RateLimited => refusals::rate_limited(),
        Fault::Unavailable => refusals::unavailable(),
        Fault::Unauthorized => refusals::unauthorized(call.secret.as_deref()),
        Fault::ChargeThenDrop
        | Fault::DeclineThenDrop
        | Fault::Slow
        | Fault::LandLate
        | Fault::Error500AfterCharge
        | Fault::Error500BeforeCharge
        | Fault::Html
        | Fault::Truncated
        | Fault::UnknownStatus
        | Fault::ForgetKeys => return None,
    };
    Some(Fate::Answered(stamped(reply, call)))
}

/// The fault that the payment method of this execution asks for: once a charge, or always.
fn of_payment_method(
    state: &mut State,
    owner: &Owner,
    call: &Call,
    replayed: bool,
) -> std::io::Result<Option<Fault>> {
    let account = state.account_mut(owner);
    let (subject, stored) = match &call.operation {
        Operation::Confirm(id) => (
            id.clone(),
            account
                .snapshot(id)
                .and_then(|intent| intent.now.payment_method.clone()),
        ),
        _ => (
            format!("key:{}", call.key.as_deref().unwrap_or_default()),
            None,
        ),
    };
    let token = call.form.filled("payment_method").or(stored.as_deref());
    Ok(match token.and_then(Fault::of_payment_method) {
        Some((fault, true)) => Some(fault),
        Some((fault, false)) if !replayed && state.spend(owner, &subject)? => Some(fault),
        _ => None,
    })
}

/// The headers that every answer of Stripe's has.
fn stamped(mut reply: Reply, call: &Call) -> Reply {
    reply.headers.push(("request-id", call.request_id.clone()));
    reply.headers.push((
        "stripe-version",
        call.version
            .clone()
            .unwrap_or_else(|| call::VERSION.to_owned()),
    ));
    if let Some(key) = &call.key {
        reply.headers.push(("idempotency-key", key.clone()));
    }
    reply
}

impl Run {
    fn waits(&self) -> bool {
        self.hold.is_some() || !self.latency.is_zero() || self.fault == Some(Fault::Slow)
    }

    async fn until_stopped(self) -> Fate {
        let stop = self.shared.stop.clone();
        tokio::select! {
            fate = self.carry_out() => fate,
            () = stop.cancelled() => Fate::Dropped,
        }
    }

    async fn carry_out(mut self) -> Fate {
        pause(self.latency).await;
        let mut after = None;
        match self.hold.take() {
            Some(hold) if hold.when == When::Before => hold.wait().await,
            hold => after = hold,
        }
        if self.fault == Some(Fault::LandLate) {
            pause(self.late).await;
        }
        let slow = self.fault == Some(Fault::Slow);
        let answers_later = slow || after.is_some();
        let reply = self.land(answers_later);
        if slow {
            pause(self.slow).await;
        }
        if let Some(hold) = after {
            hold.wait().await;
        }
        let fate = self.dressed(reply);
        let mut state = self.shared.lock();
        if let (true, Some(key), Work::Execute(Some((ticket, _)))) =
            (answers_later, &self.call.key, &self.work)
        {
            state.account_mut(&self.owner).keys.settle(key, *ticket);
        }
        state.requests.close(self.number, fate.outcome());
        drop(state);
        fate
    }

    /// The effect, and what the answer is when nothing happens to it on its way.
    fn land(&self, busy: bool) -> Reply {
        let reply = match &self.work {
            Work::Replay(answer) => self.rendered(answer).header("idempotent-replayed", "true"),
            Work::Execute(ticket) => {
                let mut state = self.shared.lock();
                let now_ms = self.shared.now_ms(&mut state);
                match self.call.phase {
                    Phase::Read => self.read(&state, now_ms),
                    Phase::Prepare | Phase::Execute | Phase::Cancel => {
                        self.write(&mut state, *ticket, busy, now_ms)
                    }
                }
            }
        };
        stamped(reply, &self.call)
    }

    fn read(&self, state: &State, now_ms: i64) -> Reply {
        if matches!(
            self.fault,
            Some(Fault::Error500BeforeCharge | Fault::Error500AfterCharge)
        ) {
            return self.rendered(&refusals::internal());
        }
        let account = state.accounts.get(&self.owner.id);
        let form = &self.call.form;
        let body = match &self.call.operation {
            Operation::Retrieve(id) => {
                return self.rendered(&match account.and_then(|account| account.snapshot(id)) {
                    Some(intent) => Answer::object(intent.clone()),
                    None => Answer::error(404, intents::missing("payment_intent", id, "intent")),
                });
            }
            Operation::List => listing::list(account, form),
            Operation::Search => {
                search::search(account, form, now_ms, state.settings.search_lag_ms)
            }
            Operation::Events => listing::events(account, form),
            Operation::Balance => Ok(listing::balance(&self.owner)),
            _ => Ok(listing::account(&self.owner)),
        };
        match body {
            Ok(body) => Reply::json(200, body),
            Err(error) => self.rendered(&Answer::error(400, error)),
        }
    }

    fn write(
        &self,
        state: &mut State,
        ticket: Option<(u64, [u8; 16])>,
        busy: bool,
        now_ms: i64,
    ) -> Reply {
        let Proposal {
            answer,
            change,
            executed,
        } = self.proposal(state, now_ms);
        let claimed = self.call.key.as_deref().zip(ticket);
        let mut landed = Ok(());
        if executed {
            let under = claimed.map(|(key, (ticket, fingerprint))| UnderKey {
                key,
                ticket,
                fingerprint,
                answer: answer.clone(),
                busy,
            });
            landed = state.commit(
                &self.owner,
                change,
                under,
                Some(&self.call.request_id),
                now_ms,
            );
            if landed.is_ok() && self.fault == Some(Fault::ForgetKeys) {
                landed = state.forget_keys(&self.owner);
            }
        }
        if let (Some((key, (ticket, _))), true) = (claimed, !executed || landed.is_err()) {
            state.account_mut(&self.owner).keys.release(key, ticket);
        }
        match landed {
            Ok(()) => self.rendered(&answer),
            Err(error) => refusals::journal(&error),
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

    fn rendered(&self, answer: &Answer) -> Reply {
        let status = (self.fault == Some(Fault::UnknownStatus)).then_some("simulated_unknown");
        let reply = Reply::json(answer.status, answer.body(status));
        match answer.status {
            400 | 402 | 404 => reply.should_retry(false),
            _ => reply,
        }
    }

    /// What the fault makes of the answer on its way out.
    fn dressed(&self, reply: Reply) -> Fate {
        match self.fault {
            Some(Fault::ChargeThenDrop | Fault::DeclineThenDrop | Fault::LandLate) => Fate::Dropped,
            Some(Fault::Truncated) => Fate::Truncated(reply),
            Some(Fault::Html) => Fate::Answered(Reply::html(
                200,
                "<!doctype html><title>Welcome</title><h1>Please sign in to this network</h1>\n",
            )),
            _ => Fate::Answered(reply),
        }
    }
}

async fn pause(duration: Duration) {
    if !duration.is_zero() {
        tokio::time::sleep(duration).await;
    }
}

/// An error of the API in the place of an object.
pub(super) fn error_reply(status: u16, error: ApiError) -> Reply {
    Reply::json(status, Answer::error(status, error).body(None))
}
