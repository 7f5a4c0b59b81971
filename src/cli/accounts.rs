//! `payonce accounts`: the accounts at the provider.

use std::collections::BTreeMap;

use anyhow::bail;
use clap::Subcommand;
use serde_json::{Value, json};
use sqlx::PgConnection;

use super::output::{self, Hinted, counted, table, time};
use super::settings::Settings;
use super::{confirm, database};
use crate::app::{self, AppError};
use crate::clock;
use crate::config::{AccountSettings, Config};
use crate::db::account_standing::{self, AccountStanding};
use crate::db::accounts::{self, Open};
use crate::db::charge_search::InAccount;
use crate::identity::NotOpen;
use crate::provider::stripe::currency::RULES;
use crate::telemetry;

#[derive(Debug, Subcommand)]
pub(super) enum Accounts {
    /// List the accounts of the configuration and of the books, with what is open in each: an account may be taken out of
    /// the configuration once it has no merchant and nothing open.
    List {
        /// As one JSON object: `data`.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        settings: Settings,
    },
    /// Forget which of the provider's accounts a name stands for, after it was really given to another one.
    #[command(after_help = "\
The next process that starts with a key under the name pins it to the account which that key opens. Stop all processes with
the roles worker and reconciler first: one that starts meanwhile with the old key pins the old account again. What the name
has charged stays in the old account, where its refunds and its looks go no more: a new name for a new account is better.
Refused while charges or refunds of the account are under way, unless --yes is given. It is logged, with what was forgotten.")]
    Forget {
        /// The account's name in the configuration.
        name: String,
        /// Do not ask for a typed confirmation, and forget it although charges or refunds are under way.
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        settings: Settings,
    },
}

impl Accounts {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        match self {
            Self::List { json, settings } => {
                let config = settings.load()?;
                let mut connection = database::connect(&config).await?;
                list(&mut connection, &config, json).await
            }
            Self::Forget {
                name,
                yes,
                settings,
            } => forget(&name, yes, &settings.load()?).await,
        }
    }
}

async fn list(connection: &mut PgConnection, config: &Config, json: bool) -> anyhow::Result<()> {
    let mut accounts: BTreeMap<String, AccountStanding> = BTreeMap::new();
    for standing in account_standing::all(connection, &config.provider.account).await? {
        accounts.insert(standing.name.clone(), standing);
    }
    for account in config.provider.accounts() {
        let standing = accounts.entry(account.name.to_owned()).or_default();
        account.name.clone_into(&mut standing.name);
    }
    if json {
        let data: Vec<Value> = accounts
            .values()
            .map(|standing| as_json(standing, config))
            .collect();
        return output::data(&format!("{:#}", json!({ "data": data })));
    }
    let rows: Vec<[String; 8]> = accounts
        .values()
        .map(|standing| row(standing, config))
        .collect();
    output::data(&table(
        [
            "account",
            "configured",
            "merchants",
            "open charges",
            "parked",
            "open refunds",
            "parked",
            "last sweep",
        ],
        &rows,
    ))
}

fn row(standing: &AccountStanding, config: &Config) -> [String; 8] {
    let configured = if standing.name == config.provider.account {
        "default"
    } else if config.provider.has_account(&standing.name) {
        "yes"
    } else {
        "no"
    };
    [
        standing.name.clone(),
        configured.to_owned(),
        standing.merchants.to_string(),
        standing.open_charges.to_string(),
        standing.parked_charges.to_string(),
        standing.open_refunds.to_string(),
        standing.parked_refunds.to_string(),
        standing.swept_at.map_or_else(|| "never".to_owned(), time),
    ]
}

fn as_json(standing: &AccountStanding, config: &Config) -> Value {
    json!({
        "account": standing.name,
        "configured": config.provider.has_account(&standing.name),
        "default": standing.name == config.provider.account,
        "merchants": standing.merchants,
        "open_charges": standing.open_charges,
        "parked_charges": standing.parked_charges,
        "open_refunds": standing.open_refunds,
        "parked_refunds": standing.parked_refunds,
        "swept_at": standing.swept_at.map(time),
    })
}

/// The account of that name, which need not be configured: what an account that was taken out has left can be listed.
pub(super) fn named<'a>(name: &'a str, config: &Config) -> InAccount<'a> {
    InAccount {
        name,
        is_default: name == config.provider.account,
    }
}

/// Accounts that merchants are on, or that have something open, and that the configuration does not have: a line each.
pub(super) async fn missing(
    connection: &mut PgConnection,
    config: &Config,
) -> anyhow::Result<Vec<String>> {
    let standing = account_standing::all(connection, &config.provider.account).await?;
    Ok(app::missing(standing, &config.provider)
        .iter()
        .map(|account| {
            format!(
                "the account `{}` is not in the configuration here, and {}",
                account.name,
                told(account)
            )
        })
        .collect())
}

/// What there is of it, in words.
fn told(account: &AccountStanding) -> String {
    let parts: Vec<String> = [
        (account.merchants, "merchant"),
        (account.open_charges, "open charge"),
        (account.open_refunds, "open refund"),
    ]
    .into_iter()
    .filter(|(count, _)| *count > 0)
    .map(|(count, thing)| counted(count, thing))
    .collect();
    if parts.is_empty() {
        // Of refunds that have ended.
        return format!("has {}", counted(account.parked_refunds, "parked job"));
    }
    format!("has {}", parts.join(", "))
}

async fn forget(name: &str, yes: bool, config: &Config) -> anyhow::Result<()> {
    telemetry::init(&config.log)?;
    let mut connection = database::connect(config).await?;
    let pins = accounts::list(&mut connection, RULES.provider).await?;
    let Some(pin) = pins.iter().find(|pin| pin.name == name) else {
        return Err(Hinted::new(
            format!("no account of the provider's is known for `{name}`"),
            match pins.iter().map(|pin| pin.name.as_str()).collect::<Vec<_>>() {
                none if none.is_empty() => "none is known for any name".to_owned(),
                names => format!("one is for: {}", names.join(", ")),
            },
        )
        .into());
    };
    let Open { charges, refunds } =
        accounts::open(&mut connection, name, &config.provider.account).await?;
    if !yes {
        if charges + refunds > 0 {
            return Err(Hinted::new(
                format!(
                    "{charges} charges and {refunds} refunds of the account `{name}` are under way in {}",
                    pin.account_id
                ),
                "let them end with the old key, or give --yes: they are then looked for in another account",
            )
            .into());
        }
        let question = format!("Forget that `{name}` stands for {}?", pin.account_id);
        confirm::typed(&question, name)?;
    }
    let Some((account_id, pinned_at)) =
        accounts::forget(&mut connection, RULES.provider, name).await?
    else {
        bail!("somebody else has forgotten it");
    };
    tracing::warn!(
        code = "account_forgotten",
        account = name,
        account_id,
        pinned_at = %clock::shown(pinned_at),
        open.charges = charges,
        open.refunds = refunds,
        "which of the provider's accounts a name stands for was forgotten"
    );
    output::data(&format!(
        "forgot that {name} stood for {account_id} since {}",
        time(pinned_at)
    ))
}

/// Refuses a name that the configuration does not have: what is put on it would wait for ever.
pub(super) fn check_name(config: &Config, account: Option<&str>) -> anyhow::Result<()> {
    let Some(name) = account.filter(|name| !config.provider.has_account(name)) else {
        return Ok(());
    };
    let known: Vec<&str> = config.provider.accounts().map(|known| known.name).collect();
    Err(Hinted::new(
        format!("the configuration has no account `{name}`"),
        format!(
            "it has {}; [provider.stripe.accounts.NAME] adds one",
            known.join(", ")
        ),
    )
    .into())
}

/// Refuses what would be done with a key of another account than its name stands for.
pub(super) async fn check(config: &Config, account: AccountSettings<'_>) -> anyhow::Result<()> {
    let checked = app::check_account(config, account, database::url(config)?).await;
    let hint = match &checked {
        Ok(()) => return Ok(()),
        Err(AppError::Account(NotOpen::AnotherAccount(_))) => {
            "set the key of the account that the name stands for; `payonce accounts forget NAME` if it was really replaced"
        }
        Err(_) => "mend the cause and run it again; nothing was done",
    };
    checked.map_err(|error| {
        anyhow::Error::from(error).context(Hinted::new(
            "nothing is done with a key that is not known to be its account's",
            hint,
        ))
    })
}
