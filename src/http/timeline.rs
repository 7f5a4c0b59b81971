//! GET /v1/charges/{id}/timeline: how a charge came to stand where it stands, oldest first.

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::charge_body::{Shown, shown};
use super::problem::ApiError;
use super::{HttpState, answer, charges};
use crate::clock::Instant;
use crate::db;
use crate::db::charge_events::Event;
use crate::domain::charge::Charge;

/// The history of one charge, oldest first.
#[derive(Serialize, ToSchema)]
#[schema(as = Timeline)]
pub struct TimelineBody<'a> {
    data: Vec<TimelineEventBody<'a>>,
}

/// Something that happened to a charge.
#[derive(Serialize, ToSchema)]
#[schema(as = TimelineEvent)]
pub struct TimelineEventBody<'a> {
    /// When it happened.
    #[schema(value_type = String, format = DateTime, example = "2026-11-29T20:15:00.104233Z")]
    at: Shown<Instant>,
    /// What happened; where the charge got to a stage, that stage. New values may come.
    #[schema(example = "succeeded", extensions(("x-extensible-enum" = json!(["accepted", "execute_started", "object_adopted", "pending", "processing", "requires_action", "requires_reconciliation", "succeeded", "failed", "canceled", "cancel_requested", "job_made", "discrepancy", "refund_accepted", "refund_started", "refund_processing", "refund_requires_action", "refund_requires_reconciliation", "refund_completed", "refund_failed", "refund_corrected", "refund_retried", "refunded_externally", "external_refund_failed"]))))]
    kind: &'a str,
    /// The charge's version after it.
    #[schema(minimum = 1, example = 3)]
    version: i32,
    /// Who did it, as a role.
    #[schema(example = "worker", extensions(("x-extensible-enum" = json!(["merchant", "worker", "reconciler", "operator"]))))]
    actor: &'a str,
    /// Why, where there is more to say than what happened: a word or a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "timeout")]
    reason: Option<&'a str>,
    /// How often the step that moves money had been sent by then.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<i32>, nullable = false, minimum = 0, example = 1)]
    attempt: Option<i64>,
    /// The refund that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "rfd_03510a50e711533aba21e1dd9ddf20be")]
    refund_id: Option<&'a str>,
    /// How much of the charge it is about, in minor units.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(
        nullable = false,
        minimum = 0,
        maximum = 999_999_999_999_i64,
        example = 500
    )]
    amount: Option<i64>,
    /// The provider's own id of the object that is charged.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "pi_3QZ9")]
    provider_charge_id: Option<&'a str>,
    /// The provider's own id of the request that it was learned from; for asking the provider about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "req_8xGvPz")]
    provider_request_id: Option<&'a str>,
}

pub(super) async fn show(
    State(state): State<HttpState>,
    id: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let merchant = state.auth().authenticate(&headers).await?.merchant;
    let id = charges::path_id(id)?;
    let read = state.parts().pool.ask(async |connection| {
        let Some(charge) = db::charges::find(connection, merchant, id).await? else {
            return Ok(None);
        };
        let events = db::charge_events::list(connection, id).await?;
        Ok(Some((charge, events)))
    });
    let (charge, events) = answer::in_time(&state, read)
        .await?
        .ok_or_else(charges::absent)?;
    answer::json(StatusCode::OK, &TimelineBody::new(&charge, &events))
}

impl<'a> TimelineBody<'a> {
    fn new(charge: &Charge, events: &'a [Event]) -> Self {
        let mut data = Vec::with_capacity(1 + events.len());
        data.push(TimelineEventBody {
            at: shown(charge.created_at),
            kind: "accepted",
            version: 1,
            actor: "merchant",
            reason: None,
            attempt: None,
            refund_id: None,
            amount: None,
            provider_charge_id: None,
            provider_request_id: None,
        });
        data.extend(events.iter().map(TimelineEventBody::from));
        Self { data }
    }
}

impl<'a> From<&'a Event> for TimelineEventBody<'a> {
    /// Of an event's detail, only what is meant for the merchant: the rest is for operators.
    fn from(event: &'a Event) -> Self {
        let detail = |name| event.detail.as_ref().and_then(|detail| detail.get(name));
        let attempt = detail("attempt").or_else(|| detail("attempts"));
        Self {
            at: shown(event.at),
            kind: &event.kind,
            version: event.version,
            actor: &event.actor,
            reason: event.reason.as_deref(),
            attempt: attempt.and_then(Value::as_i64),
            refund_id: detail("refund_id").and_then(Value::as_str),
            amount: detail("amount")
                .filter(|_| event.kind.contains("refund"))
                .and_then(Value::as_i64),
            provider_charge_id: detail("provider_charge_id").and_then(Value::as_str),
            provider_request_id: detail("provider_request_id").and_then(Value::as_str),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use time::macros::datetime;

    #[test]
    fn only_what_is_meant_for_the_merchant_is_told_of_an_events_detail() {
        let event = Event {
            version: 3,
            kind: "discrepancy".to_owned(),
            actor: "worker".to_owned(),
            reason: None,
            detail: Some(json!({"attempts": 2, "stamp": "secret", "provider_request_id": null})),
            at: datetime!(2026-11-29 20:15 UTC),
        };
        assert_eq!(
            serde_json::to_value(TimelineEventBody::from(&event)).unwrap(),
            json!({
                "at": "2026-11-29T20:15:00.000000Z", "kind": "discrepancy", "version": 3, "actor": "worker",
                "attempt": 2
            })
        );
    }
}
