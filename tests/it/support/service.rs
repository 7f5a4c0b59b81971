//! The service of one test: its database, its simulator, its merchant, and as many processes of it as the test starts.

use std::net::SocketAddr;

use payonce::app::recovery::Since;
use payonce::app::{App, AppError, Setup};
use payonce::config::{Config, Roles, Sources};
use payonce::db::{self, Fault};
use payonce::domain::api_key::{ApiKey, Mode, Scope};
use payonce::domain::ids::MerchantId;
use payonce::random::Random;
use rand::SeedableRng;
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::client::Client;
use super::ledger::{Ledger, SECRET_KEY};
use super::process::Process;
use super::{cluster, until};

/// Settings over those of [`TestService::defaults`], as `provider.stripe.timeout` and `2s`.
pub type TestSettings<'a> = &'a [(&'static str, &'a str)];

/// Takes charges in and does nothing with them.
pub const API: Roles = Roles {
    api: true,
    worker: false,
    reconciler: false,
};
pub const WORKER: Roles = Roles {
    api: false,
    worker: true,
    reconciler: false,
};

pub const RECONCILER: Roles = Roles {
    api: false,
    worker: false,
    reconciler: true,
};

pub struct TestService {
    pub ledger: Ledger,
    pub database_url: String,
    /// For looking at the books.
    pub books: PgPool,
    pub merchant: MerchantId,
    pub token: String,
}

/// The service running in this process.
pub struct Running {
    pub client: Client,
    /// Where the operators' interface listens, unless it is off.
    pub admin: Option<SocketAddr>,
    shutdown: CancellationToken,
    ended: JoinHandle<bool>,
}

impl Running {
    /// Shuts it down as SIGTERM would and waits for the end.
    pub async fn stop(self) {
        self.shutdown.cancel();
        assert!(self.ended.await.unwrap(), "something ended by itself");
    }
}

impl TestService {
    /// A fresh database with one merchant, a fresh simulator, and nothing running.
    pub async fn new() -> Self {
        Self::on(cluster::fresh_database().await).await
    }

    /// The same on a migrated database that nobody else uses.
    pub async fn on(database_url: String) -> Self {
        let books = PgPoolOptions::new()
            .max_connections(4)
            .connect(&database_url)
            .await
            .unwrap();
        let ledger = Ledger::start().await;
        let mut service = Self {
            ledger,
            database_url,
            books,
            merchant: MerchantId::from_uuid(uuid::Uuid::from_u128(1)),
            token: String::new(),
        };
        (service.merchant, service.token) = service.make_merchant("shop").await;
        service.routine_sweep_done().await;
        service
    }

    /// A copy of the books as they are now; nothing may be running. Returns its address.
    pub async fn back_up(&mut self) -> String {
        self.books.close().await;
        let copy = cluster::copy_of(&self.database_url).await;
        self.reconnect().await;
        copy
    }

    /// From now on the books are this copy; nothing may be running.
    pub async fn restore(&mut self, copy: String) {
        self.books.close().await;
        self.database_url = copy;
        self.reconnect().await;
    }

    async fn reconnect(&mut self) {
        self.books = PgPoolOptions::new()
            .max_connections(4)
            .connect(&self.database_url)
            .await
            .unwrap();
    }

    /// Makes a merchant with a key of its own.
    pub async fn make_merchant(&self, name: &str) -> (MerchantId, String) {
        let mut connection = self.books.acquire().await.unwrap();
        let random = Random::from_os();
        let merchant = MerchantId::from_uuid(random.uuid());
        assert!(
            db::merchants::insert(&mut connection, merchant, name, None)
                .await
                .unwrap()
        );
        drop(connection);
        (merchant, self.make_key(merchant, Scope::Write).await)
    }

    pub async fn make_key(&self, merchant: MerchantId, scope: Scope) -> String {
        let mut connection = self.books.acquire().await.unwrap();
        let random = Random::from_os();
        let key = ApiKey::generate(
            Mode::Test,
            &mut rand::rngs::StdRng::from_seed(random.bytes()),
        );
        let new = db::api_keys::NewApiKey {
            id: random.uuid(),
            merchant,
            hash: key.hash(),
            hint: key.hint(),
            scope,
            mode: Mode::Test,
        };
        assert!(db::api_keys::insert(&mut connection, new).await.unwrap());
        key.reveal().to_owned()
    }

    /// What tests run with: short times, so that leases run out and retries come while a test watches.
    pub fn defaults(&self) -> Vec<(&'static str, String)> {
        vec![
            ("database.url", self.database_url.clone()),
            ("http.listen", "127.0.0.1:0".to_owned()),
            ("admin.listen", "127.0.0.1:0".to_owned()),
            // Each scrape sees the books as they are.
            ("admin.books_interval", "1ms".to_owned()),
            ("http.shutdown_grace", "10s".to_owned()),
            ("provider.mode", "test".to_owned()),
            ("provider.stripe.base_url", self.ledger.base_url()),
            ("provider.stripe.secret_key", SECRET_KEY.to_owned()),
            ("provider.stripe.timeout", "2s".to_owned()),
            ("provider.stripe.connect_timeout", "500ms".to_owned()),
            ("worker.lease", "12s".to_owned()),
            ("worker.slack", "500ms".to_owned()),
            ("worker.completion_timeout", "2s".to_owned()),
            ("worker.take_back_interval", "100ms".to_owned()),
            ("worker.poll_interval", "50ms".to_owned()),
            ("worker.retry_base", "20ms".to_owned()),
            ("worker.retry_cap", "500ms".to_owned()),
            ("worker.slow_base", "50ms".to_owned()),
            ("worker.slow_cap", "200ms".to_owned()),
            ("worker.breaker_base", "50ms".to_owned()),
            ("worker.breaker_cap", "500ms".to_owned()),
            ("webhooks.allow_loopback", "true".to_owned()),
            ("webhooks.poll_interval", "50ms".to_owned()),
            ("webhooks.timeout", "2s".to_owned()),
            ("webhooks.connect_timeout", "500ms".to_owned()),
            ("webhooks.lease", "9s".to_owned()),
            (
                "webhooks.retry_delays",
                "50ms,100ms,200ms,400ms,800ms".to_owned(),
            ),
            ("reconciler.threshold", "1s".to_owned()),
            ("reconciler.interval", "200ms".to_owned()),
            ("reconciler.sweep_pause", "1ms".to_owned()),
            ("reconciler.sweep_lease", "10s".to_owned()),
        ]
    }

    pub fn config(&self, settings: TestSettings<'_>) -> Config {
        let mut sources = Sources::default();
        for (key, value) in self.defaults() {
            sources = sources.with(key, value);
        }
        for (key, value) in settings {
            sources = sources.with(key, *value);
        }
        let config = Config::load(&sources).unwrap();
        config.check_for(Roles::ALL).unwrap();
        config
    }

    /// Starts the whole service in this process.
    pub async fn run(&self) -> Running {
        self.run_with(Roles::ALL, &[]).await
    }

    /// Starts the whole service as after a restore.
    pub async fn run_recovering(&self, since: Since) -> Running {
        self.start(Roles::ALL, &[], Some(since)).await
    }

    pub async fn run_with(&self, roles: Roles, settings: TestSettings<'_>) -> Running {
        self.start(roles, settings, None).await
    }

    async fn start(
        &self,
        roles: Roles,
        settings: TestSettings<'_>,
        recovery: Option<Since>,
    ) -> Running {
        let config = self.config(settings);
        let shutdown = CancellationToken::new();
        // As a supervisor does: a busy machine can outlast the short time-outs that a test sets.
        let app = until("the service starts", async || {
            let setup = Setup {
                config: &config,
                roles,
                dev: false,
                recovery,
                random: Random::from_os(),
            };
            match App::start(setup, shutdown.clone()).await {
                Ok(app) => Some(app),
                Err(AppError::Schema(error))
                    if matches!(error.fault(), Fault::Unknown | Fault::Refused) =>
                {
                    None
                }
                Err(error) => panic!("{error:?}"),
            }
        })
        .await;
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 9));
        let admin = app.admin();
        let client = Client::new(app.api().unwrap_or(nowhere), &self.token);
        Running {
            client,
            admin,
            shutdown,
            ended: tokio::spawn(app.ended()),
        }
    }

    /// Starts `payonce serve` as a process of its own.
    pub async fn spawn(&self, only: &str, settings: TestSettings<'_>) -> Process {
        Process::serve(self, only, settings).await
    }

    /// Makes a charge that can be paid and returns when the provider holds its request of this phase, before or after the
    /// effect.
    pub async fn stopped_at(&self, client: &Client, phase: &str, when: &str) -> String {
        self.ledger.hold(phase, when).await;
        let body = super::charge_body("pm_card_visa");
        let id = client.charge("order-1", &body).await.id();
        self.ledger.held().await;
        id
    }

    pub async fn count(&self, sql: &'static str) -> i64 {
        sqlx::query_scalar::<_, i64>(sql)
            .fetch_one(&self.books)
            .await
            .unwrap()
    }

    /// Waits until the first process on these books has asked whose its key is.
    pub async fn key_checked(&self) {
        until("a name is pinned", async || {
            let pins = "SELECT count(*) FROM provider_accounts";
            (self.count(pins).await > 0).then_some(())
        })
        .await;
    }

    /// Waits until no job is left.
    pub async fn drained(&self) {
        until("the outbox is empty", async || {
            (self.count("SELECT count(*) FROM outbox").await == 0).then_some(())
        })
        .await;
    }

    /// The invariant of the books: a charge is not terminal exactly when it has one outbox row, and a request row says
    /// what its charge says. And of the money: at most once for a charge, and never when the charge says failed.
    pub async fn check_books(&self) {
        let wrong_jobs = self
            .count(
                "SELECT count(*) FROM (
                     SELECT charges.id
                     FROM charges LEFT JOIN outbox ON outbox.charge_id = charges.id AND outbox.kind = 'charge'
                     GROUP BY charges.id
                     HAVING count(outbox.id) <> CASE WHEN charges.finished_at IS NULL THEN 1 ELSE 0 END
                 ) AS wrong",
            )
            .await;
        assert_eq!(wrong_jobs, 0, "charges with too many or too few jobs");
        let orphans = self
            .count("SELECT count(*) FROM outbox WHERE NOT EXISTS (SELECT FROM charges WHERE id = outbox.charge_id)")
            .await;
        assert_eq!(orphans, 0, "jobs without a charge");
        let disagreeing = self
            .count(
                "SELECT count(*)
                 FROM idempotent_requests
                 LEFT JOIN charges ON charges.id = idempotent_requests.charge_id
                 WHERE idempotent_requests.operation = 'charge'
                     AND idempotent_requests.status IS DISTINCT FROM CASE
                     WHEN charges.stage = 'succeeded' THEN 'completed'
                     WHEN charges.stage IN ('failed', 'canceled') THEN 'failed'
                     WHEN charges.id IS NOT NULL THEN 'in_progress'
                 END",
            )
            .await;
        assert_eq!(
            disagreeing, 0,
            "request rows that do not say what their charges say"
        );
        let misplaced = self
            .count(
                "SELECT count(*)
                 FROM (SELECT provider, provider_charge_id, id FROM charges WHERE provider_charge_id IS NOT NULL) AS stored
                 FULL JOIN charge_objects USING (provider, provider_charge_id)
                 WHERE stored.id IS DISTINCT FROM charge_objects.charge_id",
            )
            .await;
        assert_eq!(misplaced, 0, "objects that can't be found by their id");
        self.check_money().await;
        self.check_refunds().await;
    }

    /// The invariant of refunds: an open one has one job, a request row says what its refund says, a charge says what its
    /// refunds add up to. And of the money: once for a refund, never when it says failed, never more than the charge.
    async fn check_refunds(&self) {
        let wrong_jobs = self
            .count(
                "SELECT count(*) FROM refunds LEFT JOIN outbox ON outbox.refund_id = refunds.id
                 WHERE (outbox.id IS NOT NULL) <> (refunds.finished_at IS NULL)",
            )
            .await;
        assert_eq!(wrong_jobs, 0, "refunds with too many or too few jobs");
        let disagreeing = self
            .count(
                "SELECT count(*)
                 FROM idempotent_requests
                 LEFT JOIN refunds ON refunds.id = idempotent_requests.refund_id
                 WHERE idempotent_requests.operation = 'refund'
                     AND idempotent_requests.status IS DISTINCT FROM CASE
                         WHEN refunds.stage = 'succeeded' THEN 'completed'
                         WHEN refunds.stage IN ('failed', 'canceled') THEN 'failed'
                         WHEN refunds.id IS NOT NULL THEN 'in_progress'
                     END",
            )
            .await;
        assert_eq!(
            disagreeing, 0,
            "request rows that do not say what their refunds say"
        );
        let wrong_sums = self
            .count(
                "SELECT count(*)
                 FROM charges
                 WHERE amount_refunding <> COALESCE(
                         (SELECT sum(amount) FROM refunds WHERE charge_id = charges.id AND finished_at IS NULL), 0)
                     OR amount_refunded <> COALESCE(
                         (SELECT sum(amount) FROM refunds WHERE charge_id = charges.id AND stage = 'succeeded'), 0)
                         + COALESCE(
                         (SELECT sum(amount) FROM external_refunds WHERE charge_id = charges.id AND counted), 0)",
            )
            .await;
        assert_eq!(
            wrong_sums, 0,
            "charges that do not say what their refunds add up to"
        );
        self.check_refunded_money().await;
    }

    async fn check_refunded_money(&self) {
        let theirs = self.ledger.refunds().await;
        let rows: Vec<(uuid::Uuid, String, i64)> =
            sqlx::query_as("SELECT id, stage, amount FROM refunds")
                .fetch_all(&self.books)
                .await
                .unwrap();
        for (id, stage, amount) in rows {
            let id = payonce::domain::ids::RefundId::from_uuid(id).to_string();
            let mut of_it = theirs
                .iter()
                .filter(|refund| refund["metadata"]["payonce_refund_id"] == id.as_str());
            let found = of_it.next();
            assert!(of_it.next().is_none(), "{id} was refunded twice");
            match (stage.as_str(), found) {
                ("succeeded", Some(refund)) => assert_eq!(refund["amount"], amount, "{id}"),
                ("succeeded", None) => panic!("{id} says succeeded and no money went back"),
                ("failed" | "canceled", Some(refund)) => {
                    assert_ne!(refund["status"], "succeeded", "{id} says {stage}");
                }
                _ => {}
            }
        }
        for charge in self.ledger.charges().await {
            let back: i64 = theirs
                .iter()
                .filter(|refund| {
                    refund["payment_intent"] == charge["id"]
                        && !matches!(refund["status"].as_str(), Some("failed" | "canceled"))
                })
                .map(|refund| refund["amount"].as_i64().unwrap())
                .sum();
            assert!(
                back <= charge["amount"].as_i64().unwrap(),
                "{charge} was refunded by {back}"
            );
        }
    }

    /// As [`TestService::check_books`], and that merchants are told of each end once, as of the charge's last version.
    pub async fn check_books_and_events(&self) {
        self.check_books().await;
        let wrong = self
            .count(
                "SELECT count(*)
                 FROM charges
                 WHERE (finished_at IS NULL)::integer + (
                     SELECT count(*)
                     FROM events
                     WHERE events.charge_id = charges.id
                         AND events.version = charges.version
                         AND events.type = CASE charges.stage
                             WHEN 'succeeded' THEN 'charge.completed'
                             ELSE 'charge.failed'
                         END
                 ) <> 1",
            )
            .await;
        assert_eq!(wrong, 0, "ends that were not told once");
    }

    async fn check_money(&self) {
        let mut moved = std::collections::HashMap::new();
        for charge in self.ledger.charges().await {
            let stamp = charge["metadata"]["payonce_charge_id"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            assert!(
                moved.insert(stamp.clone(), charge).is_none(),
                "{stamp} was charged twice"
            );
        }
        // What was moved for a charge that failed must be back.
        let mut returned = std::collections::HashMap::new();
        for refund in self.ledger.refunds().await {
            if refund["status"] == "succeeded" {
                let object = refund["payment_intent"].as_str().unwrap().to_owned();
                *returned.entry(object).or_insert(0) += refund["amount"].as_i64().unwrap();
            }
        }
        let rows: Vec<(uuid::Uuid, String, i64, String)> =
            sqlx::query_as("SELECT id, stage, amount, currency FROM charges")
                .fetch_all(&self.books)
                .await
                .unwrap();
        for (id, stage, amount, currency) in rows {
            let id = payonce::domain::ids::ChargeId::from_uuid(id).to_string();
            match (stage.as_str(), moved.get(&id)) {
                ("succeeded", Some(charge)) => {
                    assert_eq!(charge["amount"], amount, "{id}");
                    assert_eq!(charge["currency"], currency, "{id}");
                }
                ("succeeded", None) => panic!("{id} says succeeded and no money moved"),
                ("failed" | "canceled", Some(charge)) => {
                    let back = returned.get(charge["id"].as_str().unwrap());
                    assert_eq!(back, Some(&amount), "{id} says {stage} and money moved");
                }
                _ => {}
            }
        }
    }
}
