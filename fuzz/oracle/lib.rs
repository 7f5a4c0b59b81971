//! What the targets hold the service's reading against: readings of the same bytes by other code, as simple as can be.

use std::collections::BTreeMap;

use payonce::domain::request::looks_like_card_number;
use payonce::http::problem::ApiError;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// A client's fault: a 4xx that is JSON, says at least one thing, and tells back no card number.
pub fn check_refusal(error: &ApiError) {
    assert!(error.code().status().is_client_error(), "{error:?}");
    let body = error.body("id");
    let problem: Value = serde_json::from_slice(&body).expect("a problem is JSON");
    assert_eq!(problem["code"], error.code().as_str());
    let text = std::str::from_utf8(&body).expect("JSON is UTF-8");
    assert!(!looks_like_card_number(text), "{text}");
}

/// Any JSON that is an object at its top, read one member at a time: what a reader passes over need not be readable.
pub struct Json(String);

impl Json {
    pub fn of(bytes: &[u8]) -> Self {
        Self(String::from_utf8_lossy(bytes).into_owned())
    }

    /// What stands there; null if nothing does.
    pub fn at(&self, path: &[&str]) -> Value {
        self.part(path)
            .and_then(|part| serde_json::from_str(part).ok())
            .unwrap_or_default()
    }

    /// The items of an array.
    pub fn items(&self, path: &[&str]) -> Vec<Self> {
        let part = self.part(path).unwrap_or_default();
        let items: Vec<&RawValue> = serde_json::from_str(part).unwrap_or_default();
        items
            .iter()
            .map(|item| Self(item.get().to_owned()))
            .collect()
    }

    fn part(&self, path: &[&str]) -> Option<&str> {
        path.iter().try_fold(self.0.as_str(), |part, name| {
            let members: BTreeMap<String, &RawValue> = serde_json::from_str(part).ok()?;
            Some(members.get(*name)?.get())
        })
    }
}

/// What a body that is taken means: without what counts as absent, and with the currency in one case.
pub fn meaning(body: &Map<String, Value>) -> BTreeMap<&str, Value> {
    let told = body
        .iter()
        .filter(|(name, value)| match (name.as_str(), value) {
            (_, Value::Null) | ("off_session", Value::Bool(false)) => false,
            ("metadata", Value::Object(entries)) => !entries.is_empty(),
            _ => true,
        });
    told.map(|(name, value)| match value {
        Value::String(code) if name == "currency" => {
            (name.as_str(), code.to_ascii_lowercase().into())
        }
        value => (name.as_str(), value.clone()),
    })
    .collect()
}

/// The body in other words: its members from the last to the first, white space wherever it may stand, and every
/// character escaped.
pub fn in_other_words(value: &Value) -> String {
    match value {
        Value::Object(members) => {
            let members: Vec<String> = members
                .iter()
                .rev()
                .map(|(name, value)| format!("\t{} : {}", escaped(name), in_other_words(value)))
                .collect();
            format!(" {{{}\n}}\r\n", members.join(" ,"))
        }
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(in_other_words).collect();
            format!("[ {} ]", items.join(" , "))
        }
        Value::String(text) => escaped(text),
        Value::Null | Value::Bool(_) | Value::Number(_) => format!("\n{value} "),
    }
}

fn escaped(text: &str) -> String {
    let units: String = text
        .encode_utf16()
        .map(|unit| format!("\\u{unit:04X}"))
        .collect();
    format!("\"{units}\"")
}
