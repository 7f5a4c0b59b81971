//! Sends events to merchants: claims due deliveries by lease, signs each as the Standard Webhooks specification says, and
//! writes what came of it.
//!
//! A delivery row is written by the statement that made its event true. If the process dies before that, neither is
//! there; if it dies after, or between a send and the writing of what came of it, the lease runs out and the same bytes
//! go out again under the same `webhook-id`: at least once, and a receiver tells a repeat by that id. Endpoints are
//! visited in turn, each with a few deliveries at once and a failing one with one, so that one that never answers costs
//! the others nothing.

pub mod meters;
mod outcome;
mod resolver;
mod schedule;
mod sender;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use sqlx::PgConnection;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::batch::Chain;
use crate::clock::Clock;
use crate::db::session::Session;
use crate::db::webhook_deliveries::{self as deliveries, Claimed, Settled, Share};
use crate::db::{self, DbError, Fault};
use crate::domain::event::EndpointId;
use crate::domain::ids::LeaseToken;
use crate::http::Message;
use crate::random::Random;

pub use self::meters::DelivererMeters;
use self::outcome::{Outcome, Sent};
pub use self::schedule::Schedule;
use self::sender::Sender;
pub use self::sender::{SenderError, SenderLimits};

/// Endpoints that one claim looks at.
const ENDPOINTS: i64 = 1000;
/// Rows that one statement takes back or forgets.
const CHUNK: i64 = 1000;
/// How often leases that ran out are taken back.
const TAKE_BACK: Duration = Duration::from_secs(1);
/// How long a step may still take at the end.
const HURRY: Duration = Duration::from_secs(2);
/// How often what is older than the retention is looked for.
const PURGE: Duration = Duration::from_mins(1);

#[derive(Clone, Debug)]
pub struct DelivererLimits {
    pub permits: usize,
    pub endpoint_permits: u32,
    pub poll_interval: Duration,
    pub lease: Duration,
    pub schedule: Schedule,
    pub disable_after: Duration,
    pub retention: Duration,
    /// How long deliveries under way may still take at the end.
    pub grace: Duration,
    pub sender: SenderLimits,
}

pub struct Deliverer {
    session: Session,
    sender: Arc<Sender>,
    limits: DelivererLimits,
    random: Random,
    meters: DelivererMeters,
    sending: JoinSet<Outcome>,
    /// How much is on its way to each endpoint.
    busy: HashMap<Uuid, i64>,
    /// Sent and not yet written.
    unwritten: Vec<Outcome>,
    /// The endpoint that the last claim ended at.
    cursor: Uuid,
    next_take_back: Instant,
    next_purge: Instant,
}

impl Deliverer {
    pub fn new(
        session: Session,
        limits: DelivererLimits,
        random: Random,
        clock: Clock,
        meters: DelivererMeters,
    ) -> Result<Self, SenderError> {
        let now = Instant::now();
        Ok(Self {
            session,
            sender: Arc::new(Sender::new(&limits.sender, clock)?),
            limits,
            random,
            meters,
            sending: JoinSet::new(),
            busy: HashMap::new(),
            unwritten: Vec::new(),
            cursor: Uuid::nil(),
            next_take_back: now,
            next_purge: now,
        })
    }

    /// Delivers until `shutdown`; then what is under way may end.
    pub async fn run(mut self, shutdown: CancellationToken) {
        loop {
            let began = Instant::now();
            // A step is whole: what it claims it sends. A database that has fallen silent must not hold up the end.
            let hurry = async {
                shutdown.cancelled().await;
                tokio::time::sleep(HURRY).await;
            };
            let worked = tokio::select! {
                worked = self.step() => worked,
                () = hurry => break,
            };
            let full = match worked {
                Ok(full) => full,
                Err(error) => {
                    tracing::warn!(error = %Chain(&error), "deliveries could not be claimed or written; they are tried again");
                    false
                }
            };
            // More is due than one claim takes: on at once, but not without a pause.
            let pause = if full {
                Duration::from_millis(5)
            } else {
                self.limits
                    .poll_interval
                    .mul_f64(0.75 + self.random.unit() / 2.0)
            };
            tokio::select! {
                () = shutdown.cancelled() => break,
                () = tokio::time::sleep_until(began + pause) => {}
                Some(ended) = self.sending.join_next(), if !self.sending.is_empty() => self.keep(ended),
            }
        }
        self.finish().await;
    }

    /// Writes what was sent, and sends more. Returns whether there may be more at once.
    pub async fn step(&mut self) -> Result<bool, DbError> {
        while let Some(ended) = self.sending.try_join_next() {
            self.keep(ended);
        }
        self.write().await?;
        if Instant::now() >= self.next_take_back {
            self.next_take_back = Instant::now() + TAKE_BACK;
            self.session
                .ask(1, async |connection| {
                    deliveries::take_back(connection, CHUNK).await
                })
                .await?;
        }
        if Instant::now() >= self.next_purge {
            let more = self.purge().await?;
            self.next_purge = Instant::now() + if more { TAKE_BACK } else { PURGE };
        }
        self.claim().await
    }

    async fn claim(&mut self) -> Result<bool, DbError> {
        let free = self.limits.permits.saturating_sub(self.sending.len());
        if free == 0 {
            return Ok(false);
        }
        let token = LeaseToken::from_uuid(self.random.uuid());
        let (endpoints, numbers): (Vec<Uuid>, Vec<i64>) =
            self.busy.iter().map(|(id, number)| (*id, *number)).unzip();
        let limit = i64::try_from(free).unwrap_or(i64::MAX);
        let share = Share {
            after: self.cursor,
            endpoints: ENDPOINTS,
            busy: (&endpoints, &numbers),
            each: self.limits.endpoint_permits.into(),
            limit,
        };
        let lease = self.limits.lease;
        // Taken before the claim: what is told of the lease here is never longer than it is.
        let deadline = Instant::now() + lease;
        let claimed = self
            .session
            .ask(1, async |connection| {
                deliveries::claim(connection, &share, token, lease).await
            })
            .await?;
        // The next claim begins after the last endpoint, and anew when there is none behind.
        let wrapped = self.cursor.is_nil();
        self.cursor = claimed.last().map_or_else(Uuid::nil, |last| last.endpoint);
        if claimed.is_empty() {
            return Ok(!wrapped);
        }
        let full = i64::try_from(claimed.len()).is_ok_and(|count| count >= limit);
        let bodies = match self.bodies(&claimed).await {
            Ok(bodies) => bodies,
            Err(error) => {
                let ids: Vec<Uuid> = claimed.iter().map(|one| one.id).collect();
                // If this fails too, the leases run out.
                let _ = self
                    .session
                    .ask(1, async |connection| {
                        deliveries::release(connection, &ids, token).await
                    })
                    .await;
                return Err(error);
            }
        };
        for (claimed, body) in claimed.into_iter().zip(bodies) {
            *self.busy.entry(claimed.endpoint).or_default() += 1;
            let sender = Arc::clone(&self.sender);
            self.sending.spawn(async move {
                let (id, endpoint, tries) = (claimed.id, claimed.endpoint, claimed.tries);
                let sent = match body {
                    Some(body) => sender.send(&claimed, body, deadline).await,
                    None => Sent::Impossible("unreadable"),
                };
                Outcome {
                    id,
                    endpoint,
                    token,
                    tries,
                    sent,
                }
            });
        }
        Ok(full || !wrapped)
    }

    /// What is sent of each: as it was sent before, or written now and kept for ever.
    async fn bodies(&mut self, claimed: &[Claimed]) -> Result<Vec<Option<String>>, DbError> {
        let mut wanted: Vec<&Claimed> = claimed
            .iter()
            .filter(|one| one.body.is_none() && one.event.is_some())
            .collect();
        wanted.sort_by_key(|one| one.position);
        wanted.dedup_by_key(|one| one.position);
        let mut written = HashMap::new();
        if !wanted.is_empty() {
            let all = self
                .session
                .ask(3, async |connection| freeze(connection, &wanted).await)
                .await;
            match all {
                Ok(all) => written = all,
                // One that can't be read must not keep back the others.
                Err(error) if error.fault() == Fault::Data => {
                    for one in wanted {
                        let one = self
                            .session
                            .ask(3, async |connection| freeze(connection, &[one]).await)
                            .await;
                        match one {
                            Ok(one) => written.extend(one),
                            Err(error) if error.fault() == Fault::Data => {
                                tracing::error!(code = "event_unreadable", error = %Chain(&error), "an event can't be told");
                            }
                            Err(error) => return Err(error),
                        }
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(claimed
            .iter()
            .map(|one| {
                one.body
                    .clone()
                    .or_else(|| written.get(&one.position).cloned())
            })
            .collect())
    }

    fn keep(&mut self, ended: Result<Outcome, tokio::task::JoinError>) {
        match ended {
            Ok(outcome) => {
                if let Some(number) = self.busy.get_mut(&outcome.endpoint) {
                    *number -= 1;
                    if *number == 0 {
                        self.busy.remove(&outcome.endpoint);
                    }
                }
                self.unwritten.push(outcome);
            }
            // Its lease runs out and it is sent again. What is busy is not known any more: count anew when all is quiet.
            Err(error) => {
                tracing::error!(code = "task_panicked", %error, "a delivery panicked");
                self.busy.retain(|_, _| false);
            }
        }
    }

    /// Writes what came of deliveries. What can't be written now is kept, and bounds what is claimed.
    async fn write(&mut self) -> Result<(), DbError> {
        if self.unwritten.is_empty() {
            return Ok(());
        }
        let mut rows = Settled::default();
        for outcome in &self.unwritten {
            outcome.write_into(&mut rows, &self.limits.schedule, self.random.unit());
        }
        let after = self.limits.disable_after;
        let disabled = self
            .session
            .ask(1, async |connection| {
                deliveries::settle(connection, &rows, after).await
            })
            .await?;
        for outcome in self.unwritten.drain(..) {
            self.meters.count(&outcome.sent);
        }
        for endpoint in disabled {
            self.meters.disabled();
            tracing::warn!(
                code = "webhook_endpoint_disabled",
                endpoint.id = %EndpointId::from_uuid(endpoint.id),
                reason = endpoint.reason,
                "an endpoint was disabled: its merchant is sent nothing more there"
            );
        }
        Ok(())
    }

    /// Forgets what is older than the retention. Returns whether there may be more.
    async fn purge(&mut self) -> Result<bool, DbError> {
        let retention = self.limits.retention;
        let purged = self
            .session
            .ask(2, async |connection| {
                let gone = deliveries::purge(connection, retention, CHUNK).await?;
                Ok(gone + db::events::purge(connection, retention, CHUNK).await?)
            })
            .await?;
        Ok(purged > 0)
    }

    /// Lets what is under way end, and writes it. What the grace cuts short is sent again by somebody else.
    async fn finish(mut self) {
        let deadline = Instant::now() + self.limits.grace;
        while let Ok(Some(ended)) =
            tokio::time::timeout_at(deadline, self.sending.join_next()).await
        {
            self.keep(ended);
        }
        if let Err(error) = self.write().await {
            tracing::warn!(error = %Chain(&error), "what came of deliveries was not written; they are sent again");
        }
    }
}

/// Writes events down as they are sent. Two who do so at once both get what the first one wrote.
async fn freeze(
    connection: &mut PgConnection,
    wanted: &[&Claimed],
) -> Result<HashMap<db::events::Position, String>, DbError> {
    let merchants: Vec<Uuid> = wanted.iter().map(|one| one.merchant).collect();
    let positions: Vec<_> = wanted.iter().map(|one| one.position).collect();
    let events = db::events::find(connection, &merchants, &positions).await?;
    let mut merchant_of: HashMap<_, _> = positions.into_iter().zip(merchants).collect();
    let (mut merchants, mut positions, mut bodies) = (Vec::new(), Vec::new(), Vec::new());
    for event in &events {
        let Some(merchant) = merchant_of.remove(&event.position) else {
            continue;
        };
        merchants.push(merchant);
        positions.push(event.position);
        bodies.push(
            serde_json::to_string(&Message::from(event))
                .expect("texts, numbers and what was JSON before are always valid JSON"),
        );
    }
    db::events::freeze(connection, &merchants, &positions, &bodies).await
}
