//! `payonce accounts`: the accounts at the provider.

use std::collections::BTreeMap;

use clap::Subcommand;
use serde_json::{Value, json};
use sqlx::PgConnection;

use super::database;
use super::output::{self, counted, table, time};
use super::settings::Settings;
use crate::app;
use crate::config::Config;
use crate::db::account_standing::{self, AccountStanding};
use crate::db::charge_search::InAccount;

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
}

impl Accounts {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        match self {
            Self::List { json, settings } => {
                let config = settings.load()?;
                let mut connection = database::connect(&config).await?;
                list(&mut connection, &config, json).await
            }
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
