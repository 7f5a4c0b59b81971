//! `payonce dev`: everything in one process, on an embedded Postgres and the simulator, for whoever wants to try it.
//!
//! The books and the simulator's state live in the data directory and survive a restart, a `kill -9` included. Whatever
//! is started here ends with this process.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{App, AppError, Setup};
use crate::clock::Clock;
use crate::config::{Config, ConfigErrors, DatabaseUrl, Roles, Sources};
use crate::db::{self, DbError};
use crate::domain::api_key::{ApiKey, DEV_KEY, Mode, Scope};
use crate::domain::ids::MerchantId;
use crate::embedded_postgres::{EmbeddedPostgres, EmbeddedPostgresError, Options};
use crate::random::Random;
use crate::simulator::{Simulator, SimulatorError};

const DATABASE: &str = "payonce";
const MERCHANT: &str = "dev";
/// Fixed, so that a key has the same charge id in every data directory.
const MERCHANT_ID: Uuid = Uuid::from_u128(0x0de7_0de7_0de7_40de_80de_70de_70de_70de);
/// The simulator takes any key of this shape; each is an account of its own, and commands must name the one that dev uses.
pub const SECRET_KEY: &str = "sk_test_payonce_dev";
/// What the simulator signs its deliveries with.
const WEBHOOK_SECRET: &str = "whsec_payonce_dev";

#[derive(Debug, thiserror::Error)]
pub enum DevError {
    #[error("the embedded Postgres")]
    Postgres(#[from] EmbeddedPostgresError),
    #[error("the simulator")]
    Simulator(#[from] SimulatorError),
    #[error("the configuration")]
    Config(#[from] ConfigErrors),
    #[error("the database can't be migrated")]
    Migrate(#[from] sqlx::migrate::MigrateError),
    #[error("the books can't be prepared")]
    Books(#[source] DbError),
    #[error(transparent)]
    App(#[from] AppError),
}

#[derive(Clone, Debug)]
pub struct DevSetup {
    /// 0 for any free port.
    pub port: u16,
    pub simulator_port: u16,
    pub admin_port: u16,
    pub data_dir: PathBuf,
    /// The file and the environment; what dev itself fixes goes over them.
    pub sources: Sources,
    /// Told what takes long, such as an installation.
    pub notice: fn(&str),
}

/// A dev process at work.
pub struct Dev {
    app: App,
    postgres: EmbeddedPostgres,
    simulator: tokio::task::JoinHandle<Result<(), SimulatorError>>,
    simulator_shutdown: CancellationToken,
    pub addresses: Addresses,
}

/// What is where.
#[derive(Clone, Debug)]
pub struct Addresses {
    pub api: SocketAddr,
    pub simulator: SocketAddr,
    pub admin: Option<SocketAddr>,
    /// With its password.
    pub database: String,
}

impl Dev {
    pub async fn start(setup: DevSetup, shutdown: CancellationToken) -> Result<Self, DevError> {
        let mut options = Options::kept_in(&setup.data_dir);
        options.notice = setup.notice;
        let postgres = EmbeddedPostgres::start(options).await?;
        postgres.ensure_database(DATABASE).await?;
        let database = postgres.url(DATABASE);

        let at = SocketAddr::from((Ipv4Addr::LOCALHOST, setup.simulator_port));
        let simulator =
            Simulator::bind(at, Some(setup.data_dir.join("simulator")), Clock::system()).await?;
        let (simulator_address, remote) = (simulator.local_addr(), simulator.remote());
        let simulator_shutdown = CancellationToken::new();
        let simulator = tokio::spawn(simulator.run(simulator_shutdown.clone()));

        let sources = setup
            .sources
            .with("database.url", database.clone())
            .with(
                "http.listen",
                SocketAddr::from((Ipv4Addr::LOCALHOST, setup.port)).to_string(),
            )
            .with(
                "admin.listen",
                SocketAddr::from((Ipv4Addr::LOCALHOST, setup.admin_port)).to_string(),
            )
            .with("provider.mode", Mode::Test.as_str())
            .with("webhooks.allow_loopback", "true")
            .with(
                "provider.stripe.base_url",
                format!("http://{simulator_address}"),
            )
            .with("provider.stripe.secret_key", SECRET_KEY)
            .with("provider.stripe.webhook_secrets", WEBHOOK_SECRET);
        let config = Config::load(&sources)?;
        config.check_for(Roles::ALL)?;
        let url = config.database.url.as_ref().ok_or(AppError::NoDatabase)?;
        db::migrations::migrate(url.options()).await?;
        prepare_books(&config, url).await?;
        let random = Random::from_os();
        let app = App::start(
            Setup {
                config: &config,
                roles: Roles::ALL,
                dev: true,
                recovery: None,
                random,
            },
            shutdown,
        )
        .await?;
        let api = app.api().expect("dev has the role of the API");
        remote.deliver_to(
            format!("http://{api}/webhooks/stripe"),
            WEBHOOK_SECRET.to_owned(),
        );
        let addresses = Addresses {
            api,
            admin: app.admin(),
            simulator: simulator_address,
            database,
        };
        Ok(Self {
            app,
            postgres,
            simulator,
            simulator_shutdown,
            addresses,
        })
    }

    /// Runs until `shutdown`, then stops everything it started, the provider after those that call it and Postgres last.
    /// `false` if something ended by itself.
    pub async fn ended(self, shutdown: CancellationToken) -> Result<bool, DevError> {
        let mut app = std::pin::pin!(self.app.ended());
        let orderly = tokio::select! {
            orderly = &mut app => orderly,
            () = self.postgres.ended() => {
                tracing::error!(code = "postgres_ended", "the embedded Postgres ended by itself");
                shutdown.cancel();
                app.await;
                false
            }
        };
        self.simulator_shutdown.cancel();
        match self.simulator.await {
            Ok(ended) => ended?,
            Err(error) => tracing::error!(code = "task_panicked", %error, "the simulator panicked"),
        }
        self.postgres.stop().await?;
        Ok(orderly)
    }
}

/// Makes the merchant and its key, once a data directory, and takes back what an earlier process held: Postgres was not
/// running without its process, so none of them is alive, and nobody need wait for their leases to run out.
async fn prepare_books(config: &Config, database: &DatabaseUrl) -> Result<(), DevError> {
    let mut session = super::session_maker(config, database, db::session::Durability::Durable)();
    let connection = session.connection().await.map_err(DevError::Books)?;
    db::claim::take_back_all(connection)
        .await
        .map_err(DevError::Books)?;
    let merchant = MerchantId::from_uuid(MERCHANT_ID);
    db::merchants::insert(connection, merchant, MERCHANT, None)
        .await
        .map_err(DevError::Books)?;
    let key = ApiKey::parse(DEV_KEY, true).expect("the dev key is well formed");
    let new = db::api_keys::NewApiKey {
        id: MERCHANT_ID,
        merchant,
        hash: key.hash(),
        hint: key.hint(),
        scope: Scope::Write,
        mode: Mode::Test,
    };
    db::api_keys::insert(connection, new)
        .await
        .map_err(DevError::Books)?;
    Ok(())
}
