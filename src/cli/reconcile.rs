//! `payonce reconcile`.

use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use tokio_util::sync::CancellationToken;

use super::output::Hinted;
use super::settings::{Settings, hinted};
use super::{accounts, database, discrepancies, output};
use crate::app;
use crate::budget::Budget;
use crate::config::{AccountSettings, Config, Roles};
use crate::db::sweeps::Standing;
use crate::meters::Meters;
use crate::random::Random;
use crate::reconciler::sweep::SweepMeters;

/// How often it looks whether the one who sweeps already has come to the end.
const LOOK: Duration = Duration::from_millis(500);

#[derive(Debug, Args)]
#[command(after_help = "\
Walks every object that the provider made since then, against the books, and the books of that time against what it met.
It ends no charge: what jobs must know is handed to them, an object that could still move money for a charge that is final
without it is canceled, and where the two differ it is written down for a person. If a process sweeps at this moment, this
command waits for it and sweeps then; it may be interrupted and begun again at any time.
Needs the database and the provider's settings, as `serve` does. Exit code 0 if the sweep came to its end and no discrepancy
is open, else 1.")]
pub(super) struct Reconcile {
    /// How far back: `90m`, `24h`, `30days`.
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = humantime::parse_duration)]
    since: Duration,
    /// One account alone, by its name; all that are configured if left out.
    #[arg(long, value_name = "ACCOUNT")]
    account: Option<String>,
    /// What is open, as one JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    settings: Settings,
}

impl Reconcile {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        const NEEDED: Roles = Roles {
            api: false,
            worker: false,
            reconciler: true,
        };
        let config = self.settings.load()?;
        config.check_for(NEEDED).map_err(|errors| hinted(&errors))?;
        let mut connection = database::connect(&config).await?;
        if let Some(name) = &self.account
            && !config.provider.has_account(name)
        {
            return Err(Hinted::new(
                format!("the configuration has no account `{name}`"),
                "`payonce config check` shows provider.account and provider.stripe.accounts",
            )
            .into());
        }
        let wanted = config.provider.accounts().filter(|account| {
            self.account
                .as_deref()
                .is_none_or(|name| name == account.name)
        });
        // One that does not answer keeps nobody from knowing of the others.
        let mut unswept = None;
        for account in wanted {
            let swept = match accounts::check(&config, account).await {
                Ok(()) => sweep(&config, account, self.since).await,
                Err(error) => Err(error),
            };
            match swept {
                Ok(standing) => output::message(format_args!(
                    "swept the account `{}`: the provider has {} objects with a stamp of ours from the last {}",
                    account.name,
                    standing.objects,
                    humantime::format_duration(self.since)
                )),
                Err(error) => {
                    output::message(format_args!("the account `{}` is not swept", account.name));
                    unswept = unswept.or(Some(error));
                }
            }
        }
        let open = discrepancies::show(&mut connection, self.json).await?;
        if let Some(error) = unswept {
            return Err(error);
        }
        if open > 0 {
            bail!("{open} discrepancies are open");
        }
        Ok(())
    }
}

/// Sweeps what an account made within `window`, to the end: by this process, or by the one that holds the account's sweep.
pub(super) async fn sweep(
    config: &Config,
    account: AccountSettings<'_>,
    window: Duration,
) -> anyhow::Result<Standing> {
    let meters = SweepMeters::new(&Meters::none());
    let mut sweeper = app::sweeper(
        config,
        account,
        database::url(config)?,
        &Random::from_os(),
        (Budget::unbounded(), app::identity(account)),
        meters,
    )?;
    let id = sweeper.want(window).await?;
    let never = CancellationToken::new();
    loop {
        let swept = sweeper.sweep(&never).await;
        let standing = sweeper
            .standing(id)
            .await?
            .context("the sweep that was asked for is gone")?;
        if standing.finished_at.is_some() {
            return Ok(standing);
        }
        swept.map_err(|error| {
            anyhow::Error::from(error).context(Hinted::new(
                "the sweep did not come to its end; nothing is known of what it did not see",
                "mend the cause and run it again; a process with the role reconciler goes on with it too",
            ))
        })?;
        tokio::time::sleep(LOOK).await;
    }
}
