//! All that comes before the effect: who calls, which fault is met, whose the idempotency key is.

use std::sync::Arc;
use std::time::Duration;

use super::Shared;
use super::call::{self, Call, Operation};
use super::faults::{Fault, Phase};
use super::holds::Hold;
use super::keys::{Claim, Replay};
use super::refusals;
use super::reply::{Fate, Reply};
use super::scripted::{self, Scripted};
use super::state::{Owner, State};

pub(super) enum Work {
    Replay(Replay),
    /// The ticket of the claimed key, where there is one.
    Execute(Option<u64>),
}

/// A request that was let in.
pub(super) struct Run {
    pub(super) shared: Arc<Shared>,
    /// Its place among the requests received.
    pub(super) number: u64,
    /// The state it was let into; what was forgotten since is not touched any more.
    pub(super) epoch: u64,
    pub(super) call: Call,
    pub(super) owner: Owner,
    pub(super) fault: Option<Fault>,
    pub(super) hold: Option<Hold>,
    /// What is said in the place of the true answer.
    pub(super) scripted: Option<Scripted>,
    pub(super) work: Work,
    pub(super) latency: Duration,
    pub(super) slow: Duration,
    pub(super) late: Duration,
}

/// All that comes before the effect.
pub(super) fn admit(
    shared: &Arc<Shared>,
    state: &mut State,
    number: u64,
    call: Call,
    now_ms: i64,
) -> Result<Run, Fate> {
    let refuse = |reply: Reply| Fate::Answered(stamped(reply, &call));
    let owner = acceptable(&call).map_err(refuse)?;
    let scripted = scripted::take(&mut state.script, call.phase);
    if let Some(scripted) = scripted.as_ref().filter(|scripted| !scripted.effect) {
        return Err(refuse(scripted.reply()));
    }
    let mut fault = state.dice.draw(call.phase);
    if let Some(fault) = fault {
        state.met.count(call.phase, fault);
    }
    if let Some(fate) = fault.and_then(|fault| early(fault, &call)) {
        return Err(fate);
    }
    if fault == Some(Fault::ForgetKeys) {
        state
            .forget_keys(&owner, call.phase.is_of_refunds())
            .map_err(|error| refuse(refusals::journal(&error)))?;
    }
    let work = claimed(state, &owner, &call, now_ms).map_err(refuse)?;
    if fault.is_none() && call.phase == Phase::Execute {
        let asked = of_payment_method(state, &owner, &call, matches!(work, Work::Replay(_)));
        let refused = match asked {
            Ok(asked) => {
                fault = asked;
                if let Some(fault) = asked {
                    state.met.count(call.phase, fault);
                }
                asked.and_then(|fault| early(fault, &call))
            }
            Err(error) => Some(refuse(refusals::journal(&error))),
        };
        if let Some(fate) = refused {
            if let (Some(key), Work::Execute(Some(ticket))) = (&call.key, &work) {
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
        epoch: state.epoch,
        owner,
        fault,
        hold,
        scripted,
        work,
        latency,
        slow,
        late,
        call,
    })
}

/// Whose the request's key is: its own from now on, or that of an earlier one.
fn claimed(state: &mut State, owner: &Owner, call: &Call, now_ms: i64) -> Result<Work, Reply> {
    let Some(key) = &call.key else {
        return Ok(Work::Execute(None));
    };
    let window_s = i64::try_from(state.settings.key_window_s).unwrap_or(i64::MAX);
    let keys = &mut state.account_mut(owner).keys;
    match keys.claim(key, call.first(), now_ms.div_euclid(1000), window_s) {
        Claim::Ours(ticket) => Ok(Work::Execute(Some(ticket))),
        Claim::Replay(replay) => Ok(Work::Replay(replay)),
        Claim::InUse => Err(refusals::key_in_use(key)),
        Claim::OtherPath(first) => Err(refusals::other_path(key, &call.path, &first)),
        Claim::OtherParameters => Err(refusals::other_parameters(key)),
    }
}

/// Who calls, when what is called can be answered at all.
fn acceptable(call: &Call) -> Result<Owner, Reply> {
    let Some(owner) = &call.owner else {
        return Err(refusals::unauthorized(call.secret.as_deref()));
    };
    if call.operation == Operation::Unknown {
        return Err(refusals::unknown_url(call.method.as_str(), &call.path));
    }
    if call.key.as_ref().is_some_and(|key| key.len() > 255) {
        return Err(refusals::key_too_long());
    }
    Ok(owner.clone())
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
        | Fault::Trickle
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
pub(super) fn stamped(mut reply: Reply, call: &Call) -> Reply {
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
