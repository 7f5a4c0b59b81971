//! The same document in `OpenAPI` 3.0, for generators that read no 3.1; `openapi/openapi-3.0.json` is it, committed.
//!
//! Made from the document in 3.1 by leaving out what 3.0 has no word for. Everything else that the document uses is
//! spelt the same in both; what will not be is refused by the linter of the copy in `.ci/run`, and has to be turned here.

use serde_json::Value;

use super::openapi;

/// The copy as committed.
pub const COMMITTED: &str = include_str!("../../openapi/openapi-3.0.json");

/// 3.0.3 and not a later one: some generators compare the whole number.
const VERSION: &str = "3.0.3";

/// 3.0 has an address where 3.1 takes an SPDX expression: the list that the expression's names are from.
const LICENSES: &str = "https://spdx.org/licenses/";

/// The copy as the code has it, in pretty JSON with a newline at its end.
pub fn document() -> String {
    let mut document = serde_json::to_value(openapi::build()).unwrap_or_default();
    convert(&mut document);
    let mut text = serde_json::to_string_pretty(&document).unwrap_or_default();
    text.push('\n');
    text
}

fn convert(document: &mut Value) {
    document["openapi"] = VERSION.into();
    if let Some(license) = document["info"]["license"].as_object_mut() {
        license.remove("identifier");
        license.insert("url".to_owned(), LICENSES.into());
    }
    without_property_names(document);
}

/// Names of properties are always strings in JSON; 3.0 has no way to say more of them.
fn without_property_names(value: &mut Value) {
    match value {
        Value::Object(members) => {
            if members.contains_key("additionalProperties") {
                members.remove("propertyNames");
            }
            members.values_mut().for_each(without_property_names);
        }
        Value::Array(items) => items.iter_mut().for_each(without_property_names),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Run with `UPDATE_OPENAPI=1` to write the file.
    #[test]
    fn the_committed_copy_is_what_the_code_says() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/openapi/openapi-3.0.json");
        if std::env::var_os("UPDATE_OPENAPI").is_some() {
            std::fs::write(path, document()).unwrap();
            return;
        }
        assert_eq!(std::fs::read_to_string(path).unwrap(), document());
    }

    #[test]
    fn the_copy_says_the_same_but_for_what_3_0_has_no_word_for() {
        let parsed = |text: &str| -> Value { serde_json::from_str(text).unwrap() };
        let mut different = Vec::new();
        let (original, copy) = (openapi::document(), document());
        compare("", &parsed(&original), &parsed(&copy), &mut different);
        assert_eq!(
            different,
            [
                "/components/schemas/Charge/properties/metadata/propertyNames",
                "/components/schemas/CreateCharge/properties/metadata/propertyNames",
                "/components/schemas/CreateRefund/properties/metadata/propertyNames",
                "/components/schemas/Refund/properties/metadata/propertyNames",
                "/info/license/identifier",
                "/info/license/url",
                "/openapi",
            ]
        );
    }

    /// Adds the address of each place where the two differ.
    fn compare(at: &str, a: &Value, b: &Value, different: &mut Vec<String>) {
        match (a, b) {
            (Value::Object(a), Value::Object(b)) => {
                let keys: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
                for key in keys {
                    let at = format!("{at}/{key}");
                    match (a.get(key), b.get(key)) {
                        (Some(a), Some(b)) => compare(&at, a, b, different),
                        _ => different.push(at),
                    }
                }
            }
            (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
                for (index, (a, b)) in a.iter().zip(b).enumerate() {
                    compare(&format!("{at}/{index}"), a, b, different);
                }
            }
            (a, b) if a == b => {}
            _ => different.push(at.to_owned()),
        }
    }
}
