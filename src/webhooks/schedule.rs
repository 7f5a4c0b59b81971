//! When a delivery that failed is sent again.

use std::time::Duration;

/// The delays after the first failure, the second, and so on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule(Vec<Duration>);

impl Schedule {
    pub fn new(delays: Vec<Duration>) -> Self {
        Self(delays)
    }

    /// How long to wait after so many failures before this one; `None` when it is given up. `jitter` is from [0, 1).
    pub fn after(&self, failures: i32, jitter: f64) -> Option<Duration> {
        let delay = self.0.get(usize::try_from(failures).ok()?)?;
        Some(delay.mul_f64(1.0 + jitter.clamp(0.0, 1.0) / 10.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_waits_its_own_time_and_the_last_gives_up() {
        let schedule = Schedule::new(vec![Duration::from_secs(5), Duration::from_mins(5)]);
        assert_eq!(schedule.after(0, 0.0), Some(Duration::from_secs(5)));
        assert_eq!(schedule.after(1, 0.5), Some(Duration::from_secs(315)));
        assert_eq!(schedule.after(2, 0.0), None);
    }
}
