//! The operations of the published document that tell merchants what happened.

use serde_json::json;
use utoipa::openapi::path::{
    HttpMethod, Operation, OperationBuilder, Parameter, ParameterBuilder, ParameterIn, PathItem,
    PathItemBuilder, PathsBuilder,
};
use utoipa::openapi::request_body::{RequestBody, RequestBodyBuilder};
use utoipa::openapi::response::{Response, ResponseBuilder};
use utoipa::openapi::schema::{
    AdditionalProperties, KnownFormat, ObjectBuilder, SchemaFormat, Type,
};
use utoipa::openapi::security::SecurityRequirement;
use utoipa::openapi::{ContentBuilder, Ref, RefOr, Required, Schema};
use utoipa::{PartialSchema, ToSchema};

use super::charge_list::MOST_LISTED;
use super::code::Code;
use super::event_list::{EventListBody, USUALLY_LISTED};
use super::openapi::{API_KEY, with_problems};
use super::openapi_parameters::{request_id, request_id_header, text};
use super::webhook_endpoints::deliveries::{DeliveryBody, DeliveryListBody};
use super::webhook_endpoints::{
    CreateWebhookEndpoint, EndpointBody, EndpointListBody, UpdateWebhookEndpoint,
};

pub(super) const EVENTS: &str = "events";
const ENDPOINT_ID: &str = "^whe_[0-9a-f]{32}$";

/// The schemas of what these operations take and answer.
pub(super) fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
    for (name, mut schema) in [
        (
            CreateWebhookEndpoint::name(),
            CreateWebhookEndpoint::schema(),
        ),
        (
            UpdateWebhookEndpoint::name(),
            UpdateWebhookEndpoint::schema(),
        ),
    ] {
        if let RefOr::T(Schema::Object(object)) = &mut schema {
            object.additional_properties = Some(Box::new(AdditionalProperties::FreeForm(false)));
        }
        schemas.push((name.into_owned(), schema));
    }
    schemas.extend([
        (EndpointBody::name().into_owned(), EndpointBody::schema()),
        (
            EndpointListBody::name().into_owned(),
            EndpointListBody::schema(),
        ),
        (DeliveryBody::name().into_owned(), DeliveryBody::schema()),
        (
            DeliveryListBody::name().into_owned(),
            DeliveryListBody::schema(),
        ),
        (EventListBody::name().into_owned(), EventListBody::schema()),
    ]);
    EventListBody::schemas(schemas);
}

pub(super) fn paths(paths: PathsBuilder) -> PathsBuilder {
    paths
        .path("/v1/events", PathItem::new(HttpMethod::Get, list_events()))
        .path(
            "/v1/webhook_endpoints",
            PathItemBuilder::new()
                .operation(HttpMethod::Post, create())
                .operation(HttpMethod::Get, list())
                .build(),
        )
        .path(
            "/v1/webhook_endpoints/{id}",
            PathItemBuilder::new()
                .operation(HttpMethod::Get, get())
                .operation(HttpMethod::Patch, update())
                .operation(HttpMethod::Delete, delete())
                .build(),
        )
        .path(
            "/v1/webhook_endpoints/{id}/rotate_secret",
            PathItem::new(HttpMethod::Post, rotate()),
        )
        .path(
            "/v1/webhook_endpoints/{id}/test",
            PathItem::new(HttpMethod::Post, test()),
        )
        .path(
            "/v1/webhook_endpoints/{id}/deliveries",
            PathItem::new(HttpMethod::Get, list_deliveries()),
        )
        .path(
            "/v1/webhook_endpoints/{id}/deliveries/{delivery_id}/retry",
            PathItem::new(HttpMethod::Post, retry()),
        )
}

fn operation(id: &str, summary: &str, description: &str) -> OperationBuilder {
    OperationBuilder::new()
        .operation_id(Some(id))
        .tag(EVENTS)
        .summary(Some(summary))
        .description(Some(description))
        .security(SecurityRequirement::new(API_KEY, [] as [&str; 0]))
}

fn list_events() -> Operation {
    let operation = operation(
        "list_events",
        "List events",
        "What the merchant was told, oldest first; the same events that are sent to its endpoints. The last page has a \
         `next_cursor` too: send it later to read what has come since. No event is ever put before one that was listed.",
    )
    .parameters(Some(event_parameters()))
    .parameter(request_id())
    .response("200", answer("One page.", "EventList"));
    with_problems(operation, &[Code::InvalidParameter]).build()
}

fn create() -> Operation {
    let operation = operation(
        "create_webhook_endpoint",
        "Make a webhook endpoint",
        "Events are sent there from now on, after the Standard Webhooks specification. The answer alone has the `secret` that \
         verifies them.",
    )
    .parameter(request_id())
    .request_body(Some(body("CreateWebhookEndpoint")))
    .response("201", answer("The endpoint, with its secret.", "WebhookEndpoint"));
    with_problems(operation, &OF_A_BODY).build()
}

fn list() -> Operation {
    let operation = operation(
        "list_webhook_endpoints",
        "List webhook endpoints",
        "All of the merchant's, oldest first.",
    )
    .parameter(request_id())
    .response("200", answer("The endpoints.", "WebhookEndpointList"));
    with_problems(operation, &[]).build()
}

fn get() -> Operation {
    let operation = operation(
        "get_webhook_endpoint",
        "Read a webhook endpoint",
        "Without its secret.",
    )
    .parameter(endpoint_id())
    .parameter(request_id())
    .response("200", answer("The endpoint.", "WebhookEndpoint"));
    with_problems(operation, &[Code::NotFound]).build()
}

fn update() -> Operation {
    let operation = operation(
        "update_webhook_endpoint",
        "Change a webhook endpoint",
        "What is absent stays as it is. One that is enabled again is sent what waits for it; what happens while it is disabled \
         is not sent, and can be read from the events.",
    )
    .parameter(endpoint_id())
    .parameter(request_id())
    .request_body(Some(body("UpdateWebhookEndpoint")))
    .response("200", answer("The endpoint as it is now.", "WebhookEndpoint"));
    let codes: Vec<Code> = OF_A_BODY.iter().copied().chain([Code::NotFound]).collect();
    with_problems(operation, &codes).build()
}

fn delete() -> Operation {
    let gone = ResponseBuilder::new()
        .description("It is gone.")
        .header("X-Request-Id", request_id_header())
        .build();
    let operation = operation(
        "delete_webhook_endpoint",
        "Delete a webhook endpoint",
        "Nothing more is sent there.",
    )
    .parameter(endpoint_id())
    .parameter(request_id())
    .response("204", gone);
    with_problems(operation, &[Code::Forbidden, Code::NotFound]).build()
}

fn rotate() -> Operation {
    let operation = operation(
        "rotate_webhook_endpoint_secret",
        "Replace the secret",
        "The answer alone has the new secret. Until `previous_secret_until` deliveries are signed with the one before too; a \
         second rotation within that time ends the first secret.",
    )
    .parameter(endpoint_id())
    .parameter(request_id())
    .response("200", answer("The endpoint, with its new secret.", "WebhookEndpoint"));
    with_problems(operation, &[Code::Forbidden, Code::NotFound]).build()
}

fn test() -> Operation {
    let operation = operation(
        "test_webhook_endpoint",
        "Send a test event",
        "Sends `webhook_endpoint.test` there, and nowhere else, whatever types it wants. Of one that is disabled it waits.",
    )
    .parameter(endpoint_id())
    .parameter(request_id())
    .response("202", answer("The delivery, on its way.", "WebhookDelivery"));
    with_problems(operation, &[Code::Forbidden, Code::NotFound]).build()
}

fn list_deliveries() -> Operation {
    let operation = operation(
        "list_webhook_deliveries",
        "List what was sent to an endpoint",
        "Newest first, with the status of the last answer.",
    )
    .parameter(endpoint_id())
    .parameters(Some(delivery_parameters()))
    .parameter(request_id())
    .response("200", answer("One page.", "WebhookDeliveryList"));
    with_problems(operation, &[Code::InvalidParameter, Code::NotFound]).build()
}

fn retry() -> Operation {
    let operation = operation(
        "retry_webhook_delivery",
        "Send an event again",
        "Delivered or not: the same bytes under the same `webhook-id`, at once, and then by the schedule from its beginning.",
    )
    .parameter(endpoint_id())
    .parameter(delivery_id())
    .parameter(request_id())
    .response("202", answer("The delivery, on its way.", "WebhookDelivery"));
    with_problems(operation, &[Code::Forbidden, Code::NotFound]).build()
}

const OF_A_BODY: [Code; 6] = [
    Code::MalformedJson,
    Code::Forbidden,
    Code::RequestTimeout,
    Code::PayloadTooLarge,
    Code::UnsupportedMediaType,
    Code::InvalidRequest,
];

fn event_parameters() -> Vec<Parameter> {
    vec![
        query(
            "type",
            "Events of this type, or of one of several with commas in between.",
            text().min_length(Some(1)).max_length(Some(255)),
            json!("charge.completed,charge.failed"),
        ),
        query(
            "charge_id",
            "Events of this charge.",
            text().pattern(Some("^chg_[0-9a-f]{32}$")),
            json!("chg_03510a50e711533aba21e1dd9ddf20be"),
        ),
        limit("The most events on the page."),
        cursor(),
    ]
}

fn delivery_parameters() -> Vec<Parameter> {
    vec![
        query(
            "status",
            "Deliveries with this status.",
            text().enum_values(Some(["pending", "delivered", "failed"])),
            json!("failed"),
        ),
        limit("The most deliveries on the page."),
        cursor(),
    ]
}

fn limit(description: &str) -> Parameter {
    let schema = ObjectBuilder::new()
        .schema_type(Type::Integer)
        .format(Some(SchemaFormat::KnownFormat(KnownFormat::Int32)))
        .minimum(Some(1))
        .maximum(Some(i64::from(MOST_LISTED)))
        .default(Some(json!(USUALLY_LISTED)));
    query("limit", description, schema, json!(50))
}

fn cursor() -> Parameter {
    query(
        "cursor",
        "`next_cursor` of the page before, with the same filters.",
        text().min_length(Some(1)).max_length(Some(255)),
        json!("019f2c7a1e5d3b8a40000640cd2f5e1a2903510a50e711533aba21e1dd9ddf20be5f0c1d2e3a4b5c6d"),
    )
}

fn query(
    name: &str,
    description: &str,
    schema: ObjectBuilder,
    example: serde_json::Value,
) -> Parameter {
    ParameterBuilder::new()
        .name(name)
        .parameter_in(ParameterIn::Query)
        .required(Required::False)
        .description(Some(description))
        .schema(Some(schema))
        .example(Some(example))
        .build()
}

fn endpoint_id() -> Parameter {
    path(
        "id",
        "The endpoint's id.",
        ENDPOINT_ID,
        "whe_5a1d0b7c3f0e4e6d9a43c1b2d3e4f506",
    )
}

fn delivery_id() -> Parameter {
    path(
        "delivery_id",
        "The delivery's id.",
        "^whd_[0-9a-f]{32}$",
        "whd_5a1d0b7c3f0e4e6d9a43c1b2d3e4f506",
    )
}

fn path(name: &str, description: &str, pattern: &str, example: &str) -> Parameter {
    ParameterBuilder::new()
        .name(name)
        .parameter_in(ParameterIn::Path)
        .required(Required::True)
        .description(Some(description))
        .schema(Some(text().pattern(Some(pattern))))
        .example(Some(json!(example)))
        .build()
}

fn body(schema: &str) -> RequestBody {
    let content = ContentBuilder::new()
        .schema(Some(Ref::from_schema_name(schema)))
        .build();
    RequestBodyBuilder::new()
        .description(Some("One JSON object in UTF-8 of up to 65536 bytes."))
        .required(Some(Required::True))
        .content("application/json", content)
        .build()
}

fn answer(description: &str, schema: &str) -> Response {
    let content = ContentBuilder::new()
        .schema(Some(Ref::from_schema_name(schema)))
        .build();
    ResponseBuilder::new()
        .description(description)
        .content("application/json", content)
        .header("X-Request-Id", request_id_header())
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(parameters: &[Parameter]) -> Vec<&str> {
        parameters.iter().map(|each| each.name.as_str()).collect()
    }

    #[test]
    fn the_documented_parameters_and_fields_are_those_that_are_read() {
        assert_eq!(
            names(&event_parameters()),
            crate::http::event_list::PARAMETERS
        );
        let deliveries = crate::http::webhook_endpoints::deliveries::PARAMETERS;
        assert_eq!(names(&delivery_parameters()), deliveries);
        let document: serde_json::Value =
            serde_json::from_str(&crate::http::openapi::document()).unwrap();
        for schema in ["CreateWebhookEndpoint", "UpdateWebhookEndpoint"] {
            let schema = &document["components"]["schemas"][schema];
            let mut documented: Vec<&String> =
                schema["properties"].as_object().unwrap().keys().collect();
            let mut read = crate::http::webhook_endpoints::FIELDS.to_vec();
            documented.sort();
            read.sort_unstable();
            assert_eq!(documented, read);
            assert_eq!(schema["additionalProperties"], json!(false));
        }
    }
}
