//! What the operations of the published document are put together from: what requests are sent with, what is answered.

use serde_json::{Value, json};
use utoipa::ToSchema;
use utoipa::openapi::header::{Header, HeaderBuilder};
use utoipa::openapi::path::{OperationBuilder, Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::request_body::{RequestBody, RequestBodyBuilder};
use utoipa::openapi::response::ResponseBuilder;
use utoipa::openapi::schema::{
    AdditionalProperties, KnownFormat, Object, ObjectBuilder, Schema, SchemaFormat, Type,
};
use utoipa::openapi::security::SecurityRequirement;
use utoipa::openapi::{Content, ContentBuilder, Ref, RefOr, Required};

use super::charge_list::{MOST_LISTED, USUALLY_LISTED};
use super::policy::KEY_PATTERN;

/// The security scheme of every operation under `/v1`.
pub(super) const API_KEY: &str = "api_key";

/// An operation for who has an API key.
pub(super) fn operation(tag: &str, id: &str, summary: &str, description: &str) -> OperationBuilder {
    OperationBuilder::new()
        .operation_id(Some(id))
        .tag(tag)
        .summary(Some(summary))
        .description(Some(description))
        .security(SecurityRequirement::new(API_KEY, [] as [&str; 0]))
}

/// A schema by its name.
pub(super) fn schema<T: ToSchema>() -> (String, RefOr<Schema>) {
    (T::name().into_owned(), T::schema())
}

/// The schema of a request's body: unknown fields are refused.
pub(super) fn body_schema<T: ToSchema>() -> (String, RefOr<Schema>) {
    let (name, mut schema) = schema::<T>();
    if let RefOr::T(Schema::Object(object)) = &mut schema {
        object.additional_properties = Some(Box::new(AdditionalProperties::FreeForm(false)));
    }
    (name, schema)
}

/// JSON of this schema.
pub(super) fn content(schema: &str) -> Content {
    ContentBuilder::new()
        .schema(Some(Ref::from_schema_name(schema)))
        .build()
}

pub(super) fn body(schema: &str) -> RequestBody {
    RequestBodyBuilder::new()
        .description(Some("One JSON object in UTF-8 of up to 65536 bytes."))
        .required(Some(Required::True))
        .content("application/json", content(schema))
        .build()
}

pub(super) fn answer(description: &str, schema: &str) -> ResponseBuilder {
    ResponseBuilder::new()
        .description(description)
        .content("application/json", content(schema))
        .header("X-Request-Id", request_id_header())
}

pub(super) fn query(
    name: &str,
    description: &str,
    schema: ObjectBuilder,
    example: impl Into<Value>,
) -> Parameter {
    ParameterBuilder::new()
        .name(name)
        .parameter_in(ParameterIn::Query)
        .required(Required::False)
        .description(Some(description))
        .schema(Some(schema))
        .example(Some(example.into()))
        .build()
}

/// How much a page of a list has at the most.
pub(super) fn limit(description: &str) -> Parameter {
    let schema = ObjectBuilder::new()
        .schema_type(Type::Integer)
        .format(Some(SchemaFormat::KnownFormat(KnownFormat::Int32)))
        .minimum(Some(1))
        .maximum(Some(i64::from(MOST_LISTED)))
        .default(Some(json!(USUALLY_LISTED)));
    query("limit", description, schema, 50)
}

/// Where a page of a list begins.
pub(super) fn cursor() -> Parameter {
    query(
        "cursor",
        "`next_cursor` of the page before, with the same filters.",
        text().min_length(Some(1)).max_length(Some(255)),
        "019f2c7a1e5d3b8a40000640cd2f5e1a2903510a50e711533aba21e1dd9ddf20be5f0c1d2e3a4b5c6d",
    )
}

/// An id in the address.
pub(super) fn path(
    name: &str,
    description: &str,
    schema: ObjectBuilder,
    example: &str,
) -> Parameter {
    ParameterBuilder::new()
        .name(name)
        .parameter_in(ParameterIn::Path)
        .required(Required::True)
        .description(Some(description))
        .schema(Some(schema))
        .example(Some(json!(example)))
        .build()
}

/// What clients can send as a header's value. Where a value that makes no sense is ignored, no more can be asked of it.
const ANY_HEADER: &str = r"^[\t -~\x80-\xff]*$";

pub(super) fn charge_id() -> Parameter {
    path(
        "id",
        "The charge's id.",
        text()
            .min_length(Some(36))
            .max_length(Some(36))
            .pattern(Some("^chg_[0-9a-f]{32}$")),
        "chg_03510a50e711533aba21e1dd9ddf20be",
    )
}

pub(super) fn idempotency_key() -> Parameter {
    header(
        "Idempotency-Key",
        Required::True,
        "One key for each purchase or refund, made and kept by the caller and sent with every retry: a new key is a new charge. \
         Visible ASCII characters other than the quotation mark, the backslash and the comma. Never make one for each attempt.",
        text()
            .min_length(Some(1))
            .max_length(Some(255))
            .pattern(Some(KEY_PATTERN)),
        "order-42",
    )
}

pub(super) fn prefer() -> Parameter {
    header(
        "Prefer",
        Required::False,
        "`wait=N` (RFC 7240): hold the answer for up to N seconds, at most 30, until the charge or refund is terminal or \
         needs the customer. May stand among other preferences, which are ignored, as is a `wait` that is no whole number; of \
         several the first counts. `Preference-Applied` says what was applied.",
        text().pattern(Some(ANY_HEADER)),
        "wait=10",
    )
}

pub(super) fn request_id() -> Parameter {
    header(
        "X-Request-Id",
        Required::False,
        "The caller's own name for this request: echoed if it is 1 to 128 visible ASCII characters without quotation mark \
         and backslash, else another is made.",
        text().pattern(Some(ANY_HEADER)),
        "req-7",
    )
}

fn header(
    name: &str,
    required: Required,
    description: &str,
    schema: ObjectBuilder,
    example: &str,
) -> Parameter {
    ParameterBuilder::new()
        .name(name)
        .parameter_in(ParameterIn::Header)
        .required(required)
        .description(Some(description))
        .schema(Some(schema))
        .example(Some(json!(example)))
        .build()
}

pub(super) fn text() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String)
}

pub(super) fn location() -> Header {
    text_header(
        "The charge's address.",
        "/v1/charges/chg_03510a50e711533aba21e1dd9ddf20be",
    )
}

pub(super) fn preference_applied() -> Header {
    text_header(
        "The wait that was applied, if one was asked for.",
        "wait=10",
    )
}

pub(super) fn idempotent_replayed() -> Header {
    text_header(
        "`true` on every answer to a duplicate, and on no other.",
        "true",
    )
}

pub(super) fn request_id_header() -> Header {
    text_header("Names this request in the service's log.", "req-7")
}

pub(super) fn text_header(description: &str, example: &str) -> Header {
    HeaderBuilder::new()
        .schema(Some(Object::with_type(Type::String)))
        .description(Some(description))
        .example(Some(json!(example)))
        .build()
}

pub(super) fn retry_after() -> Header {
    HeaderBuilder::new()
        .schema(Some(
            ObjectBuilder::new()
                .schema_type(Type::Integer)
                .format(Some(SchemaFormat::KnownFormat(KnownFormat::Int32)))
                .minimum(Some(0)),
        ))
        .description(Some(
            "Whole seconds to wait before the same request is sent again.",
        ))
        .example(Some(json!(1)))
        .build()
}
