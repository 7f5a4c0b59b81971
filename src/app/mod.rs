//! The wiring: the one place that knows every part and starts its tasks.
//!
//! A process ends in the order in which work flows: nothing new is let in, requests under way are answered, intake drains,
//! the worker stops claiming and lets its calls finish, what it learned is flushed. What a grace cuts short is safe all
//! the same: what was accepted is in the books, and a lease that nobody gave back runs out.

mod accounts;
mod admin;
pub mod dev;
mod observer;
pub mod operate;
mod parts;
pub mod recovery;
mod shared;

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub(crate) use self::accounts::missing;
use self::parts::{Parts, account_of, events, executors, reads, session_maker, waits};
pub(crate) use self::parts::{check_account, sweeper};
use self::recovery::Since;
pub(crate) use self::shared::Sending;
use crate::batch::{Batcher, Chain, Fullness, Statement};
use crate::budget::Budget;
use crate::clock::Clock;
use crate::config::{self, Config, DatabaseUrl, Roles};
use crate::db;
use crate::db::session::Durability;
use crate::db::sessions::{self, SessionsError};
use crate::domain::api_key::Mode;
use crate::http::{self, HttpMeters, HttpParts, HttpState, ServerMeters, ServerSettings};
use crate::identity::{Checker, NotOpen};
use crate::intake::refunds::RefundIntake;
use crate::intake::{Accept, Intake, IntakeMeters, IntakeSettings};
use crate::meters::Meters;
use crate::provider::Provider;
use crate::provider::stripe::currency::RULES;
use crate::provider::stripe::signature::InvalidWebhookSecret;
use crate::random::Random;
use crate::reconciler::sweep::SweepMeters;
use crate::reconciler::{Reconciler, ReconcilerLimits, ReconcilerMeters};
use crate::watches::{Watched, Watcher, Watches};
use crate::webhooks::{Deliverer, DelivererMeters};
use crate::worker::breaker::Breaker;
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
    #[error("the worker needs {0}.secret_key")]
    NoSecretKey(String),
    #[error("the recovery can't begin")]
    Recovery(#[source] db::DbError),
    #[error("the books hold no event that says since when to compare them with the provider")]
    NothingRemembered,
    #[error("{0}.secret_key is not a key of Stripe's")]
    SecretKey(String),
    #[error(transparent)]
    Account(#[from] NotOpen),
    #[error("one of the webhook_secrets")]
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
        let meters = listener
            .as_ref()
            .map_or_else(Meters::none, |_| Meters::new());
        let shared = Shared {
            setup: &setup,
            database,
            pool: reads(setup.config, database),
            accepted: Arc::new(Notify::new()),
            waits: waits(setup.config, setup.roles, &meters),
            meters,
            sending: sending(setup.config),
        };
        let mut observer = shared.observer();
        if setup.roles.api {
            observer.watch_queues(app.start_api(&shared).await?);
        }
        if setup.roles.worker {
            observer.watch_breakers(app.start_worker(&shared)?);
            app.start_deliverer(&shared);
            app.tell_of_missing_accounts(&shared);
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
        let session = session_maker(config, shared.database, Durability::Durable);
        let (refunds, accepting) = RefundIntake::new(
            RULES,
            settings.limits,
            session,
            &shared.accepted,
            &setup.random,
        );
        self.start_batcher(accepting);
        let state = HttpState::new(HttpParts {
            intake,
            refunds,
            pool: shared.pool.clone(),
            rules: RULES,
            live: settings.live,
            dev: setup.dev,
            retention: config.idempotency.retention,
            schema_version: db::migrations::newest(),
            random: setup.random.clone(),
            waits: shared.waits.clone(),
            closing: self.shutdown.clone(),
            events: events(shared)?,
            limits: config.http_limits(),
            meters: HttpMeters::new(&shared.meters),
        });
        let listener = admin::listen("http.listen", config.http.listen).await?;
        self.api = listener.local_addr().ok();
        let limits = config.http.server_limits();
        let settings = ServerSettings {
            limits,
            meters: ServerMeters::new(&shared.meters, limits),
            random: setup.random.clone(),
        };
        let (router, shutdown) = (http::router(state), self.shutdown.clone());
        self.tasks.spawn(async move {
            http::serve(listener, router, settings, shutdown).await;
            "http"
        });
        self.start_watcher(shared, &shared.waits.charges);
        self.start_watcher(shared, &shared.waits.refunds);
        Ok(queues)
    }

    fn start_watcher<T: Watched>(&mut self, shared: &Shared<'_>, of: &Watches<T>) {
        let session = session_maker(shared.setup.config, shared.database, Durability::Durable)();
        let watcher = Watcher::new(of.clone(), session);
        let shutdown = self.shutdown.clone();
        self.tasks.spawn(async move {
            watcher.run(shutdown).await;
            "watcher"
        });
    }

    fn start_worker(
        &mut self,
        shared: &Shared<'_>,
    ) -> Result<Vec<(String, Arc<Breaker>)>, AppError> {
        let (setup, database) = (shared.setup, shared.database);
        let (config, random) = (setup.config, &setup.random);
        let meters = WorkerMeters::new(&shared.meters);
        let Parts {
            executors,
            storing,
            completing,
            settling,
            keeping,
        } = executors(
            config,
            database,
            random,
            &shared.sending,
            &shared.waits,
            &meters,
        )?;
        let breakers = executors
            .iter()
            .map(|executor| (executor.account().to_owned(), Arc::clone(&executor.breaker)))
            .collect();
        for executor in &executors {
            self.start_checker(Checker {
                identity: Arc::clone(&executor.identity),
                provider: Arc::clone(&executor.provider),
                session: session_maker(config, database, Durability::Durable)(),
                breaker: Arc::clone(&executor.breaker),
                meters: meters.clone(),
                wake: shared.accepted.clone(),
                base: config.worker.breaker_base,
                cap: config.worker.breaker_cap,
                random: random.clone(),
            });
        }
        self.start_batcher(storing);
        self.start_batcher(completing);
        self.start_batcher(settling);
        for batcher in keeping {
            self.start_batcher(batcher);
        }
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
        let worker = Worker::new(executors, claims, limits, wake, random.clone());
        let shutdown = self.shutdown.clone();
        self.tasks.spawn(async move {
            worker.run(shutdown).await;
            "worker"
        });
        Ok(breakers)
    }

    fn start_checker<P: Provider>(&mut self, checker: Checker<P>) {
        let shutdown = self.shutdown.clone();
        self.tasks.spawn(async move {
            checker.run(shutdown).await;
            "checker"
        });
    }

    /// What sends events to merchants, unless another process does. Charges do not wait for it.
    fn start_deliverer(&mut self, shared: &Shared<'_>) {
        let setup = shared.setup;
        if !setup.config.webhooks.deliver {
            return;
        }
        let grace = setup.config.http.shutdown_grace;
        let deliverer = Deliverer::new(
            session_maker(setup.config, shared.database, Durability::Durable)(),
            setup.config.webhooks.limits(grace),
            setup.random.clone(),
            Clock::system(),
            DelivererMeters::new(&shared.meters),
        );
        let deliverer = match deliverer {
            Ok(deliverer) => deliverer,
            Err(error) => {
                tracing::error!(
                    code = "webhooks_not_sent",
                    error = %Chain(&error),
                    "this process can't send events: are there root certificates? They wait for one that can"
                );
                return;
            }
        };
        let shutdown = self.shutdown.clone();
        self.tasks.spawn(async move {
            deliverer.run(shutdown).await;
            "deliverer"
        });
    }

    fn start_reconciler(&mut self, shared: &Shared<'_>) -> Result<(), AppError> {
        let (setup, database) = (shared.setup, shared.database);
        let config = setup.config;
        let limits = ReconcilerLimits {
            threshold: config.reconciler.threshold,
            interval: config.reconciler.interval,
            batch: config.reconciler.batch.into(),
            retention: config.idempotency.retention,
            recheck_again: config.reconciler.refund_recheck_after,
            success_after_failed: config.reconciler.success_after_failed,
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
        for (account, its) in config.provider.accounts().zip(&shared.sending) {
            let (its, meters) = (its.clone(), meters.clone());
            let sweeper = sweeper(config, account, database, &setup.random, its, meters)?;
            let shutdown = self.shutdown.clone();
            self.tasks.spawn(async move {
                sweeper.run(shutdown).await;
                "sweeper"
            });
        }
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

fn sending(config: &Config) -> Vec<Sending> {
    let provider = &config.provider;
    let of = |account| {
        let budget = Budget::new(provider.calls_per_second(), Instant::now());
        Sending::new(account, budget)
    };
    provider.accounts().map(of).collect()
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

async fn check_schema(config: &Config, database: &DatabaseUrl) -> Result<(), AppError> {
    let mut session = session_maker(config, database, Durability::Durable)();
    // In time: a connection may fall silent here, too, and nothing is there yet that a signal would end.
    let pending = session
        .ask(2, async |connection| {
            db::migrations::pending(connection).await
        })
        .await
        .map_err(AppError::Schema)?;
    if pending.is_empty() {
        Ok(())
    } else {
        Err(AppError::NotMigrated)
    }
}
