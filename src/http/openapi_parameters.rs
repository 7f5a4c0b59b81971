//! What requests of the published document are sent with, and the headers of its answers.

use serde_json::json;
use utoipa::openapi::Required;
use utoipa::openapi::header::{Header, HeaderBuilder};
use utoipa::openapi::path::{Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::{KnownFormat, Object, ObjectBuilder, SchemaFormat, Type};

use super::policy::KEY_PATTERN;

/// What clients can send as a header's value. Where a value that makes no sense is ignored, no more can be asked of it.
const ANY_HEADER: &str = r"^[\t -~\x80-\xff]*$";

pub(super) fn charge_id() -> ParameterBuilder {
    ParameterBuilder::new()
        .name("id")
        .parameter_in(ParameterIn::Path)
        .required(Required::True)
        .description(Some("The charge's id."))
        .schema(Some(
            text()
                .min_length(Some(36))
                .max_length(Some(36))
                .pattern(Some("^chg_[0-9a-f]{32}$")),
        ))
        .example(Some(json!("chg_03510a50e711533aba21e1dd9ddf20be")))
}

pub(super) fn idempotency_key() -> Parameter {
    ParameterBuilder::new()
        .name("Idempotency-Key")
        .parameter_in(ParameterIn::Header)
        .required(Required::True)
        .description(Some(
            "One key for each purchase, made and kept by the caller and sent with every retry: a new key is a new charge. \
             Visible ASCII characters other than the quotation mark, the backslash and the comma. Never make one for each attempt.",
        ))
        .schema(Some(
            text()
                .min_length(Some(1))
                .max_length(Some(255))
                .pattern(Some(KEY_PATTERN)),
        ))
        .example(Some(json!("order-42")))
        .build()
}

pub(super) fn prefer() -> Parameter {
    ParameterBuilder::new()
        .name("Prefer")
        .parameter_in(ParameterIn::Header)
        .required(Required::False)
        .description(Some(
            "`wait=N` (RFC 7240): hold the answer for up to N seconds, at most 30, until the charge is terminal or needs the \
             customer. May stand among other preferences, which are ignored, as is a `wait` that is no whole number; of \
             several the first counts. `Preference-Applied` says what was applied.",
        ))
        .schema(Some(text().pattern(Some(ANY_HEADER))))
        .example(Some(json!("wait=10")))
        .build()
}

pub(super) fn request_id() -> Parameter {
    ParameterBuilder::new()
        .name("X-Request-Id")
        .parameter_in(ParameterIn::Header)
        .required(Required::False)
        .description(Some(
            "The caller's own name for this request: echoed if it is 1 to 128 visible ASCII characters without quotation mark \
             and backslash, else another is made.",
        ))
        .schema(Some(text().pattern(Some(ANY_HEADER))))
        .example(Some(json!("req-7")))
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
