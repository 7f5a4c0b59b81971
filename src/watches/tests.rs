use time::macros::datetime;
use uuid::Uuid;

use super::*;
use crate::domain::charge::{NextAction, Progress, State};
use crate::domain::idempotency::{Fingerprint, IdempotencyKey};
use crate::domain::ids::{ChargeId, MerchantId};
use crate::domain::request::Draft;
use crate::meters::Meters;

const POLL: Duration = Duration::from_millis(40);

fn waits(most: usize) -> Waits {
    let limits = WatchLimits {
        watches: most,
        poll: POLL,
    };
    Waits::new(limits, &WatchMeters::new(&Meters::none()))
}

fn watches(most: usize) -> Watches<Charge> {
    waits(most).charges
}

fn charge(key: &str, version: i32, state: State) -> Box<Charge> {
    let merchant = MerchantId::from_uuid(Uuid::from_u128(7));
    let idempotency_key = IdempotencyKey::parse(key.as_bytes()).unwrap();
    let request = Draft::default();
    Box::new(Charge {
        id: ChargeId::derive(merchant, &idempotency_key),
        merchant,
        idempotency_key,
        fingerprint: Fingerprint::of(&request),
        request,
        live: false,
        provider: "stripe".to_owned(),
        progress: Progress {
            version,
            state,
            ..Progress::new()
        },
        created_at: datetime!(2026-11-29 20:15:00 UTC),
        updated_at: datetime!(2026-11-29 20:15:00 UTC),
        finished_at: None,
        cancel_requested: false,
        amount_refunded: 0,
        account: None,
    })
}

fn pending(key: &str) -> Box<Charge> {
    charge(key, 1, State::Pending)
}

#[tokio::test]
async fn a_watch_is_due_at_once_and_then_ever_more_seldom() {
    let watches = watches(9);
    let id = pending("a").id;
    let _watch = watches.watch(pending("a")).ok().unwrap();
    let now = Instant::now();
    let after = |milliseconds| now + Duration::from_millis(milliseconds);
    let due = || Due::Now(vec![(id, 1)]);
    assert_eq!(watches.take_due(now), due());
    assert_eq!(watches.take_due(now), Due::At(after(5)));
    assert_eq!(watches.take_due(after(5)), due());
    assert_eq!(watches.take_due(after(5)), Due::At(after(15)));
    for at in [15, 35, 75, 115, 155] {
        assert_eq!(watches.take_due(after(at)), due());
    }
    assert_eq!(watches.take_due(after(155)), Due::At(after(195)));
}

/// As while the look that found nothing is still under way.
#[tokio::test]
async fn a_change_after_a_look_has_begun_makes_a_charge_due_at_once() {
    let watches = watches(9);
    let id = pending("a").id;
    let _watch = watches.watch(pending("a")).ok().unwrap();
    let mut at = Instant::now();
    for _ in 0..20 {
        watches.take_due(at);
        at += POLL;
    }
    // Far from now, that is.
    assert!(matches!(watches.take_due(Instant::now()), Due::At(_)));
    watches.changed([pending("b").id, id]);
    assert_eq!(watches.take_due(Instant::now()), Due::Now(vec![(id, 1)]));
}

#[tokio::test]
async fn all_who_wait_for_one_charge_are_one_look_and_all_are_told() {
    let watches = watches(9);
    let mut first = watches.watch(pending("a")).ok().unwrap();
    let later = charge("a", 3, State::Processing { sent: false });
    let mut second = watches.watch(later).ok().unwrap();
    let other = watches.watch(pending("b")).ok().unwrap();
    let Due::Now(due) = watches.take_due(Instant::now()) else {
        panic!("two are due");
    };
    assert_eq!(due.len(), 2);
    assert!(due.contains(&(pending("a").id, 1)));
    watches.seen(&charge("a", 4, State::Succeeded));
    for watch in [&mut first, &mut second] {
        assert_eq!(watch.settled().await.unwrap().progress.version, 4);
    }
    assert_eq!(other.give_up().unwrap().progress.version, 1);
    assert_eq!(watches.take_due(Instant::now()), Due::Nothing);
    assert_eq!(watches.0.count.load(Ordering::SeqCst), 0);
    assert!(watches.0.lock().by_id.is_empty());
}

#[tokio::test]
async fn the_customer_s_turn_ends_a_wait_unless_a_cancel_is_asked_for() {
    let turn = State::RequiresAction(NextAction {
        url: "https://hooks.example.com/x".to_owned(),
        expires_at: None,
    });
    let watches = watches(9);
    for cancel_requested in [false, true] {
        let watch = watches.watch(pending("a")).ok().unwrap();
        let mut seen = charge("a", 2, turn.clone());
        seen.cancel_requested = cancel_requested;
        watches.seen(&seen);
        assert_eq!(
            watches.0.lock().by_number.len(),
            usize::from(cancel_requested)
        );
        assert_eq!(watch.give_up().unwrap().progress.version, 2);
    }
}

#[tokio::test]
async fn who_gives_up_is_told_what_was_seen_last() {
    let watches = watches(9);
    let watch = watches.watch(pending("a")).ok().unwrap();
    watches.seen(&charge("a", 2, State::Processing { sent: true }));
    assert_eq!(watch.give_up().unwrap().progress.version, 2);
    let watch = watches.watch(pending("a")).ok().unwrap();
    watches.seen(&charge("a", 3, State::Canceled));
    assert_eq!(watch.give_up().unwrap().progress.version, 3);
}

#[tokio::test]
async fn only_so_many_wait_and_a_place_is_free_again_when_one_leaves() {
    let watches = watches(2);
    let first = watches.watch(pending("a")).ok().unwrap();
    let _second = watches.watch(pending("b")).ok().unwrap();
    let refused = watches.watch(pending("c")).err().unwrap();
    assert_eq!(refused.id, pending("c").id);
    drop(first);
    assert!(watches.watch(pending("c")).is_ok());
}

#[tokio::test]
async fn more_than_one_statement_takes_are_taken_by_the_next() {
    let watches = watches(MOST_AT_ONCE + 1);
    let all: Vec<Watch<Charge>> = (0..=MOST_AT_ONCE)
        .map(|n| watches.watch(pending(&format!("k{n}"))).ok().unwrap())
        .collect();
    let mut looked = std::collections::HashSet::new();
    for expected in [MOST_AT_ONCE, 1] {
        let Due::Now(due) = watches.take_due(Instant::now()) else {
            panic!("some are due");
        };
        assert_eq!(due.len(), expected);
        looked.extend(due.into_iter().map(|(id, _)| id));
    }
    assert_eq!(looked.len(), all.len());
}
