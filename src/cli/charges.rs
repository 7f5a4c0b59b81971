//! `payonce charges`: an operator's look at one charge, whosever it is.

use std::fmt::Write;

use clap::Subcommand;
use serde_json::{Value, json};

use super::database;
use super::output::{self, Hinted, time};
use super::settings::Settings;
use crate::db::charge_events::Event;
use crate::db::outbox::Job;
use crate::db::{charge_events, charges, merchants, outbox};
use crate::domain::charge::{Charge, State};
use crate::domain::ids::ChargeId;

#[derive(Debug, Subcommand)]
pub(super) enum Charges {
    /// Show a charge, what is left to do for it, and its history.
    Show {
        /// `chg_` and 32 hex digits.
        id: ChargeId,
        /// As one JSON object.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        settings: Settings,
    },
}

/// All that the books say of one charge.
struct View {
    charge: Charge,
    merchant: Option<String>,
    job: Option<Job>,
    events: Vec<Event>,
}

impl Charges {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let Self::Show { id, json, settings } = self;
        let mut connection = database::connect(&settings.load()?).await?;
        let (charge, _) = charges::find_all(&mut connection, &[id.as_uuid()])
            .await?
            .pop()
            .ok_or_else(|| {
                Hinted::new(
                    format!("there is no charge {id}"),
                    "check that DATABASE_URL names the database it was accepted in",
                )
            })?;
        let view = View {
            merchant: merchants::find_name(&mut connection, charge.merchant).await?,
            job: outbox::find(&mut connection, id).await?,
            events: charge_events::list(&mut connection, id).await?,
            charge,
        };
        if json {
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
            (
                "provider_account",
                json!(object.map(|object| &object.account)),
            ),
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
        object.insert("events".to_owned(), self.events.iter().map(event).collect());
        Value::Object(object)
    }

    fn text(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        for (name, value) in self.fields() {
            writeln!(text, "{name:<20}{}", plain(&value))?;
        }
        match &self.job {
            None => writeln!(text, "\njob: none, the charge has ended")?,
            Some(found) => {
                writeln!(text, "\njob")?;
                if let Value::Object(entries) = job(found) {
                    for (name, value) in entries.iter().filter(|(_, value)| !value.is_null()) {
                        writeln!(text, "  {name:<18}{}", plain(value))?;
                    }
                }
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
        Ok(text)
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        _ => value.to_string(),
    }
}

fn job(job: &Job) -> Value {
    json!({
        "id": job.id,
        "kind": job.kind,
        "payload_version": job.payload_version,
        "state": job.state,
        "attempt": job.attempt,
        "run_at": time(job.run_at),
        "lease_until": job.lease_until.map(time),
        "last_error": job.last_error,
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
