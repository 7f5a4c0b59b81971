//! An event as merchants see it, in `GET /v1/events` and in what is sent to them.

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::charge_body::{ChargeBody, Shown, shown};
use super::refund_body::RefundBody;
use crate::clock::Instant;
use crate::db::events::{Event, Subject};
use crate::domain::event::{EventId, TYPES};

/// Something that happened. The same event has the same `id` here and, as `webhook-id`, in every delivery of it.
#[derive(Serialize, ToSchema)]
#[schema(as = Event)]
pub struct EventBody<'a> {
    #[schema(value_type = String, pattern = "^evt_[0-9a-f]{32}$", example = "evt_5a1d0b7c3f0e5e6d9a43c1b2d3e4f506")]
    id: Shown<EventId>,
    /// What happened; new values may come.
    #[schema(example = "charge.completed", extensions(("x-extensible-enum" = json!(TYPES))))]
    r#type: &'a str,
    /// When it happened.
    #[schema(value_type = String, format = DateTime, example = "2026-11-29T20:15:01.330021Z")]
    timestamp: Shown<Instant>,
    /// What it happened to, as it was then: of `charge.…` the charge, of `refund.…` the refund. Its `version` tells the newer of two.
    #[schema(value_type = Object, additional_properties = true)]
    data: Data<'a>,
}

/// What is sent: the payload of the Standard Webhooks specification.
#[derive(Serialize)]
pub struct Message<'a> {
    r#type: &'a str,
    timestamp: Shown<Instant>,
    data: Data<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Data<'a> {
    Charge(Box<ChargeBody<'a>>),
    Refund(Box<RefundBody<'a>>),
    Other(&'a Value),
}

impl<'a> From<&'a Event> for EventBody<'a> {
    fn from(event: &'a Event) -> Self {
        let Message {
            r#type,
            timestamp,
            data,
        } = event.into();
        Self {
            id: Shown::of(event.id),
            r#type,
            timestamp,
            data,
        }
    }
}

impl<'a> From<&'a Event> for Message<'a> {
    fn from(event: &'a Event) -> Self {
        Self {
            r#type: &event.r#type,
            timestamp: shown(event.at),
            data: match &event.subject {
                Subject::Charge(charge) => Data::Charge(Box::new(ChargeBody::from(&**charge))),
                Subject::Refund(refund) => Data::Refund(Box::new(RefundBody::from(&**refund))),
                Subject::Other(snapshot) => Data::Other(snapshot),
            },
        }
    }
}
