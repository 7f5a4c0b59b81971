//! The operations of the published document that only read.

use utoipa::ToSchema;
use utoipa::openapi::extensions::ExtensionsBuilder;
use utoipa::openapi::path::{Operation, Parameter};
use utoipa::openapi::schema::{KnownFormat, SchemaFormat};
use utoipa::openapi::{RefOr, Schema};

use super::charge_list::ChargeListBody;
use super::code::Code;
use super::openapi::{CHARGES, with_problems};
use super::openapi_parts::{
    answer, charge_id, cursor, limit, operation, query, request_id, schema, text,
};
use super::policy::{KEY_PATTERN, Policy};
use super::timeline::TimelineBody;
use crate::domain::charge::{Stage, Status};

pub(super) const SERVICE: &str = "service";

/// The schemas of what these operations answer.
pub(super) fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
    schemas.extend([
        schema::<ChargeListBody<'_>>(),
        schema::<TimelineBody<'_>>(),
        schema::<Policy>(),
    ]);
    ChargeListBody::schemas(schemas);
    TimelineBody::schemas(schemas);
    Policy::schemas(schemas);
}

pub(super) fn list_charges() -> Operation {
    let operation = operation(CHARGES, "list_charges", "List charges", "The merchant's charges, newest first; every filter that is given must hold. An unknown or repeated parameter is \
             refused: a misspelt filter must not answer with somebody else's charge. Pages neither repeat nor skip a charge, \
             whatever comes in between; one that is accepted after the first page was read need not be on a later one.")
        .parameters(Some(list_parameters()))
        .parameter(request_id())
        .response("200", answer("One page.", "ChargeList").build());
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
        limit("The most charges on the page."),
        cursor(),
    ]
}

pub(super) fn get_charge_timeline() -> Operation {
    let operation = operation(
        CHARGES,
        "get_charge_timeline",
        "Read a charge's history",
        "Every transition, attempt and event of the charge, oldest first, from its acceptance on.",
    )
    .parameter(charge_id())
    .parameter(request_id())
    .response("200", answer("The history.", "Timeline").build());
    with_problems(operation, &[Code::NotFound]).build()
}

pub(super) fn get_policy() -> Operation {
    let operation = operation(SERVICE, "get_policy", "Read what the service takes", "The syntax of keys, limits, currencies with their decimals and caps, and how long requests are kept.")
        .parameter(request_id())
        .response("200", answer("The policy.", "Policy").build());
    with_problems(operation, &[]).build()
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
