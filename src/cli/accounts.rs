//! `payonce accounts`.

use anyhow::bail;
use clap::Subcommand;

use super::output::{self, Hinted, time};
use super::settings::Settings;
use super::{confirm, database};
use crate::app::{self, AppError};
use crate::config::{AccountSettings, Config};
use crate::db::accounts::{self, Open};
use crate::identity::NotOpen;
use crate::provider::stripe::currency::RULES;
use crate::telemetry;

#[derive(Debug, Subcommand)]
pub(super) enum Accounts {
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
            Self::Forget {
                name,
                yes,
                settings,
            } => forget(&name, yes, &settings.load()?).await,
        }
    }
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
        pinned_at = %pinned_at,
        open.charges = charges,
        open.refunds = refunds,
        "which of the provider's accounts a name stands for was forgotten"
    );
    output::data(&format!(
        "forgot that {name} stood for {account_id} since {}",
        time(pinned_at)
    ))
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
