//! The operations of the published document that tell merchants what happened.

use utoipa::ToSchema;
use utoipa::openapi::path::{
    HttpMethod, Operation, Parameter, PathItem, PathItemBuilder, PathsBuilder,
};
use utoipa::openapi::response::ResponseBuilder;
use utoipa::openapi::{RefOr, Schema};

use super::code::Code;
use super::event_list::EventListBody;
use super::openapi::with_problems;
use super::openapi_parts::{
    answer, body, body_schema, cursor, limit, operation, path, query, request_id,
    request_id_header, schema, text,
};
use super::webhook_endpoints::deliveries::{DeliveryBody, DeliveryListBody};
use super::webhook_endpoints::{
    CreateWebhookEndpoint, EndpointBody, EndpointListBody, UpdateWebhookEndpoint,
};

pub(super) const EVENTS: &str = "events";

/// The schemas of what these operations take and answer.
pub(super) fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
    schemas.extend([
        body_schema::<CreateWebhookEndpoint>(),
        body_schema::<UpdateWebhookEndpoint>(),
        schema::<EndpointBody<'_>>(),
        schema::<EndpointListBody<'_>>(),
        schema::<DeliveryBody<'_>>(),
        schema::<DeliveryListBody<'_>>(),
        schema::<EventListBody<'_>>(),
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

fn list_events() -> Operation {
    let operation = operation(
        EVENTS,
        "list_events",
        "List events",
        "What the merchant was told, oldest first; the same events that are sent to its endpoints. The last page has a \
         `next_cursor` too: send it later to read what has come since. No event is ever put before one that was listed.",
    )
    .parameters(Some(event_parameters()))
    .parameter(request_id())
    .response("200", answer("One page.", "EventList").build());
    with_problems(operation, &[Code::InvalidParameter]).build()
}

fn create() -> Operation {
    let operation = operation(
        EVENTS,
        "create_webhook_endpoint",
        "Make a webhook endpoint",
        "Events are sent there from now on, after the Standard Webhooks specification. The answer alone has the `secret` that \
         verifies them.",
    )
    .parameter(request_id())
    .request_body(Some(body("CreateWebhookEndpoint")))
    .response("201", answer("The endpoint, with its secret.", "WebhookEndpoint").build());
    let codes = OF_A_BODY.iter().copied().chain([Code::OutcomeUnknown]);
    with_problems(operation, &codes.collect::<Vec<_>>()).build()
}

fn list() -> Operation {
    let operation = operation(
        EVENTS,
        "list_webhook_endpoints",
        "List webhook endpoints",
        "All of the merchant's, oldest first.",
    )
    .parameter(request_id())
    .response(
        "200",
        answer("The endpoints.", "WebhookEndpointList").build(),
    );
    with_problems(operation, &[]).build()
}

fn get() -> Operation {
    let operation = operation(
        EVENTS,
        "get_webhook_endpoint",
        "Read a webhook endpoint",
        "Without its secret.",
    )
    .parameter(endpoint_id())
    .parameter(request_id())
    .response("200", answer("The endpoint.", "WebhookEndpoint").build());
    with_problems(operation, &[Code::NotFound]).build()
}

fn update() -> Operation {
    let operation = operation(
        EVENTS,
        "update_webhook_endpoint",
        "Change a webhook endpoint",
        "What is absent stays as it is. One that is enabled again is sent what waits for it; what happens while it is disabled \
         is not sent, and can be read from the events.",
    )
    .parameter(endpoint_id())
    .parameter(request_id())
    .request_body(Some(body("UpdateWebhookEndpoint")))
    .response("200", answer("The endpoint as it is now.", "WebhookEndpoint").build());
    let more = [Code::NotFound, Code::AcceptanceUnknown];
    let codes = OF_A_BODY.iter().copied().chain(more);
    with_problems(operation, &codes.collect::<Vec<_>>()).build()
}

fn delete() -> Operation {
    let gone = ResponseBuilder::new()
        .description("It is gone.")
        .header("X-Request-Id", request_id_header())
        .build();
    let operation = operation(
        EVENTS,
        "delete_webhook_endpoint",
        "Delete a webhook endpoint",
        "Nothing more is sent there.",
    )
    .parameter(endpoint_id())
    .parameter(request_id())
    .response("204", gone);
    with_problems(operation, &OF_A_WRITE).build()
}

fn rotate() -> Operation {
    let operation = operation(
        EVENTS,
        "rotate_webhook_endpoint_secret",
        "Replace the secret",
        "The answer alone has the new secret. Until `previous_secret_until` deliveries are signed with the one before too; a \
         second rotation within that time ends the first secret.",
    )
    .parameter(endpoint_id())
    .parameter(request_id())
    .response("200", answer("The endpoint, with its new secret.", "WebhookEndpoint").build());
    let codes = [Code::Forbidden, Code::NotFound, Code::OutcomeUnknown];
    with_problems(operation, &codes).build()
}

fn test() -> Operation {
    let operation = operation(
        EVENTS,
        "test_webhook_endpoint",
        "Send a test event",
        "Sends `webhook_endpoint.test` there, and nowhere else, whatever types it wants. Of one that is disabled it waits.",
    )
    .parameter(endpoint_id())
    .parameter(request_id())
    .response("202", answer("The delivery, on its way.", "WebhookDelivery").build());
    with_problems(operation, &OF_A_WRITE).build()
}

fn list_deliveries() -> Operation {
    let operation = operation(
        EVENTS,
        "list_webhook_deliveries",
        "List what was sent to an endpoint",
        "Newest first, with the status of the last answer.",
    )
    .parameter(endpoint_id())
    .parameters(Some(delivery_parameters()))
    .parameter(request_id())
    .response("200", answer("One page.", "WebhookDeliveryList").build());
    with_problems(operation, &[Code::InvalidParameter, Code::NotFound]).build()
}

fn retry() -> Operation {
    let operation = operation(
        EVENTS,
        "retry_webhook_delivery",
        "Send an event again",
        "Delivered or not: the same bytes under the same `webhook-id`, at once, and then by the schedule from its beginning.",
    )
    .parameter(endpoint_id())
    .parameter(delivery_id())
    .parameter(request_id())
    .response("202", answer("The delivery, on its way.", "WebhookDelivery").build());
    with_problems(operation, &OF_A_WRITE).build()
}

const OF_A_WRITE: [Code; 3] = [Code::Forbidden, Code::NotFound, Code::AcceptanceUnknown];

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
            "charge.completed,charge.failed",
        ),
        query(
            "charge_id",
            "Events of this charge.",
            text().pattern(Some("^chg_[0-9a-f]{32}$")),
            "chg_03510a50e711533aba21e1dd9ddf20be",
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
            "failed",
        ),
        limit("The most deliveries on the page."),
        cursor(),
    ]
}

fn endpoint_id() -> Parameter {
    path(
        "id",
        "The endpoint's id.",
        text().pattern(Some("^whe_[0-9a-f]{32}$")),
        "whe_5a1d0b7c3f0e4e6d9a43c1b2d3e4f506",
    )
}

fn delivery_id() -> Parameter {
    path(
        "delivery_id",
        "The delivery's id.",
        text().pattern(Some("^whd_[0-9a-f]{32}$")),
        "whd_5a1d0b7c3f0e4e6d9a43c1b2d3e4f506",
    )
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
            assert_eq!(schema["additionalProperties"], serde_json::json!(false));
        }
    }
}
