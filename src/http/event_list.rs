//! GET /v1/events: what a merchant was told, oldest first, a page at a time.
//!
//! The last page has a cursor too: whoever sends it again later reads what has come since, and nothing is ever put before
//! it. Events of the last moments are not listed while a transaction is under way that could still add one before them.

use std::borrow::Cow;

use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use super::charge_list::{EARLIEST, USUALLY_LISTED, limit};
use super::cursor::{BadCursor, Cursor, ListMark};
use super::event_body::EventBody;
use super::problem::{ApiError, Fault, Place};
use super::query::Parameters;
use super::{HttpState, answer};
use crate::db::events::{self, Position, Wanted};
use crate::domain::event::TYPES;
use crate::domain::ids::{ChargeId, MerchantId};

pub(super) const PARAMETERS: [&str; 4] = ["type", "charge_id", "limit", "cursor"];

/// One page of a merchant's events, oldest first.
#[derive(Serialize, ToSchema)]
#[schema(as = EventList)]
pub struct EventListBody<'a> {
    #[schema(max_items = 100)]
    data: Vec<EventBody<'a>>,
    /// Where the next page begins, on the last page too: send it as `cursor`, with the same filters, now or later. While it
    /// differs from the `cursor` that was sent, there may be more, even if this page is empty.
    #[schema(max_length = 255)]
    next_cursor: String,
}

pub(super) async fn list(
    State(state): State<HttpState>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let merchant = state.auth().authenticate(&headers).await?.merchant;
    let asked = Asked::read(query.as_deref(), merchant)?;
    let types: Vec<&str> = asked.types.iter().map(String::as_str).collect();
    let wanted = Wanted {
        merchant,
        after: asked.after,
        types: &types,
        charge: asked.charge,
        limit: asked.limit.into(),
    };
    let read = state.parts().pool.ask(async |connection| {
        let newest = events::newest_transaction(connection).await?;
        Ok((events::list(connection, &wanted).await?, newest))
    });
    let (page, newest) = answer::in_time(&state, read).await?;
    if wanted.after.transaction > newest {
        return Err(of_other_books());
    }
    let body = EventListBody {
        data: page.events.iter().map(EventBody::from).collect(),
        next_cursor: encode(page.end, asked.list),
    };
    answer::json(StatusCode::OK, &body)
}

/// A place in books that were put back from a copy since, and count anew.
fn of_other_books() -> ApiError {
    ApiError::invalid_parameters(vec![Fault {
        place: Place::Parameter("cursor".into()),
        rule: "cursor",
        detail: "belongs to books that were restored since: read from the beginning, and leave out the ids that you know".into(),
    }])
}

/// A list as a client asks for it.
#[derive(Debug, PartialEq)]
pub struct Asked {
    types: Vec<String>,
    charge: Option<ChargeId>,
    after: Position,
    limit: u8,
    list: ListMark,
}

impl Asked {
    pub fn read(query: Option<&str>, merchant: MerchantId) -> Result<Self, ApiError> {
        let mut given = Parameters::read(query, &PARAMETERS);
        let types = given.take("type", "word", types).unwrap_or_default();
        let charge = given.take("charge_id", "syntax", |id| {
            id.parse::<ChargeId>()
                .map_err(|error| format!("is none: {error}").into())
        });
        let limit = given.take("limit", "range", limit);
        let filters = [
            ("events", Some(types.join(","))),
            ("charge", charge.map(|charge| charge.to_string())),
        ];
        let list = ListMark::of(merchant, &filters);
        let after = given.take("cursor", "cursor", |text| {
            decode(text, list).map_err(|bad| bad.mend().into())
        });
        given.finish()?;
        Ok(Self {
            types,
            charge,
            after: after.unwrap_or_default(),
            limit: limit.unwrap_or(USUALLY_LISTED),
            list,
        })
    }
}

/// One or several types, with commas between them.
fn types(text: &str) -> Result<Vec<String>, Cow<'static, str>> {
    let mut types: Vec<String> = text.split(',').map(str::to_owned).collect();
    if !types.iter().all(|each| TYPES.contains(&each.as_str())) {
        return Err(format!(
            "must be one or several, with commas, of {}",
            TYPES.join(", ")
        )
        .into());
    }
    types.sort();
    types.dedup();
    Ok(types)
}

/// A place among events, in the form of one among charges.
fn encode(position: Position, list: ListMark) -> String {
    let bits = |number: i64| u64::from_ne_bytes(number.to_ne_bytes());
    Cursor {
        created_at: EARLIEST,
        id: Uuid::from_u64_pair(bits(position.transaction), bits(position.id)),
    }
    .encode(list)
}

fn decode(text: &str, list: ListMark) -> Result<Position, BadCursor> {
    let cursor = Cursor::decode(text, list)?;
    let (transaction, id) = cursor.id.as_u64_pair();
    let number = |bits: u64| i64::try_from(bits).map_err(|_| BadCursor::Changed);
    Ok(Position {
        transaction: number(transaction)?,
        id: number(id)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_comes_back_as_it_went_and_for_its_own_list_alone() {
        let merchant = MerchantId::from_uuid(Uuid::from_u128(1));
        let position = Position {
            transaction: 1 << 40,
            id: 7,
        };
        let list = |types: &str| ListMark::of(merchant, &[("events", Some(types.to_owned()))]);
        let text = encode(position, list(""));
        assert_eq!(decode(&text, list("")), Ok(position));
        assert_eq!(
            decode(&text, list("charge.failed")),
            Err(BadCursor::OfOtherFilters)
        );
    }

    #[test]
    fn unknown_types_are_refused_and_the_order_of_known_ones_counts_for_nothing() {
        assert!(types("charge.paid").is_err());
        assert!(types("charge.failed,").is_err());
        assert_eq!(
            types("charge.failed,charge.completed"),
            types("charge.completed,charge.failed,charge.failed")
        );
    }
}
