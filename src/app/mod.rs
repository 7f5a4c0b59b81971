//! The wiring: the one place that knows every part and starts its tasks.
//!
//! A process ends in the order in which work flows: nothing new is let in, requests under way are answered, intake drains,
//! the worker stops claiming and lets its calls finish, what it learned is flushed. What a grace cuts short is safe all
//! the same: what was accepted is in the books, and a lease that nobody gave back runs out.

mod admin;
pub mod dev;
mod observer;
pub mod operate;
pub mod recovery;
mod shared;

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::recovery::Since;
use crate::batch::{self, BatchMeters, Batcher, Fullness, Statement};
use crate::budget::Budget;
use crate::clock::Clock;
use crate::completion::{Completion, Settle};
use crate::config::{self, Config, DatabaseUrl, Roles};
use crate::db;
use crate::db::pool::Pool;
use crate::db::session::{Durability, Session};
use crate::db::sessions::{self, SessionsError};
use crate::db::sweeps::Account;
use crate::domain::api_key::Mode;
use crate::http::{
    self, EventMeters, EventParts, HttpLimits, HttpMeters, HttpParts, HttpState, ServerLimits,
};
use crate::intake::{Accept, Intake, IntakeMeters, IntakeSettings};
use crate::meters::Meters;
use crate::provider::stripe::currency::RULES;
use crate::provider::stripe::signature::{InvalidWebhookSecret, WebhookSecret};
use crate::provider::stripe::webhooks::{self, WebhookSettings};
use crate::provider::stripe::{SecretKey, Stripe, StripeSettings};
use crate::random::Random;
use crate::reconciler::sweep::{SweepMeters, SweepParts, Sweeper};
use crate::reconciler::{Reconciler, ReconcilerLimits, ReconcilerMeters};
use crate::worker::breaker::{Breaker, BreakerLimits};
use crate::worker::executor::{Executor, ExecutorLimits};
use crate::worker::pauses::Pauses;
use crate::worker::stored::StoreObject;
use crate::worker::strays::SettleStrays;
use crate::worker::{Worker, WorkerLimits, WorkerMeters};
use shared::Shared;

#[derive(Debug, thiserror::Error)]
pub enum AppError {
    #[error("no database is configured: set DATABASE_URL or database.url")]
    NoDatabase,
    #[error("the database can't be asked for its schema")]
    Schema(#[source] db::DbError),
    #[error("the database's connections can't be relied on")]
    Sessions(#[source] SessionsError),
    #[error("the database's schema is older than this release: run `payonce migrate` first")]
    NotMigrated,
    #[error(
        "{key} = {address} can't be listened on; each process of a host needs a port of its own"
    )]
    Listen {
        key: &'static str,
        address: SocketAddr,
        #[source]
        source: std::io::Error,
    },
    #[error("the worker needs provider.stripe.secret_key")]
    NoSecretKey,
    #[error("the recovery can't begin")]
    Recovery(#[source] db::DbError),
    #[error("the books hold no event that says since when to compare them with the provider")]
    NothingRemembered,
    #[error("provider.stripe.secret_key is not a key of Stripe's")]
    SecretKey,
    #[error("provider.stripe.webhook_secrets")]
    WebhookSecret(#[from] InvalidWebhookSecret),
    #[error("the Stripe adapter can't be made")]
    Stripe(#[from] crate::provider::stripe::StripeError),
}

/// What a process is started with.
pub struct Setup<'a> {
    pub config: &'a Config,
    pub roles: Roles,
    /// Whether `po_dev_key` is taken.
    pub dev: bool,
    /// Hold sending until the provider's objects since then are compared with the books.
    pub recovery: Option<Since>,
    pub random: Random,
}

/// A process at work.
pub struct App {
    tasks: JoinSet<&'static str>,
    shutdown: CancellationToken,
    api: Option<SocketAddr>,
    admin: Option<SocketAddr>,
}

impl App {
    /// Starts every task of the roles. `shutdown` ends them; so does one of them that ends by itself.
    pub async fn start(setup: Setup<'_>, shutdown: CancellationToken) -> Result<Self, AppError> {
        let database = setup
            .config
            .database
            .url
            .as_ref()
            .ok_or(AppError::NoDatabase)?;
        let limits = setup.config.database.session_limits();
        sessions::check(database.options(), limits)
            .await
            .map_err(|error| match error {
                SessionsError::Db(error) => AppError::Schema(error),
                SessionsError::Shared | SessionsError::NotInForce(_) => AppError::Sessions(error),
            })?;
        check_schema(setup.config, database).await?;
        if let Some(since) = setup.recovery {
            recovery::begin(setup.config, database, since).await?;
        }
        let mut app = Self {
            tasks: JoinSet::new(),
            shutdown,
            api: None,
            admin: None,
        };
        let listener = admin::listener(setup.config.admin.listen).await?;
        let shared = Shared {
            setup: &setup,
            database,
            pool: reads(setup.config, database),
            accepted: Arc::new(Notify::new()),
            meters: listener
                .as_ref()
                .map_or_else(Meters::none, |_| Meters::new()),
            budget: Budget::new(setup.config.provider.calls_per_second(), Instant::now()),
        };
        let mut observer = shared.observer();
        if setup.roles.api {
            observer.watch_queues(app.start_api(&shared).await?);
        }
        if setup.roles.worker {
            observer.watch_breaker(app.start_worker(&shared)?);
        }
        if setup.roles.reconciler {
            app.start_reconciler(&shared)?;
        }
        app.watch_sessions(database, &setup.config.database);
        if let Some(listener) = listener {
            let random = setup.random.clone();
            app.start_admin(listener, observer, shared.readiness(), random);
        }
        Ok(app)
    }

    /// Where the API listens, if this process has it.
    pub fn api(&self) -> Option<SocketAddr> {
        self.api
    }

    /// Where the operators' interface listens, if it does.
    pub fn admin(&self) -> Option<SocketAddr> {
        self.admin
    }

    /// Returns when every task has ended: after `shutdown`, or after one that ended by itself took the others along.
    /// `false` in the second case.
    pub async fn ended(mut self) -> bool {
        let mut orderly = true;
        while let Some(ended) = self.tasks.join_next().await {
            let asked = self.shutdown.is_cancelled();
            match ended {
                Ok(name) if asked => tracing::debug!(task = name, "a task ended"),
                Ok(name) => {
                    tracing::error!(
                        code = "task_ended",
                        task = name,
                        "a task ended by itself; shutting down"
                    );
                    orderly = false;
                }
                Err(error) => {
                    tracing::error!(code = "task_panicked", %error, "a task panicked; shutting down");
                    orderly = false;
                }
            }
            if !asked {
                self.shutdown.cancel();
            }
        }
        orderly
    }

    async fn start_api(&mut self, shared: &Shared<'_>) -> Result<Vec<Fullness<Accept>>, AppError> {
        let setup = shared.setup;
        let config = setup.config;
        let settings = IntakeSettings {
            live: config.provider.mode == Mode::Live,
            provider: RULES.provider,
            batchers: config.intake.batchers,
            limits: config.intake.batch_limits(),
        };
        let session = session_maker(config, shared.database, Durability::Durable);
        let meters = IntakeMeters::new(&shared.meters);
        let (intake, batchers) =
            Intake::new(settings, session, &shared.accepted, &setup.random, &meters);
        let queues = intake.gauges();
        for batcher in batchers {
            self.start_batcher(batcher);
        }
        let state = HttpState::new(HttpParts {
            intake,
            pool: shared.pool.clone(),
            rules: RULES,
            live: settings.live,
            dev: setup.dev,
            retention: config.idempotency.retention,
            schema_version: db::migrations::newest(),
            random: setup.random.clone(),
            closing: self.shutdown.clone(),
            events: events(shared)?,
            limits: HttpLimits {
                body_read: config
                    .http
                    .request_timeout
                    .saturating_sub(config.http.acceptance_timeout),
                intake_wait: config.http.acceptance_timeout,
                database_wait: config.database.connect_timeout,
                key_window: config.provider.stripe.relied_on_key_window(),
            },
            meters: HttpMeters::new(&shared.meters),
        });
        let listener = admin::listen("http.listen", config.http.listen).await?;
        self.api = listener.local_addr().ok();
        let limits = ServerLimits {
            connections: config.http.max_connections,
            head_read: config.http.header_timeout,
            grace: config.http.shutdown_grace,
        };
        let (router, shutdown) = (http::router(state), self.shutdown.clone());
        self.tasks.spawn(async move {
            http::serve(listener, router, limits, shutdown).await;
            "http"
        });
        Ok(queues)
    }

    fn start_worker(&mut self, shared: &Shared<'_>) -> Result<Arc<Breaker>, AppError> {
        let (setup, database) = (shared.setup, shared.database);
        let (config, random) = (setup.config, &setup.random);
        let Parts {
            executor,
            storing,
            completing,
            settling,
        } = executor(
            config,
            database,
            random,
            &shared.budget,
            WorkerMeters::new(&shared.meters),
        )?;
        let breaker = Arc::clone(&executor.breaker);
        self.start_batcher(storing);
        self.start_batcher(completing);
        self.start_batcher(settling);
        let limits = WorkerLimits {
            permits: config.worker.permits,
            lease: config.worker.lease,
            slack: config.worker.slack,
            poll_interval: config.worker.poll_interval,
            take_back_interval: config.worker.take_back_interval,
            fair_after: config.worker.fair_after,
            grace: config.http.shutdown_grace,
        };
        let claims = session_maker(config, database, Durability::Lease)();
        let wake = shared.accepted.clone();
        let worker = Worker::new(executor, claims, limits, wake, random.clone());
        let shutdown = self.shutdown.clone();
        self.tasks.spawn(async move {
            worker.run(shutdown).await;
            "worker"
        });
        Ok(breaker)
    }

    fn start_reconciler(&mut self, shared: &Shared<'_>) -> Result<(), AppError> {
        let (setup, database) = (shared.setup, shared.database);
        let config = setup.config;
        let limits = ReconcilerLimits {
            threshold: config.reconciler.threshold,
            interval: config.reconciler.interval,
            batch: config.reconciler.batch.into(),
            retention: config.idempotency.retention,
            event_retention: config.provider.stripe.webhook_retention,
        };
        let session = session_maker(config, database, Durability::Durable)();
        let meters = ReconcilerMeters::new(&shared.meters);
        let reconciler = Reconciler::new(session, limits, RULES, setup.random.clone(), meters);
        let shutdown = self.shutdown.clone();
        self.tasks.spawn(async move {
            reconciler.run(shutdown).await;
            "reconciler"
        });
        let meters = SweepMeters::new(&shared.meters);
        let budget = shared.budget.clone();
        let sweeper = sweeper(config, database, &setup.random, budget, meters)?;
        let shutdown = self.shutdown.clone();
        self.tasks.spawn(async move {
            sweeper.run(shutdown).await;
            "sweeper"
        });
        Ok(())
    }

    /// A pooler may be put in between, or changed, while this process runs. It ends then, and says why when started again.
    fn watch_sessions(&mut self, url: &DatabaseUrl, config: &config::Database) {
        let (options, limits) = (url.options().clone(), config.session_limits());
        let (interval, shutdown) = (config.sessions_interval, self.shutdown.clone());
        self.tasks.spawn(async move {
            let watching = async {
                loop {
                    tokio::time::sleep(interval).await;
                    match sessions::check(&options, limits).await {
                        Ok(()) | Err(SessionsError::Db(_)) => {}
                        Err(error) => break error,
                    }
                }
            };
            if let Some(error) = shutdown.run_until_cancelled(watching).await {
                tracing::error!(code = "sessions_shared", %error, "the database's connections can't be relied on any more");
            }
            "sessions"
        });
    }

    /// A batcher ends by itself when the last queue into it is gone.
    fn start_batcher<S: Statement + Sync + 'static>(&mut self, batcher: Batcher<S>) {
        self.tasks.spawn(async move {
            batcher.run().await;
            S::NAME
        });
    }
}

/// What runs jobs, and the batchers that must run for it.
struct Parts {
    executor: Executor<Stripe>,
    storing: Batcher<StoreObject>,
    completing: Batcher<Settle>,
    settling: Batcher<SettleStrays>,
}

fn executor(
    config: &Config,
    database: &DatabaseUrl,
    random: &Random,
    budget: &Budget,
    meters: WorkerMeters,
) -> Result<Parts, AppError> {
    let durable = session_maker(config, database, Durability::Durable);
    let limits = config.worker.batch_limits();
    let unmeasured = BatchMeters::none();
    let (store, storing) = batch::batcher(&StoreObject, &durable, limits, random, &unmeasured);
    let (completion, completing) = Completion::new(&durable, limits, random, &meters.completion);
    let (strays, settling) = batch::batcher(&SettleStrays, &durable, limits, random, &unmeasured);
    let executor = Executor {
        provider: Arc::new(stripe(config)?),
        store,
        completion,
        strays,
        breaker: Arc::new(Breaker::new(BreakerLimits {
            threshold: config.worker.breaker_threshold,
            base: config.worker.breaker_base,
            cap: config.worker.breaker_cap,
        })),
        budget: budget.clone(),
        pauses: Pauses::default(),
        limits: ExecutorLimits {
            retry: config.worker.retry_policy(),
            action_expiry: config.worker.action_expiry,
            key_window_margin: config.provider.stripe.key_window_margin,
            completion_timeout: config.worker.completion_timeout,
        },
        random: random.clone(),
        meters,
    };
    Ok(Parts {
        executor,
        storing,
        completing,
        settling,
    })
}

/// What the provider's deliveries are taken in with; `None` where none of its secrets is configured.
fn events(shared: &Shared<'_>) -> Result<Option<EventParts>, AppError> {
    let config = shared.setup.config;
    let (stripe, meters) = (&config.provider.stripe, EventMeters::new(&shared.meters));
    if stripe.webhook_secrets.is_empty() {
        return Ok(None);
    }
    let secrets = stripe
        .webhook_secrets
        .iter()
        .map(|secret| WebhookSecret::parse(secret.reveal()))
        .collect::<Result<_, _>>()?;
    let settings = WebhookSettings {
        secrets,
        tolerance: stripe.webhook_tolerance,
    };
    Ok(Some(EventParts {
        open: webhooks::open_with(settings, Clock::system()),
        account: Account {
            provider: RULES.provider,
            name: config.provider.account.clone(),
        },
        most_bytes: stripe.webhook_body_bytes,
        wake: shared.accepted.clone(),
        meters,
    }))
}

/// A sweeper of the configured account.
pub(crate) fn sweeper(
    config: &Config,
    database: &DatabaseUrl,
    random: &Random,
    budget: Budget,
    meters: SweepMeters,
) -> Result<Sweeper<Stripe>, AppError> {
    let session = session_maker(config, database, Durability::Durable)();
    let provider = Arc::new(stripe(config)?);
    let limits = config
        .reconciler
        .sweep_limits(config.provider.stripe.relied_on_key_window());
    let parts = SweepParts {
        limits,
        rules: RULES,
        budget,
        random: random.clone(),
        meters,
    };
    Ok(Sweeper::new(provider, session, parts))
}

/// Runs until `shutdown`. `Ok(false)` if something ended by itself.
pub async fn serve(
    config: &Config,
    roles: Roles,
    recovery: Option<Since>,
    shutdown: CancellationToken,
) -> Result<bool, AppError> {
    let setup = Setup {
        config,
        roles,
        dev: false,
        recovery,
        random: Random::from_os(),
    };
    let app = App::start(setup, shutdown).await?;
    if let Some(address) = app.admin() {
        tracing::info!(admin.address = %address, "listening for operators");
    }
    if let Some(address) = app.api() {
        tracing::info!(http.address = %address, "listening");
    }
    Ok(app.ended().await)
}

/// The pool for requests that read or cancel.
fn reads(config: &Config, database: &DatabaseUrl) -> Pool {
    let session = session_maker(config, database, Durability::Durable);
    let size = usize::try_from(config.database.pool_size).unwrap_or(usize::MAX);
    Pool::new(size, config.database.connect_timeout, session)
}

fn session_maker(
    config: &Config,
    database: &DatabaseUrl,
    durability: Durability,
) -> impl Fn() -> Session + Send + Sync + use<> {
    let (options, limits) = (database.options().clone(), config.database.session_limits());
    move || Session::new(&options, limits, durability)
}

async fn check_schema(config: &Config, database: &DatabaseUrl) -> Result<(), AppError> {
    let mut session = session_maker(config, database, Durability::Durable)();
    let connection = session.connection().await.map_err(AppError::Schema)?;
    let pending = db::migrations::pending(connection)
        .await
        .map_err(AppError::Schema)?;
    if pending.is_empty() {
        Ok(())
    } else {
        Err(AppError::NotMigrated)
    }
}

fn stripe(config: &Config) -> Result<Stripe, AppError> {
    let settings = &config.provider.stripe;
    let secret = settings.secret_key.as_ref().ok_or(AppError::NoSecretKey)?;
    Ok(Stripe::new(StripeSettings {
        account: config.provider.account.clone(),
        base_url: settings.base_url.clone(),
        secret_key: SecretKey::parse(secret.reveal()).map_err(|_| AppError::SecretKey)?,
        api_version: settings.api_version.clone(),
        timeout: settings.timeout,
        connect_timeout: settings.connect_timeout.min(settings.timeout / 2),
        pool_idle: settings.pool_idle,
        key_window: settings.key_window,
    })?)
}
