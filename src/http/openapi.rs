//! The published document, made from the types that are served and the codes that are told.
//!
//! `openapi/openapi.json` is this document, committed; a test holds them together. The service serves the committed one,
//! and the copy for generators that read no 3.1.

use utoipa::ToSchema;
use utoipa::openapi::path::{
    HttpMethod, Operation, OperationBuilder, PathItem, PathItemBuilder, PathsBuilder,
};
use utoipa::openapi::response::{Response, ResponseBuilder};
use utoipa::openapi::schema::{Components, ComponentsBuilder};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::tag::TagBuilder;
use utoipa::openapi::{InfoBuilder, LicenseBuilder, OpenApi, OpenApiBuilder, ServerBuilder};

use super::charge_body::{ChargeBody, CreateCharge};
use super::code::Code;
use super::openapi_parts::{
    API_KEY, answer, body, body_schema, charge_id, content, idempotency_key, idempotent_replayed,
    location, operation, prefer, preference_applied, request_id, request_id_header, retry_after,
    schema, text_header,
};
use super::openapi_reads as reads;
use super::openapi_refunds as refunds;
use super::openapi_webhooks as webhooks;
use super::problem::Problem;

/// The document as committed.
pub const COMMITTED: &str = include_str!("../../openapi/openapi.json");

const CHARGE: &str = "Charge";
const PROBLEM: &str = "Problem";
pub(super) const CHARGES: &str = "charges";

/// What can go wrong with any call under `/v1`.
const OF_ANY: &[Code] = &[
    Code::Unauthenticated,
    Code::UriTooLong,
    Code::RateLimited,
    Code::Internal,
    Code::Unavailable,
];

/// The document as the code has it, in pretty JSON with a newline at its end.
pub fn document() -> String {
    let mut text = serde_json::to_string_pretty(&build()).unwrap_or_default();
    text.push('\n');
    text
}

pub(super) fn build() -> OpenApi {
    let info = InfoBuilder::new()
        .title("payonce")
        .version("1.0.0")
        .description(Some(
            "Takes in payment charges: one accepted request makes at most one charge at the provider. `/v1` only grows: \
             clients must accept new fields, and new values of every string with `x-extensible-enum`.",
        ))
        .license(Some(
            LicenseBuilder::new()
                .name("MIT OR Apache-2.0")
                .identifier(Some("MIT OR Apache-2.0"))
                .build(),
        ));
    let paths = PathsBuilder::new()
        .path(
            "/v1/charges",
            PathItemBuilder::new()
                .operation(HttpMethod::Post, create_charge())
                .operation(HttpMethod::Get, reads::list_charges())
                .build(),
        )
        .path(
            "/v1/charges/{id}",
            PathItem::new(HttpMethod::Get, get_charge()),
        )
        .path(
            "/v1/charges/{id}/cancel",
            PathItem::new(HttpMethod::Post, cancel_charge()),
        )
        .path(
            "/v1/charges/{id}/timeline",
            PathItem::new(HttpMethod::Get, reads::get_charge_timeline()),
        )
        .path(
            "/v1/policy",
            PathItem::new(HttpMethod::Get, reads::get_policy()),
        );
    let paths = refunds::paths(paths);
    let paths = webhooks::paths(paths);
    OpenApiBuilder::new()
        .info(info)
        .servers(Some([ServerBuilder::new()
            .url("/")
            .description(Some("The service that serves this document."))
            .build()]))
        .paths(paths)
        .components(Some(components()))
        .tags(Some([
            TagBuilder::new()
                .name(CHARGES)
                .description(Some("Payments: taken in once, then carried out."))
                .build(),
            refunds::tag(),
            TagBuilder::new()
                .name(webhooks::EVENTS)
                .description(Some(
                    "What happened: read, or sent to the merchant's endpoints.",
                ))
                .build(),
            TagBuilder::new()
                .name(reads::SERVICE)
                .description(Some("What the service takes."))
                .build(),
        ]))
        .build()
}

fn components() -> Components {
    let mut schemas = vec![
        body_schema::<CreateCharge>(),
        schema::<ChargeBody<'_>>(),
        schema::<Problem<'_>>(),
    ];
    ChargeBody::schemas(&mut schemas);
    Problem::schemas(&mut schemas);
    reads::schemas(&mut schemas);
    refunds::schemas(&mut schemas);
    webhooks::schemas(&mut schemas);
    let api_key = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .description(Some(
            "An API key of the service's mode: `payonce_test_…` or `payonce_live_…`. It names the merchant, and may write or only read.",
        ))
        .build();
    ComponentsBuilder::new()
        .schemas_from_iter(schemas)
        .security_scheme(API_KEY, SecurityScheme::Http(api_key))
        .build()
}

fn create_charge() -> Operation {
    let created = charge(
        "Accepted: the charge is stored and will be carried out. Accepted is not paid: read the charge until its `status` is no longer `in_progress`.",
    );
    let replayed = charge("A duplicate: the same key and the same meaning. Nothing new was made; the charge as it stands now.")
        .header("Location", location())
        .header("Idempotent-Replayed", idempotent_replayed());
    let operation = operation(CHARGES, "create_charge", "Make a charge, once", "The first request with a key makes the charge (202). Every other one with the same key and the same meaning is \
             answered with that charge (200). The same key with another meaning is refused. Safe to repeat for ever.")
        .parameter(idempotency_key())
        .parameter(prefer())
        .parameter(request_id())
        .request_body(Some(body("CreateCharge")))
        .response("202", created.build())
        .response("200", replayed.build());
    let codes = [
        Code::IdempotencyKeyMissing,
        Code::IdempotencyKeyInvalid,
        Code::MalformedJson,
        Code::Forbidden,
        Code::RequestTimeout,
        Code::PayloadTooLarge,
        Code::UnsupportedMediaType,
        Code::InvalidRequest,
        Code::IdempotencyKeyReused,
        Code::Overloaded,
        Code::AcceptanceUnknown,
    ];
    with_problems(operation, &codes).build()
}

fn cancel_charge() -> Operation {
    let operation = operation(CHARGES, "cancel_charge", "Cancel a charge", "Before anything was executed the charge is canceled at once (200). After that the provider decides (202): read the \
             charge until it is terminal. Moves no money, needs no key, is safe to repeat.")
        .parameter(charge_id())
        .parameter(prefer())
        .parameter(request_id())
        .response("200", charge("The charge is canceled.").build())
        .response("202", charge("The provider was asked, or will be; the charge as it stands now.").build());
    with_problems(
        operation,
        &[
            Code::Forbidden,
            Code::NotFound,
            Code::ChargeNotCancelable,
            Code::AcceptanceUnknown,
        ],
    )
    .build()
}

fn get_charge() -> Operation {
    let operation = operation(
        CHARGES,
        "get_charge",
        "Read a charge",
        "The charge as it stands now.",
    )
    .parameter(charge_id())
    .parameter(prefer())
    .parameter(request_id())
    .response("200", charge("The charge.").build());
    with_problems(operation, &[Code::NotFound]).build()
}

/// Adds one response for each status that the codes have.
pub(super) fn with_problems(operation: OperationBuilder, codes: &[Code]) -> OperationBuilder {
    let mut codes: Vec<Code> = codes.iter().chain(OF_ANY).copied().collect();
    codes.sort_by_key(|code| code.status());
    codes
        .chunk_by(|a, b| a.status() == b.status())
        .fold(operation, |operation, codes| {
            let status = codes[0].status();
            operation.response(status.as_str(), problem(codes))
        })
}

fn problem(codes: &[Code]) -> Response {
    let told = codes
        .iter()
        .map(|code| format!("`{}`: {}.", code.as_str(), code.title()))
        .collect::<Vec<_>>()
        .join(" ");
    let response = ResponseBuilder::new()
        .description(told)
        .content("application/problem+json", content(PROBLEM))
        .header("X-Request-Id", request_id_header());
    match codes[0].status().as_u16() {
        401 => response.header(
            "WWW-Authenticate",
            text_header("The scheme to use.", "Bearer"),
        ),
        429 | 503 => response.header("Retry-After", retry_after()),
        _ => response,
    }
    .build()
}

fn charge(description: &str) -> ResponseBuilder {
    answer(description, CHARGE)
        .header("Location", location())
        .header("Preference-Applied", preference_applied())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Run with `UPDATE_OPENAPI=1` to write the file.
    #[test]
    fn the_committed_document_is_what_the_code_says() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/openapi/openapi.json");
        if std::env::var_os("UPDATE_OPENAPI").is_some() {
            std::fs::write(path, document()).unwrap();
            return;
        }
        assert_eq!(std::fs::read_to_string(path).unwrap(), document());
    }

    #[test]
    fn the_documented_fields_of_a_request_are_those_that_are_read() {
        let document: serde_json::Value = serde_json::from_str(&document()).unwrap();
        let schema = &document["components"]["schemas"]["CreateCharge"];
        let mut documented: Vec<&String> =
            schema["properties"].as_object().unwrap().keys().collect();
        let mut read = crate::http::body::FIELDS.to_vec();
        documented.sort();
        read.sort_unstable();
        assert_eq!(documented, read);
        assert_eq!(schema["additionalProperties"], json!(false));
    }
}
