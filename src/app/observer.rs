//! What is looked at when somebody scrapes, and not before: queues, the pool, the breaker, the books.
//!
//! The books are asked by one bounded statement and at most once an interval, however many scrape. When they can't be
//! asked, what was known of them is taken back rather than shown on, and `payonce_books_readable` says so.

use std::sync::Arc;
use std::time::Duration;

use metrics::Gauge;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::batch::{Chain, Fullness};
use crate::db::DbError;
use crate::db::books::{self, Jobs, Standing};
use crate::db::pauses::Kind;
use crate::db::pool::Pool;
use crate::db::session::Session;
use crate::intake::Accept;
use crate::meters::Meters;
use crate::worker::breaker::Breaker;

pub(super) struct Observer {
    meters: Meters,
    queues: Vec<QueueGauges>,
    breakers: Vec<(Arc<Breaker>, Gauge)>,
    pool: Pool,
    pool_idle: Gauge,
    pool_used: Gauge,
    books: BooksGauges,
    reader: Mutex<Reader>,
}

struct QueueGauges {
    queue: Fullness<Accept>,
    depth: Gauge,
    capacity: Gauge,
    bytes: Gauge,
    bytes_capacity: Gauge,
}

/// How the books are asked.
pub(super) struct BooksAccess {
    pub(super) session: Session,
    pub(super) interval: Duration,
    /// How long workers lease.
    pub(super) lease: Duration,
    /// Those that are configured.
    pub(super) accounts: Vec<String>,
}

struct Reader {
    access: BooksAccess,
    read_at: Option<Instant>,
}

impl Observer {
    pub(super) fn new(meters: Meters, pool: Pool, access: BooksAccess) -> Self {
        let connections = |state| {
            meters.gauge(
                "payonce_pool_connections",
                "Connections of the pool for reads.",
                &[("state", state)],
            )
        };
        meters
            .gauge(
                "payonce_build_info",
                "1, with the release as its label.",
                &[("version", env!("CARGO_PKG_VERSION"))],
            )
            .set(1.0);
        Self {
            pool_idle: connections("idle"),
            pool_used: connections("used"),
            books: BooksGauges::new(&meters),
            queues: Vec::new(),
            breakers: Vec::new(),
            pool,
            reader: Mutex::new(Reader {
                access,
                read_at: None,
            }),
            meters,
        }
    }

    pub(super) fn watch_queues(&mut self, queues: Vec<Fullness<Accept>>) {
        // More batchers than these would wait for one another in Postgres; their queues are watched as one.
        const NAMES: [&str; 8] = ["0", "1", "2", "3", "4", "5", "6", "7"];
        for (index, queue) in queues.into_iter().enumerate() {
            let labels = &[("batcher", NAMES.get(index).copied().unwrap_or("more"))];
            let depth = self.meters.gauge(
                "payonce_intake_queue_depth",
                "Requests that wait for their batch.",
                labels,
            );
            let capacity = self.meters.gauge(
                "payonce_intake_queue_capacity",
                "Requests that may wait; further ones are refused with 503 overloaded.",
                labels,
            );
            let bytes = self.meters.gauge(
                "payonce_intake_queue_bytes",
                "Bytes of the requests that wait for their batch or are in it.",
                labels,
            );
            let bytes_capacity = self.meters.gauge(
                "payonce_intake_queue_bytes_capacity",
                "Bytes that may wait; further requests are refused with 503 overloaded.",
                labels,
            );
            self.queues.push(QueueGauges {
                queue,
                depth,
                capacity,
                bytes,
                bytes_capacity,
            });
        }
    }

    /// Of each account, by its name if there are several.
    pub(super) fn watch_breakers(&mut self, breakers: Vec<(String, Arc<Breaker>)>) {
        let several = breakers.len() > 1;
        for (account, breaker) in breakers {
            let open = self.meters.gauge_of(
                "payonce_breaker_open",
                "1 while the provider is asked by one job at a time only.",
                several.then_some(("account", account)),
            );
            self.breakers.push((breaker, open));
        }
    }

    /// Everything that is measured, as it stands now.
    pub(super) async fn scrape(&self) -> String {
        for gauges in &self.queues {
            let (waiting, most) = gauges.queue.look();
            gauges.depth.set(number(waiting));
            gauges.capacity.set(number(most));
            let (held, most) = gauges.queue.bytes();
            gauges.bytes.set(number(held));
            gauges.bytes_capacity.set(number(most));
        }
        for (breaker, open) in &self.breakers {
            open.set(f64::from(u8::from(breaker.is_open())));
        }
        let (idle, used) = self.pool.look();
        self.pool_idle.set(number(idle));
        self.pool_used.set(number(used));
        self.read_books().await;
        self.meters.render()
    }

    async fn read_books(&self) {
        let mut reader = self.reader.lock().await;
        let interval = reader.access.interval;
        if reader.read_at.is_some_and(|at| at.elapsed() < interval) {
            return;
        }
        let standing = reader.access.standing().await;
        reader.read_at = Some(Instant::now());
        if let Err(error) = &standing {
            tracing::warn!(error = %Chain(error), "the books could not be asked how they stand");
        }
        self.books.set(standing.ok());
    }

    pub(super) fn upkeep(&self) {
        self.meters.upkeep();
    }
}

impl BooksAccess {
    async fn standing(&mut self) -> Result<Standing, DbError> {
        let (lease, accounts) = (self.lease, &self.accounts);
        self.session
            .ask(2, async |connection| {
                books::standing(connection, lease, accounts).await
            })
            .await
    }
}

struct BooksGauges {
    deliveries_oldest: Gauge,
    endpoints_disabled: Gauge,
    readable: Gauge,
    discrepancies: Gauge,
    sweep_age: Gauge,
    paused_by_operator: Gauge,
    paused_by_recovery: Gauge,
    later: Gauge,
    ready: JobGauges,
    leased: JobGauges,
    parked: JobGauges,
    unclear: JobGauges,
}

struct JobGauges {
    count: Gauge,
    oldest: Gauge,
}

impl BooksGauges {
    fn new(meters: &Meters) -> Self {
        let count = |state| {
            meters.gauge(
                "payonce_jobs",
                "Jobs: ready (and due), later (due at a later time), leased, parked, and unclear whatever else they are; \
                 counted up to 10000 each.",
                &[("state", state)],
            )
        };
        let paused = |kind: Kind| {
            meters.gauge(
                "payonce_paused",
                "Whether sending is held by an operator's pause or by a recovery: charges are accepted and wait.",
                &[("kind", kind.as_str())],
            )
        };
        let jobs = |state| {
            JobGauges {
            count: count(state),
            oldest: meters.gauge(
                "payonce_job_oldest_age_seconds",
                "How long the oldest job has been ready and due, leased, parked, or unclear; 0 if there is none.",
                &[("state", state)],
            ),
        }
        };
        Self {
            deliveries_oldest: meters.gauge(
                "payonce_webhook_oldest_due_age_seconds",
                "How long the oldest delivery has been due to an endpoint that is enabled and does not fail; 0 if there is none.",
                &[],
            ),
            endpoints_disabled: meters.gauge(
                "payonce_webhook_endpoints_disabled",
                "Endpoints that are disabled because they were gone, or failed for too long.",
                &[],
            ),
            readable: meters.gauge(
                "payonce_books_readable",
                "Whether the database told how the books stand; while it is 0, what it would have told is NaN.",
                &[],
            ),
            discrepancies: meters.gauge(
                "payonce_discrepancies_open",
                "Where the provider and the books differ and nobody has resolved it yet; counted up to 10000.",
                &[],
            ),
            sweep_age: meters.gauge(
                "payonce_sweep_age_seconds",
                "How long ago the newest sweep began that came to its end: what is younger was not compared with the provider.",
                &[],
            ),
            paused_by_operator: paused(Kind::Operator),
            paused_by_recovery: paused(Kind::Recovery),
            later: count("later"),
            ready: jobs("ready"),
            leased: jobs("leased"),
            parked: jobs("parked"),
            unclear: jobs("unclear"),
        }
    }

    fn set(&self, standing: Option<Standing>) {
        self.readable.set(f64::from(u8::from(standing.is_some())));
        let told = |pick: fn(&Standing) -> i64| {
            standing
                .as_ref()
                .map_or(f64::NAN, |standing| counted(pick(standing)))
        };
        self.endpoints_disabled
            .set(told(|books| books.webhooks.disabled));
        self.deliveries_oldest
            .set(standing.map_or(f64::NAN, |books| books.webhooks.oldest_due));
        self.discrepancies.set(told(|books| books.discrepancies));
        self.sweep_age
            .set(standing.map_or(f64::NAN, |books| books.sweep_age_seconds));
        self.paused_by_operator
            .set(told(|books| i64::from(books.paused_by_operator)));
        self.paused_by_recovery
            .set(told(|books| i64::from(books.paused_by_recovery)));
        self.later.set(told(|books| books.later));
        self.ready.set(standing.map(|books| books.ready));
        self.leased.set(standing.map(|books| books.leased));
        self.parked.set(standing.map(|books| books.parked));
        self.unclear.set(standing.map(|books| books.unclear));
    }
}

impl JobGauges {
    fn set(&self, jobs: Option<Jobs>) {
        self.count
            .set(jobs.map_or(f64::NAN, |jobs| counted(jobs.count)));
        self.oldest
            .set(jobs.map_or(f64::NAN, |jobs| jobs.oldest_age_seconds));
    }
}

#[expect(clippy::cast_precision_loss, reason = "nothing here is that large")]
fn number(count: usize) -> f64 {
    count as f64
}

#[expect(clippy::cast_precision_loss, reason = "nothing is counted that far")]
fn counted(count: i64) -> f64 {
    count as f64
}
