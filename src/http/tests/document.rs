//! What generators of clients need of the published document, in every place of it.

use serde_json::Map;

use super::*;

fn document() -> Value {
    serde_json::from_str(&openapi::document()).unwrap()
}

/// Every object of the document with its address.
fn each(at: &str, value: &Value, visit: &mut impl FnMut(&str, &Map<String, Value>)) {
    match value {
        Value::Object(members) => {
            visit(at, members);
            for (name, member) in members {
                // An example is not part of the document, whatever it looks like.
                if name != "example" {
                    each(&format!("{at}/{name}"), member, visit);
                }
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                each(&format!("{at}/{index}"), item, visit);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn operations(document: &Value) -> impl Iterator<Item = &Value> {
    let paths = document["paths"].as_object().unwrap().values();
    paths.flat_map(|item| item.as_object().unwrap().values())
}

fn says(object: &Value, word: &str) -> bool {
    object[word].as_str().is_some_and(|text| !text.is_empty())
}

#[test]
fn every_call_has_a_name_a_place_and_words() {
    let document = document();
    let mut names = Vec::new();
    for operation in operations(&document) {
        let name = operation["operationId"].as_str().unwrap();
        assert!(says(operation, "summary") && says(operation, "description"));
        assert_eq!(operation["tags"].as_array().unwrap().len(), 1, "{name}");
        assert_eq!(operation["security"], json!([{"api_key": []}]), "{name}");
        for (status, response) in operation["responses"].as_object().unwrap() {
            assert!(says(response, "description"), "{name} {status}");
        }
        for parameter in operation["parameters"].as_array().unwrap() {
            assert!(says(parameter, "description"), "{name} {parameter}");
            assert!(!parameter["example"].is_null(), "{name} {parameter}");
        }
        names.push(name);
    }
    names.sort_unstable();
    let all = names.len();
    names.dedup();
    assert_eq!(names.len(), all);
}

/// Lengths too where a value can be refused: a client that checks before it sends must refuse no more than the service.
#[test]
fn every_header_that_is_sent_has_a_pattern_and_lengths_if_it_can_be_refused() {
    let document = document();
    let parameters = operations(&document).flat_map(|one| one["parameters"].as_array().unwrap());
    for header in parameters.filter(|one| one["in"] == "header") {
        let schema = &header["schema"];
        let words: &[&str] = match header["required"].as_bool() {
            Some(true) => &["pattern", "minLength", "maxLength"],
            _ => &["pattern"],
        };
        for word in words {
            assert!(!schema[word].is_null(), "{} {word}", header["name"]);
        }
    }
}

/// More than one schema for successes, or for errors, and some generators give up or lose the type.
#[test]
fn a_call_has_one_schema_for_successes_and_all_errors_are_one_problem() {
    for operation in operations(&document()) {
        let mut successes = Vec::new();
        for (status, response) in operation["responses"].as_object().unwrap() {
            // What is gone has nothing to show.
            if status == "204" {
                assert!(response["content"].is_null(), "{operation}");
            } else if status.starts_with('2') {
                successes.push(&response["content"]["application/json"]["schema"]["$ref"]);
            } else {
                let problem = &response["content"]["application/problem+json"]["schema"]["$ref"];
                assert_eq!(problem, "#/components/schemas/Problem", "{operation}");
            }
        }
        successes.dedup();
        let is_gone = !operation["responses"]["204"].is_null();
        assert_eq!(
            successes.len(),
            usize::from(!is_gone),
            "{}",
            operation["operationId"]
        );
        assert!(successes.iter().all(|schema| schema.is_string()));
    }
}

#[test]
fn numbers_have_a_format_and_bounds_nothing_is_null_and_open_enums_are_plain_strings() {
    let mut integers = 0;
    each("", &document(), &mut |at, schema| {
        match schema.get("type") {
            Some(Value::Array(types)) => panic!("{at}: {types:?}"),
            Some(kind) if kind == "null" => panic!("{at}"),
            Some(kind) if kind == "number" => panic!("{at}: money and counts are integers"),
            Some(kind) if kind == "integer" => {
                integers += 1;
                assert!(schema.contains_key("format"), "{at}");
                assert!(schema.contains_key("minimum"), "{at}");
                let is_bounded = schema.contains_key("maximum") || schema["format"] == "int32";
                assert!(is_bounded, "{at}");
            }
            _ => {}
        }
        if schema.contains_key("x-extensible-enum") {
            assert_eq!(schema["type"], "string", "{at}");
            assert!(!schema.contains_key("enum"), "{at}");
        }
        for word in ["nullable", "oneOf", "anyOf", "allOf"] {
            assert!(!schema.contains_key(word), "{at} {word}");
        }
    });
    assert!(integers > 0);
}

#[test]
fn every_field_of_a_charge_has_words_and_an_example_or_a_schema_of_its_own() {
    let document = document();
    let schemas = &document["components"]["schemas"];
    for name in ["Charge", "CreateCharge", "Failure", "NextAction", "Problem"] {
        for (field, schema) in schemas[name]["properties"].as_object().unwrap() {
            if schema["$ref"].is_null() {
                assert!(says(schema, "description"), "{name}.{field}");
                let is_list = schema["type"] == "array";
                assert!(is_list || !schema["example"].is_null(), "{name}.{field}");
            }
        }
    }
}

/// What is not in the list is counted as an address that is none of ours.
#[test]
fn every_path_of_the_document_is_a_route_that_is_counted() {
    for path in document()["paths"].as_object().unwrap().keys() {
        assert!(crate::http::edge::ROUTES.contains(&path.as_str()), "{path}");
    }
}
