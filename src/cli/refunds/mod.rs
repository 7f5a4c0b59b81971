//! `payonce refunds`: an operator's tools, for any merchant's refunds.

mod show;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use sqlx::PgConnection;

use super::output::{self, Hinted, table, time};
use super::settings::Settings;
use super::{charges, database, job_story};
use crate::db::refunds;
use crate::domain::ids::RefundId;
use crate::domain::refund::{Refund, RefundState};

#[derive(Debug, Subcommand)]
pub(super) enum Refunds {
    /// Show a refund, what comes next for it and why, and its history.
    Show {
        /// `rfd_` and 32 hex digits.
        id: RefundId,
        /// As one JSON object.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        settings: Settings,
    },
    /// List refunds, newest first, with what their jobs wait for.
    List {
        /// Only those whose job is parked.
        #[arg(long)]
        parked: bool,
        /// Only those that have not ended.
        #[arg(long)]
        open: bool,
        /// Only those in this account at the provider.
        #[arg(long, value_name = "ACCOUNT")]
        account: Option<String>,
        /// At most as many.
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=1000))]
        limit: i64,
        /// As one JSON object: `data`.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        settings: Settings,
    },
    /// Let the job of a refund run now: the way out of parked, once what parked it is mended.
    Retry(Retry),
}

#[derive(Debug, Args)]
#[command(after_help = "\
The run looks at the charge's refunds at the provider first: a retry alone refunds nothing twice. A refund that is parked
with key_window_over may have been sent, and the provider may have forgotten its key: it is looked for and not sent. Once you
have made sure at the provider that it was not made and is not on its way, --send-again sends it under another key.")]
pub(super) struct Retry {
    /// `rfd_` and 32 hex digits.
    id: RefundId,
    /// Send it under another key, if none is found: only for who has made sure that no send before will ever land.
    #[arg(long)]
    send_again: bool,
    /// Why; kept in the charge's history.
    #[arg(long, value_name = "TEXT", value_parser = charges::reason)]
    reason: String,
    #[command(flatten)]
    settings: Settings,
}

impl Refunds {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Show { id, json, settings } => {
                let config = settings.load()?;
                let mut connection = database::connect(&config).await?;
                show::show(&mut connection, &config, id, json).await
            }
            Self::List {
                parked,
                open,
                account,
                limit,
                json,
                settings,
            } => {
                let mut connection = database::connect(&settings.load()?).await?;
                let search = refunds::Search {
                    parked,
                    open,
                    account: account.as_deref(),
                    limit,
                };
                list(&mut connection, search, json).await
            }
            Self::Retry(command) => command.run().await,
        }
    }
}

impl Retry {
    async fn run(self) -> anyhow::Result<()> {
        let mut connection = database::connect(&self.settings.load()?).await?;
        let retried =
            refunds::retry(&mut connection, self.id, self.send_again, &self.reason).await?;
        let Some(was) = retried else {
            return Err(Hinted::new(
                format!("nothing could be done for {}", self.id),
                "its job runs at this moment, or it has ended, or the provider's refund is known: `payonce refunds show ID`",
            )
            .into());
        };
        output::data(&format!("{}  runs now; it was {was}", self.id))
    }
}

async fn find(connection: &mut PgConnection, id: RefundId) -> anyhow::Result<Refund> {
    let (refund, _) = refunds::find_all(connection, &[id.as_uuid()])
        .await?
        .pop()
        .ok_or_else(|| {
            Hinted::new(
                format!("there is no refund {id}"),
                "check that DATABASE_URL names the database it was accepted in",
            )
        })?;
    Ok(refund)
}

/// In the words of the HTTP interface where it has them.
fn told(refund: &Refund) -> Value {
    let progress = &refund.progress;
    let failure = match &progress.state {
        RefundState::Failed(failure) => Some(failure),
        _ => None,
    };
    json!({
        "id": refund.id.to_string(),
        "charge_id": refund.charge().to_string(),
        "merchant_id": refund.merchant.to_string(),
        "idempotency_key": refund.idempotency_key.as_str(),
        "status": progress.state.status().as_str(),
        "stage": progress.state.stage().as_str(),
        "money": progress.state.money().as_str(),
        "version": progress.version,
        "amount": refund.amount,
        "currency": refund.currency,
        "reason": refund.request.reason,
        "metadata": refund.request.metadata,
        "provider": refund.provider,
        "provider_account": refund.provider_account,
        "provider_charge_id": refund.provider_charge_id,
        "provider_refund_id": progress.object.as_ref().map(ToString::to_string),
        "attempts": progress.attempts,
        "key_number": progress.key_number,
        "first_attempted_at": progress.first_attempted_at.map(time),
        "failure": failure,
        "created_at": time(refund.created_at),
        "updated_at": time(refund.updated_at),
        "finished_at": refund.finished_at.map(time),
    })
}

async fn list(
    connection: &mut PgConnection,
    search: refunds::Search<'_>,
    json: bool,
) -> anyhow::Result<()> {
    let found = refunds::search(connection, search).await?;
    if json {
        let data: Vec<Value> = found
            .iter()
            .map(|found| {
                let mut told = told(&found.refund);
                told["job"] = json!({
                    "state": found.job_state,
                    "last_error": found.last_error,
                    "last_call": found.last_call,
                });
                told
            })
            .collect();
        return output::data(&format!("{:#}", json!({ "data": data })));
    }
    let rows: Vec<[String; 8]> = found
        .iter()
        .map(|found| {
            let refund = &found.refund;
            let why = job_story::why(found.last_error.as_deref(), found.last_call.as_ref());
            [
                refund.id.to_string(),
                refund.charge().to_string(),
                refund.provider_account.clone(),
                format!("{} {}", refund.amount, refund.currency),
                refund.progress.state.stage().to_string(),
                time(refund.created_at),
                found.job_state.clone().unwrap_or_default(),
                why.unwrap_or_default(),
            ]
        })
        .collect();
    output::data(&table(
        [
            "id", "charge", "account", "amount", "stage", "created", "job", "why",
        ],
        &rows,
    ))
}
