//! How many requests are let in: of one merchant, and by keys that nobody knows.
//!
//! Both bound this process alone, and neither says anything about a charge. A merchant's bucket is dropped once it is full
//! again, so that there are no more of them than merchants who have just sent something.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use governor::clock::{Clock, DefaultClock};
use governor::middleware::NoOpMiddleware;
use governor::state::keyed::HashMapStateStore;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use tokio::time::Instant;

use super::limits::RequestRate;
use crate::domain::ids::MerchantId;

/// After so many requests the buckets that are full again are dropped.
const CLEANED_EVERY: u32 = 4096;
/// How long keys that were never seen are refused once too many were unknown.
const SHUT: Duration = Duration::from_secs(1);

/// A token bucket for each merchant.
pub(super) struct RateLimit<C: Clock = DefaultClock> {
    buckets: RateLimiter<MerchantId, HashMapStateStore<MerchantId>, C, NoOpMiddleware<C::Instant>>,
    clock: C,
    checked: AtomicU32,
}

impl RateLimit {
    pub(super) fn new(rate: RequestRate) -> Self {
        Self::with_clock(rate, DefaultClock::default())
    }
}

impl<C: Clock + Clone> RateLimit<C> {
    fn with_clock(rate: RequestRate, clock: C) -> Self {
        let quota = Quota::per_second(rate.per_second).allow_burst(rate.burst);
        Self {
            buckets: RateLimiter::hashmap_with_clock(quota, clock.clone()),
            clock,
            checked: AtomicU32::new(0),
        }
    }

    /// Takes one request of the merchant's, or tells how long until there is one.
    pub(super) fn check(&self, merchant: MerchantId) -> Result<(), Duration> {
        if self.checked.fetch_add(1, Ordering::Relaxed) % CLEANED_EVERY == CLEANED_EVERY - 1 {
            self.buckets.retain_recent();
        }
        self.buckets
            .check_key(&merchant)
            .map_err(|until| until.wait_time_from(self.clock.now()))
    }
}

/// Keys that are unknown: each costs a question to the database, and a flood of them would take it from the others.
pub(super) struct Strangers {
    met: RateLimiter<NotKeyed, InMemoryState, DefaultClock>,
    shut_until: Mutex<Option<Instant>>,
}

impl Strangers {
    pub(super) fn new(per_second: std::num::NonZeroU32) -> Self {
        Self {
            met: RateLimiter::direct(Quota::per_second(per_second)),
            shut_until: Mutex::default(),
        }
    }

    /// Whether a key that was never seen may be asked for.
    pub(super) fn may_ask(&self, now: Instant) -> Result<(), Duration> {
        let shut_until = *self.lock();
        let left = shut_until.map(|until| until.saturating_duration_since(now));
        match left {
            Some(left) if !left.is_zero() => Err(left),
            Some(_) | None => Ok(()),
        }
    }

    /// One more was unknown.
    pub(super) fn met(&self, now: Instant) {
        if self.met.check().is_err() {
            *self.lock() = Some(now + SHUT);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.shut_until
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use governor::clock::FakeRelativeClock;
    use uuid::Uuid;

    use super::*;

    fn some(number: u32) -> NonZeroU32 {
        NonZeroU32::new(number).unwrap()
    }

    fn merchant(number: u128) -> MerchantId {
        MerchantId::from_uuid(Uuid::from_u128(number))
    }

    #[test]
    fn a_merchant_has_its_burst_then_its_rate_and_takes_nothing_of_the_others() {
        let clock = FakeRelativeClock::default();
        let rate = RequestRate {
            per_second: some(2),
            burst: some(3),
        };
        let limit = RateLimit::with_clock(rate, clock.clone());
        for _ in 0..3 {
            assert_eq!(limit.check(merchant(1)), Ok(()));
        }
        assert_eq!(limit.check(merchant(1)), Err(Duration::from_millis(500)));
        assert_eq!(limit.check(merchant(2)), Ok(()));
        clock.advance(Duration::from_millis(500));
        assert_eq!(limit.check(merchant(1)), Ok(()));
        assert!(limit.check(merchant(1)).is_err());
    }

    #[test]
    fn buckets_of_merchants_who_send_nothing_are_dropped() {
        let clock = FakeRelativeClock::default();
        let rate = RequestRate {
            per_second: some(1),
            burst: some(1),
        };
        let limit = RateLimit::with_clock(rate, clock.clone());
        for number in 0..CLEANED_EVERY - 1 {
            limit.check(merchant(number.into())).unwrap();
        }
        clock.advance(Duration::from_secs(10));
        limit.check(merchant(1)).unwrap();
        assert_eq!(limit.buckets.len(), 1);
    }

    #[tokio::test]
    async fn too_many_unknown_keys_shut_the_door_to_new_ones_for_a_second() {
        let strangers = Strangers::new(some(3));
        let now = Instant::now();
        for _ in 0..3 {
            strangers.met(now);
            assert_eq!(strangers.may_ask(now), Ok(()));
        }
        strangers.met(now);
        assert_eq!(strangers.may_ask(now), Err(SHUT));
        assert_eq!(strangers.may_ask(now + SHUT), Ok(()));
    }
}
