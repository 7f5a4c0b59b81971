//! GET /v1/refunds: the refunds of one merchant, newest first, in pages.

use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use super::charge_list::{LATEST, USUALLY_LISTED, limit};
use super::cursor::{Cursor, ListMark, cut};
use super::problem::ApiError;
use super::query::Parameters;
use super::refund_body::RefundBody;
use super::{HttpState, answer};
use crate::db::refunds::{self, Wanted};
use crate::domain::idempotency::IdempotencyKey;
use crate::domain::ids::{ChargeId, MerchantId, RefundId};

pub(super) const PARAMETERS: [&str; 4] = ["charge_id", "idempotency_key", "limit", "cursor"];

/// One page of a merchant's refunds, newest first.
#[derive(Serialize, ToSchema)]
#[schema(as = RefundList)]
pub struct RefundListBody<'a> {
    #[schema(max_items = 100)]
    data: Vec<RefundBody<'a>>,
    /// Where the next page begins: send it as `cursor`, with the same filters. Absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, max_length = 255)]
    next_cursor: Option<String>,
}

pub(super) async fn list(
    State(state): State<HttpState>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let merchant = state.auth().authenticate(&headers).await?.merchant;
    let (wanted, mark) = read(query.as_deref(), merchant)?;
    let read = state
        .parts()
        .pool
        .ask(async |connection| refunds::list(connection, wanted).await);
    let mut found = answer::in_time(&state, read).await?;
    let next_cursor = cut(&mut found, wanted.limit - 1, mark, |last| Cursor {
        created_at: last.created_at,
        id: last.id.as_uuid(),
    });
    let body = RefundListBody {
        data: found.iter().map(RefundBody::from).collect(),
        next_cursor,
    };
    answer::json(StatusCode::OK, &body)
}

fn read(query: Option<&str>, merchant: MerchantId) -> Result<(Wanted, ListMark), ApiError> {
    let mut given = Parameters::read(query, &PARAMETERS);
    let charge = given.take("charge_id", "syntax", |id| {
        id.parse::<ChargeId>()
            .map_err(|error| error.to_string().into())
    });
    let key = given.take("idempotency_key", "syntax", |key| {
        IdempotencyKey::parse(key.as_bytes()).map_err(|error| error.to_string().into())
    });
    let limit = given.take("limit", "range", limit);
    let refund = key.map(|key| RefundId::derive(merchant, &key));
    let filters = [
        ("list", Some("refunds".to_owned())),
        ("charge", charge.map(|charge| charge.to_string())),
        ("refund", refund.map(|refund| refund.to_string())),
    ];
    let mark = ListMark::of(merchant, &filters);
    let cursor = given.take("cursor", "cursor", |text| Cursor::read(text, mark));
    given.finish()?;
    let wanted = Wanted {
        merchant,
        charge,
        refund,
        below: cursor.map_or((LATEST, Uuid::nil()), |cursor| {
            (cursor.created_at, cursor.id)
        }),
        limit: limit.unwrap_or(USUALLY_LISTED) + 1,
    };
    Ok((wanted, mark))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_filter_is_refused_and_a_key_names_one_refund() {
        let merchant = MerchantId::from_uuid(Uuid::from_u128(7));
        for bad in [
            "charge=chg_1",
            "charge_id=chg_1",
            "limit=0",
            "limit=101",
            "status=failed",
            "idempotency_key=a&idempotency_key=a",
        ] {
            assert!(read(Some(bad), merchant).is_err(), "{bad}");
        }
        let (wanted, _) = read(Some("idempotency_key=%22a%22&limit=3"), merchant).unwrap();
        let key = IdempotencyKey::parse(b"a").unwrap();
        assert_eq!(wanted.refund, Some(RefundId::derive(merchant, &key)));
        assert_eq!(wanted.limit, 4);
    }
}
