//! `payonce charges show`: the whole story of one charge, whosever it is.

use std::fmt::Write;

use clap::Args;
use serde_json::{Value, json};
use time::OffsetDateTime;

use super::{find, story};
use crate::cli::database;
use crate::cli::output::{self, time};
use crate::cli::settings::Settings;
use crate::db::charge_events::Event;
use crate::db::outbox::Job;
use crate::db::provider_events::Told;
use crate::db::{charge_events, merchants, outbox, provider_events};
use crate::domain::charge::{Charge, State};
use crate::domain::ids::ChargeId;

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

/// The most events of the provider's that are shown.
const MOST_TOLD: i64 = 100;

/// All that the books say of one charge.
struct View {
    charge: Charge,
    merchant: Option<String>,
    job: Option<Job>,
    events: Vec<Event>,
    told: Vec<Told>,
    /// The database's clock, while there is a job to compare with it.
    now: OffsetDateTime,
}

impl Show {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let mut connection = database::connect(&self.settings.load()?).await?;
        let charge = find(&mut connection, self.id).await?;
        let job = outbox::find(&mut connection, self.id).await?;
        let view = View {
            merchant: merchants::find_name(&mut connection, charge.merchant).await?,
            now: job.as_ref().map_or(charge.updated_at, |job| job.now),
            job,
            events: charge_events::list(&mut connection, self.id).await?,
            told: provider_events::of_charge(&mut connection, self.id, MOST_TOLD).await?,
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
            ("age", json!(story::age(charge, self.now))),
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
        object.insert("job".to_owned(), self.job.as_ref().map_or(Value::Null, job));
        object.insert("next".to_owned(), json!(self.next()));
        object.insert(
            "provider_request_ids".to_owned(),
            json!(story::request_ids(&self.events)),
        );
        object.insert("events".to_owned(), self.events.iter().map(event).collect());
        object.insert(
            "provider_events".to_owned(),
            self.told.iter().map(told).collect(),
        );
        Value::Object(object)
    }

    fn next(&self) -> Vec<String> {
        story::next(&self.charge, self.job.as_ref())
    }

    fn text(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        for (name, value) in self.fields() {
            writeln!(text, "{name:<20}{}", plain(&value))?;
        }
        writeln!(text, "\nnext")?;
        for line in self.next() {
            writeln!(text, "  {line}")?;
        }
        writeln!(text, "\ncalls")?;
        let progress = &self.charge.progress;
        writeln!(text, "  execute sent: {}", progress.attempts)?;
        if progress.prepares > 0 {
            writeln!(
                text,
                "  keys of prepare: {}; the provider replayed an error under the earlier ones",
                progress.prepares + 1
            )?;
        }
        if let Some(call) = self.job.as_ref().and_then(|job| job.last_call.as_ref()) {
            writeln!(text, "  the last one: {}", story::call(call))?;
        }
        let request_ids = story::request_ids(&self.events);
        if !request_ids.is_empty() {
            writeln!(text, "  provider's request ids: {}", request_ids.join(", "))?;
        }
        if let Some(Value::Object(entries)) = self.job.as_ref().map(job) {
            writeln!(text, "\njob")?;
            for (name, value) in entries.iter().filter(|(_, value)| !value.is_null()) {
                writeln!(text, "  {name:<18}{}", plain(value))?;
            }
        }
        writeln!(
            text,
            "\nhistory\n  {}  v1  accepted",
            time(self.charge.created_at)
        )?;
        for event in &self.events {
            write!(
                text,
                "  {}  v{}  {} by {}",
                time(event.at),
                event.version,
                event.kind,
                event.actor
            )?;
            if let Some(reason) = &event.reason {
                write!(text, ": {reason}")?;
            }
            if let Some(detail) = &event.detail {
                write!(text, "  {detail}")?;
            }
            writeln!(text)?;
        }
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

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        _ => value.to_string(),
    }
}

fn told(told: &Told) -> Value {
    json!({
        "id": told.event_id,
        "kind": told.kind,
        "effect": told.effect,
        "received_at": time(told.received_at),
    })
}

fn job(job: &Job) -> Value {
    json!({
        "id": job.id,
        "kind": job.kind,
        "payload_version": job.payload_version,
        "state": job.state,
        "attempt": job.attempt,
        "run_at": time(job.run_at),
        "lease_token": job.lease_token,
        "lease_until": job.lease_until.map(time),
        "last_error": job.last_error,
        "last_call": job.last_call,
        "created_at": time(job.created_at),
    })
}

fn event(event: &Event) -> Value {
    json!({
        "at": time(event.at),
        "version": event.version,
        "kind": event.kind,
        "actor": event.actor,
        "reason": event.reason,
        "detail": event.detail,
    })
}
