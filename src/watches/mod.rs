//! Requests that wait for their charge or their refund: until it is terminal or needs the customer.
//!
//! Whoever changes one in this process says so with [`Watches::changed`], after its commit; what other processes change is
//! found by looking again and again. One task for each kind, the [`Watcher`], looks for all who wait, many a statement, on a
//! connection of its own: a request that waits holds none. No wake-up is lost: a watch is looked at after it was made, so
//! what was committed before is seen, and what is committed later finds it. If the process dies, its clients ask again.

mod meters;
#[cfg(test)]
mod tests;
mod watched;
mod watcher;

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::Instant;

pub use self::meters::WatchMeters;
pub use self::watched::Watched;
pub use self::watcher::Watcher;
use crate::domain::charge::Charge;
use crate::domain::refund::Refund;
use crate::meters::Meters;

/// Looks at one object start close together, because most are done in some milliseconds, and drift apart.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
/// The most objects one statement looks at; the others are looked at by the next.
const MOST_AT_ONCE: usize = 512;

#[derive(Clone, Copy, Debug)]
pub struct WatchLimits {
    /// How many requests may wait at once, whatever for.
    pub watches: usize,
    /// The longest pause between two looks at one object.
    pub poll: Duration,
}

/// All who wait in this process, by what they wait for.
#[derive(Clone, Debug)]
pub struct Waits {
    pub charges: Watches<Charge>,
    pub refunds: Watches<Refund>,
}

impl Waits {
    pub fn new(limits: WatchLimits, meters: &WatchMeters) -> Self {
        let places = Arc::new(Semaphore::new(limits.watches));
        Self {
            charges: Watches::new(limits.poll, &places, meters.clone()),
            refunds: Watches::new(limits.poll, &places, meters.clone()),
        }
    }

    /// Where nobody ever waits.
    pub fn none() -> Self {
        let limits = WatchLimits {
            watches: 0,
            poll: Duration::MAX,
        };
        Self::new(limits, &WatchMeters::new(&Meters::none()))
    }
}

/// All who wait in this process for one kind of object. Cheap to clone; clones are the same.
pub struct Watches<T: Watched>(Arc<Shared<T>>);

struct Shared<T: Watched> {
    poll: Duration,
    places: Arc<Semaphore>,
    meters: WatchMeters,
    /// How many wait: who changes objects looks here first, and mostly nobody does.
    count: AtomicUsize,
    waiting: Mutex<Waiting<T>>,
    /// Rung when somebody may be due.
    due: Notify,
}

struct Waiting<T: Watched> {
    next: u64,
    by_number: HashMap<u64, Entry<T>>,
    by_id: HashMap<T::Id, Vec<u64>>,
}

struct Entry<T> {
    /// As it was last seen.
    object: Box<T>,
    look_at: Instant,
    pause: Duration,
    settled: oneshot::Sender<Box<T>>,
    _place: OwnedSemaphorePermit,
}

/// One request's wait. Who drops it does not wait any more.
pub struct Watch<T: Watched> {
    watches: Watches<T>,
    number: u64,
    settled: oneshot::Receiver<Box<T>>,
}

/// What there is to look at.
#[derive(Debug, PartialEq, Eq)]
enum Due<I> {
    /// Each object, and the version of it that was last seen.
    Now(Vec<(I, i32)>),
    At(Instant),
    Nothing,
}

impl<T: Watched> Clone for Watches<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: Watched> Watches<T> {
    fn new(poll: Duration, places: &Arc<Semaphore>, meters: WatchMeters) -> Self {
        Self(Arc::new(Shared {
            poll,
            places: Arc::clone(places),
            meters,
            count: AtomicUsize::new(0),
            waiting: Mutex::new(Waiting {
                next: 0,
                by_number: HashMap::new(),
                by_id: HashMap::new(),
            }),
            due: Notify::new(),
        }))
    }

    /// Waits for the object; gives it back if too many wait already.
    pub fn watch(&self, object: Box<T>) -> Result<Watch<T>, Box<T>> {
        let shared = &*self.0;
        let Ok(place) = Arc::clone(&shared.places).try_acquire_owned() else {
            shared.meters.refused.increment(1);
            return Err(object);
        };
        let mut waiting = shared.lock();
        // Before the first look at it, or a change in between would find nobody to tell.
        shared.count.fetch_add(1, Ordering::SeqCst);
        shared.meters.waiting.increment(1.0);
        let number = waiting.next;
        waiting.next += 1;
        waiting.by_id.entry(object.id()).or_default().push(number);
        let (sender, settled) = oneshot::channel();
        let entry = Entry {
            object,
            look_at: Instant::now(),
            pause: FIRST_PAUSE.min(shared.poll),
            settled: sender,
            _place: place,
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

    /// Says that these have changed. To be called after the commit.
    pub fn changed(&self, ids: impl IntoIterator<Item = T::Id>) {
        let shared = &*self.0;
        if shared.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut waiting = shared.lock();
        let Waiting {
            by_number, by_id, ..
        } = &mut *waiting;
        let now = Instant::now();
        let mut is_any = false;
        for id in ids {
            for number in by_id.get(&id).into_iter().flatten() {
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
    fn take_due(&self, now: Instant) -> Due<T::Id> {
        let poll = self.0.poll;
        let mut waiting = self.0.lock();
        let mut due: HashMap<T::Id, i32> = HashMap::new();
        let mut next: Option<Instant> = None;
        for entry in waiting.by_number.values_mut() {
            if entry.look_at > now {
                next = Some(next.map_or(entry.look_at, |at| at.min(entry.look_at)));
            } else if due.len() < MOST_AT_ONCE || due.contains_key(&entry.object.id()) {
                entry.look_at = now + entry.pause;
                entry.pause = (entry.pause * 2).min(poll);
                let version = entry.object.version();
                let oldest = due.entry(entry.object.id()).or_insert(version);
                *oldest = version.min(*oldest);
            }
        }
        match next {
            _ if !due.is_empty() => Due::Now(due.into_iter().collect()),
            Some(at) => Due::At(at),
            None => Due::Nothing,
        }
    }

    /// Tells whoever waits for an object how it stands.
    fn seen(&self, object: &T) {
        let shared = &*self.0;
        let mut waiting = shared.lock();
        if object.is_on_its_way() {
            let Waiting {
                by_number, by_id, ..
            } = &mut *waiting;
            for number in by_id.get(&object.id()).into_iter().flatten() {
                if let Some(entry) = by_number.get_mut(number) {
                    *entry.object = object.clone();
                }
            }
            return;
        }
        for number in waiting.by_id.remove(&object.id()).unwrap_or_default() {
            if let Some(entry) = waiting.by_number.remove(&number) {
                shared.left();
                // Nobody may wait any more: a client that hung up.
                drop(entry.settled.send(Box::new(object.clone())));
            }
        }
    }
}

impl<T: Watched> std::fmt::Debug for Watches<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let waiting = self.0.count.load(Ordering::Relaxed);
        f.debug_struct("Watches")
            .field("waiting", &waiting)
            .finish_non_exhaustive()
    }
}

impl<T: Watched> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, Waiting<T>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn left(&self) {
        self.count.fetch_sub(1, Ordering::SeqCst);
        self.meters.waiting.decrement(1.0);
    }
}

impl<T: Watched> Waiting<T> {
    fn remove(&mut self, number: u64) -> Option<Entry<T>> {
        let entry = self.by_number.remove(&number)?;
        if let Some(numbers) = self.by_id.get_mut(&entry.object.id()) {
            numbers.retain(|other| *other != number);
            if numbers.is_empty() {
                self.by_id.remove(&entry.object.id());
            }
        }
        Some(entry)
    }
}

impl<T: Watched> Watch<T> {
    /// The object once it has come to rest.
    pub async fn settled(&mut self) -> Option<Box<T>> {
        let object = (&mut self.settled).await.ok();
        self.watches.0.meters.settled.increment(1);
        object
    }

    /// The object as it was last seen, for who has waited long enough.
    pub fn give_up(self) -> Option<Box<T>> {
        self.watches.0.meters.over.increment(1);
        self.seen_last()
    }

    /// The same for who has hung up, or seems to have.
    pub fn hung_up(self) -> Option<Box<T>> {
        self.watches.0.meters.hung_up.increment(1);
        self.seen_last()
    }

    fn seen_last(mut self) -> Option<Box<T>> {
        let entry = self.leave();
        // It has come to rest this moment.
        entry.map_or_else(|| self.settled.try_recv().ok(), |entry| Some(entry.object))
    }

    fn leave(&mut self) -> Option<Entry<T>> {
        let shared = &*self.watches.0;
        let entry = shared.lock().remove(self.number);
        if entry.is_some() {
            shared.left();
        }
        entry
    }
}

impl<T: Watched> Drop for Watch<T> {
    fn drop(&mut self) {
        self.leave();
    }
}
