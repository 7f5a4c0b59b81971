//! The published document of refunds.

use serde_json::json;
use utoipa::openapi::path::{
    HttpMethod, Operation, OperationBuilder, Parameter, ParameterBuilder, ParameterIn, PathItem,
    PathsBuilder,
};
use utoipa::openapi::request_body::{RequestBody, RequestBodyBuilder};
use utoipa::openapi::response::ResponseBuilder;
use utoipa::openapi::schema::{AdditionalProperties, ObjectBuilder, Schema, Type};
use utoipa::openapi::security::SecurityRequirement;
use utoipa::openapi::tag::{Tag, TagBuilder};
use utoipa::openapi::{ContentBuilder, Ref, RefOr, Required};
use utoipa::{PartialSchema, ToSchema};

use super::charge_list::{MOST_LISTED, USUALLY_LISTED};
use super::code::Code;
use super::openapi::{
    API_KEY, charge_id, idempotency_key, prefer, request_id, request_id_header, text, text_header,
    with_problems,
};
use super::policy::KEY_PATTERN;
use super::refund_body::{CreateRefund, RefundBody};
use super::refund_list::RefundListBody;

const REFUNDS: &str = "refunds";

pub(super) fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
    let mut create = CreateRefund::schema();
    if let RefOr::T(Schema::Object(object)) = &mut create {
        object.additional_properties = Some(Box::new(AdditionalProperties::FreeForm(false)));
    }
    schemas.push((CreateRefund::name().into_owned(), create));
    schemas.push((RefundBody::name().into_owned(), RefundBody::schema()));
    schemas.push((
        RefundListBody::name().into_owned(),
        RefundListBody::schema(),
    ));
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
    .header(
        "Idempotent-Replayed",
        text_header(
            "`true` on every answer to a duplicate, and on no other.",
            "true",
        ),
    );
    let operation = OperationBuilder::new()
        .operation_id(Some("create_refund"))
        .tag(REFUNDS)
        .summary(Some("Refund a charge, once"))
        .description(Some(
            "The first request with a key makes the refund (202). Every other one with the same key and the same meaning is \
             answered with that refund (200). Refunds in progress and completed ones never add up to more than the charge. A \
             charge and a refund under one key are two requests.",
        ))
        .security(SecurityRequirement::new(API_KEY, [] as [&str; 0]))
        .parameter(charge_id())
        .parameter(idempotency_key())
        .parameter(prefer())
        .parameter(request_id())
        .request_body(Some(refund_request()))
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
    let id = ParameterBuilder::new()
        .name("id")
        .parameter_in(ParameterIn::Path)
        .required(Required::True)
        .description(Some("The refund's id."))
        .schema(Some(text().pattern(Some("^rfd_[0-9a-f]{32}$"))))
        .example(Some(json!("rfd_03510a50e711533aba21e1dd9ddf20be")));
    let operation = OperationBuilder::new()
        .operation_id(Some("get_refund"))
        .tag(REFUNDS)
        .summary(Some("Read a refund"))
        .description(Some("The refund as it stands now."))
        .security(SecurityRequirement::new(API_KEY, [] as [&str; 0]))
        .parameter(id)
        .parameter(prefer())
        .parameter(request_id())
        .response("200", refund("The refund.").build());
    with_problems(operation, &[Code::NotFound]).build()
}

fn list_refunds() -> Operation {
    let content = ContentBuilder::new()
        .schema(Some(Ref::from_schema_name("RefundList")))
        .build();
    let page = ResponseBuilder::new()
        .description("One page, newest first.")
        .content("application/json", content)
        .header("X-Request-Id", request_id_header());
    let limit = ObjectBuilder::new()
        .schema_type(Type::Integer)
        .minimum(Some(1))
        .maximum(Some(i32::from(MOST_LISTED)))
        .default(Some(json!(USUALLY_LISTED)));
    let operation = OperationBuilder::new()
        .operation_id(Some("list_refunds"))
        .tag(REFUNDS)
        .summary(Some("List refunds"))
        .description(Some(
            "Newest first. Unknown or repeated parameters are refused: a misspelt filter must not answer with another refund.",
        ))
        .security(SecurityRequirement::new(API_KEY, [] as [&str; 0]))
        .parameter(query(
            "charge_id",
            "Only the refunds of this charge.",
            text().pattern(Some("^chg_[0-9a-f]{32}$")),
        ))
        .parameter(query(
            "idempotency_key",
            "Only the refund that this key has made.",
            text()
                .min_length(Some(1))
                .max_length(Some(255))
                .pattern(Some(KEY_PATTERN)),
        ))
        .parameter(query("limit", "The most on one page.", limit))
        .parameter(query(
            "cursor",
            "`next_cursor` of the page before, as it came.",
            text().max_length(Some(255)),
        ))
        .parameter(request_id())
        .response("200", page.build());
    with_problems(operation, &[Code::InvalidParameter]).build()
}

fn query(name: &str, description: &str, schema: ObjectBuilder) -> Parameter {
    ParameterBuilder::new()
        .name(name)
        .parameter_in(ParameterIn::Query)
        .required(Required::False)
        .description(Some(description))
        .schema(Some(schema))
        .build()
}

fn refund(description: &str) -> ResponseBuilder {
    let content = ContentBuilder::new()
        .schema(Some(Ref::from_schema_name("Refund")))
        .build();
    ResponseBuilder::new()
        .description(description)
        .content("application/json", content)
        .header("X-Request-Id", request_id_header())
        .header(
            "Location",
            text_header(
                "The refund's address.",
                "/v1/refunds/rfd_03510a50e711533aba21e1dd9ddf20be",
            ),
        )
        .header(
            "Preference-Applied",
            text_header(
                "The wait that was applied, if one was asked for.",
                "wait=10",
            ),
        )
}

fn refund_request() -> RequestBody {
    let content = ContentBuilder::new()
        .schema(Some(Ref::from_schema_name("CreateRefund")))
        .build();
    RequestBodyBuilder::new()
        .description(Some(
            "One JSON object in UTF-8 of up to 65536 bytes; `{}` refunds all that is left.",
        ))
        .required(Some(Required::True))
        .content("application/json", content)
        .build()
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
