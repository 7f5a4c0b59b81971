//! The operations of the published document that only read.

use serde_json::json;
use utoipa::openapi::extensions::ExtensionsBuilder;
use utoipa::openapi::path::{
    Operation, OperationBuilder, Parameter, ParameterBuilder, ParameterIn,
};
use utoipa::openapi::response::{Response, ResponseBuilder};
use utoipa::openapi::schema::{KnownFormat, ObjectBuilder, SchemaFormat, Type};
use utoipa::openapi::security::SecurityRequirement;
use utoipa::openapi::{ContentBuilder, Ref, RefOr, Required, Schema};
use utoipa::{PartialSchema, ToSchema};

use super::charge_list::{ChargeListBody, MOST_LISTED, USUALLY_LISTED};
use super::code::Code;
use super::openapi::{API_KEY, CHARGES, with_problems};
use super::openapi_parameters::{charge_id, request_id, request_id_header, text};
use super::policy::{KEY_PATTERN, Policy};
use super::timeline::TimelineBody;
use crate::domain::charge::{Stage, Status};

pub(super) const SERVICE: &str = "service";

/// The schemas of what these operations answer.
pub(super) fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
    schemas.extend([
        (
            ChargeListBody::name().into_owned(),
            ChargeListBody::schema(),
        ),
        (TimelineBody::name().into_owned(), TimelineBody::schema()),
        (Policy::name().into_owned(), Policy::schema()),
    ]);
    ChargeListBody::schemas(schemas);
    TimelineBody::schemas(schemas);
    Policy::schemas(schemas);
}

pub(super) fn list_charges() -> Operation {
    let operation = OperationBuilder::new()
        .operation_id(Some("list_charges"))
        .tag(CHARGES)
        .summary(Some("List charges"))
        .description(Some(
            "The merchant's charges, newest first; every filter that is given must hold. An unknown or repeated parameter is \
             refused: a misspelt filter must not answer with somebody else's charge. Pages neither repeat nor skip a charge, \
             whatever comes in between; one that is accepted after the first page was read need not be on a later one.",
        ))
        .security(SecurityRequirement::new(API_KEY, [] as [&str; 0]))
        .parameters(Some(list_parameters()))
        .parameter(request_id())
        .response("200", answer("One page.", "ChargeList"));
    with_problems(operation, &[Code::InvalidParameter]).build()
}

fn list_parameters() -> Vec<Parameter> {
    let time = || text().format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)));
    let statuses: Vec<&str> = Status::ALL.iter().map(|word| word.as_str()).collect();
    let stages: Vec<&str> = Stage::ALL.iter().map(|word| word.as_str()).collect();
    let stages = ExtensionsBuilder::new().add("x-extensible-enum", stages);
    vec![
        query(
            "status",
            "Charges with this status.",
            text().enum_values(Some(statuses)),
            "failed",
        ),
        query(
            "stage",
            "Charges at this stage.",
            text().extensions(Some(stages.build())),
            "requires_action",
        ),
        query(
            "reference",
            "Charges with exactly this reference.",
            text().min_length(Some(1)).max_length(Some(255)),
            "order-42",
        ),
        query(
            "idempotency_key",
            "The charge that this key made.",
            text()
                .min_length(Some(1))
                .max_length(Some(255))
                .pattern(Some(KEY_PATTERN)),
            "order-42",
        ),
        query(
            "provider_charge_id",
            "The charge with this object at the provider.",
            text()
                .min_length(Some(1))
                .max_length(Some(255))
                .pattern(Some("^[A-Za-z0-9_-]{1,255}$")),
            "pi_3QZ9",
        ),
        query(
            "created_from",
            "Charges accepted at this time or later. Write the + of an offset as %2B.",
            time(),
            "2026-11-29T00:00:00Z",
        ),
        query(
            "created_before",
            "Charges accepted before this time. Write the + of an offset as %2B.",
            time(),
            "2026-11-30T00:00:00Z",
        ),
        limit(),
        query(
            "cursor",
            "`next_cursor` of the page before, with the same filters.",
            text().min_length(Some(1)).max_length(Some(255)),
            "019f2c7a1e5d3b8a40000640cd2f5e1a2903510a50e711533aba21e1dd9ddf20be5f0c1d2e3a4b5c6d",
        ),
    ]
}

fn query(name: &str, description: &str, schema: ObjectBuilder, example: &str) -> Parameter {
    ParameterBuilder::new()
        .name(name)
        .parameter_in(ParameterIn::Query)
        .required(Required::False)
        .description(Some(description))
        .schema(Some(schema))
        .example(Some(json!(example)))
        .build()
}

fn limit() -> Parameter {
    ParameterBuilder::new()
        .name("limit")
        .parameter_in(ParameterIn::Query)
        .required(Required::False)
        .description(Some("The most charges on the page."))
        .schema(Some(
            ObjectBuilder::new()
                .schema_type(Type::Integer)
                .format(Some(SchemaFormat::KnownFormat(KnownFormat::Int32)))
                .minimum(Some(1))
                .maximum(Some(i64::from(MOST_LISTED)))
                .default(Some(json!(USUALLY_LISTED))),
        ))
        .example(Some(json!(50)))
        .build()
}

pub(super) fn get_charge_timeline() -> Operation {
    let operation = OperationBuilder::new()
        .operation_id(Some("get_charge_timeline"))
        .tag(CHARGES)
        .summary(Some("Read a charge's history"))
        .description(Some(
            "Every transition, attempt and event of the charge, oldest first, from its acceptance on.",
        ))
        .security(SecurityRequirement::new(API_KEY, [] as [&str; 0]))
        .parameter(charge_id())
        .parameter(request_id())
        .response("200", answer("The history.", "Timeline"));
    with_problems(operation, &[Code::NotFound]).build()
}

pub(super) fn get_policy() -> Operation {
    let operation = OperationBuilder::new()
        .operation_id(Some("get_policy"))
        .tag(SERVICE)
        .summary(Some("Read what the service takes"))
        .description(Some(
            "The syntax of keys, limits, currencies with their decimals and caps, and how long requests are kept.",
        ))
        .security(SecurityRequirement::new(API_KEY, [] as [&str; 0]))
        .parameter(request_id())
        .response("200", answer("The policy.", "Policy"));
    with_problems(operation, &[]).build()
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
    use crate::http::charge_list::PARAMETERS;

    #[test]
    fn the_documented_parameters_of_a_list_are_those_that_are_read() {
        let documented = super::list_parameters();
        let documented: Vec<&str> = documented.iter().map(|each| each.name.as_str()).collect();
        assert_eq!(documented, PARAMETERS);
    }
}
