//! What was sent to an endpoint, what came back, and sending it again.

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use super::{absent, path_id, writer_without_body};
use crate::clock::Instant;
use crate::db::webhook_deliveries::{self as deliveries, Delivery, Wanted};
use crate::db::{DbError, NEWEST, webhook_endpoints as endpoints};
use crate::domain::event::{DeliveryId, EndpointId, EventId};
use crate::domain::ids::MerchantId;
use crate::http::charge_body::{Shown, shown};
use crate::http::charge_list::{USUALLY_LISTED, limit};
use crate::http::code::Code;
use crate::http::cursor::{Cursor, ListMark, cut};
use crate::http::problem::ApiError;
use crate::http::query::Parameters;
use crate::http::{HttpState, answer};

pub(in crate::http) const PARAMETERS: [&str; 3] = ["status", "limit", "cursor"];
const STATUSES: [&str; 3] = ["pending", "delivered", "failed"];

/// One event on its way to one endpoint.
#[derive(Serialize, ToSchema)]
#[schema(as = WebhookDelivery)]
pub struct DeliveryBody<'a> {
    #[schema(value_type = String, pattern = "^whd_[0-9a-f]{32}$", example = "whd_5a1d0b7c3f0e4e6d9a43c1b2d3e4f506")]
    id: Shown<DeliveryId>,
    #[schema(value_type = String, pattern = "^whe_[0-9a-f]{32}$", example = "whe_5a1d0b7c3f0e4e6d9a43c1b2d3e4f506")]
    endpoint_id: Shown<EndpointId>,
    /// The event's id, which is the delivery's `webhook-id`; absent once the event's time is over.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, nullable = false, pattern = "^evt_[0-9a-f]{32}$", example = "evt_5a1d0b7c3f0e5e6d9a43c1b2d3e4f506")]
    event_id: Option<Shown<EventId>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "charge.completed")]
    event_type: Option<&'a str>,
    /// `pending` until it is `delivered` or given up as `failed`; new values may come.
    #[schema(example = "delivered", extensions(("x-extensible-enum" = json!(STATUSES))))]
    status: &'static str,
    /// How often it was sent.
    #[schema(minimum = 0, example = 1)]
    attempts: i32,
    /// When it is sent again, at the earliest.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, nullable = false, format = DateTime)]
    next_attempt_at: Option<Shown<Instant>>,
    /// The HTTP status of the last answer, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 100, maximum = 999, example = 200)]
    last_status: Option<i32>,
    /// Why there was none, in a word.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "timeout", extensions(("x-extensible-enum" = json!(["timeout", "no_connection", "no_answer", "address_refused", "event_expired", "unreadable"]))))]
    last_error: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, nullable = false, format = DateTime)]
    last_attempt_at: Option<Shown<Instant>>,
    #[schema(value_type = String, format = DateTime, example = "2026-11-29T20:15:00.104233Z")]
    created_at: Shown<Instant>,
}

/// One page of an endpoint's deliveries, newest first.
#[derive(Serialize, ToSchema)]
#[schema(as = WebhookDeliveryList)]
pub struct DeliveryListBody<'a> {
    #[schema(max_items = 100)]
    data: Vec<DeliveryBody<'a>>,
    /// Where the next page begins: send it as `cursor`, with the same filters. Absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, max_length = 255)]
    next_cursor: Option<String>,
}

impl<'a> From<&'a Delivery> for DeliveryBody<'a> {
    fn from(delivery: &'a Delivery) -> Self {
        let status = match delivery.state.as_str() {
            "delivered" => "delivered",
            "failed" => "failed",
            _ => "pending",
        };
        Self {
            id: Shown::of(DeliveryId::from_uuid(delivery.id)),
            endpoint_id: Shown::of(EndpointId::from_uuid(delivery.endpoint_id)),
            event_id: delivery.event().map(Shown::of),
            event_type: delivery.event_type.as_deref(),
            status,
            attempts: delivery.attempt,
            next_attempt_at: (delivery.state == "due").then(|| shown(delivery.run_at)),
            last_status: delivery.last_status,
            last_error: delivery.last_error.as_deref(),
            last_attempt_at: delivery.last_attempt_at.map(shown),
            created_at: shown(delivery.created_at),
        }
    }
}

pub(in crate::http) async fn list(
    State(state): State<HttpState>,
    id: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let merchant = state.auth().authenticate(&headers).await?.merchant;
    let id = path_id(id)?;
    let asked = Asked::read(query.as_deref(), merchant, id)?;
    let read = state.parts().pool.ask(async |connection| {
        if endpoints::find(connection, merchant, id).await?.is_none() {
            return Ok(None);
        }
        deliveries::list(connection, asked.wanted(id))
            .await
            .map(Some)
    });
    let mut found = answer::in_time(&state, read).await?.ok_or_else(absent)?;
    let next_cursor = cut(&mut found, asked.limit, asked.list, |delivery| Cursor {
        created_at: delivery.created_at,
        id: delivery.id,
    });
    let data = found.iter().map(DeliveryBody::from).collect();
    answer::json(StatusCode::OK, &DeliveryListBody { data, next_cursor })
}

pub(in crate::http) async fn test(
    State(state): State<HttpState>,
    id: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Response, ApiError> {
    let principal = writer_without_body(&state, request).await?;
    let id = path_id(id)?;
    let write = state.parts().pool.ask(async |connection| {
        let Some(delivery) = endpoints::test(connection, principal.merchant, id).await? else {
            return Ok(None);
        };
        let sent = one(connection, id, delivery).await;
        sent.map_err(DbError::after_commit)
    });
    let unknown = || answer::send_again("the test event may have been written");
    let delivery = answer::stored(&state, write, unknown).await?;
    let delivery = delivery.ok_or_else(absent)?;
    answer::json(StatusCode::ACCEPTED, &DeliveryBody::from(&delivery))
}

pub(in crate::http) async fn retry(
    State(state): State<HttpState>,
    ids: Result<Path<(String, String)>, PathRejection>,
    request: Request,
) -> Result<Response, ApiError> {
    let principal = writer_without_body(&state, request).await?;
    let ids = ids.ok().and_then(|Path((endpoint, delivery))| {
        Some((EndpointId::parse(&endpoint)?, DeliveryId::parse(&delivery)?))
    });
    let (endpoint, delivery) = ids.ok_or_else(no_delivery)?;
    let write = state.parts().pool.ask(async |connection| {
        // Also of an endpoint that was deleted there is nothing to send again.
        if endpoints::find(connection, principal.merchant, endpoint)
            .await?
            .is_none()
        {
            return Ok(None);
        }
        let Some(found) = one(connection, endpoint, delivery).await? else {
            return Ok(None);
        };
        // One that is being sent is as good as one that is sent again.
        if deliveries::retry(connection, Some(principal.merchant), delivery)
            .await?
            .is_none()
        {
            return Ok(Some(found));
        }
        let again = one(connection, endpoint, delivery).await;
        again.map_err(DbError::after_commit)
    });
    let unknown = || answer::send_again("the delivery may be sent again");
    let delivery = answer::stored(&state, write, unknown).await?;
    let delivery = delivery.ok_or_else(no_delivery)?;
    answer::json(StatusCode::ACCEPTED, &DeliveryBody::from(&delivery))
}

async fn one(
    connection: &mut sqlx::PgConnection,
    endpoint: EndpointId,
    delivery: DeliveryId,
) -> Result<Option<Delivery>, DbError> {
    let wanted = Wanted {
        endpoint,
        states: &[],
        one: Some(delivery),
        below: NEWEST,
        limit: 1,
    };
    Ok(deliveries::list(connection, wanted).await?.pop())
}

fn no_delivery() -> ApiError {
    ApiError::new(Code::NotFound, "there is no such delivery")
}

#[derive(Debug)]
struct Asked {
    status: Option<&'static str>,
    below: (time::OffsetDateTime, Uuid),
    limit: u8,
    list: ListMark,
}

impl Asked {
    fn read(query: Option<&str>, merchant: MerchantId, id: EndpointId) -> Result<Self, ApiError> {
        let mut given = Parameters::read(query, &PARAMETERS);
        let status = given.take("status", "word", |word| {
            let known = STATUSES.iter().copied().find(|known| *known == word);
            known.ok_or_else(|| format!("must be one of {}", STATUSES.join(", ")).into())
        });
        let limit = given.take("limit", "range", limit);
        let filters = [
            ("deliveries", Some(id.to_string())),
            ("status", status.map(str::to_owned)),
        ];
        let list = ListMark::of(merchant, &filters);
        let cursor = given.take("cursor", "cursor", |text| Cursor::read(text, list));
        given.finish()?;
        Ok(Self {
            status,
            below: cursor.map_or(NEWEST, |cursor| (cursor.created_at, cursor.id)),
            limit: limit.unwrap_or(USUALLY_LISTED),
            list,
        })
    }

    fn wanted(&self, endpoint: EndpointId) -> Wanted<'static> {
        Wanted {
            endpoint,
            states: match self.status {
                None => &[],
                Some("pending") => &["due", "leased"],
                Some("delivered") => &["delivered"],
                Some(_) => &["failed"],
            },
            one: None,
            below: self.below,
            limit: i64::from(self.limit) + 1,
        }
    }
}
