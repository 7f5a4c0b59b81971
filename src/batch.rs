//! Natural batching: what arrived while the last statement ran is the next batch. No timer: alone, an item costs one
//! round trip; under load batches grow by themselves.
//!
//! A batch is one autocommit statement. Whatever becomes of the statement, every item is answered: a conflict is tried
//! again and then split, data that Postgres refuses is bisected until only the culprit is refused, and after a lost
//! connection the same batch runs again, told that it may have run before. If the process dies here, what was committed
//! stands and what was not is as if it had never been handed in; nobody was told otherwise.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use metrics::Histogram;
use sqlx::PgConnection;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::db::session::Session;
use crate::db::{DbError, Fault};
use crate::random::Random;

/// One statement for many items.
pub trait Statement: Send {
    type Item: Send + Sync;
    type Reply: Send;

    /// Runs for `items` and answers each, in their order. `repeated` says that the same items may have been committed
    /// already by a run whose reply was lost: the statement must know its own rows then.
    fn run(
        &mut self,
        connection: &mut PgConnection,
        items: &[Self::Item],
        repeated: bool,
    ) -> impl Future<Output = Result<Vec<Self::Reply>, DbError>> + Send;

    /// What an item counts towards the limit in bytes.
    fn weight(item: &Self::Item) -> usize;

    /// What the statement is called in logs.
    const NAME: &'static str;
}

/// Why an item has no answer from the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("the queue is full")]
    Full,
    #[error("the queue is closed")]
    Closed,
    #[error("the database refused the data")]
    Data,
    #[error("the database did not take it in time")]
    GaveUp {
        /// It may have been committed all the same.
        maybe_done: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimits {
    /// How many items may wait.
    pub queue: usize,
    /// How many bytes may wait, by [`Statement::weight`], those of the statement under way included.
    pub queue_bytes: usize,
    /// How many items one statement takes.
    pub items: usize,
    /// How many bytes one statement takes, by [`Statement::weight`]; the item that reaches the limit still goes along.
    pub bytes: usize,
    /// How long a batch is tried before its items are given up.
    pub give_up_after: Duration,
}

/// What is measured of a queue's batches.
#[derive(Clone, Debug)]
pub struct BatchMeters {
    /// Items a batch.
    pub size: Histogram,
    /// How long an item waited for its batch to begin, in seconds.
    pub wait: Histogram,
}

impl BatchMeters {
    pub fn none() -> Self {
        Self {
            size: Histogram::noop(),
            wait: Histogram::noop(),
        }
    }
}

/// An item in the queue.
struct Entry<S: Statement> {
    item: S::Item,
    reply: Reply<S>,
    handed_in: Instant,
}

impl<S: Statement> Entry<S> {
    fn new(item: S::Item, held: Held) -> (Self, oneshot::Receiver<Answer<S>>) {
        let (sender, answer) = oneshot::channel();
        let entry = Self {
            item,
            reply: Reply {
                sender,
                _held: held,
            },
            handed_in: Instant::now(),
        };
        (entry, answer)
    }
}

/// Where an item's answer goes. Its bytes are held until then.
struct Reply<S: Statement> {
    sender: oneshot::Sender<Answer<S>>,
    _held: Held,
}

impl<S: Statement> Reply<S> {
    fn send(self, answer: Answer<S>) {
        // Nobody may wait any more: a client that hung up. The books stand all the same.
        drop(self.sender.send(answer));
    }
}

/// The bytes of all items that wait for their answer.
#[derive(Debug)]
struct Bytes {
    held: AtomicUsize,
    most: usize,
}

/// Some of them; given back when dropped.
struct Held {
    bytes: usize,
    of: Arc<Bytes>,
}

impl Bytes {
    /// None if it were too many. A single item is always taken.
    fn hold(self: &Arc<Self>, bytes: usize) -> Option<Held> {
        let before = self.held.fetch_add(bytes, Ordering::Relaxed);
        // From here on whatever happens gives them back.
        let held = Held {
            bytes,
            of: Arc::clone(self),
        };
        (before == 0 || before.saturating_add(bytes) <= self.most).then_some(held)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.of.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The way in. Cheap to clone.
#[derive(Debug)]
pub struct Queue<S: Statement> {
    entries: mpsc::Sender<Entry<S>>,
    bytes: Arc<Bytes>,
}

impl<S: Statement> Clone for Queue<S> {
    fn clone(&self) -> Self {
        Self {
            entries: self.entries.clone(),
            bytes: Arc::clone(&self.bytes),
        }
    }
}

impl<S: Statement> Queue<S> {
    /// Hands an item in, or refuses at once when the queue is full. The item is on its way as soon as this returns; who
    /// drops the future that is returned gives up the answer, not the item.
    pub fn hand_in(
        &self,
        item: S::Item,
    ) -> Result<impl Future<Output = Result<S::Reply, Refusal>> + use<S>, Refusal> {
        let held = self.bytes.hold(S::weight(&item)).ok_or(Refusal::Full)?;
        let (entry, answer) = Entry::new(item, held);
        self.entries.try_send(entry).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => Refusal::Full,
            mpsc::error::TrySendError::Closed(_) => Refusal::Closed,
        })?;
        Ok(async move {
            answer
                .await
                .unwrap_or(Err(Refusal::GaveUp { maybe_done: true }))
        })
    }

    /// As [`Queue::hand_in`], and waits for a place. For what is bounded in bytes by where it comes from.
    pub async fn submit(&self, item: S::Item) -> Result<S::Reply, Refusal> {
        let held = self.bytes.hold(S::weight(&item)).ok_or(Refusal::Full)?;
        let (entry, answer) = Entry::new(item, held);
        self.entries
            .send(entry)
            .await
            .map_err(|_| Refusal::Closed)?;
        answer
            .await
            .unwrap_or(Err(Refusal::GaveUp { maybe_done: true }))
    }

    /// For looking at how full it is.
    pub fn gauge(&self) -> Fullness<S> {
        Fullness {
            entries: self.entries.downgrade(),
            bytes: Arc::clone(&self.bytes),
        }
    }
}

/// Looks at a queue from outside and does not keep it open.
#[derive(Debug)]
pub struct Fullness<S: Statement> {
    entries: mpsc::WeakSender<Entry<S>>,
    bytes: Arc<Bytes>,
}

impl<S: Statement> Fullness<S> {
    /// How many items wait and how many could; none of either once the queue is closed.
    pub fn look(&self) -> (usize, usize) {
        self.entries.upgrade().map_or((0, 0), |queue| {
            let most = queue.max_capacity();
            (most - queue.capacity(), most)
        })
    }

    /// How many bytes are held and how many could be.
    pub fn bytes(&self) -> (usize, usize) {
        (self.bytes.held.load(Ordering::Relaxed), self.bytes.most)
    }
}

/// Takes what is handed in and runs it, batch after batch. Ends when every [`Queue`] is gone and the rest is done.
pub struct Batcher<S: Statement> {
    main: Lane<S>,
    /// Where items wait whose row someone else holds locked, so that they hold up nobody.
    side: Lane<S>,
    entries: mpsc::Receiver<Entry<S>>,
}

struct Lane<S> {
    statement: S,
    session: Session,
    limits: BatchLimits,
    random: Random,
    meters: BatchMeters,
}

/// Makes a queue and its batcher. `session` makes a connection for each of the batcher's two lanes.
pub fn batcher<S: Statement + Clone>(
    statement: &S,
    session: impl Fn() -> Session,
    limits: BatchLimits,
    random: &Random,
    meters: &BatchMeters,
) -> (Queue<S>, Batcher<S>) {
    let (sender, entries) = mpsc::channel(limits.queue);
    let lane = || Lane {
        statement: statement.clone(),
        session: session(),
        limits,
        random: random.clone(),
        meters: meters.clone(),
    };
    (
        Queue {
            entries: sender,
            bytes: Arc::new(Bytes {
                held: AtomicUsize::new(0),
                most: limits.queue_bytes,
            }),
        },
        Batcher {
            main: lane(),
            side: lane(),
            entries,
        },
    )
}

type Answer<S> = Result<<S as Statement>::Reply, Refusal>;

/// What became of one item of a batch.
enum Settled<R> {
    Answered(Result<R, Refusal>),
    /// Its row is locked by someone else.
    Locked {
        repeated: bool,
    },
}

struct Blocked<S: Statement> {
    item: S::Item,
    reply: Reply<S>,
    /// Whether it may have been committed already by a run whose reply was lost.
    repeated: bool,
    deadline: Instant,
}

impl<S: Statement> Batcher<S> {
    pub async fn run(self) {
        let Self {
            main,
            side,
            entries,
        } = self;
        // As long as the queue itself: what is blocked is refused beyond that.
        let (blocked_sender, blocked) = mpsc::channel(main.limits.queue);
        tokio::join!(main.run(entries, blocked_sender), side.run_blocked(blocked));
    }
}

impl<S: Statement> Lane<S> {
    async fn run(
        mut self,
        mut entries: mpsc::Receiver<Entry<S>>,
        blocked: mpsc::Sender<Blocked<S>>,
    ) {
        let mut items = Vec::new();
        let mut replies = Vec::new();
        while let Some(first) = entries.recv().await {
            // Whoever is about to hand something in goes first; alone, it costs one turn of the scheduler.
            tokio::task::yield_now().await;
            let now = Instant::now();
            let mut bytes = 0;
            let mut next = Some(first);
            while let Some(entry) = next {
                let waited = now.saturating_duration_since(entry.handed_in);
                self.meters.wait.record(waited);
                bytes += S::weight(&entry.item);
                items.push(entry.item);
                replies.push(entry.reply);
                let is_full = items.len() >= self.limits.items || bytes >= self.limits.bytes;
                next = (!is_full).then(|| entries.try_recv().ok()).flatten();
            }
            #[expect(clippy::cast_precision_loss, reason = "a batch has few items")]
            self.meters.size.record(items.len() as f64);
            let deadline = now + self.limits.give_up_after;
            let settled = self.settle(&items, false, deadline).await;
            for ((item, reply), settled) in items.drain(..).zip(replies.drain(..)).zip(settled) {
                match settled {
                    Settled::Answered(answer) => reply.send(answer),
                    Settled::Locked { repeated } => {
                        if let Err(full) = blocked.try_send(Blocked {
                            item,
                            reply,
                            repeated,
                            deadline,
                        }) {
                            let (mpsc::error::TrySendError::Full(entry)
                            | mpsc::error::TrySendError::Closed(entry)) = full;
                            let refusal = Refusal::GaveUp {
                                maybe_done: repeated,
                            };
                            entry.reply.send(Err(refusal));
                        }
                    }
                }
            }
        }
    }

    /// Tries blocked items one by one, in turns, until each is done or its time is over.
    async fn run_blocked(mut self, mut blocked: mpsc::Receiver<Blocked<S>>) {
        let mut waiting = std::collections::VecDeque::new();
        loop {
            while waiting.len() < self.limits.queue
                && let Ok(entry) = blocked.try_recv()
            {
                waiting.push_back(entry);
            }
            let mut entry = match waiting.pop_front() {
                Some(entry) => entry,
                None => match blocked.recv().await {
                    Some(entry) => entry,
                    None => return,
                },
            };
            let item = std::slice::from_ref(&entry.item);
            let mut settled = self.settle(item, entry.repeated, entry.deadline).await;
            match settled.pop() {
                Some(Settled::Answered(answer)) => entry.reply.send(answer),
                // Once its time is over, the next try refuses it.
                Some(Settled::Locked { repeated }) => {
                    entry.repeated = repeated;
                    waiting.push_back(entry);
                }
                // One item has one end; without one, dropping its reply says that it is not known.
                None => {}
            }
        }
    }

    /// Runs the batch and, where it must, its halves. Says of every item what became of it, in order.
    async fn settle(
        &mut self,
        items: &[S::Item],
        repeated: bool,
        deadline: Instant,
    ) -> Vec<Settled<S::Reply>> {
        let mut settled = Vec::with_capacity(items.len());
        // Parts still to do, the next one last: a stack in place of a recursion.
        let mut parts: Vec<(&[S::Item], bool)> = vec![(items, repeated)];
        while let Some((part, repeated)) = parts.pop() {
            // With a whole table locked every part is, and each would wait for it by itself.
            if Instant::now() >= deadline {
                let refusal = Refusal::GaveUp {
                    maybe_done: repeated,
                };
                settled.extend(part.iter().map(|_| Settled::Answered(Err(refusal))));
                continue;
            }
            match self.attempt(part, repeated, deadline).await {
                Attempt::Done(replies) => settled.extend(
                    replies
                        .into_iter()
                        .map(|reply| Settled::Answered(Ok(reply))),
                ),
                Attempt::Split { repeated } => {
                    let (first, second) = part.split_at(part.len() / 2);
                    parts.push((second, repeated));
                    parts.push((first, repeated));
                }
                Attempt::Locked { repeated } => {
                    settled.extend(part.iter().map(|_| Settled::Locked { repeated }));
                }
                Attempt::Refused(refusal) => {
                    settled.extend(part.iter().map(|_| Settled::Answered(Err(refusal))));
                }
            }
        }
        settled
    }

    async fn attempt(
        &mut self,
        part: &[S::Item],
        mut repeated: bool,
        deadline: Instant,
    ) -> Attempt<S::Reply> {
        let mut tries: u32 = 0;
        loop {
            let error = match self.send(part, repeated).await {
                Ok(replies) => return Attempt::Done(replies),
                Err(error) => error,
            };
            tries += 1;
            match error.fault() {
                Fault::Data | Fault::Locked if part.len() > 1 => {
                    return Attempt::Split { repeated };
                }
                Fault::Data => {
                    let sqlstate = error.sqlstate();
                    tracing::error!(
                        code = "batch_item_refused",
                        statement = S::NAME,
                        sqlstate,
                        "Postgres refused the data of one item"
                    );
                    return Attempt::Refused(Refusal::Data);
                }
                Fault::Locked => return Attempt::Locked { repeated },
                Fault::Conflict if part.len() > 1 && tries > 3 => {
                    return Attempt::Split { repeated };
                }
                Fault::Conflict => {}
                Fault::Refused => self.session.discard(),
                Fault::Unknown => {
                    self.session.discard();
                    repeated = true;
                }
            }
            let pause = self.pause(tries);
            let gave_up = Instant::now() + pause >= deadline;
            tracing::warn!(statement = S::NAME, tries, gave_up, error = %Chain(&error), "a batch failed");
            if gave_up {
                return Attempt::Refused(Refusal::GaveUp {
                    maybe_done: repeated,
                });
            }
            tokio::time::sleep(pause).await;
        }
    }

    async fn send(&mut self, part: &[S::Item], repeated: bool) -> Result<Vec<S::Reply>, DbError> {
        let limit = self.session.answer_timeout();
        let connection = self.session.connection().await?;
        match tokio::time::timeout(limit, self.statement.run(connection, part, repeated)).await {
            Ok(done) => done,
            Err(_) => Err(DbError::AnswerTimeout),
        }
    }

    /// A stale connection is replaced at once; after that 20 ms, doubling to half a second, with jitter.
    fn pause(&self, tries: u32) -> Duration {
        if tries == 1 {
            return Duration::from_millis(1);
        }
        let most = Duration::from_millis(10 << tries.min(6)).min(Duration::from_millis(500));
        most.mul_f64(0.5 + self.random.unit() / 2.0)
    }
}

enum Attempt<R> {
    Done(Vec<R>),
    /// Try the halves; only for parts of more than one item.
    Split {
        repeated: bool,
    },
    /// The one item's row is locked.
    Locked {
        repeated: bool,
    },
    Refused(Refusal),
}

/// An error with its sources, for a log line.
pub struct Chain<'a>(pub &'a (dyn std::error::Error + 'static));

impl std::fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)?;
        let mut source = self.0.source();
        while let Some(error) = source {
            write!(f, ": {error}")?;
            source = error.source();
        }
        Ok(())
    }
}
