//! Accounts that have jobs and that this process does not have: their jobs are left to a process that has them, and
//! after a while somebody is told.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::clock;
use crate::db::claim::Unserved;

/// For how long a job is left to others before it is told of: several of their claims.
const LEFT_FOR: Duration = Duration::from_secs(30);
/// How often the log says the same.
const AGAIN_AFTER: Duration = Duration::from_mins(1);

#[derive(Debug, Default)]
pub(super) struct UnservedAccounts {
    /// When each was told of last.
    told: HashMap<String, Instant>,
}

impl UnservedAccounts {
    pub(super) fn tell(&mut self, unserved: &[Unserved], now: Instant) {
        for unserved in self.due(unserved, now) {
            tracing::error!(
                code = "account_not_configured",
                account = unserved.account,
                waiting_since = %clock::shown(unserved.due_at),
                "jobs wait for an account that this process does not have, and no other process takes them"
            );
        }
    }

    /// Those to be told of now.
    fn due<'a>(&mut self, unserved: &'a [Unserved], now: Instant) -> Vec<&'a Unserved> {
        let waits: Vec<&Unserved> = unserved
            .iter()
            .filter(|unserved| unserved.now - unserved.due_at > LEFT_FOR)
            .collect();
        self.told
            .retain(|account, _| waits.iter().any(|waits| waits.account == *account));
        waits
            .into_iter()
            .filter(|waits| {
                let told = self.told.get(&waits.account);
                let again = told.is_none_or(|at| now.saturating_duration_since(*at) >= AGAIN_AFTER);
                if again {
                    self.told.insert(waits.account.clone(), now);
                }
                again
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use time::OffsetDateTime;

    #[test]
    fn an_account_is_told_of_after_a_while_once_a_minute_and_anew_when_it_is_without_again() {
        let (start, mut accounts) = (Instant::now(), UnservedAccounts::default());
        let mut told = |due_for: u64, at: u64| {
            let now = OffsetDateTime::UNIX_EPOCH + Duration::from_hours(1);
            let unserved = [Unserved {
                account: "acme".to_owned(),
                due_at: now - Duration::from_secs(due_for),
                now,
            }];
            accounts
                .due(&unserved, start + Duration::from_secs(at))
                .len()
        };
        assert_eq!(told(29, 0), 0);
        assert_eq!(told(31, 2), 1);
        assert_eq!(told(90, 61), 0);
        assert_eq!(told(91, 62), 1);
        assert_eq!(told(5, 63), 0);
        assert_eq!(told(31, 64), 1);
    }
}
