//! A private Postgres with the schema, one merchant and its API key, emptied between rounds.

use std::path::PathBuf;

use anyhow::Context;
use payonce::db;
use payonce::domain::api_key::{ApiKey, Mode, Scope};
use payonce::domain::ids::MerchantId;
use payonce::embedded_postgres::{EmbeddedPostgres, Options};
use payonce::random::Random;
use rand::SeedableRng;
use sqlx::{Connection, PgConnection};

use super::report;

const DATABASE: &str = "bench";

/// As a server of some memory has them: checkpoints come by none of the rounds, and the tables stay in memory. What makes
/// a commit safe (`fsync`, `synchronous_commit`, `full_page_writes`) is on.
const SETTINGS: [(&str, &str); 4] = [
    ("shared_buffers", "1GB"),
    ("max_wal_size", "8GB"),
    ("checkpoint_timeout", "30min"),
    ("max_connections", "300"),
];

pub(crate) struct Books {
    postgres: EmbeddedPostgres,
    postmaster: Option<u32>,
    pub(crate) merchant: MerchantId,
    pub(crate) token: String,
}

impl Books {
    pub(crate) async fn start() -> anyhow::Result<Self> {
        let mut settings: Vec<_> = SETTINGS
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        // For experiments: `PAYONCE_BENCH_PG="name=value name=value"`.
        if let Some(more) = std::env::var_os("PAYONCE_BENCH_PG") {
            settings.extend(
                more.to_string_lossy()
                    .split_whitespace()
                    .filter_map(|setting| setting.split_once('='))
                    .map(|(name, value)| (name.to_owned(), value.to_owned())),
            );
        }
        let postgres = EmbeddedPostgres::start(Options {
            durable: true,
            settings,
            notice: report::line,
            ..Options::throw_away()
        })
        .await?;
        postgres.ensure_database(DATABASE).await?;
        db::migrations::migrate(&postgres.url(DATABASE).parse()?).await?;
        let postmaster = std::fs::read_to_string(postgres.home().join("data/postmaster.pid"))
            .ok()
            .and_then(|text| text.lines().next()?.trim().parse().ok());
        let random = Random::from_os();
        let mut books = Self {
            postgres,
            postmaster,
            merchant: MerchantId::from_uuid(random.uuid()),
            token: String::new(),
        };
        books.token = books.make_merchant(&random).await?;
        Ok(books)
    }

    async fn make_merchant(&self, random: &Random) -> anyhow::Result<String> {
        let mut connection = self.connect().await?;
        db::merchants::insert(&mut connection, self.merchant, "bench", None).await?;
        let seed = random.bytes();
        let key = ApiKey::generate(Mode::Test, &mut rand::rngs::StdRng::from_seed(seed));
        let new = db::api_keys::NewApiKey {
            id: random.uuid(),
            merchant: self.merchant,
            hash: key.hash(),
            hint: key.hint(),
            scope: Scope::Write,
            mode: Mode::Test,
        };
        db::api_keys::insert(&mut connection, new).await?;
        Ok(key.reveal().to_owned())
    }

    pub(crate) async fn connect(&self) -> anyhow::Result<PgConnection> {
        PgConnection::connect(&self.url())
            .await
            .context("the benchmark's Postgres can't be reached")
    }

    pub(crate) fn url(&self) -> String {
        self.postgres.url(DATABASE)
    }

    /// A program of this Postgres.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.postgres.bin_dir().join(name)
    }

    /// The process that all others of Postgres are children of.
    pub(crate) fn postmaster(&self) -> Option<u32> {
        self.postmaster
    }

    /// Postgres and what it runs with, as it says itself.
    pub(crate) async fn description(&self) -> anyhow::Result<String> {
        let names = [
            "server_version",
            "fsync",
            "synchronous_commit",
            "full_page_writes",
            "autovacuum",
            "shared_buffers",
            "max_wal_size",
            "checkpoint_timeout",
        ];
        let mut connection = self.connect().await?;
        let mut told = Vec::new();
        for name in names {
            let value: String = sqlx::query_scalar("SELECT current_setting($1)")
                .bind(name)
                .fetch_one(&mut connection)
                .await?;
            told.push(format!("{name} {value}"));
        }
        Ok(format!("Postgres: {}", told.join(", ")))
    }

    /// How many transactions were committed. A session that goes on may owe up to a second of its count.
    pub(crate) async fn commits(&self) -> anyhow::Result<i64> {
        let mut connection = self.connect().await?;
        let commits = sqlx::query_scalar(
            "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()",
        )
        .fetch_one(&mut connection)
        .await?;
        connection.close().await?;
        Ok(commits)
    }

    /// Empty tables, and all of what was written before on disk.
    pub(crate) async fn empty(&self) -> anyhow::Result<()> {
        let mut connection = self.connect().await?;
        for statement in [
            "TRUNCATE idempotent_requests, charges, outbox, charge_events, discrepancies",
            "VACUUM ANALYZE idempotent_requests, charges, outbox, charge_events",
            "CHECKPOINT",
        ] {
            sqlx::raw_sql(statement).execute(&mut connection).await?;
        }
        connection.close().await?;
        Ok(())
    }

    /// The three tables once more, in a schema of their own.
    pub(crate) async fn make_tables_for_pgbench(&self) -> anyhow::Result<()> {
        let mut connection = self.connect().await?;
        for statement in [
            "CREATE SCHEMA pgbench",
            "CREATE TABLE pgbench.idempotent_requests (LIKE public.idempotent_requests INCLUDING ALL)",
            "CREATE TABLE pgbench.charges (LIKE public.charges INCLUDING ALL)",
            "CREATE TABLE pgbench.outbox (LIKE public.outbox INCLUDING ALL)",
        ] {
            sqlx::raw_sql(statement).execute(&mut connection).await?;
        }
        connection.close().await?;
        Ok(())
    }

    pub(crate) async fn empty_tables_for_pgbench(&self) -> anyhow::Result<()> {
        let mut connection = self.connect().await?;
        sqlx::raw_sql("TRUNCATE pgbench.idempotent_requests, pgbench.charges, pgbench.outbox")
            .execute(&mut connection)
            .await?;
        connection.close().await?;
        Ok(())
    }

    pub(crate) async fn megabytes(&self) -> anyhow::Result<i64> {
        let mut connection = self.connect().await?;
        let megabytes =
            sqlx::query_scalar("SELECT pg_database_size(current_database()) / 1024 / 1024")
                .fetch_one(&mut connection)
                .await?;
        connection.close().await?;
        Ok(megabytes)
    }

    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        Ok(self.postgres.stop().await?)
    }
}
