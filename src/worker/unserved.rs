//! Accounts that have jobs and that this process does not have: their jobs are left to a process that has them, and
//! after a while somebody is told.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::clock;
use crate::db::claim::Unserved;

/// How long the same job is left to others before it is told of: several of their claims. A backlog that somebody works
/// off has another oldest job by then.
const LEFT_FOR: Duration = Duration::from_secs(30);
/// How often the log says the same.
const AGAIN_AFTER: Duration = Duration::from_mins(1);

#[derive(Debug, Default)]
pub(super) struct UnservedAccounts {
    by_name: HashMap<String, Waits>,
}

#[derive(Debug)]
struct Waits {
    /// The oldest job, and since when it is seen.
    oldest: i64,
    since: Instant,
    /// When it was told of last.
    told: Option<Instant>,
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
        let due: Vec<&Unserved> = unserved
            .iter()
            .filter(|unserved| unserved.now > unserved.due_at)
            .collect();
        self.by_name
            .retain(|account, _| due.iter().any(|due| due.account == *account));
        due.into_iter()
            .filter(|due| {
                let waits = self.by_name.entry(due.account.clone()).or_insert(Waits {
                    oldest: due.outbox_id,
                    since: now,
                    told: None,
                });
                if waits.oldest != due.outbox_id {
                    (waits.oldest, waits.since, waits.told) = (due.outbox_id, now, None);
                }
                let left = now.saturating_duration_since(waits.since) > LEFT_FOR;
                let again = waits
                    .told
                    .is_none_or(|at| now.saturating_duration_since(at) >= AGAIN_AFTER);
                if left && again {
                    waits.told = Some(now);
                }
                left && again
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use time::OffsetDateTime;

    #[test]
    fn an_account_is_told_of_after_a_while_once_a_minute_and_not_while_somebody_takes_its_jobs() {
        let (start, mut accounts) = (Instant::now(), UnservedAccounts::default());
        let mut told = |oldest: Option<i64>, at: u64| {
            let now = OffsetDateTime::UNIX_EPOCH + Duration::from_hours(1);
            let unserved = oldest.map(|outbox_id| Unserved {
                account: "acme".to_owned(),
                outbox_id,
                due_at: now - Duration::from_mins(10),
                now,
            });
            accounts
                .due(unserved.as_slice(), start + Duration::from_secs(at))
                .len()
        };
        assert_eq!(told(Some(1), 0), 0);
        assert_eq!(told(Some(1), 29), 0);
        assert_eq!(told(Some(1), 31), 1);
        assert_eq!(told(Some(1), 90), 0);
        assert_eq!(told(Some(1), 91), 1);
        // Somebody has taken it, and another is the oldest.
        assert_eq!(told(Some(2), 152), 0);
        assert_eq!(told(Some(2), 182), 0);
        assert_eq!(told(Some(2), 183), 1);
        // None is left, and the first one is back.
        assert_eq!(told(None, 184), 0);
        assert_eq!(told(Some(2), 185), 0);
        assert_eq!(told(Some(2), 216), 1);
    }
}
