//! `payonce refunds show`: the whole story of one refund, whosever it is.

use std::fmt::Write;

use serde_json::{Map, Value, json};
use sqlx::PgConnection;
use time::OffsetDateTime;

use super::{find, told};
use crate::cli::job_story::{self, Waits};
use crate::cli::output;
use crate::config::Config;
use crate::db::charge_events::Event;
use crate::db::outbox::Job;
use crate::db::pauses::Pause;
use crate::db::{charge_events, merchants, outbox, pauses};
use crate::domain::ids::RefundId;
use crate::domain::refund::request::RefundInstruction;
use crate::domain::refund::{Refund, RefundState};

/// All that the books say of one refund.
struct View {
    refund: Refund,
    merchant: Option<String>,
    job: Option<Job>,
    pauses: Vec<Pause>,
    missing_account: bool,
    /// Those of its charge that are about it.
    events: Vec<Event>,
    now: OffsetDateTime,
}

pub(super) async fn show(
    connection: &mut PgConnection,
    config: &Config,
    id: RefundId,
    as_json: bool,
) -> anyhow::Result<()> {
    let refund = find(connection, id).await?;
    let job = outbox::find_of_refund(connection, id).await?;
    let shown = id.to_string();
    let events = charge_events::list(connection, refund.charge())
        .await?
        .into_iter()
        .filter(|event| {
            let of = event
                .detail
                .as_ref()
                .and_then(|detail| detail.get("refund_id"));
            of.is_some_and(|of| *of == shown.as_str())
        })
        .collect();
    let view = View {
        merchant: merchants::find_name(connection, refund.merchant).await?,
        now: job.as_ref().map_or(refund.updated_at, |job| job.now),
        pauses: pauses::list(connection).await?,
        missing_account: !config.provider.has_account(&refund.provider_account),
        job,
        events,
        refund,
    };
    if as_json {
        output::data(&format!("{:#}", view.json()))
    } else {
        output::data(&view.text()?)
    }
}

impl View {
    fn json(&self) -> Value {
        let mut object = told(&self.refund);
        object["merchant"] = json!(self.merchant);
        object["age"] = json!(self.age());
        object["job"] = self.job.as_ref().map_or(Value::Null, job_story::job);
        object["next"] = json!(self.next());
        object["provider_request_ids"] = json!(job_story::request_ids(&self.events));
        object["events"] = self.events.iter().map(job_story::event).collect();
        object
    }

    fn text(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        job_story::head(&mut text, self.fields(), self.next())?;
        let progress = &self.refund.progress;
        writeln!(text, "  sent: {}", progress.attempts)?;
        if progress.key_number > 0 {
            writeln!(text, "  keys: {}", progress.key_number + 1)?;
        }
        job_story::calls(&mut text, self.job.as_ref(), &self.events)?;
        job_story::about_job(&mut text, self.job.as_ref())?;
        job_story::history(&mut text, self.refund.created_at, &self.events)?;
        Ok(text)
    }

    /// What is there, in the order of reading.
    fn fields(&self) -> Vec<(&'static str, Value)> {
        const ORDER: [&str; 21] = [
            "id",
            "charge_id",
            "merchant",
            "merchant_id",
            "idempotency_key",
            "status",
            "stage",
            "money",
            "version",
            "amount",
            "currency",
            "reason",
            "metadata",
            "provider",
            "provider_account",
            "provider_charge_id",
            "provider_refund_id",
            "failure",
            "created_at",
            "updated_at",
            "finished_at",
        ];
        let mut all: Map<String, Value> = match told(&self.refund) {
            Value::Object(fields) => fields,
            _ => Map::new(),
        };
        all.insert("merchant".to_owned(), json!(self.merchant));
        ORDER
            .into_iter()
            .filter_map(|name| Some((name, all.remove(name)?)))
            .chain([("age", json!(self.age()))])
            .filter(|(_, value)| !value.is_null())
            .collect()
    }

    fn age(&self) -> String {
        job_story::age(self.refund.created_at, self.refund.finished_at, self.now)
    }

    /// What comes next, why, and what a person can do about it; a line a thought.
    fn next(&self) -> Vec<String> {
        let state = &self.refund.progress.state;
        let Some(job) = &self.job else {
            return vec![job_story::none(state.is_terminal()).to_owned()];
        };
        let mut lines = Vec::new();
        if state.is_terminal() {
            lines
                .push("it has ended, and is read again in case the provider changed it".to_owned());
        }
        match job.state.as_str() {
            "parked" => self.parked(job, &mut lines),
            "leased" => job_story::leased(job, &mut lines),
            _ if job.payload_version != RefundInstruction::VERSION => {
                lines.push(job_story::unknown_version(job));
            }
            _ => {
                let waits = Waits {
                    job,
                    pauses: &self.pauses,
                    missing_account: self
                        .missing_account
                        .then_some(self.refund.provider_account.as_str()),
                };
                let first = match &self.refund.progress.object {
                    None => "looks through the charge's refunds at the provider first",
                    Some(_) => "reads the provider's refund first",
                };
                job_story::ready(waits, first, &mut lines);
            }
        }
        lines.extend(money(state).map(str::to_owned));
        lines
    }

    fn parked(&self, job: &Job, lines: &mut Vec<String>) {
        job_story::parked(job, what_to_do, lines);
        let again = if job.last_error.as_deref() == Some("key_window_over") {
            "; or with --send-again, once it is sure that no earlier send will land"
        } else {
            ""
        };
        lines.push(format!(
            "then: payonce refunds retry {} --reason TEXT{again}",
            self.refund.id
        ));
    }
}

/// What parks a refund's job, and how it is mended.
fn what_to_do(error: &str) -> &'static str {
    match error {
        "object_not_found" => {
            "the provider does not know the charge's object, or the refund: most often the secret key is another account's; mend it"
        }
        "refund_differs" => {
            "the provider's refund is another one than was asked for: compare it with `payonce discrepancies list`, put it right at the provider, resolve the discrepancy"
        }
        "second_refund" => {
            "two refunds at the provider have this refund's stamp: see `payonce discrepancies list`, settle it, resolve the discrepancy"
        }
        "key_window_over" => {
            "it may have been sent, the provider may have forgotten its key, and no refund is found: make sure at the provider whether it was made"
        }
        _ => job_story::mend(error),
    }
}

fn money(state: &RefundState) -> Option<&'static str> {
    match state {
        RefundState::Processing | RefundState::RequiresReconciliation => Some(
            "the money may have gone back: only the provider's refunds tell, and each run reads them",
        ),
        RefundState::RequiresAction => {
            Some("the customer must say where the money is to go: it may move any moment")
        }
        RefundState::Pending
        | RefundState::Succeeded
        | RefundState::Failed(_)
        | RefundState::Canceled => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::refund::outcome::RefundAlert;

    #[test]
    fn every_alert_that_parks_a_refund_has_its_mend() {
        for alert in [
            RefundAlert::Differs,
            RefundAlert::SecondRefund,
            RefundAlert::ObjectNotFound,
            RefundAlert::RequestRejected,
            RefundAlert::KeyWindowOver,
        ] {
            assert_ne!(
                what_to_do(alert.code()),
                what_to_do("?"),
                "{}",
                alert.code()
            );
        }
    }
}
