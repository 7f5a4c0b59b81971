//! `payonce charges list`.

use std::time::Duration;

use clap::{ArgAction, Args};
use serde_json::{Map, Value, json};

use crate::cli::output::{self, table, time};
use crate::cli::settings::Settings;
use crate::cli::{accounts, database, job_story, merchants};
use crate::db::charge_search::{self, FoundCharge, Search};
use crate::domain::charge::{Stage, Status};
use crate::domain::ids::ChargeId;

#[derive(Debug, Args)]
pub(in crate::cli) struct List {
    /// At this stage: `pending`, `processing`, `requires_action`, `requires_reconciliation`, `succeeded`, `failed`,
    /// `canceled`.
    #[arg(long, value_parser = stage)]
    stage: Option<Stage>,
    /// With this status: `in_progress`, `completed`, `failed`.
    #[arg(long, value_parser = status)]
    status: Option<Status>,
    /// Of this merchant.
    #[arg(long, value_name = "NAME")]
    merchant: Option<String>,
    /// In this account at the provider.
    #[arg(long, value_name = "ACCOUNT")]
    account: Option<String>,
    /// With exactly this reference.
    #[arg(long)]
    reference: Option<String>,
    /// Whose job waits for an operator.
    #[arg(long, action = ArgAction::SetTrue)]
    parked: bool,
    /// Of which nobody knows whether the money moved: at `requires_reconciliation`.
    #[arg(long, action = ArgAction::SetTrue)]
    unclear: bool,
    /// Accepted longer ago than this: `10m`, `24h`.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    older_than: Option<Duration>,
    /// At most this many.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
    /// As one JSON object: `data`, and `has_more` if the limit cut it off.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    settings: Settings,
}

fn stage(word: &str) -> Result<Stage, String> {
    Stage::parse(word).ok_or_else(|| known(Stage::ALL.iter().map(|stage| stage.as_str())))
}

fn status(word: &str) -> Result<Status, String> {
    Status::parse(word).ok_or_else(|| known(Status::ALL.iter().map(|status| status.as_str())))
}

fn known<'a>(words: impl Iterator<Item = &'a str>) -> String {
    format!("known are {}", words.collect::<Vec<_>>().join(", "))
}

impl List {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let config = self.settings.load()?;
        let mut connection = database::connect(&config).await?;
        let merchant = match &self.merchant {
            Some(name) => Some(merchants::find(&mut connection, name).await?),
            None => None,
        };
        let stages = self.stages();
        let search = Search {
            stages: &stages,
            parked: self.parked,
            merchant,
            reference: self.reference.as_deref(),
            older_than: self.older_than,
            account: self
                .account
                .as_deref()
                .map(|name| accounts::named(name, &config)),
            // One more tells whether there are more.
            limit: i64::from(self.limit) + 1,
        };
        let mut found = if self.parked || stages.iter().all(|stage| is_open(*stage)) {
            charge_search::open(&mut connection, &search).await?
        } else {
            charge_search::all(&mut connection, &search).await?
        };
        let has_more = found.len() > usize::from(self.limit);
        found.truncate(self.limit.into());
        // A job that was made anew is younger than its charge.
        found.sort_by_key(|charge| std::cmp::Reverse((charge.created_at, charge.id)));
        if self.json {
            let data: Vec<Value> = found.iter().map(as_json).collect();
            let document = json!({ "data": data, "has_more": has_more });
            return output::data(&format!("{document:#}"));
        }
        let rows: Vec<[String; 10]> = found.iter().map(row).collect();
        output::data(&table(
            [
                "id",
                "created",
                "merchant",
                "account",
                "amount",
                "",
                "stage",
                "money",
                "job",
                "reference",
            ],
            &rows,
        ))?;
        if has_more {
            output::message(format_args!(
                "only the newest {}; --limit N shows more",
                self.limit
            ));
        }
        Ok(())
    }

    /// The stages that all options allow.
    fn stages(&self) -> Vec<Stage> {
        let allowed = |stage: &Stage| {
            self.stage.is_none_or(|wanted| wanted == *stage)
                && self.status.is_none_or(|wanted| wanted == status_of(*stage))
                && (!self.unclear || *stage == Stage::RequiresReconciliation)
        };
        Stage::ALL.iter().copied().filter(allowed).collect()
    }
}

fn status_of(stage: Stage) -> Status {
    match stage {
        Stage::Pending
        | Stage::Processing
        | Stage::RequiresAction
        | Stage::RequiresReconciliation => Status::InProgress,
        Stage::Succeeded => Status::Completed,
        Stage::Failed | Stage::Canceled => Status::Failed,
    }
}

/// Only an open charge has a job.
fn is_open(stage: Stage) -> bool {
    status_of(stage) == Status::InProgress
}

fn row(charge: &FoundCharge) -> [String; 10] {
    let why = job_story::why(charge.last_error.as_deref(), charge.last_call.as_ref());
    let job = match (charge.job_state.as_deref(), why) {
        (None, _) => String::new(),
        (Some(state), None) => state.to_owned(),
        (Some(state), Some(why)) => format!("{state} ({why})"),
    };
    [
        ChargeId::from_uuid(charge.id).to_string(),
        time(charge.created_at),
        charge.merchant.clone().unwrap_or_default(),
        charge.account.clone().unwrap_or_else(|| "-".to_owned()),
        charge.amount.to_string(),
        charge.currency.clone(),
        charge.stage.clone(),
        charge.money.clone(),
        job,
        charge.reference.clone().unwrap_or_default(),
    ]
}

/// In the words of `charges show --json`; what has no value is absent.
fn as_json(charge: &FoundCharge) -> Value {
    let job = charge.job_state.as_ref().map(|state| {
        json!({
            "state": state,
            "run_at": charge.run_at.map(time),
            "lease_until": charge.lease_until.map(time),
            "last_error": charge.last_error,
            "last_call": charge.last_call,
        })
    });
    let fields = [
        ("id", json!(ChargeId::from_uuid(charge.id).to_string())),
        ("merchant", json!(charge.merchant)),
        ("idempotency_key", json!(charge.idempotency_key)),
        ("reference", json!(charge.reference)),
        ("amount", json!(charge.amount)),
        ("currency", json!(charge.currency)),
        (
            "status",
            json!(Stage::parse(&charge.stage).map(|stage| status_of(stage).as_str())),
        ),
        ("stage", json!(charge.stage)),
        ("money", json!(charge.money)),
        ("attempts", json!(charge.attempts)),
        ("provider_account", json!(charge.account)),
        ("provider_charge_id", json!(charge.provider_charge_id)),
        ("created_at", json!(time(charge.created_at))),
        ("updated_at", json!(time(charge.updated_at))),
        ("finished_at", json!(charge.finished_at.map(time))),
        (
            "age_seconds",
            json!((charge.now - charge.created_at).whole_seconds().max(0)),
        ),
        ("job", json!(job)),
    ];
    let present = fields.into_iter().filter(|(_, value)| !value.is_null());
    Value::Object(
        present
            .map(|(name, value)| (name.to_owned(), value))
            .collect::<Map<_, _>>(),
    )
}
