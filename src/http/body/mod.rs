//! The body of POST /v1/charges, to the letter: JSON in, a [`Draft`] and every fault of its shape out; then every rule that
//! it breaks.
//!
//! Nothing is guessed and nothing ignored: what is unknown, written twice or of another type is named, each with its
//! mend. Names of fields are told back only when they look like names: a card number in a key's place is not.

mod judge;
mod refund;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};

use super::code::Code;
use super::json::{self, Json};
use super::problem::ApiError;
use crate::domain::request::{Draft, Violation, looks_like_card_number};
#[cfg(test)]
pub(super) use refund::REFUND_FIELDS;
pub(super) use refund::parse as parse_refund;

pub(super) use self::judge::join;
pub use self::judge::{Judged, judge};

/// The fields of a charge request, as the contract lists them.
pub(super) const FIELDS: [&str; 9] = [
    "amount",
    "currency",
    "payment_method",
    "customer",
    "return_url",
    "off_session",
    "reference",
    "description",
    "metadata",
];

/// A body that is JSON: what could be read of it, and the faults of its shape.
#[derive(Debug)]
pub struct Parsed {
    /// With something harmless in the place of a field that could not be read.
    pub draft: Draft,
    pub faults: Vec<Violation>,
}

/// Reads a body. Only what is no JSON at all is an error here.
pub fn parse(body: &[u8]) -> Result<Parsed, ApiError> {
    let (json, mut form) = read_json(body)?;
    match json {
        Json::Object(fields) => form.read(fields),
        _ => form.refuse("#", "type", "must be one JSON object"),
    }
    Ok(Parsed {
        draft: form.draft,
        faults: form.faults,
    })
}

fn read_json(body: &[u8]) -> Result<(Json<'_>, Form), ApiError> {
    let (json, faults) = open(body)?;
    let form = Form {
        faults,
        ..Form::default()
    };
    Ok((json, form))
}

/// The JSON of any request's body, with what is wrong with it whatever it asks for: keys written twice, and NUL.
pub(super) fn open(body: &[u8]) -> Result<(Json<'_>, Vec<Violation>), ApiError> {
    let malformed = |detail: String| ApiError::new(Code::MalformedJson, detail);
    let text = std::str::from_utf8(body).map_err(|error| {
        malformed(format!(
            "the body is not UTF-8 from byte {} on",
            error.valid_up_to()
        ))
    })?;
    if text.trim_ascii().is_empty() {
        return Err(malformed("the body is empty".to_owned()));
    }
    let json = json::parse(text)
        .map_err(|message| malformed(format!("the body is not JSON: {message}")))?;
    let mut form = Form::default();
    form.check_names_and_nul("#", &json);
    Ok((json, form.faults))
}

/// A pointer that holds nothing of the client's but what looks like a name.
pub(super) fn safe(pointer: String) -> String {
    match pointer.strip_prefix("#/metadata/") {
        Some(name) if !is_name(name) => "#/metadata".to_owned(),
        Some(_) | None => pointer,
    }
}

#[derive(Default)]
struct Form {
    draft: Draft,
    faults: Vec<Violation>,
}

impl Form {
    fn refuse(
        &mut self,
        pointer: impl Into<String>,
        rule: &'static str,
        detail: impl Into<Cow<'static, str>>,
    ) {
        self.faults.push(Violation::new(pointer, rule, detail));
    }

    /// Keys written twice and NUL, at any depth.
    fn check_names_and_nul(&mut self, pointer: &str, json: &Json<'_>) {
        match json {
            Json::Text(text) if text.contains('\0') => {
                self.refuse(pointer, "nul", "must not contain NUL (U+0000)");
            }
            Json::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    // Only what can hold a fault is worth a pointer.
                    if let Json::Text(_) | Json::Array(_) | Json::Object(_) = item {
                        self.check_names_and_nul(&format!("{pointer}/{index}"), item);
                    }
                }
            }
            Json::Object(fields) => {
                let mut seen = HashSet::with_capacity(fields.len());
                let mut told = HashSet::new();
                for (name, value) in fields {
                    if name.contains('\0') {
                        self.refuse(pointer, "nul", "must not have NUL (U+0000) in a key");
                    }
                    if !seen.insert(name.as_ref()) && told.insert(name.as_ref()) {
                        let place = child(pointer, name);
                        self.refuse(place, "duplicate_field", "is written more than once");
                    }
                    if let Json::Text(_) | Json::Array(_) | Json::Object(_) = value {
                        self.check_names_and_nul(&child(pointer, name), value);
                    }
                }
            }
            Json::Text(_) | Json::Null | Json::Bool(_) | Json::Integer(_) | Json::OtherNumber => {}
        }
    }

    fn read(&mut self, fields: Vec<(Cow<'_, str>, Json<'_>)>) {
        let mut given: [Option<Json<'_>>; FIELDS.len()] = Default::default();
        for (name, value) in fields {
            match FIELDS.iter().position(|field| *field == name) {
                Some(at) => given[at] = Some(value),
                None => self.refuse(
                    child("#", &name),
                    "unknown_field",
                    advise(&name, &FIELDS, "charge"),
                ),
            }
        }
        let mut given = given.map(|value| value.filter(|value| *value != Json::Null));
        let mut take = |at: usize| given[at].take();
        self.amount(take(0).as_ref());
        self.draft.currency = self.required(1, take(1)).to_ascii_lowercase();
        self.draft.payment_method = self.required(2, take(2));
        self.draft.customer = self.text(3, take(3));
        self.draft.return_url = self.text(4, take(4));
        self.draft.off_session = match take(5) {
            None => false,
            Some(Json::Bool(value)) => value,
            Some(_) => {
                self.refuse("#/off_session", "type", "must be true or false");
                false
            }
        };
        self.draft.reference = self.text(6, take(6));
        self.draft.description = self.text(7, take(7));
        self.metadata(take(8));
    }

    fn amount(&mut self, value: Option<&Json<'_>>) {
        // 1 keeps the other rules of money judged; the fault itself refuses the request.
        self.draft.amount = 1;
        match value {
            Some(Json::Integer(amount)) => self.draft.amount = *amount,
            Some(Json::OtherNumber) => self.refuse(
                "#/amount",
                "type",
                "amount must be a 64-bit integer of minor units, without fraction or exponent: 1999 is 19.99 usd",
            ),
            Some(_) => self.refuse(
                "#/amount",
                "type",
                "amount must be an integer of minor units, not in quotes: 1999 is 19.99 usd",
            ),
            None => self.refuse("#/amount", "required", "amount is required"),
        }
    }

    fn required(&mut self, at: usize, value: Option<Json<'_>>) -> String {
        if value.is_none() {
            let name = FIELDS[at];
            self.refuse(
                format!("#/{name}"),
                "required",
                format!("{name} is required"),
            );
        }
        self.text(at, value).unwrap_or_default()
    }

    fn text(&mut self, at: usize, value: Option<Json<'_>>) -> Option<String> {
        match value {
            None => None,
            Some(Json::Text(text)) => Some(text.into_owned()),
            Some(_) => {
                self.refuse(format!("#/{}", FIELDS[at]), "type", "must be a string");
                None
            }
        }
    }

    fn metadata(&mut self, value: Option<Json<'_>>) {
        let entries = match value {
            None => return,
            Some(Json::Object(entries)) => entries,
            Some(_) => return self.refuse("#/metadata", "type", "must be an object of strings"),
        };
        let mut metadata = BTreeMap::new();
        for (name, value) in entries {
            if let Json::Text(text) = value {
                metadata.insert(name.into_owned(), text.into_owned());
            } else {
                self.refuse(child("#/metadata", &name), "type", "must be a string");
            }
        }
        self.draft.metadata = metadata;
    }
}

/// Where a field is, or at least where it is in, if its name is none to tell back.
pub(super) fn child(pointer: &str, name: &str) -> String {
    if is_name(name) {
        format!("{pointer}/{name}")
    } else {
        pointer.to_owned()
    }
}

/// Whether a text reads like a field's name, and can be told and logged; it needs no escape in a pointer.
pub(super) fn is_name(text: &str) -> bool {
    (1..=40).contains(&text.len())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'))
        && !looks_like_card_number(text)
        && !["sk_", "rk_", "whsec_", "payonce_live_", "payonce_test_"]
            .iter()
            .any(|secret| text.starts_with(secret))
}

/// What to do about an unknown field.
fn advise(name: &str, fields: &[&str], what: &str) -> Cow<'static, str> {
    let plain = name.to_ascii_lowercase().replace('-', "_");
    if plain == "idempotency_key" {
        return "is no field: the key goes into the Idempotency-Key header".into();
    }
    let near = fields
        .iter()
        .map(|field| (distance(&plain, field), *field))
        .filter(|(distance, _)| *distance <= 2)
        .min();
    match near {
        Some((_, field)) => format!("is no field of a {what}; is {field} meant?").into(),
        None if !is_name(name) => {
            "a field of the object is unknown; its name is not repeated here".into()
        }
        None => format!("is no field of a {what}").into(),
    }
}

/// How many letters two names are apart (Levenshtein); names of very different lengths are just far.
pub(super) fn distance(left: &str, right: &str) -> usize {
    if left.len().abs_diff(right.len()) > 2 {
        return usize::MAX;
    }
    let (left, right) = (left.as_bytes(), right.as_bytes());
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in right.iter().enumerate() {
            let replaced = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod meaning;
#[cfg(test)]
mod tests;
