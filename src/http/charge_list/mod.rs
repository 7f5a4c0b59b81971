//! GET /v1/charges: the merchant's charges, newest first, a page at a time.
//!
//! A page ends at a place in the list, not after a number of charges, so none is shown twice or left out for those that
//! come in between. A charge that is taken in while pages are read need not be on one of them.

use std::borrow::Cow;

use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde::Serialize;
use time::format_description::well_known::Rfc3339;
use time::{Duration, OffsetDateTime, UtcOffset};
use utoipa::ToSchema;
use uuid::Uuid;

use super::charge_body::ChargeBody;
use super::cursor::{Cursor, ListMark, cut};
use super::problem::ApiError;
use super::query::Parameters;
use super::{HttpState, answer};
use crate::db::charge_lists::{self, Wanted};
use crate::domain::charge::{Stage, Status};
use crate::domain::idempotency::IdempotencyKey;
use crate::domain::ids::{ChargeId, MerchantId, ProviderChargeId};
use crate::domain::request::limits::REFERENCE_LENGTH;

pub(super) const PARAMETERS: [&str; 9] = [
    "status",
    "stage",
    "reference",
    "idempotency_key",
    "provider_charge_id",
    "created_from",
    "created_before",
    "limit",
    "cursor",
];

/// The largest page, and the one that is answered if none is asked for; part of the contract.
pub(super) const MOST_LISTED: u8 = charge_lists::MOST - 1;
pub(super) const USUALLY_LISTED: u8 = 20;

/// Before and after every charge.
pub(super) const EARLIEST: OffsetDateTime = time::macros::datetime!(0001-01-01 00:00 UTC);
pub(super) const LATEST: OffsetDateTime = time::macros::datetime!(9999-12-31 23:59:59 UTC);

/// One page of a merchant's charges, newest first.
#[derive(Serialize, ToSchema)]
#[schema(as = ChargeList)]
pub struct ChargeListBody<'a> {
    #[schema(max_items = 100)]
    data: Vec<ChargeBody<'a>>,
    /// Where the next page begins: send it as `cursor`, with the same filters. Absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(
        nullable = false,
        max_length = 255,
        example = "019f2c7a1e5d3b8a40000640cd2f5e1a2903510a50e711533aba21e1dd9ddf20be5f0c1d2e3a4b5c6d"
    )]
    next_cursor: Option<String>,
}

pub(super) async fn list(
    State(state): State<HttpState>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let merchant = state.auth().authenticate(&headers).await?.merchant;
    let asked = Asked::read(query.as_deref(), merchant)?;
    let mut found = if asked.stages.is_empty() {
        Vec::new()
    } else {
        let provider = state.parts().rules.provider;
        let wanted = asked.wanted(merchant, provider);
        let pool = &state.parts().pool;
        let read = pool.ask(async |connection| charge_lists::list(connection, &wanted).await);
        answer::in_time(&state, read).await?
    };
    let next_cursor = cut(&mut found, asked.limit, asked.list, |charge| Cursor {
        created_at: charge.created_at,
        id: charge.id.as_uuid(),
    });
    let body = ChargeListBody {
        data: found.iter().map(ChargeBody::from).collect(),
        next_cursor,
    };
    answer::json(StatusCode::OK, &body)
}

/// A list as a client asks for it.
#[derive(Debug, PartialEq)]
pub struct Asked {
    /// None when two filters leave none.
    stages: Vec<Stage>,
    charge: Option<ChargeId>,
    object: Option<ProviderChargeId>,
    reference: Option<String>,
    from: OffsetDateTime,
    below: (OffsetDateTime, Uuid),
    limit: u8,
    list: ListMark,
}

impl Asked {
    pub fn read(query: Option<&str>, merchant: MerchantId) -> Result<Self, ApiError> {
        let mut given = Parameters::read(query, &PARAMETERS);
        let status = given.take("status", "word", |word| {
            Status::parse(word).ok_or_else(|| one_of(Status::ALL))
        });
        let stage = given.take("stage", "word", |word| {
            Stage::parse(word).ok_or_else(|| one_of(Stage::ALL))
        });
        let reference = given.take("reference", "text", reference);
        let key = given.take("idempotency_key", "syntax", |key| {
            IdempotencyKey::parse(key.as_bytes()).map_err(|error| error.to_string().into())
        });
        let object = given.take("provider_charge_id", "syntax", |id| {
            ProviderChargeId::parse(id).ok_or_else(|| {
                "must be 1 to 255 of A-Z a-z 0-9 _ -, as the provider wrote it".into()
            })
        });
        let from = given.take("created_from", "time", instant);
        let before = given.take("created_before", "time", instant);
        if let (Some(from), Some(before)) = (from, before)
            && from > before
        {
            let detail = "must not be after created_before";
            given.refuse("created_from", "range", detail);
        }
        let limit = given.take("limit", "range", limit);
        let stages: Vec<Stage> = Stage::ALL
            .iter()
            .copied()
            .filter(|each| status.is_none_or(|status| each.status() == status))
            .filter(|each| stage.is_none_or(|stage| *each == stage))
            .collect();
        let charge = key.map(|key| ChargeId::derive(merchant, &key));
        let time = |at: OffsetDateTime| at.unix_timestamp_nanos().to_string();
        let words: Vec<&str> = stages.iter().map(|stage| stage.as_str()).collect();
        let filters = [
            ("stages", Some(words.join(","))),
            ("reference", reference.clone()),
            ("charge", charge.map(|charge| charge.to_string())),
            ("object", object.as_ref().map(ToString::to_string)),
            ("from", from.map(time)),
            ("before", before.map(time)),
        ];
        let list = ListMark::of(merchant, &filters);
        let cursor = given.take("cursor", "cursor", |text| Cursor::read(text, list));
        given.finish()?;
        Ok(Self {
            stages,
            charge,
            object,
            reference,
            from: from.unwrap_or(EARLIEST),
            below: match cursor {
                Some(cursor) => (cursor.created_at, cursor.id),
                // No id is less than this one, so all of that time are left out.
                None => (before.unwrap_or(LATEST), Uuid::nil()),
            },
            limit: limit.unwrap_or(USUALLY_LISTED),
            list,
        })
    }

    fn wanted<'a>(&'a self, merchant: MerchantId, provider: &'a str) -> Wanted<'a> {
        Wanted {
            merchant,
            stages: &self.stages,
            charge: self.charge,
            object: self.object.as_ref().map(|object| (provider, object)),
            reference: self.reference.as_deref(),
            from: self.from,
            below: self.below,
            limit: self.limit + 1,
        }
    }
}

fn one_of<T: ToString>(words: &[T]) -> Cow<'static, str> {
    let words: Vec<String> = words.iter().map(T::to_string).collect();
    format!("must be one of {}", words.join(", ")).into()
}

fn reference(text: &str) -> Result<String, Cow<'static, str>> {
    let sane = (1..=REFERENCE_LENGTH).contains(&text.chars().count());
    if sane && !text.chars().any(char::is_control) {
        return Ok(text.to_owned());
    }
    Err(
        format!("must be 1 to {REFERENCE_LENGTH} characters, none of them a control character")
            .into(),
    )
}

pub(super) fn limit(text: &str) -> Result<u8, Cow<'static, str>> {
    let is_number = (1..=3).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    text.parse()
        .ok()
        .filter(|limit| is_number && (1..=MOST_LISTED).contains(limit))
        .ok_or_else(|| format!("must be a whole number from 1 to {MOST_LISTED}").into())
}

/// A time in UTC, in whole microseconds as charges have them: a part of one counts as the next, which is the same to
/// every charge.
fn instant(text: &str) -> Result<OffsetDateTime, Cow<'static, str>> {
    let parsed = OffsetDateTime::parse(text, &Rfc3339)
        .ok()
        // A year from 1 to 9999 in its own offset may be another one in UTC.
        .and_then(|at| at.checked_to_offset(UtcOffset::UTC))
        .and_then(|at| {
            let excess = i64::from(at.nanosecond() % 1000);
            at.checked_add(Duration::nanoseconds((1000 - excess) % 1000))
        })
        .filter(|at| (EARLIEST..=LATEST).contains(at));
    parsed.ok_or_else(|| {
        "must be an RFC 3339 time, such as 2026-11-29T20:15:00Z; the + of an offset is written %2B"
            .into()
    })
}

#[cfg(test)]
mod tests;
