//! How many calls to the provider this process may begin: a token bucket that all of its callers share.
//!
//! Ours, and not a rate limiter's of a library: the claim loop must know how many calls could begin now without taking
//! them, a turn that was taken for a job that needs none is given back, and sweeps come after charges. A turn is a place
//! in one line, so calls of runs under way are never overtaken: jobs are only claimed while nobody is in it. It sets the
//! pace of this process alone, and nothing is ever concluded from it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// What calls for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Some charge waits for it.
    Charge,
    /// Nobody does: it goes when the bucket is full, or once it has waited for [`PATIENCE`].
    Sweep,
}

/// How long a sweep's call lets charges go first. A provider that is busy for days must still be compared with the books.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// The most calls that may begin at once, as a part of a second's: smaller ones are smoother, larger ones make fewer claims.
const BURST_PART: u32 = 10;
/// One job's prepare and execute, without a wait between them.
const SMALLEST_BURST: u32 = 2;

/// Cheap to clone; clones share the bucket.
#[derive(Clone, Debug)]
pub struct Budget(Option<Arc<Bucket>>);

#[derive(Debug)]
struct Bucket {
    /// Between two calls, in the long run.
    interval: Duration,
    burst: u32,
    /// When the bucket is full again, if nobody takes anything more. Each call moves it on by an interval.
    full_at: Mutex<Instant>,
}

/// How many calls could begin now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    Unbounded,
    Calls(usize),
    NoneBefore(Instant),
}

/// A place in the line. Given back if it is dropped before it came.
#[derive(Debug)]
#[must_use = "a turn that is dropped is given back"]
pub struct Turn {
    bucket: Option<Arc<Bucket>>,
    at: Instant,
}

impl Budget {
    /// `None` for no bound.
    pub fn new(calls_per_second: Option<u32>, now: Instant) -> Self {
        Self(calls_per_second.filter(|rate| *rate > 0).map(|rate| {
            Arc::new(Bucket {
                // 4 ns at the least, at the highest rate that fits.
                interval: (Duration::from_secs(1) / rate).max(Duration::from_nanos(1)),
                burst: (rate / BURST_PART).max(SMALLEST_BURST),
                full_at: Mutex::new(now),
            })
        }))
    }

    pub fn unbounded() -> Self {
        Self(None)
    }

    /// Looks and takes nothing.
    pub fn room(&self, now: Instant) -> Room {
        self.0
            .as_ref()
            .map_or(Room::Unbounded, |bucket| bucket.room(now))
    }

    /// The next place in the line.
    pub fn turn(&self, now: Instant) -> Turn {
        Turn {
            bucket: self.0.clone(),
            at: self.0.as_ref().map_or(now, |bucket| bucket.take(now)),
        }
    }

    /// Returns when a call may begin.
    pub async fn take(&self, priority: Priority) {
        match priority {
            Priority::Charge => {}
            Priority::Sweep => self.let_charges_go_first().await,
        }
        self.turn(Instant::now()).comes().await;
    }

    async fn let_charges_go_first(&self) {
        let Some(bucket) = &self.0 else { return };
        let patient_until = Instant::now() + PATIENCE;
        while let Some(at) = bucket.sweep_looks_at(Instant::now(), patient_until) {
            tokio::time::sleep_until(at).await;
        }
    }
}

impl Bucket {
    fn full_at(&self) -> Instant {
        *self.full_at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn room(&self, now: Instant) -> Room {
        let missing = self.full_at().saturating_duration_since(now);
        let spare = (self.interval * self.burst).saturating_sub(missing);
        match spare.as_nanos() / self.interval.as_nanos() {
            0 => Room::NoneBefore(now + missing - self.interval * (self.burst - 1)),
            calls => Room::Calls(usize::try_from(calls).unwrap_or(usize::MAX)),
        }
    }

    /// When a sweep should look again; `None` if it may go.
    fn sweep_looks_at(&self, now: Instant, patient_until: Instant) -> Option<Instant> {
        let full_at = self.full_at();
        (full_at > now && now < patient_until).then(|| full_at.min(patient_until))
    }

    /// Takes a token, from those to come if none is there, and says when it has come.
    fn take(&self, now: Instant) -> Instant {
        let mut full_at = self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
        *full_at = (*full_at).max(now) + self.interval;
        now + (*full_at - now).saturating_sub(self.interval * self.burst)
    }

    fn give_back(&self) {
        let mut full_at = self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sooner) = full_at.checked_sub(self.interval) {
            *full_at = sooner;
        }
    }
}

impl Turn {
    /// Returns when it has come: a call may begin.
    pub async fn comes(mut self) {
        if self.bucket.is_some() {
            tokio::time::sleep_until(self.at).await;
            self.bucket = None;
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(bucket) = &self.bucket {
            bucket.give_back();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(50);

    /// 20 a second: one each 50 ms, and two at once.
    fn bucket() -> (Budget, Arc<Bucket>, Instant) {
        let now = Instant::now();
        let budget = Budget::new(Some(20), now);
        let bucket = budget.0.clone().unwrap();
        (budget, bucket, now)
    }

    #[test]
    fn no_more_calls_begin_than_the_rate_and_a_burst_allow() {
        let (_, bucket, began) = bucket();
        let calls: Vec<Instant> = (0..100).map(|_| bucket.take(began)).collect();
        assert_eq!(calls[1], began, "a burst begins at once");
        for (at, call) in calls.iter().enumerate() {
            let within = calls[at..]
                .iter()
                .take_while(|later| **later < *call + Duration::from_secs(1))
                .count();
            assert!(within <= 22, "{within} in the second after call {at}");
        }
        assert_eq!(calls[99] - began, INTERVAL * 98);
    }

    #[tokio::test]
    async fn jobs_have_room_only_while_nobody_is_in_the_line() {
        let (budget, _, now) = bucket();
        assert_eq!(budget.room(now), Room::Calls(2));
        let turns = [(); 3].map(|()| budget.turn(now));
        assert_eq!(budget.room(now), Room::NoneBefore(now + INTERVAL * 2));
        assert_eq!(budget.room(now + INTERVAL * 2), Room::Calls(1));
        let waits = turns.each_ref().map(|turn| turn.at - now);
        assert_eq!(waits, [Duration::ZERO, Duration::ZERO, INTERVAL]);
        drop(turns);
        assert_eq!(budget.room(now), Room::Calls(2));
        budget.turn(now).comes().await;
        assert_eq!(budget.room(now), Room::Calls(1), "a turn that came is used");
    }

    #[test]
    fn an_idle_time_saves_up_no_more_than_a_burst() {
        let (budget, _, now) = bucket();
        assert_eq!(budget.room(now + Duration::from_hours(1)), Room::Calls(2));
    }

    /// A sweep that calls as often as it may, besides a charge's call every `busy`. Returns how many calls it made in a
    /// minute.
    fn swept(busy: Option<Duration>) -> usize {
        let (_, bucket, began) = bucket();
        let (mut now, mut calls) = (began, 0);
        let mut charge_at = busy.map(|_| began);
        let mut patient_until = now + PATIENCE;
        while now < began + Duration::from_mins(1) {
            while let (Some(at), Some(busy)) = (charge_at, busy)
                && at <= now
            {
                charge_at = Some(bucket.take(at).max(at + busy));
            }
            if let Some(at) = bucket.sweep_looks_at(now, patient_until) {
                now = charge_at.map_or(at, |charge| charge.min(at));
            } else {
                now = bucket.take(now);
                calls += 1;
                patient_until = now + PATIENCE;
            }
        }
        calls
    }

    #[test]
    fn a_sweep_takes_what_charges_leave_and_never_waits_for_ever() {
        assert_eq!(swept(None), 20 * 60, "alone");
        let beside_half = swept(Some(INTERVAL * 2));
        assert!((400..=600).contains(&beside_half), "{beside_half}");
        let beside_all = swept(Some(Duration::ZERO));
        assert!((10..=12).contains(&beside_all), "{beside_all}");
    }

    #[tokio::test]
    async fn without_a_bound_nobody_waits() {
        let (budget, began) = (Budget::new(Some(0), Instant::now()), Instant::now());
        for _ in 0..10_000 {
            budget.take(Priority::Charge).await;
            budget.take(Priority::Sweep).await;
        }
        assert_eq!(budget.room(began), Room::Unbounded);
        assert!(began.elapsed() < Duration::from_secs(5));
    }
}
