//! Whose jobs are claimed next: the oldest, or a share of each merchant's in turn.
//!
//! Oldest first is cheap and right while jobs are claimed soon. Once a claim came back full and its oldest job had waited
//! too long, every second claim goes from merchant to merchant, so that one merchant's backlog makes it wait for itself;
//! the other half stays with the oldest, and with rows that name no merchant. It sets the order and nothing else: a merchant
//! whose turn was lost with the process has the next one.

use std::collections::VecDeque;
use std::time::Duration;

use uuid::Uuid;

use crate::db::claim::Waiting;

/// How many merchants one look visits, those included whose jobs are not due: a look takes about a millisecond.
pub(super) const MOST_MERCHANTS: i32 = 100;

#[derive(Debug)]
pub(super) struct Fairness {
    /// How long the oldest job may wait before turns are taken.
    after: Duration,
    congested: bool,
    /// Whether the next claim goes by merchants, if anything is congested.
    by_merchant: bool,
    /// Merchants whose turn comes, in their order.
    line: VecDeque<Uuid>,
    /// The last merchant that a look visited; the next one begins behind it.
    cursor: Uuid,
}

/// The next claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Oldest,
    /// Merchants in turn; if the line is empty, the claim loop looks who waits first.
    ByMerchant {
        look_after: Option<Uuid>,
    },
}

impl Fairness {
    pub(super) fn new(after: Duration) -> Self {
        Self {
            after,
            congested: false,
            by_merchant: false,
            line: VecDeque::new(),
            cursor: Uuid::nil(),
        }
    }

    pub(super) fn next(&mut self) -> Next {
        if !self.congested || !std::mem::replace(&mut self.by_merchant, false) {
            return Next::Oldest;
        }
        Next::ByMerchant {
            look_after: self.line.is_empty().then_some(self.cursor),
        }
    }

    /// Learns from a claim of the oldest. `waited` is how long the oldest of them had.
    pub(super) fn claimed_oldest(&mut self, full: bool, waited: Option<Duration>) {
        self.congested = full && waited.is_some_and(|waited| waited > self.after);
        self.by_merchant = self.congested;
        if !self.congested {
            self.line.clear();
        }
    }

    /// Takes in what a look found. It goes on behind the last one visited, and from the start again after the last of all.
    pub(super) fn looked(&mut self, waiting: &[Waiting]) {
        let whole = i32::try_from(waiting.len()).is_ok_and(|found| found < MOST_MERCHANTS);
        self.cursor = match waiting.last() {
            Some(last) if !whole => last.merchant,
            Some(_) | None => Uuid::nil(),
        };
        let due = waiting.iter().filter(|waiting| waiting.due);
        self.line.extend(due.map(|waiting| waiting.merchant));
    }

    /// The merchants whose turn is in a claim of `limit` jobs, and how many jobs each may have.
    pub(super) fn turn(&mut self, limit: usize) -> (Vec<Uuid>, usize) {
        let merchants: Vec<Uuid> = self.line.drain(..limit.min(self.line.len())).collect();
        // No more than fits, or the last of them would lose its turn.
        let share = limit / merchants.len().max(1);
        (merchants, share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merchant(number: u128) -> Uuid {
        Uuid::from_u128(number)
    }

    fn waiting(numbers: impl Iterator<Item = u128>) -> Vec<Waiting> {
        numbers
            .map(|number| Waiting {
                merchant: merchant(number),
                due: true,
            })
            .collect()
    }

    fn congested() -> Fairness {
        let mut fairness = Fairness::new(Duration::from_secs(1));
        fairness.claimed_oldest(true, Some(Duration::from_secs(2)));
        fairness
    }

    #[test]
    fn the_oldest_go_first_while_claims_come_soon() {
        let mut fairness = Fairness::new(Duration::from_secs(1));
        for (full, waited) in [
            (true, Some(1)),
            (false, Some(100)),
            (false, None),
            (true, None),
        ] {
            fairness.claimed_oldest(full, waited.map(Duration::from_secs));
            assert_eq!(fairness.next(), Next::Oldest, "{full} {waited:?}");
        }
    }

    #[test]
    fn every_second_claim_is_by_merchant_while_the_oldest_wait() {
        let mut fairness = congested();
        for _ in 0..3 {
            assert!(matches!(fairness.next(), Next::ByMerchant { .. }));
            assert_eq!(fairness.next(), Next::Oldest);
            fairness.claimed_oldest(true, Some(Duration::from_secs(2)));
        }
        fairness.claimed_oldest(false, Some(Duration::from_secs(2)));
        assert_eq!(fairness.next(), Next::Oldest);
    }

    #[test]
    fn each_merchant_has_its_turn_before_one_has_a_second() {
        let mut fairness = congested();
        let mut served = Vec::new();
        for round in 0..2 {
            fairness.looked(&waiting(1..=5));
            for _ in 0..3 {
                let (merchants, share) = fairness.turn(2);
                assert_eq!(share, 2 / merchants.len());
                served.extend(merchants);
            }
            assert_eq!(served.len(), 5 * (round + 1));
        }
        let expected: Vec<Uuid> = (1..=5).chain(1..=5).map(merchant).collect();
        assert_eq!(served, expected);
    }

    #[test]
    fn a_claim_is_shared_among_few_merchants_and_one_alone_has_it_all() {
        let mut fairness = congested();
        fairness.looked(&waiting(1..=3));
        assert_eq!(
            fairness.turn(16),
            (vec![merchant(1), merchant(2), merchant(3)], 5)
        );
        fairness.looked(&waiting(4..=4));
        assert_eq!(fairness.turn(16), (vec![merchant(4)], 16));
        assert_eq!(fairness.turn(16), (vec![], 16));
    }

    #[test]
    fn a_look_goes_on_behind_the_last_one_it_visited_and_starts_again_at_the_end() {
        let mut fairness = congested();
        let most = u128::try_from(MOST_MERCHANTS).unwrap();
        let mut visited = waiting(1..=most);
        for waiting in &mut visited {
            waiting.due = false;
        }
        fairness.looked(&visited);
        assert_eq!(
            fairness.next(),
            Next::ByMerchant {
                look_after: Some(merchant(most))
            },
            "merchants whose jobs are not due have no turn"
        );
        fairness.looked(&[]);
        fairness.by_merchant = true;
        assert_eq!(
            fairness.next(),
            Next::ByMerchant {
                look_after: Some(Uuid::nil())
            }
        );
    }
}
