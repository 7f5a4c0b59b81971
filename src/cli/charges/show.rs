//! `payonce charges show`: the whole story of one charge, whosever it is.

use std::fmt::Write;

use clap::Args;
use serde_json::{Value, json};
use time::OffsetDateTime;

use super::{find, story};
use crate::cli::database;
use crate::cli::job_story::{self, Waits};
use crate::cli::output::{self, time};
use crate::cli::settings::Settings;
use crate::db::charge_events::Event;
use crate::db::outbox::Job;
use crate::db::pauses::Pause;
use crate::db::provider_events::Told;
use crate::db::{NEWEST, charge_events, merchants, outbox, pauses, provider_events, refunds};
use crate::domain::charge::{Charge, State};
use crate::domain::ids::ChargeId;
use crate::domain::refund::Refund;

#[derive(Debug, Args)]
pub(in crate::cli) struct Show {
    /// `chg_` and 32 hex digits.
    id: ChargeId,
    /// As one JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    settings: Settings,
}

/// Its newest refunds.
const fn of_charge(charge: &Charge) -> refunds::Wanted {
    refunds::Wanted {
        merchant: charge.merchant,
        charge: Some(charge.id),
        refund: None,
        below: NEWEST,
        limit: refunds::MOST,
    }
}

/// The most events of the provider's that are shown.
const MOST_TOLD: i64 = 100;

/// All that the books say of one charge.
struct View {
    charge: Charge,
    merchant: Option<String>,
    job: Option<Job>,
    events: Vec<Event>,
    told: Vec<Told>,
    /// Newest first.
    refunds: Vec<Refund>,
    pauses: Vec<Pause>,
    missing_account: bool,
    /// The database's clock, while there is a job to compare with it.
    now: OffsetDateTime,
}

impl Show {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let config = self.settings.load()?;
        let mut connection = database::connect(&config).await?;
        let charge = find(&mut connection, self.id).await?;
        let job = outbox::find(&mut connection, self.id).await?;
        let view = View {
            merchant: merchants::find_name(&mut connection, charge.merchant).await?,
            now: job.as_ref().map_or(charge.updated_at, |job| job.now),
            job,
            events: charge_events::list(&mut connection, self.id).await?,
            told: provider_events::of_charge(&mut connection, self.id, MOST_TOLD).await?,
            refunds: refunds::list(&mut connection, of_charge(&charge)).await?,
            pauses: pauses::list(&mut connection).await?,
            missing_account: charge
                .account
                .as_deref()
                .is_some_and(|account| !config.provider.has_account(account)),
            charge,
        };
        if self.json {
            output::data(&format!("{:#}", view.json()))
        } else {
            output::data(&view.text()?)
        }
    }
}

impl View {
    /// What is there, in the words of the HTTP interface where it has them; what has no value is absent.
    fn fields(&self) -> Vec<(&'static str, Value)> {
        let charge = &self.charge;
        let (request, progress) = (&charge.request, &charge.progress);
        let state = &progress.state;
        let object = progress.object.as_ref();
        let (failure, next_action) = match state {
            State::Failed(failure) => (Some(failure), None),
            State::RequiresAction(action) => (None, Some(action)),
            _ => (None, None),
        };
        let fields = [
            ("id", json!(charge.id.to_string())),
            ("merchant", json!(self.merchant)),
            ("merchant_id", json!(charge.merchant.to_string())),
            ("idempotency_key", json!(charge.idempotency_key.as_str())),
            ("status", json!(state.status().as_str())),
            ("stage", json!(state.stage().as_str())),
            ("money", json!(state.money().as_str())),
            ("version", json!(progress.version)),
            ("amount", json!(request.amount)),
            ("currency", json!(request.currency)),
            (
                "amount_refunded",
                json!((charge.amount_refunded > 0).then_some(charge.amount_refunded)),
            ),
            ("payment_method", json!(request.payment_method)),
            ("customer", json!(request.customer)),
            ("return_url", json!(request.return_url)),
            ("off_session", json!(request.off_session)),
            ("reference", json!(request.reference)),
            ("description", json!(request.description)),
            ("metadata", json!(request.metadata)),
            ("live", json!(charge.live)),
            ("provider", json!(charge.provider)),
            ("provider_account", json!(charge.account.as_deref())),
            (
                "provider_charge_id",
                json!(object.map(|object| object.id.as_str())),
            ),
            ("attempts", json!(progress.attempts)),
            ("prepares", json!(progress.prepares)),
            ("failure", json!(failure)),
            ("next_action", json!(next_action)),
            ("created_at", json!(time(charge.created_at))),
            ("updated_at", json!(time(charge.updated_at))),
            ("finished_at", json!(charge.finished_at.map(time))),
            (
                "age",
                json!(job_story::age(
                    charge.created_at,
                    charge.finished_at,
                    self.now
                )),
            ),
        ];
        fields
            .into_iter()
            .filter(|(_, value)| !value.is_null())
            .collect()
    }

    fn json(&self) -> Value {
        let mut object: serde_json::Map<String, Value> = self
            .fields()
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect();
        object.insert(
            "job".to_owned(),
            self.job.as_ref().map_or(Value::Null, job_story::job),
        );
        object.insert("next".to_owned(), json!(self.next()));
        object.insert(
            "provider_request_ids".to_owned(),
            json!(job_story::request_ids(&self.events)),
        );
        object.insert(
            "events".to_owned(),
            self.events.iter().map(job_story::event).collect(),
        );
        object.insert(
            "refunds".to_owned(),
            self.refunds.iter().map(refund).collect(),
        );
        object.insert(
            "provider_events".to_owned(),
            self.told.iter().map(told).collect(),
        );
        Value::Object(object)
    }

    fn next(&self) -> Vec<String> {
        let account = self.charge.account.as_deref();
        let waits = self.job.as_ref().map(|job| Waits {
            job,
            pauses: &self.pauses,
            missing_account: account.filter(|_| self.missing_account),
        });
        story::next(&self.charge, waits)
    }

    fn text(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        job_story::head(&mut text, self.fields(), self.next())?;
        let progress = &self.charge.progress;
        writeln!(text, "  execute sent: {}", progress.attempts)?;
        if progress.prepares > 0 {
            writeln!(
                text,
                "  keys of prepare: {}; the provider replayed an error under the earlier ones",
                progress.prepares + 1
            )?;
        }
        job_story::calls(&mut text, self.job.as_ref(), &self.events)?;
        job_story::about_job(&mut text, self.job.as_ref())?;
        if !self.refunds.is_empty() {
            writeln!(text, "\nrefunds")?;
        }
        for refund in &self.refunds {
            writeln!(
                text,
                "  {}  {} {}  {}",
                refund.id,
                refund.amount,
                refund.currency,
                refund.progress.state.stage()
            )?;
        }
        job_story::history(&mut text, self.charge.created_at, &self.events)?;
        if !self.told.is_empty() {
            writeln!(text, "\ntold by the provider")?;
        }
        for Told {
            event_id,
            kind,
            effect,
            received_at,
        } in &self.told
        {
            writeln!(
                text,
                "  {}  {kind} {event_id}: {effect}",
                time(*received_at)
            )?;
        }
        Ok(text)
    }
}

fn refund(refund: &Refund) -> Value {
    json!({
        "id": refund.id.to_string(),
        "amount": refund.amount,
        "currency": refund.currency,
        "status": refund.progress.state.status().as_str(),
        "stage": refund.progress.state.stage().as_str(),
    })
}

fn told(told: &Told) -> Value {
    json!({
        "id": told.event_id,
        "kind": told.kind,
        "effect": told.effect,
        "received_at": time(told.received_at),
    })
}
