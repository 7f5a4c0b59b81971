//! One API request from its arrival to its fate: authentication, faults, the idempotency key, the effect, the answer.
//!
//! A request that has to wait runs as a task of its own, so a client that hangs up changes nothing about its effect. One
//! that need not wait runs through without a suspension, for the same end at less cost.

use std::sync::Arc;
use std::time::Duration;

use axum::http::request::Parts;

use super::Shared;
use super::admission::{Run, Work, admit, stamped};
use super::call::Call;
use super::effect::Landed;
use super::faults::Fault;
use super::holds::When;
use super::keys::Replay;
use super::model::Answer;
use super::refusals;
use super::reply::{Fate, Reply};
use super::requests::Outcome;
use super::scripted::Scripted;

pub(super) async fn answer(shared: &Arc<Shared>, parts: &Parts, body: &[u8]) -> Fate {
    let mut call = Call::read(parts, body);
    let target = parts
        .uri
        .path_and_query()
        .map_or("/", |target| target.as_str());
    let admitted = {
        let mut state = shared.lock();
        let now_ms = shared.now_ms(&mut state);
        let number =
            state
                .requests
                .open(parts.method.as_str(), target, &parts.headers, body, now_ms);
        call.request_id = state.fresh_id("req_", 14);
        admit(shared, &mut state, number, call, now_ms)
            .inspect_err(|fate| state.requests.close(number, fate.outcome()))
    };
    match admitted {
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
        let landed = self.land(answers_later);
        if slow {
            pause(self.slow).await;
        }
        if let Some(hold) = after {
            hold.wait().await;
        }
        let fate = self.worded(landed);
        let mut state = self.shared.lock();
        if answers_later
            && state.epoch == self.epoch
            && let (Some(key), Work::Execute(Some(ticket))) = (&self.call.key, &self.work)
        {
            state.account_mut(&self.owner).keys.settle(key, *ticket);
        }
        state.requests.close(self.number, fate.outcome());
        drop(state);
        fate
    }

    /// The answer, and what the fault makes of it on its way out.
    fn worded(&self, landed: Landed) -> Fate {
        let own = &self.call.request_id;
        let reply = match landed {
            Landed::Answer(answer) => self.under_key(self.rendered(&answer), own),
            Landed::Executed(answer) => self.kept(self.rendered(&answer), own),
            Landed::Replay(Replay { answer, original }) => self
                .kept(self.rendered(&answer), &original)
                .header("idempotent-replayed", "true"),
            Landed::Body(body) => Reply::json(200, body),
            Landed::Unwritten(error) => refusals::journal(&error),
            Landed::Gone => return Fate::Dropped,
        };
        let reply = self.scripted.as_ref().map_or(reply, Scripted::reply);
        self.dressed(stamped(reply, &self.call))
    }

    fn rendered(&self, answer: &Answer) -> Reply {
        let status = (self.fault == Some(Fault::UnknownStatus)).then_some("simulated_unknown");
        Reply::json(answer.status, answer.body(status))
    }

    /// Stripe names the original request in the first answer too, which is one itself.
    fn under_key(&self, reply: Reply, original: &str) -> Reply {
        match self.call.key {
            Some(_) => reply.header("original-request", original),
            None => reply,
        }
    }

    /// It says of what it keeps under a key, and of nothing else, that a repeat is no use.
    fn kept(&self, reply: Reply, original: &str) -> Reply {
        match self.call.key {
            Some(_) => self.under_key(reply, original).should_retry(false),
            None => reply,
        }
    }

    fn dressed(&self, reply: Reply) -> Fate {
        match self.fault {
            Some(Fault::ChargeThenDrop | Fault::DeclineThenDrop | Fault::LandLate) => Fate::Dropped,
            Some(Fault::Truncated) => Fate::Truncated(reply),
            Some(Fault::Trickle) => Fate::Trickling(reply),
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
