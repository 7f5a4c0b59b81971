//! The published document of refunds.

use utoipa::ToSchema;
use utoipa::openapi::path::{HttpMethod, Operation, Parameter, PathItem, PathsBuilder};
use utoipa::openapi::response::ResponseBuilder;
use utoipa::openapi::tag::{Tag, TagBuilder};
use utoipa::openapi::{RefOr, Schema};

use super::code::Code;
use super::openapi::with_problems;
use super::openapi_parts::{
    answer, body, body_schema, charge_id, cursor, idempotency_key, idempotent_replayed, limit,
    operation, path, prefer, preference_applied, query, request_id, schema, text, text_header,
};
use super::policy::KEY_PATTERN;
use super::refund_body::{CreateRefund, RefundBody};
use super::refund_list::RefundListBody;

const REFUNDS: &str = "refunds";

pub(super) fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
    schemas.extend([
        body_schema::<CreateRefund>(),
        schema::<RefundBody<'_>>(),
        schema::<RefundListBody<'_>>(),
    ]);
    RefundBody::schemas(schemas);
}

pub(super) fn tag() -> Tag {
    TagBuilder::new()
        .name(REFUNDS)
        .description(Some(
            "Money back: of a completed charge, never more than it.",
        ))
        .build()
}

pub(super) fn paths(paths: PathsBuilder) -> PathsBuilder {
    paths
        .path(
            "/v1/charges/{id}/refunds",
            PathItem::new(HttpMethod::Post, create_refund()),
        )
        .path(
            "/v1/refunds",
            PathItem::new(HttpMethod::Get, list_refunds()),
        )
        .path(
            "/v1/refunds/{id}",
            PathItem::new(HttpMethod::Get, get_refund()),
        )
}

fn create_refund() -> Operation {
    let created = refund(
        "Accepted: the refund is stored, its amount is reserved, and it will be carried out. Accepted is not paid back: read \
         the refund until its `status` is no longer `in_progress`.",
    );
    let replayed = refund(
        "A duplicate: the same key and the same meaning. Nothing new was made; the refund as it stands now.",
    )
    .header("Idempotent-Replayed", idempotent_replayed());
    let operation = operation(
        REFUNDS,
        "create_refund",
        "Refund a charge, once",
        "The first request with a key makes the refund (202). Every other one with the same key and the same meaning is \
         answered with that refund (200). Refunds in progress and completed ones never add up to more than the charge; `{}` \
         asks for all that is left. A charge and a refund under one key are two requests.",
    )
    .parameter(charge_id())
    .parameter(idempotency_key())
    .parameter(prefer())
    .parameter(request_id())
    .request_body(Some(body("CreateRefund")))
    .response("202", created.build())
    .response("200", replayed.build());
    let codes = [
        Code::IdempotencyKeyMissing,
        Code::IdempotencyKeyInvalid,
        Code::MalformedJson,
        Code::Forbidden,
        Code::NotFound,
        Code::RequestTimeout,
        Code::ChargeNotRefundable,
        Code::PayloadTooLarge,
        Code::UnsupportedMediaType,
        Code::InvalidRequest,
        Code::IdempotencyKeyReused,
        Code::RefundExceedsCharge,
        Code::Overloaded,
        Code::AcceptanceUnknown,
    ];
    with_problems(operation, &codes).build()
}

fn get_refund() -> Operation {
    let id = path(
        "id",
        "The refund's id.",
        text()
            .min_length(Some(36))
            .max_length(Some(36))
            .pattern(Some("^rfd_[0-9a-f]{32}$")),
        "rfd_03510a50e711533aba21e1dd9ddf20be",
    );
    let operation = operation(
        REFUNDS,
        "get_refund",
        "Read a refund",
        "The refund as it stands now.",
    )
    .parameter(id)
    .parameter(prefer())
    .parameter(request_id())
    .response("200", refund("The refund.").build());
    with_problems(operation, &[Code::NotFound]).build()
}

fn list_refunds() -> Operation {
    let operation = operation(
        REFUNDS,
        "list_refunds",
        "List refunds",
        "Newest first. Unknown or repeated parameters are refused: a misspelt filter must not answer with another refund.",
    )
    .parameters(Some(filters()))
    .parameter(limit("The most refunds on one page."))
    .parameter(cursor())
    .parameter(request_id())
    .response("200", answer("One page, newest first.", "RefundList").build());
    with_problems(operation, &[Code::InvalidParameter]).build()
}

fn filters() -> [Parameter; 2] {
    [
        query(
            "charge_id",
            "Only the refunds of this charge.",
            text()
                .min_length(Some(36))
                .max_length(Some(36))
                .pattern(Some("^chg_[0-9a-f]{32}$")),
            "chg_03510a50e711533aba21e1dd9ddf20be",
        ),
        query(
            "idempotency_key",
            "Only the refund that this key has made.",
            text()
                .min_length(Some(1))
                .max_length(Some(255))
                .pattern(Some(KEY_PATTERN)),
            "order-42-return",
        ),
    ]
}

fn refund(description: &str) -> ResponseBuilder {
    answer(description, "Refund")
        .header(
            "Location",
            text_header(
                "The refund's address.",
                "/v1/refunds/rfd_03510a50e711533aba21e1dd9ddf20be",
            ),
        )
        .header("Preference-Applied", preference_applied())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_documented_fields_of_a_refund_request_are_those_that_are_read() {
        let document: serde_json::Value =
            serde_json::from_str(&crate::http::openapi::document()).unwrap();
        let schema = &document["components"]["schemas"]["CreateRefund"];
        let mut documented: Vec<&String> =
            schema["properties"].as_object().unwrap().keys().collect();
        let mut read = crate::http::body::REFUND_FIELDS.to_vec();
        documented.sort();
        read.sort_unstable();
        assert_eq!(documented, read);
    }
}
