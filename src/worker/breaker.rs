//! One breaker for all jobs of a process: when the provider is unreachable, throttles us or refuses our credentials, it
//! bounds how many calls still go out, and lets one job probe at a time until an answer is good again.
//!
//! It only sets the pace. Nothing about a charge is ever concluded from it.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::domain::outcome::Health;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerLimits {
    /// How many bad answers in a row open it.
    pub threshold: u32,
    /// The pause between probes at first; doubles to the cap.
    pub base: Duration,
    pub cap: Duration,
}

#[derive(Debug)]
pub struct Breaker {
    limits: BreakerLimits,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    bad_in_a_row: u32,
    /// `Some` while open: when the next probe may go.
    next_probe: Option<Instant>,
    /// Whether a probe is under way.
    probing: bool,
    pause: Duration,
}

/// How many jobs may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowance {
    All,
    /// One, to see whether the provider is back.
    Probe,
    NoneBefore(Instant),
}

impl Breaker {
    pub fn new(limits: BreakerLimits) -> Self {
        Self {
            limits,
            state: Mutex::new(State {
                bad_in_a_row: 0,
                next_probe: None,
                probing: false,
                pause: limits.base,
            }),
        }
    }

    /// Asks for leave to begin jobs. A probe that was granted is the only one until the next pause is over.
    pub fn allowance(&self, now: Instant) -> Allowance {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match state.next_probe {
            None => Allowance::All,
            Some(at) if now < at => Allowance::NoneBefore(at),
            Some(_) => {
                // Should this one never answer, another goes after a pause.
                state.next_probe = Some(now + state.pause);
                state.probing = true;
                Allowance::Probe
            }
        }
    }

    pub fn is_open(&self) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.next_probe.is_some()
    }

    /// Gives a probe back that found nothing to do.
    pub fn probe_unused(&self, now: Instant) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.next_probe.is_some() {
            state.next_probe = Some(now);
            state.probing = false;
        }
    }

    /// Learns from an answer. Returns whether the breaker opened or closed by it.
    pub fn record(&self, health: Health, now: Instant) -> Option<Change> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let was_open = state.next_probe.is_some();
        match health {
            Health::Good => {
                state.bad_in_a_row = 0;
                state.pause = self.limits.base;
                state.next_probe = None;
                state.probing = false;
                was_open.then_some(Change::Closed)
            }
            Health::Throttled(retry_after) => {
                let pause = retry_after.unwrap_or(self.limits.base).min(self.limits.cap);
                let until = now + pause;
                state.next_probe = Some(state.next_probe.map_or(until, |at| at.max(until)));
                (!was_open).then_some(Change::Opened)
            }
            Health::Denied => self.open(&mut state, now),
            Health::Ailing => {
                state.bad_in_a_row = state.bad_in_a_row.saturating_add(1);
                if state.bad_in_a_row >= self.limits.threshold {
                    self.open(&mut state, now)
                } else {
                    None
                }
            }
        }
    }

    /// Learns from an account's answer, and says it when the breaker opens or closes by it.
    pub fn learn(&self, account: &str, health: Health, answer: &'static str) {
        match self.record(health, Instant::now()) {
            Some(Change::Opened) => {
                let code = if health == Health::Denied {
                    "provider_denied"
                } else {
                    "provider_ailing"
                };
                tracing::error!(
                    code,
                    account,
                    answer,
                    "the breaker opened: the provider is asked by one job at a time"
                );
            }
            Some(Change::Closed) => {
                tracing::info!(code = "provider_back", account, "the breaker closed");
            }
            None => {}
        }
    }

    fn open(&self, state: &mut State, now: Instant) -> Option<Change> {
        let was_open = state.next_probe.is_some();
        if was_open && !state.probing {
            // Late answers of calls that went out before it opened say nothing new.
            return None;
        }
        if was_open {
            state.pause = (state.pause * 2).min(self.limits.cap);
            state.probing = false;
        }
        state.next_probe = Some(now + state.pause);
        (!was_open).then_some(Change::Opened)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Opened,
    Closed,
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: BreakerLimits = BreakerLimits {
        threshold: 3,
        base: Duration::from_secs(1),
        cap: Duration::from_secs(8),
    };

    #[test]
    fn it_opens_after_bad_answers_in_a_row_and_closes_on_a_good_one() {
        let (breaker, now) = (Breaker::new(LIMITS), Instant::now());
        for _ in 0..2 {
            assert_eq!(breaker.record(Health::Ailing, now), None);
        }
        assert_eq!(breaker.record(Health::Good, now), None);
        for _ in 0..2 {
            assert_eq!(breaker.record(Health::Ailing, now), None);
        }
        assert_eq!(breaker.allowance(now), Allowance::All);
        assert_eq!(breaker.record(Health::Ailing, now), Some(Change::Opened));
        assert_eq!(
            breaker.allowance(now),
            Allowance::NoneBefore(now + LIMITS.base)
        );
        let later = now + LIMITS.base;
        assert_eq!(breaker.allowance(later), Allowance::Probe);
        assert!(matches!(breaker.allowance(later), Allowance::NoneBefore(_)));
        assert_eq!(breaker.record(Health::Good, later), Some(Change::Closed));
        assert_eq!(breaker.allowance(later), Allowance::All);
    }

    #[test]
    fn probes_come_ever_more_rarely_up_to_the_cap() {
        let (breaker, mut now) = (Breaker::new(LIMITS), Instant::now());
        assert_eq!(breaker.record(Health::Denied, now), Some(Change::Opened));
        let mut probes = 0;
        let end = now + Duration::from_hours(1);
        while now < end {
            match breaker.allowance(now) {
                Allowance::Probe => {
                    probes += 1;
                    now += Duration::from_millis(700);
                    breaker.record(Health::Denied, now);
                }
                Allowance::NoneBefore(at) => now = at,
                Allowance::All => unreachable!("it never closed"),
            }
        }
        assert!(probes < 1000, "{probes}");
    }

    #[test]
    fn a_throttled_provider_is_left_alone_for_as_long_as_it_asks_within_the_cap() {
        let (breaker, now) = (Breaker::new(LIMITS), Instant::now());
        breaker.record(Health::Throttled(Some(Duration::from_secs(5))), now);
        assert_eq!(
            breaker.allowance(now),
            Allowance::NoneBefore(now + Duration::from_secs(5))
        );
        breaker.record(Health::Throttled(Some(Duration::MAX)), now);
        assert_eq!(
            breaker.allowance(now),
            Allowance::NoneBefore(now + LIMITS.cap)
        );
    }
}
