//! `payonce reconcile`.

use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use tokio_util::sync::CancellationToken;

use super::output::{self, Hinted, counted, span};
use super::settings::{Settings, hinted};
use super::{accounts, database, discrepancies};
use crate::app;
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
Needs the database and the provider's settings, as `serve` does. An account that can't be swept keeps none of the others from
it. Exit code 0 if every sweep came to its end, no discrepancy is open, and no account is missing here that has a merchant, an
open charge or an open refund; else 1. With --account, that account and its discrepancies alone count.")]
pub(super) struct Reconcile {
    /// How far back: `90m`, `24h`, `30days`.
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = humantime::parse_duration)]
    since: Duration,
    /// One account alone, by its name; all that are configured if left out.
    #[arg(long, value_name = "ACCOUNT")]
    account: Option<String>,
    /// The discrepancies that are open, as one JSON object: `data`.
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
        accounts::check_name(&config, self.account.as_deref())?;
        let wanted = config.provider.accounts().filter(|account| {
            self.account
                .as_deref()
                .is_none_or(|name| name == account.name)
        });
        // One account's trouble keeps none of the others from being compared.
        let mut unswept = Vec::new();
        for account in wanted {
            let swept = match accounts::check(&config, account).await {
                Ok(()) => sweep(&config, account, self.since).await,
                Err(error) => Err(error),
            };
            match swept {
                Ok(standing) => output::message(format_args!(
                    "swept the account `{}`: the provider has {} with a stamp of ours from the last {}",
                    account.name,
                    counted(standing.objects, "object"),
                    span(self.since)
                )),
                Err(error) => {
                    output::failure(&error.context(format!("the account `{}`", account.name)));
                    unswept.push(format!("`{}`", account.name));
                }
            }
        }
        // Somebody else may have them. Who asks for one account asks for no other.
        let missing = match self.account {
            Some(_) => Vec::new(),
            None => accounts::missing(&mut connection, &config).await?,
        };
        for account in &missing {
            output::message(format_args!("{account}: it was not compared"));
        }
        let open = discrepancies::show(&mut connection, self.account.as_deref(), self.json).await?;
        result(&unswept, missing.len(), open)
    }
}

/// What the exit code says, in words.
fn result(unswept: &[String], missing: usize, open: usize) -> anyhow::Result<()> {
    let mut problems = Vec::new();
    if !unswept.is_empty() {
        problems.push(format!("not compared to the end: {}", unswept.join(", ")));
    }
    match missing {
        0 => {}
        1 => problems.push("an account with something open is not configured here".to_owned()),
        _ => problems.push(format!(
            "{missing} accounts with something open are not configured here"
        )),
    }
    match open {
        0 => {}
        1 => problems.push("1 discrepancy is open".to_owned()),
        _ => problems.push(format!("{open} discrepancies are open")),
    }
    if problems.is_empty() {
        return Ok(());
    }
    bail!("{}", problems.join("; "))
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
        app::Sending::of_command(account),
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
