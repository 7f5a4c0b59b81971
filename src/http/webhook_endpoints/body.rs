//! The body of a request about an endpoint, to the letter, as that of a charge is read.

use std::borrow::Cow;

use super::known_types;
use crate::db::webhook_endpoints::Changes;
use crate::domain::event::TYPES;
use crate::domain::request::Violation;
use crate::http::body::{child, distance, is_name, open};
use crate::http::json::Json;
use crate::http::problem::ApiError;

/// The fields, as the document lists them.
pub(in crate::http) const FIELDS: [&str; 4] = ["url", "events", "description", "enabled"];
/// More than there are types, so that new ones fit.
const MOST_EVENTS: usize = 32;
const DESCRIPTION_LENGTH: usize = 500;

/// What could be read, and every fault so far.
#[derive(Debug, Default)]
pub(super) struct Asked {
    pub(super) changes: Changes,
    faults: Vec<Violation>,
}

impl Asked {
    /// Only what is no JSON at all is an error here.
    pub(super) fn read(body: &[u8]) -> Result<Self, ApiError> {
        let (json, faults) = open(body)?;
        let mut asked = Self {
            faults,
            ..Self::default()
        };
        match json {
            Json::Object(fields) => {
                for (name, value) in fields {
                    asked.field(&name, value);
                }
            }
            _ => asked.refuse("#", "type", "must be one JSON object"),
        }
        Ok(asked)
    }

    pub(super) fn refuse(
        &mut self,
        pointer: impl Into<String>,
        rule: &'static str,
        detail: impl Into<Cow<'static, str>>,
    ) {
        self.faults.push(Violation::new(pointer, rule, detail));
    }

    pub(super) fn is_at_fault(&self, pointer: &str) -> bool {
        self.faults.iter().any(|fault| fault.pointer == pointer)
    }

    /// All faults at once, or what is asked for.
    pub(super) fn finish(self) -> Result<Changes, ApiError> {
        if self.faults.is_empty() {
            Ok(self.changes)
        } else {
            Err(ApiError::invalid_request(self.faults))
        }
    }

    fn field(&mut self, name: &str, value: Json<'_>) {
        if !FIELDS.contains(&name) {
            return self.refuse(child("#", name), "unknown_field", advise(name));
        }
        match (name, value) {
            (_, Json::Null) => {}
            ("url", Json::Text(url)) => self.changes.url = Some(url.into_owned()),
            ("description", Json::Text(text)) => {
                if text.chars().count() > DESCRIPTION_LENGTH || text.chars().any(char::is_control) {
                    let detail = format!(
                        "must be up to {DESCRIPTION_LENGTH} characters, none of them a control character"
                    );
                    self.refuse("#/description", "text", detail);
                }
                self.changes.description = Some(text.into_owned());
            }
            ("enabled", Json::Bool(enabled)) => self.changes.enabled = Some(enabled),
            ("events", Json::Array(items)) => self.events(items),
            ("events", _) => self.refuse("#/events", "type", "must be an array of strings"),
            ("enabled", _) => self.refuse("#/enabled", "type", "must be true or false"),
            (name, _) => self.refuse(format!("#/{name}"), "type", "must be a string"),
        }
    }

    fn events(&mut self, items: Vec<Json<'_>>) {
        if items.len() > MOST_EVENTS {
            let detail = format!("must have at most {MOST_EVENTS} entries");
            return self.refuse("#/events", "entries", detail);
        }
        let mut events = Vec::new();
        for (index, item) in items.into_iter().enumerate() {
            match item {
                Json::Text(text) if TYPES.contains(&text.as_ref()) => {
                    let text = text.into_owned();
                    if !events.contains(&text) {
                        events.push(text);
                    }
                }
                Json::Text(_) => self.refuse(format!("#/events/{index}"), "word", known_types()),
                _ => self.refuse(format!("#/events/{index}"), "type", "must be a string"),
            }
        }
        self.changes.events = Some(events);
    }
}

/// What to do about an unknown field.
fn advise(name: &str) -> Cow<'static, str> {
    if !is_name(name) {
        return "a field of the object is unknown; its name is not repeated here".into();
    }
    let plain = name.to_ascii_lowercase();
    let near = FIELDS
        .iter()
        .map(|field| (distance(&plain, field), *field))
        .filter(|(distance, _)| *distance <= 2)
        .min();
    match near {
        Some((_, field)) => format!("is no field of an endpoint; is {field} meant?").into(),
        None => "is no field of an endpoint".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(body: &str) -> Vec<(String, &'static str)> {
        let error = Asked::read(body.as_bytes()).unwrap().finish().unwrap_err();
        let place = |fault: &crate::http::problem::Fault| match &fault.place {
            crate::http::problem::Place::Pointer(pointer) => (pointer.clone(), fault.rule),
            _ => panic!("a pointer"),
        };
        error.faults().iter().map(place).collect()
    }

    #[test]
    fn all_faults_are_named_at_once() {
        let body = r#"{"url":1,"events":["charge.paid",2],"description":"a\u0007","enabled":"yes","ulr":"x","url":"y"}"#;
        let told = faults(body);
        for (pointer, rule) in [
            ("#/url", "type"),
            ("#/url", "duplicate_field"),
            ("#/events/0", "word"),
            ("#/events/1", "type"),
            ("#/description", "text"),
            ("#/enabled", "type"),
            ("#/ulr", "unknown_field"),
        ] {
            assert!(
                told.contains(&(pointer.to_owned(), rule)),
                "{pointer} {rule}: {told:?}"
            );
        }
        assert_eq!(faults("[]"), [("#".to_owned(), "type")]);
    }

    #[test]
    fn null_is_absent_and_a_type_that_is_named_twice_counts_once() {
        let body = r#"{"url":null,"events":["charge.failed","charge.failed"]}"#;
        let changes = Asked::read(body.as_bytes()).unwrap().finish().unwrap();
        assert_eq!(changes.url, None);
        assert_eq!(changes.events, Some(vec!["charge.failed".to_owned()]));
    }
}
