//! Requests that wait for their charge: until it is terminal or needs the customer.
//!
//! Whoever changes a charge in this process says so with [`Watches::changed`], after its commit; what other processes
//! change is found by looking again and again. One task, the [`Watcher`], looks for all who wait, many a statement, on a
//! connection of its own: a request that waits holds none. No wake-up is lost: a watch is looked at after it was made, so
//! what was committed before is seen, and what is committed later finds it. If the process dies, its clients ask again.

mod meters;
#[cfg(test)]
mod tests;
mod watcher;

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

pub use self::meters::WatchMeters;
pub use self::watcher::Watcher;
use crate::domain::charge::{Charge, State};
use crate::domain::ids::ChargeId;
use crate::meters::Meters;

/// Looks at one charge start close together, because most are done in some milliseconds, and drift apart.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
/// The most charges one statement looks at; the others are looked at by the next.
const MOST_AT_ONCE: usize = 512;

#[derive(Clone, Copy, Debug)]
pub struct WatchLimits {
    /// How many requests may wait at once.
    pub watches: usize,
    /// The longest pause between two looks at one charge.
    pub poll: Duration,
}

/// All who wait in this process. Cheap to clone; clones are the same.
#[derive(Clone)]
pub struct Watches(Arc<Shared>);

struct Shared {
    limits: WatchLimits,
    meters: WatchMeters,
    /// How many wait: who changes charges looks here first, and mostly nobody does.
    count: AtomicUsize,
    waiting: Mutex<Waiting>,
    /// Rung when somebody may be due.
    due: Notify,
}

#[derive(Default)]
struct Waiting {
    next: u64,
    by_number: HashMap<u64, Entry>,
    by_charge: HashMap<ChargeId, Vec<u64>>,
}

struct Entry {
    /// As it was last seen.
    charge: Box<Charge>,
    look_at: Instant,
    pause: Duration,
    settled: oneshot::Sender<Box<Charge>>,
}

/// One request's wait. Who drops it does not wait any more.
pub struct Watch {
    watches: Watches,
    number: u64,
    settled: oneshot::Receiver<Box<Charge>>,
}

/// What there is to look at.
#[derive(Debug, PartialEq, Eq)]
enum Due {
    /// Each charge, and the version of it that was last seen.
    Now(Vec<(ChargeId, i32)>),
    At(Instant),
    Nothing,
}

impl Watches {
    pub fn new(limits: WatchLimits, meters: WatchMeters) -> Self {
        Self(Arc::new(Shared {
            limits,
            meters,
            count: AtomicUsize::new(0),
            waiting: Mutex::default(),
            due: Notify::new(),
        }))
    }

    /// Where nobody ever waits.
    pub fn none() -> Self {
        let limits = WatchLimits {
            watches: 0,
            poll: Duration::MAX,
        };
        Self::new(limits, WatchMeters::new(&Meters::none()))
    }

    /// Waits for the charge; gives it back if too many wait already.
    pub fn watch(&self, charge: Box<Charge>) -> Result<Watch, Box<Charge>> {
        let shared = &*self.0;
        let mut waiting = shared.lock();
        if waiting.by_number.len() >= shared.limits.watches {
            shared.meters.refused.increment(1);
            return Err(charge);
        }
        // Before the first look at it, or a change in between would find nobody to tell.
        shared.count.fetch_add(1, Ordering::SeqCst);
        shared.meters.waiting.increment(1.0);
        let number = waiting.next;
        waiting.next += 1;
        waiting.by_charge.entry(charge.id).or_default().push(number);
        let (sender, settled) = oneshot::channel();
        let entry = Entry {
            charge,
            look_at: Instant::now(),
            pause: FIRST_PAUSE.min(shared.limits.poll),
            settled: sender,
        };
        waiting.by_number.insert(number, entry);
        drop(waiting);
        shared.due.notify_one();
        Ok(Watch {
            watches: self.clone(),
            number,
            settled,
        })
    }

    /// Says that charges have changed. To be called after the commit.
    pub fn changed(&self, charges: impl IntoIterator<Item = ChargeId>) {
        let shared = &*self.0;
        if shared.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut waiting = shared.lock();
        let Waiting {
            by_number,
            by_charge,
            ..
        } = &mut *waiting;
        let now = Instant::now();
        let mut is_any = false;
        for charge in charges {
            for number in by_charge.get(&charge).into_iter().flatten() {
                if let Some(entry) = by_number.get_mut(number) {
                    entry.look_at = now;
                    is_any = true;
                }
            }
        }
        drop(waiting);
        if is_any {
            shared.due.notify_one();
        }
    }

    /// What is due now, each put off by its pause; a change from now on makes it due again.
    fn take_due(&self, now: Instant) -> Due {
        let poll = self.0.limits.poll;
        let mut waiting = self.0.lock();
        let mut due: HashMap<ChargeId, i32> = HashMap::new();
        let mut next: Option<Instant> = None;
        for entry in waiting.by_number.values_mut() {
            if entry.look_at > now {
                next = Some(next.map_or(entry.look_at, |at| at.min(entry.look_at)));
            } else if due.len() < MOST_AT_ONCE || due.contains_key(&entry.charge.id) {
                entry.look_at = now + entry.pause;
                entry.pause = (entry.pause * 2).min(poll);
                let version = entry.charge.progress.version;
                let oldest = due.entry(entry.charge.id).or_insert(version);
                *oldest = version.min(*oldest);
            }
        }
        match next {
            _ if !due.is_empty() => Due::Now(due.into_iter().collect()),
            Some(at) => Due::At(at),
            None => Due::Nothing,
        }
    }

    /// Tells whoever waits for a charge how it stands.
    fn seen(&self, charge: &Charge) {
        let shared = &*self.0;
        let mut waiting = shared.lock();
        if is_on_its_way(charge) {
            let Waiting {
                by_number,
                by_charge,
                ..
            } = &mut *waiting;
            for number in by_charge.get(&charge.id).into_iter().flatten() {
                if let Some(entry) = by_number.get_mut(number) {
                    *entry.charge = charge.clone();
                }
            }
            return;
        }
        for number in waiting.by_charge.remove(&charge.id).unwrap_or_default() {
            if let Some(entry) = waiting.by_number.remove(&number) {
                shared.left();
                // Nobody may wait any more: a client that hung up.
                drop(entry.settled.send(Box::new(charge.clone())));
            }
        }
    }
}

impl std::fmt::Debug for Watches {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let waiting = self.0.count.load(Ordering::Relaxed);
        f.debug_struct("Watches")
            .field("waiting", &waiting)
            .finish_non_exhaustive()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn left(&self) {
        self.count.fetch_sub(1, Ordering::SeqCst);
        self.meters.waiting.decrement(1.0);
    }
}

impl Waiting {
    fn remove(&mut self, number: u64) -> Option<Entry> {
        let entry = self.by_number.remove(&number)?;
        if let Some(numbers) = self.by_charge.get_mut(&entry.charge.id) {
            numbers.retain(|other| *other != number);
            if numbers.is_empty() {
                self.by_charge.remove(&entry.charge.id);
            }
        }
        Some(entry)
    }
}

impl Watch {
    /// The charge once it has come to rest.
    pub async fn settled(&mut self) -> Option<Box<Charge>> {
        let charge = (&mut self.settled).await.ok();
        self.watches.0.meters.settled.increment(1);
        charge
    }

    /// The charge as it was last seen, for who has waited long enough.
    pub fn give_up(self) -> Option<Box<Charge>> {
        self.watches.0.meters.over.increment(1);
        self.seen_last()
    }

    /// The same for who has hung up, or seems to have.
    pub fn hung_up(self) -> Option<Box<Charge>> {
        self.watches.0.meters.hung_up.increment(1);
        self.seen_last()
    }

    fn seen_last(mut self) -> Option<Box<Charge>> {
        let entry = self.leave();
        // It has come to rest this moment.
        entry.map_or_else(|| self.settled.try_recv().ok(), |entry| Some(entry.charge))
    }

    fn leave(&mut self) -> Option<Entry> {
        let shared = &*self.watches.0;
        let entry = shared.lock().remove(self.number);
        if entry.is_some() {
            shared.left();
        }
        entry
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Whether something is still to come without the customer.
pub fn is_on_its_way(charge: &Charge) -> bool {
    match &charge.progress.state {
        State::Pending | State::Processing { .. } | State::RequiresReconciliation => true,
        State::RequiresAction(_) => charge.cancel_requested,
        State::Succeeded | State::Failed(_) | State::Canceled => false,
    }
}
