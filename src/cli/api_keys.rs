//! `payonce api-keys`. A key is printed once, by the command that makes it, and can be read nowhere afterwards.

use clap::{Subcommand, ValueEnum};
use rand::SeedableRng;
use rand::rngs::StdRng;
use sqlx::postgres::PgConnection;
use uuid::Uuid;

use super::database;
use super::merchants;
use super::output::{self, Hinted, table, time};
use super::settings::Settings;
use crate::db::api_keys::{self, NewApiKey};
use crate::domain::api_key::{ApiKey, Mode, Scope};
use crate::random::Random;

#[derive(Debug, Subcommand)]
pub(super) enum ApiKeys {
    /// Make a key and print it, this once, alone on stdout.
    Create {
        /// The merchant's name.
        #[arg(long, value_name = "NAME")]
        merchant: String,
        /// What the key may do.
        #[arg(long, value_enum, default_value_t = ScopeArg::Write)]
        scope: ScopeArg,
        /// Whether it moves real money; as `provider.mode` if left out.
        #[arg(long, value_enum)]
        mode: Option<ModeArg>,
        #[command(flatten)]
        settings: Settings,
    },
    /// Revoke a key for ever.
    Revoke {
        /// The key's id, as `list` shows it.
        id: Uuid,
        #[command(flatten)]
        settings: Settings,
    },
    /// List a merchant's keys: their ids and last characters, never the keys.
    List {
        /// The merchant's name.
        #[arg(long, value_name = "NAME")]
        merchant: String,
        #[command(flatten)]
        settings: Settings,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum ScopeArg {
    Read,
    Write,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum ModeArg {
    Test,
    Live,
}

impl From<ScopeArg> for Scope {
    fn from(scope: ScopeArg) -> Self {
        match scope {
            ScopeArg::Read => Self::Read,
            ScopeArg::Write => Self::Write,
        }
    }
}

impl From<ModeArg> for Mode {
    fn from(mode: ModeArg) -> Self {
        match mode {
            ModeArg::Test => Self::Test,
            ModeArg::Live => Self::Live,
        }
    }
}

impl ApiKeys {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Create {
                merchant,
                scope,
                mode,
                settings,
            } => {
                let config = settings.load()?;
                let served = config.provider.mode;
                let mode = mode.map_or(served, Mode::from);
                let mut connection = database::connect(&config).await?;
                create(&mut connection, &merchant, scope.into(), mode).await?;
                if mode != served {
                    output::message(format_args!(
                        "note: provider.mode is {} here, and a {} key is refused by it",
                        served.as_str(),
                        mode.as_str()
                    ));
                }
                Ok(())
            }
            Self::Revoke { id, settings } => {
                let mut connection = database::connect(&settings.load()?).await?;
                revoke(&mut connection, id).await
            }
            Self::List { merchant, settings } => {
                let mut connection = database::connect(&settings.load()?).await?;
                list(&mut connection, &merchant).await
            }
        }
    }
}

async fn create(
    connection: &mut PgConnection,
    merchant: &str,
    scope: Scope,
    mode: Mode,
) -> anyhow::Result<()> {
    let holder = merchants::find(connection, merchant).await?;
    let random = Random::from_os();
    let key = ApiKey::generate(mode, &mut StdRng::from_seed(random.bytes()));
    let id = random.uuid();
    let stored = api_keys::insert(
        connection,
        NewApiKey {
            id,
            merchant: holder,
            hash: key.hash(),
            hint: key.hint(),
            scope,
            mode,
        },
    )
    .await?;
    anyhow::ensure!(stored, "the key was not stored");
    output::data(key.reveal())?;
    output::message(format_args!(
        "made the {} key {id} of `{merchant}`; keep it now, it is never shown again",
        mode.as_str()
    ));
    Ok(())
}

async fn revoke(connection: &mut PgConnection, id: Uuid) -> anyhow::Result<()> {
    if !api_keys::revoke(connection, id).await? {
        return Err(Hinted::new(
            format!("there is no key {id} that could be revoked"),
            "`payonce api-keys list --merchant NAME` shows the keys and which are revoked already",
        )
        .into());
    }
    output::message(format_args!("revoked the key {id}"));
    Ok(())
}

async fn list(connection: &mut PgConnection, merchant: &str) -> anyhow::Result<()> {
    let holder = merchants::find(connection, merchant).await?;
    let rows: Vec<[String; 6]> = api_keys::list(connection, Some(holder))
        .await?
        .into_iter()
        .map(|key| {
            [
                key.id.to_string(),
                key.mode,
                key.scope,
                format!("…{}", key.hint),
                time(key.created_at),
                key.revoked_at
                    .map_or_else(|| "active".to_owned(), |at| format!("revoked {}", time(at))),
            ]
        })
        .collect();
    output::data(&table(
        ["id", "mode", "scope", "ends in", "created", "state"],
        &rows,
    ))
}
