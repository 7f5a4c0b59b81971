//! When a job runs again. Certainty never depends on how often it ran: no number of attempts turns unknown into failed.

use std::time::Duration;

/// Why a job waits, which sets how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// At once: there is more to do and only the time of this lease was too short.
    Now,
    /// Exponential, for what may clear up soon.
    Backoff,
    /// The provider named a time.
    After(Duration),
    /// Someone else's turn (a customer, a bank): seconds at first, growing to the cap.
    Slow,
}

/// The limits of retries, from the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// The first delay of a backoff.
    pub base: Duration,
    /// The longest delay of a backoff, and of a `Retry-After`, whatever the provider says.
    pub cap: Duration,
    /// The first delay of the slow pace.
    pub slow_base: Duration,
    /// The longest delay of the slow pace.
    pub slow_cap: Duration,
}

impl RetryPolicy {
    /// How long until the next run. `attempt` counts the runs so far, from 1; `jitter` is a random number in [0, 1) that
    /// spreads delays over the upper half, so that jobs that failed together do not come back together.
    pub fn delay(&self, pace: Pace, attempt: u32, jitter: f64) -> Duration {
        let spread = |delay: Duration| delay.mul_f64(0.5 + jitter.clamp(0.0, 1.0) / 2.0);
        match pace {
            Pace::Now => Duration::ZERO,
            Pace::Backoff => spread(doubled(self.base, attempt, self.cap)),
            // Never earlier than asked, within the cap.
            Pace::After(asked) => {
                let asked = asked.min(self.cap);
                asked + asked.mul_f64(jitter.clamp(0.0, 1.0) / 4.0)
            }
            Pace::Slow => spread(doubled(self.slow_base, attempt, self.slow_cap)),
        }
    }
}

fn doubled(base: Duration, attempt: u32, cap: Duration) -> Duration {
    let factor = 1_u32
        .checked_shl(attempt.saturating_sub(1).min(31))
        .unwrap_or(u32::MAX);
    base.checked_mul(factor).map_or(cap, |delay| delay.min(cap))
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: RetryPolicy = RetryPolicy {
        base: Duration::from_millis(200),
        cap: Duration::from_mins(1),
        slow_base: Duration::from_secs(5),
        slow_cap: Duration::from_hours(1),
    };

    #[test]
    fn backoff_doubles_up_to_the_cap_and_never_overflows() {
        for (attempt, most) in [
            (1, 200),
            (2, 400),
            (3, 800),
            (9, 51_200),
            (10, 60_000),
            (1_000, 60_000),
            (u32::MAX, 60_000),
        ] {
            let most = Duration::from_millis(most);
            assert_eq!(POLICY.delay(Pace::Backoff, attempt, 1.0), most, "{attempt}");
            assert_eq!(
                POLICY.delay(Pace::Backoff, attempt, 0.0),
                most / 2,
                "{attempt}"
            );
        }
    }

    #[test]
    fn the_providers_time_is_kept_within_the_cap() {
        assert_eq!(
            POLICY.delay(Pace::After(Duration::from_secs(2)), 1, 0.0),
            Duration::from_secs(2)
        );
        assert_eq!(
            POLICY.delay(Pace::After(Duration::MAX), 1, 0.0),
            Duration::from_mins(1)
        );
    }

    #[test]
    fn the_slow_pace_has_its_own_limits() {
        assert_eq!(POLICY.delay(Pace::Slow, 1, 1.0), Duration::from_secs(5));
        assert_eq!(POLICY.delay(Pace::Slow, 40, 1.0), Duration::from_hours(1));
        assert_eq!(POLICY.delay(Pace::Now, 40, 1.0), Duration::ZERO);
    }
}
