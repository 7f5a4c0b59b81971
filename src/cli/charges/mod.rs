//! `payonce charges`: an operator's tools, for any merchant's charges.

mod list;
mod refusal;
mod resolve;
mod retry;
mod show;
mod story;

use clap::Subcommand;
use sqlx::PgConnection;

use super::output::Hinted;
use crate::db::charges;
use crate::domain::charge::Charge;
use crate::domain::ids::ChargeId;

#[derive(Debug, Subcommand)]
pub(super) enum Charges {
    /// Show a charge, what comes next for it and why, and its history.
    Show(show::Show),
    /// List charges, newest first.
    List(list::List),
    /// Let jobs run now: the way out of parked, once what parked them is mended.
    Retry(retry::Retry),
    /// End a charge by decision, after asking the provider.
    Resolve(resolve::Resolve),
}

impl Charges {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Show(command) => command.run().await,
            Self::List(command) => command.run().await,
            Self::Retry(command) => command.run().await,
            Self::Resolve(command) => command.run().await,
        }
    }
}

async fn find(connection: &mut PgConnection, id: ChargeId) -> anyhow::Result<Charge> {
    let (charge, _) = charges::find_all(connection, &[id.as_uuid()])
        .await?
        .pop()
        .ok_or_else(|| {
            Hinted::new(
                format!("there is no charge {id}"),
                "check that DATABASE_URL names the database it was accepted in",
            )
        })?;
    Ok(charge)
}

/// Why a charge is changed by hand: written into its history, where its merchant can read it too. Or why sending is paused.
pub(super) fn reason(text: &str) -> Result<String, String> {
    let text = text.trim();
    let sane = (1..=500).contains(&text.chars().count()) && !text.chars().any(char::is_control);
    if sane {
        Ok(text.to_owned())
    } else {
        Err("a reason has 1 to 500 characters, none of them a control character".to_owned())
    }
}
