//! `payonce discrepancies`.

use clap::Subcommand;
use serde_json::json;
use sqlx::postgres::PgConnection;

use super::output::{self, Hinted, table, time};
use super::settings::Settings;
use super::{charges, database};
use crate::db::discrepancies::{self, Discrepancy};
use crate::db::discrepancy_refunds;
use crate::domain::ids::{ChargeId, RefundId};
use crate::provider::stripe::currency::RULES;
use crate::reconciler::returned::{self, Wish};

/// The most that are shown.
const LIMIT: i64 = 1000;

#[derive(Debug, Subcommand)]
pub(super) enum Discrepancies {
    /// List those that nobody has resolved, oldest first, at most 1000.
    List {
        /// Those in this account alone, and those of which no account is known.
        #[arg(long, value_name = "ACCOUNT")]
        account: Option<String>,
        /// As one JSON object: `data`.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        settings: Settings,
    },
    /// Send back what moved for a charge that was told failed: all of it, once. The discrepancy is resolved when the refund
    /// has completed; `payonce refunds show` tells how it stands.
    Refund {
        /// Its number in the list: of the kind `success_after_failed`.
        id: i64,
        /// Why; kept in the charge's history.
        #[arg(long, value_name = "TEXT", value_parser = charges::reason)]
        reason: String,
        #[command(flatten)]
        settings: Settings,
    },
    /// Say that one is dealt with: refunded, explained, booked by hand. Changes no charge. Where an object stood in the
    /// way of its charge's job, `payonce charges retry` lets that job go on.
    Resolve {
        /// Its number in the list.
        id: i64,
        /// What was done; kept with it and in the charge's history.
        #[arg(long, value_name = "TEXT", value_parser = charges::reason)]
        reason: String,
        #[command(flatten)]
        settings: Settings,
    },
}

impl Discrepancies {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        match self {
            Self::List {
                account,
                json,
                settings,
            } => {
                let mut connection = database::connect(&settings.load()?).await?;
                show(&mut connection, account.as_deref(), json)
                    .await
                    .map(|_| ())
            }
            Self::Refund {
                id,
                reason,
                settings,
            } => {
                let mut connection = database::connect(&settings.load()?).await?;
                let refund = refund(&mut connection, id, &reason).await?;
                output::message(format_args!(
                    "{refund} sends the money of discrepancy {id} back"
                ));
                Ok(())
            }
            Self::Resolve {
                id,
                reason,
                settings,
            } => {
                let mut connection = database::connect(&settings.load()?).await?;
                if !discrepancies::resolve(&mut connection, id, &reason).await? {
                    return Err(Hinted::new(
                        format!("no discrepancy {id} is open"),
                        "`payonce discrepancies list` shows those that are",
                    )
                    .into());
                }
                output::message(format_args!("discrepancy {id} is resolved"));
                Ok(())
            }
        }
    }
}

async fn refund(connection: &mut PgConnection, id: i64, reason: &str) -> anyhow::Result<RefundId> {
    let found = discrepancy_refunds::refundable(connection, RULES.provider, Some(id), 1).await?;
    let refused = || {
        Hinted::new(
            format!(
                "discrepancy {id} is not open, has a refund, or is none that a refund resolves"
            ),
            "`payonce discrepancies list` shows it: it must be success_after_failed, and its object have moved what the charge asked for",
        )
    };
    let discrepancy = found.first().ok_or_else(refused)?;
    let wish = Wish {
        actor: "operator",
        reason,
    };
    let refund = returned::refund(connection, &RULES, discrepancy, wish).await?;
    Ok(refund.ok_or_else(refused)?)
}

/// Shows what is open, in all accounts or in one. Returns how many.
pub(super) async fn show(
    connection: &mut PgConnection,
    account: Option<&str>,
    json: bool,
) -> anyhow::Result<usize> {
    let open = discrepancies::open(connection, account, LIMIT).await?;
    if json {
        output::data(&serde_json::to_string_pretty(&json!({ "data": open }))?)?;
    } else if open.is_empty() {
        output::message("no discrepancy is open");
    } else {
        let rows: Vec<[String; 7]> = open.iter().map(row).collect();
        output::data(&table(
            [
                "id",
                "kind",
                "found",
                "account",
                "object",
                "charge",
                "object is",
            ],
            &rows,
        ))?;
    }
    Ok(open.len())
}

fn charge(discrepancy: &Discrepancy) -> Option<String> {
    discrepancy
        .charge_id
        .map(|id| ChargeId::from_uuid(id).to_string())
}

fn row(discrepancy: &Discrepancy) -> [String; 7] {
    let detail = |name: &str| match &discrepancy.detail[name] {
        serde_json::Value::String(text) => text.clone(),
        serde_json::Value::Null => String::new(),
        other => other.to_string(),
    };
    let object = ["status", "amount", "currency"].map(detail);
    [
        discrepancy.id.to_string(),
        discrepancy.kind.clone(),
        time(discrepancy.found_at),
        discrepancy
            .account
            .clone()
            .unwrap_or_else(|| "-".to_owned()),
        discrepancy.provider_charge_id.clone(),
        charge(discrepancy).unwrap_or_else(|| "none".to_owned()),
        object
            .iter()
            .filter(|text| !text.is_empty())
            .cloned()
            .collect::<Vec<_>>()
            .join(" "),
    ]
}
