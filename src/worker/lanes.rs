//! One lane for each account: who may begin how many jobs now. Accounts share a process's permits, its claims and its
//! batchers, and nothing that some of them can keep from the others: each has a budget, a breaker, turns of its merchants,
//! and some permits that no other can take. An account that hangs, throttles us or refuses its key makes its own jobs wait.
//!
//! It sets the pace and nothing else. A job is run by its own account's executor, whichever lane it was claimed in.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::breaker::Allowance;
use super::executor::Executor;
use super::fairness::{Fairness, Next};
use super::{Claims, WorkerLimits};
use crate::budget::Room;
use crate::db::accounts::Pinned;
use crate::db::claimed::Job;
use crate::provider::Provider;

/// The part of what an account would have if all permits were shared evenly that is its own, whatever the others hold.
const OWN_PART: usize = 4;

/// When a lane is looked at again whose key was not checked yet. The worker is woken when it opens.
const SHUT_FOR: Duration = Duration::from_secs(1);

pub(super) struct Lanes<P> {
    /// The default account's first.
    all: Vec<Lane<P>>,
    by_account: HashMap<String, usize>,
    /// The permits that are no lane's own.
    shared: Arc<Semaphore>,
    /// Which lane is asked first in the next round.
    first: usize,
    seen: Seen,
    /// Whether jobs of accounts that have no lane here were ready lately.
    others_wait: bool,
}

pub(super) struct Lane<P> {
    pub(super) executor: Arc<Executor<P>>,
    pub(super) fairness: Fairness,
    /// The permits that no other lane can take.
    own: Arc<Semaphore>,
}

/// What one lane may claim in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ask {
    pub(super) lane: usize,
    pub(super) limit: usize,
    pub(super) next: Next,
    probe: bool,
}

/// What may be claimed now.
#[derive(Debug)]
pub(super) enum Round {
    /// And from when on one of the others may begin something, if it is known.
    Ask(Vec<Ask>, Option<Instant>),
    NotBefore(Instant),
    /// Every account has as many jobs at work as it may.
    NoPermit,
}

impl<P: Provider> Lanes<P> {
    /// `executors`: the default account's first, at least that one.
    pub(super) fn new(executors: Vec<Executor<P>>, limits: WorkerLimits) -> Self {
        let (own, shared) = permits(limits.permits, executors.len());
        let all: Vec<_> = executors
            .into_iter()
            .map(|executor| Lane {
                executor: Arc::new(executor),
                fairness: Fairness::new(limits.fair_after),
                own: Arc::new(Semaphore::new(own)),
            })
            .collect();
        let by_account = all
            .iter()
            .enumerate()
            .map(|(index, lane)| (lane.executor.account().to_owned(), index))
            .collect();
        Self {
            all,
            by_account,
            shared: Arc::new(Semaphore::new(shared)),
            first: 0,
            seen: Seen::default(),
            others_wait: false,
        }
    }

    /// The default account's executor.
    pub(super) fn default(&self) -> &Arc<Executor<P>> {
        &self.all[0].executor
    }

    pub(super) fn lane(&mut self, index: usize) -> &mut Lane<P> {
        &mut self.all[index]
    }

    pub(super) fn account(&self, index: usize) -> &str {
        self.all[index].executor.account()
    }

    /// Learns which accounts the names stand for: a key may have become another account's since it was checked.
    pub(super) fn look(&self, pins: &[Pinned]) {
        for lane in &self.all {
            lane.executor.identity.look(pins);
        }
    }

    pub(super) fn accounts(&self) -> Vec<String> {
        let account = |lane: &Lane<P>| lane.executor.account().to_owned();
        self.all.iter().map(account).collect()
    }

    /// Who runs a job, and the permit for it: that of its lane or a shared one, or of the default one's, in whose claims
    /// stands what names no account. `None` for a job of an account that this process does not have.
    pub(super) fn of(&self, job: &Job) -> Option<(Arc<Executor<P>>, Option<OwnedSemaphorePermit>)> {
        let lane = &self.all[*self.by_account.get(job.account())?];
        let permit = [&lane.own, &self.shared, &self.all[0].own]
            .into_iter()
            .find_map(|permits| Arc::clone(permits).try_acquire_owned().ok());
        Some((lane.executor.clone(), permit))
    }

    /// Shares the free permits among the accounts that may begin jobs now. A job that is claimed makes its first call at
    /// once: no lease ticks while it waits for its turn.
    pub(super) fn round(&mut self, now: Instant) -> Round {
        let count = self.all.len();
        let (mut left, mut not_before) = (self.shared.available_permits(), None::<Instant>);
        let mut asks = Vec::with_capacity(count);
        for (asked, offset) in (0..count).enumerate() {
            let index = (self.first + offset) % count;
            let own = self.all[index].own.available_permits();
            let share = left.div_ceil(count - asked);
            match self.all[index].ask(index, own + share, now) {
                Ok(Some(ask)) => {
                    left -= ask.limit.saturating_sub(own);
                    asks.push(ask);
                }
                Ok(None) => {}
                Err(at) => not_before = Some(not_before.map_or(at, |before| before.min(at))),
            }
        }
        self.first = (self.first + 1) % count;
        match (asks.is_empty(), not_before) {
            (false, not_before) => Round::Ask(asks, not_before),
            (true, Some(at)) => Round::NotBefore(at),
            (true, None) => Round::NoPermit,
        }
    }

    /// Notes whether accounts that have no lane here have jobs ready.
    pub(super) fn others_wait(&mut self, they_do: bool) {
        self.others_wait = they_do;
    }

    /// How old jobs of the default account the next claim, which asks for these, need not go beyond. Those of an account
    /// alone stand together, but the default one's stand among those of all accounts.
    pub(super) fn due_within(&mut self, asks: &[Ask], now: Instant) -> Option<Duration> {
        if self.all.len() == 1 && !self.others_wait {
            return None;
        }
        self.seen.within(asks.iter().any(|ask| ask.lane == 0), now)
    }

    /// Learns from a claim of the oldest of these lanes.
    pub(super) fn claimed_oldest(&mut self, asks: &[Ask], claimed: &Claims, now: Instant) {
        for ask in asks {
            let lane = &mut self.all[ask.lane];
            let account = lane.executor.account();
            // By whose claim a job is, and not by who runs it: a full claim is one that left something.
            let waited: Vec<Option<Duration>> = claimed
                .iter()
                .filter_map(|job| match job {
                    Ok(job) => (job.queue() == account).then(|| job.waited().try_into().ok()),
                    Err(unclaimable) => (unclaimable.queue == account).then_some(None),
                })
                .collect();
            let count = waited.len();
            let known = waited.iter().flatten().copied();
            if ask.lane == 0 {
                // While sending is paused nothing is claimed, and nothing is seen by that.
                let until = if lane.executor.pauses.any() {
                    None
                } else if count < ask.limit {
                    Some(now)
                } else {
                    known
                        .clone()
                        .min()
                        .and_then(|waited| now.checked_sub(waited))
                };
                self.seen.learn(until);
            }
            if ask.probe && count == 0 {
                lane.executor.breaker.probe_unused(now);
            }
            lane.fairness
                .claimed_oldest(count == ask.limit, known.max());
        }
    }
}

/// Up to where the default account's jobs that are due have been seen, so that a claim does not walk the backlog of an
/// account that does not answer again and again. All of it is walked once in a while: a job can become ready late, at an
/// old time.
#[derive(Debug, Default)]
struct Seen {
    /// Nothing was left that had been due before then, by this process's clock.
    until: Option<Instant>,
    walked_at: Option<Instant>,
}

impl Seen {
    /// How often all of it is walked.
    const WALK_EVERY: Duration = Duration::from_secs(5);
    /// How long what is written now can take to be seen: longer than a statement.
    const MARGIN: Duration = Duration::from_secs(10);

    /// The age of what is to be seen now, by a claim that `asks` for the default account's jobs: no other one walks.
    fn within(&mut self, asks: bool, now: Instant) -> Option<Duration> {
        if !asks {
            return None;
        }
        let walks = self
            .walked_at
            .is_none_or(|at| now.saturating_duration_since(at) >= Self::WALK_EVERY);
        if walks {
            self.walked_at = Some(now);
            return None;
        }
        self.until
            .map(|until| now.saturating_duration_since(until) + Self::MARGIN)
    }

    /// A claim took all that had been due before then; `None` if that is not known.
    fn learn(&mut self, until: Option<Instant>) {
        self.until = until;
    }
}

impl<P: Provider> Lane<P> {
    /// What it may claim with so many `free` permits; `Err` if its key, its budget or its breaker lets nothing begin before then.
    fn ask(&mut self, index: usize, free: usize, now: Instant) -> Result<Option<Ask>, Instant> {
        if free == 0 {
            return Ok(None);
        }
        if !self.executor.identity.is_open() {
            return Err(now + SHUT_FOR);
        }
        let room = match self.executor.budget.room(now) {
            Room::Unbounded => free,
            Room::Calls(calls) => calls.min(free),
            Room::NoneBefore(at) => return Err(at),
        };
        let (limit, probe) = match self.executor.breaker.allowance(now) {
            Allowance::All => (room, false),
            Allowance::Probe => (1, true),
            Allowance::NoneBefore(at) => return Err(at),
        };
        let next = if probe {
            Next::Oldest
        } else {
            self.fairness.next()
        };
        Ok(Some(Ask {
            lane: index,
            limit,
            next,
            probe,
        }))
    }
}

/// The permits that each of `accounts` has for itself, and those that all of them share.
fn permits(all: usize, accounts: usize) -> (usize, usize) {
    let own = (all / (OWN_PART * accounts.max(1))).max(1);
    (own, all.saturating_sub(own * accounts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_is_not_walked_again_but_for_once_in_a_while() {
        let (start, mut seen) = (Instant::now() + Duration::from_hours(1), Seen::default());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(seen.within(true, start), None);
        // All that was due is taken.
        seen.learn(Some(start));
        assert_eq!(seen.within(true, at(1)), Some(Duration::from_secs(11)));
        // The oldest are taken, and the youngest of them had waited for a minute.
        seen.learn(at(1).checked_sub(Duration::from_mins(1)));
        assert_eq!(seen.within(true, at(3)), Some(Duration::from_secs(72)));
        assert_eq!(seen.within(true, at(5)), None);
        assert_eq!(seen.within(true, at(6)), Some(Duration::from_secs(75)));
        // A claim that asks for other accounts' jobs alone is no walk.
        assert_eq!(seen.within(false, at(10)), None);
        assert_eq!(seen.within(true, at(11)), None);
        assert_eq!(seen.within(true, at(12)), Some(Duration::from_secs(81)));
    }

    #[test]
    fn each_account_has_permits_of_its_own_and_no_more_are_given_than_there_are() {
        assert_eq!(permits(256, 1), (64, 192));
        assert_eq!(permits(256, 2), (32, 192));
        assert_eq!(permits(5, 2), (1, 3));
        for accounts in 2..100 {
            for all in accounts + 1..300 {
                let (own, shared) = permits(all, accounts);
                assert!(own >= 1 && shared >= 1, "{all} {accounts}");
                assert_eq!(own * accounts + shared, all);
            }
        }
    }
}
