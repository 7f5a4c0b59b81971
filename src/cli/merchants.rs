//! `payonce merchants`.

use std::collections::BTreeMap;

use clap::Subcommand;
use sqlx::postgres::PgConnection;

use super::output::{self, Hinted, counted, table, time};
use super::settings::Settings;
use super::{accounts, database};
use crate::config::Config;
use crate::db::books::MOST_COUNTED;
use crate::db::merchants::{self, Switched};
use crate::domain::ids::MerchantId;
use crate::random::Random;

#[derive(Debug, Subcommand)]
pub(super) enum Merchants {
    /// Make a merchant and print its id.
    Create {
        /// 1 to 100 characters; commands name the merchant by it.
        #[arg(value_parser = name)]
        name: String,
        /// The account at the provider that its charges are made in: one that the configuration has. Left out, it is the
        /// default one.
        #[arg(long, value_name = "ACCOUNT")]
        account: Option<String>,
        #[command(flatten)]
        settings: Settings,
    },
    /// Refuse all keys of a merchant, within two seconds. What was accepted before is carried to its end.
    Disable {
        /// The merchant's name.
        name: String,
        #[command(flatten)]
        settings: Settings,
    },
    /// Take the keys of a disabled merchant again, those that were not revoked.
    Enable {
        /// The merchant's name.
        name: String,
        #[command(flatten)]
        settings: Settings,
    },
    /// Make a merchant's new charges in another account at the provider, within two seconds. What was accepted before is
    /// carried to its end, and refunded, in the account that it was accepted for: that one must stay configured.
    SetAccount {
        /// The merchant's name.
        name: String,
        /// One that the configuration has.
        #[arg(value_name = "ACCOUNT", required_unless_present = "default")]
        account: Option<String>,
        /// The default account, whatever its name is.
        #[arg(long, conflicts_with = "account")]
        default: bool,
        #[command(flatten)]
        settings: Settings,
    },
    /// List all merchants.
    List {
        #[command(flatten)]
        settings: Settings,
    },
}

fn name(text: &str) -> Result<String, String> {
    let sane = (1..=100).contains(&text.chars().count())
        && !text.chars().any(char::is_control)
        && text.trim() == text;
    if sane {
        Ok(text.to_owned())
    } else {
        Err("a name has 1 to 100 characters, none of them a control character, and no blank at either end".to_owned())
    }
}

impl Merchants {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Create {
                name,
                account,
                settings,
            } => {
                let config = settings.load()?;
                accounts::check_name(&config, account.as_deref())?;
                let mut connection = database::connect(&config).await?;
                let account = account.as_deref();
                create(&mut connection, &name, account, &Random::from_os()).await
            }
            Self::SetAccount {
                name,
                account,
                default: _,
                settings,
            } => {
                let config = settings.load()?;
                accounts::check_name(&config, account.as_deref())?;
                let mut connection = database::connect(&config).await?;
                set_account(&mut connection, &name, account.as_deref(), &config).await
            }
            Self::Disable { name, settings } => {
                let mut connection = database::connect(&settings.load()?).await?;
                switch(&mut connection, &name, true).await
            }
            Self::Enable { name, settings } => {
                let mut connection = database::connect(&settings.load()?).await?;
                switch(&mut connection, &name, false).await
            }
            Self::List { settings } => {
                let mut connection = database::connect(&settings.load()?).await?;
                list(&mut connection).await
            }
        }
    }
}

async fn set_account(
    connection: &mut PgConnection,
    name: &str,
    account: Option<&str>,
    config: &Config,
) -> anyhow::Result<()> {
    let Some(moved) = merchants::set_account(connection, name, account).await? else {
        return Err(unknown(name));
    };
    let default = &config.provider.account;
    let shown = |account: Option<&str>| {
        account.map_or_else(
            || format!("the default account (`{default}` here)"),
            |account| format!("the account `{account}`"),
        )
    };
    let now = shown(account);
    if moved.was.as_deref() == account {
        output::message(format_args!("`{name}` was on {now} before"));
        return Ok(());
    }
    output::message(format_args!(
        "`{name}` is on {now}, and was on {}: its new charges are made there within two seconds; refunds go where their charges were made",
        shown(moved.was.as_deref())
    ));
    for (account, open) in open_by_account(connection, name, default).await? {
        let missing = if config.provider.has_account(&account) {
            ""
        } else {
            ", which the configuration here does not have"
        };
        output::message(format_args!(
            "{} on the account `{account}`{missing}: {} there, and the account must stay configured",
            open.told(),
            if open.count() == 1 {
                "it stays"
            } else {
                "they stay"
            },
        ));
    }
    Ok(())
}

/// What a merchant has open somewhere.
#[derive(Default)]
struct Open {
    charges: i64,
    refunds: i64,
}

impl Open {
    fn count(&self) -> i64 {
        self.charges + self.refunds
    }

    fn told(&self) -> String {
        let told = [(self.charges, "charge"), (self.refunds, "refund")]
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, thing)| counted(count, &format!("open {thing}")))
            .collect::<Vec<_>>()
            .join(" and ");
        // As many as are counted.
        if self.count() < MOST_COUNTED {
            told
        } else {
            format!("at least {told}")
        }
    }
}

/// By the accounts' names; what names none is on the default one.
async fn open_by_account(
    connection: &mut PgConnection,
    name: &str,
    default: &str,
) -> anyhow::Result<BTreeMap<String, Open>> {
    let mut by_account: BTreeMap<String, Open> = BTreeMap::new();
    for found in merchants::open(connection, name).await? {
        let account = found.account.unwrap_or_else(|| default.to_owned());
        let open = by_account.entry(account).or_default();
        open.charges += found.charges;
        open.refunds += found.refunds;
    }
    Ok(by_account)
}

async fn create(
    connection: &mut PgConnection,
    name: &str,
    account: Option<&str>,
    random: &Random,
) -> anyhow::Result<()> {
    let merchant = MerchantId::from_uuid(random.uuid());
    if !merchants::insert(connection, merchant, name, account).await? {
        return Err(Hinted::new(
            format!("there is a merchant `{name}` already"),
            "`payonce merchants list` shows all of them",
        )
        .into());
    }
    output::data(&merchant.to_string())?;
    output::message(format_args!(
        "made the merchant `{name}`; give it a key with `payonce api-keys create --merchant '{name}'`"
    ));
    Ok(())
}

async fn switch(connection: &mut PgConnection, name: &str, disabled: bool) -> anyhow::Result<()> {
    let (state, effect) = if disabled {
        ("disabled", "its keys are refused within two seconds")
    } else {
        ("enabled", "its keys are taken again within two seconds")
    };
    match merchants::switch(connection, name, disabled).await? {
        Switched::Done => output::message(format_args!("{state} `{name}`; {effect}")),
        Switched::AsBefore => output::message(format_args!("`{name}` was {state} before")),
        Switched::Unknown => return Err(unknown(name)),
    }
    Ok(())
}

async fn list(connection: &mut PgConnection) -> anyhow::Result<()> {
    let rows: Vec<[String; 5]> = merchants::list(connection)
        .await?
        .into_iter()
        .map(|merchant| {
            [
                MerchantId::from_uuid(merchant.id).to_string(),
                time(merchant.created_at),
                merchant.disabled_at.map_or_else(
                    || "active".to_owned(),
                    |at| format!("disabled {}", time(at)),
                ),
                merchant.account.unwrap_or_else(|| "-".to_owned()),
                merchant.name,
            ]
        })
        .collect();
    output::data(&table(["id", "created", "state", "account", "name"], &rows))
}

/// The merchant of that name.
pub(super) async fn find(connection: &mut PgConnection, name: &str) -> anyhow::Result<MerchantId> {
    merchants::find_by_name(connection, name)
        .await?
        .ok_or_else(|| unknown(name))
}

fn unknown(name: &str) -> anyhow::Error {
    Hinted::new(
        format!("there is no merchant `{name}`"),
        format!("`payonce merchants list` shows all; `payonce merchants create '{name}'` makes it"),
    )
    .into()
}
