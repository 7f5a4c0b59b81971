//! The body of POST /v1/charges, to the letter: JSON in, a [`Draft`] and every fault of its shape out.
//!
//! Nothing is guessed and nothing ignored: what is unknown, written twice or of another type is named, each with its
//! mend. Names of fields are told back only when they look like names: a card number in a key's place is not.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};

use super::code::Code;
use super::json::{self, Json};
use super::problem::ApiError;
use crate::domain::request::{Draft, Violation, looks_like_card_number};

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
pub(super) struct Parsed {
    /// With something harmless in the place of a field that could not be read.
    pub(super) draft: Draft,
    pub(super) faults: Vec<Violation>,
}

/// Reads a body. Only what is no JSON at all is an error here.
pub(super) fn parse(body: &[u8]) -> Result<Parsed, ApiError> {
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
    match json {
        Json::Object(fields) => form.read(fields),
        _ => form.refuse("#", "type", "must be one JSON object"),
    }
    Ok(Parsed {
        draft: form.draft,
        faults: form.faults,
    })
}

/// A fault that points at the body is told with a place that holds no value of the client's.
pub(super) fn safe(violation: Violation) -> Violation {
    match violation.pointer.strip_prefix("#/metadata/") {
        Some(name) if !is_name(name) => Violation {
            pointer: "#/metadata".to_owned(),
            ..violation
        },
        Some(_) | None => violation,
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
                None => self.refuse(child("#", &name), "unknown_field", advise(&name)),
            }
        }
        let mut given = given.map(|value| value.filter(|value| *value != Json::Null));
        let mut take = |at: usize| given[at].take();
        self.amount(take(0));
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

    fn amount(&mut self, value: Option<Json<'_>>) {
        // 1 keeps the other rules of money judged; the fault itself refuses the request.
        self.draft.amount = 1;
        match value {
            Some(Json::Integer(amount)) => self.draft.amount = amount,
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
fn child(pointer: &str, name: &str) -> String {
    if is_name(name) {
        format!("{pointer}/{name}")
    } else {
        pointer.to_owned()
    }
}

/// Whether a text reads like a field's name, and can be told and logged; it needs no escape in a pointer.
fn is_name(text: &str) -> bool {
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
fn advise(name: &str) -> Cow<'static, str> {
    let plain = name.to_ascii_lowercase().replace('-', "_");
    if plain == "idempotency_key" {
        return "is no field: the key goes into the Idempotency-Key header".into();
    }
    let near = FIELDS
        .iter()
        .map(|field| (distance(&plain, field), *field))
        .filter(|(distance, _)| *distance <= 2)
        .min();
    match near {
        Some((_, field)) => format!("is no field of a charge; is {field} meant?").into(),
        None if !is_name(name) => {
            "a field of the object is unknown; its name is not repeated here".into()
        }
        None => "is no field of a charge".into(),
    }
}

/// How many letters two names are apart (Levenshtein); names of very different lengths are just far.
fn distance(left: &str, right: &str) -> usize {
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
mod tests {
    use super::*;

    fn faults(body: &str) -> Vec<(String, &'static str)> {
        let parsed = parse(body.as_bytes()).unwrap();
        let faults = parsed.faults.into_iter();
        faults.map(|fault| (fault.pointer, fault.rule)).collect()
    }

    fn with(field: &str) -> String {
        format!(r#"{{"amount":1,"currency":"usd","payment_method":"pm",{field}}}"#)
    }

    fn one(pointer: &str, rule: &'static str) -> Vec<(String, &'static str)> {
        vec![(pointer.to_owned(), rule)]
    }

    #[test]
    fn a_whole_request_is_read_and_normalised() {
        let body = r#" {"metadata":{"b":"2","a":""},"description":"d","reference":"r","off_session":true,"return_url":"https://x/",
            "customer":"cus","payment_method":"pm","currency":"uSd","\u0061mount":1999} "#;
        let parsed = parse(body.as_bytes()).unwrap();
        assert!(parsed.faults.is_empty(), "{:?}", parsed.faults);
        let expected = Draft {
            amount: 1999,
            currency: "usd".to_owned(),
            payment_method: "pm".to_owned(),
            customer: Some("cus".to_owned()),
            return_url: Some("https://x/".to_owned()),
            off_session: true,
            reference: Some("r".to_owned()),
            description: Some("d".to_owned()),
            metadata: [("a", ""), ("b", "2")]
                .map(|(k, v)| (k.to_owned(), v.to_owned()))
                .into(),
        };
        assert_eq!(parsed.draft, expected);
    }

    #[test]
    fn null_is_absent_where_a_field_is_optional_and_missing_where_it_is_not() {
        let plain = parse(with(r#""metadata":{}"#).as_bytes()).unwrap();
        let nulls = with(
            r#""customer":null,"return_url":null,"off_session":null,"reference":null,"description":null,"metadata":null"#,
        );
        let nulls = parse(nulls.as_bytes()).unwrap();
        assert!(nulls.faults.is_empty());
        assert_eq!(nulls.draft, plain.draft);
        assert_eq!(
            faults(r#"{"amount":null,"currency":null}"#),
            [
                ("#/amount".to_owned(), "required"),
                ("#/currency".to_owned(), "required"),
                ("#/payment_method".to_owned(), "required"),
            ]
        );
    }

    #[test]
    fn an_amount_is_an_integer_and_nothing_that_looks_like_one() {
        for amount in [
            "19.99",
            "100.0",
            "1e3",
            "1E400",
            "\"1000\"",
            "-0",
            "true",
            "[1]",
            "{}",
            "9223372036854775808",
            "99999999999999999999999",
        ] {
            let body = format!(r#"{{"amount":{amount},"currency":"usd","payment_method":"pm"}}"#);
            assert_eq!(faults(&body), one("#/amount", "type"), "{amount}");
            let parsed = parse(body.as_bytes()).unwrap();
            assert!(parsed.faults[0].detail.contains("amount"));
        }
        for amount in [
            "0",
            "-1",
            "-9223372036854775808",
            "2147483648",
            "999999999999",
        ] {
            let body = format!(r#"{{"amount":{amount},"currency":"usd","payment_method":"pm"}}"#);
            let parsed = parse(body.as_bytes()).unwrap();
            assert!(parsed.faults.is_empty(), "{amount}: judged later");
            assert_eq!(parsed.draft.amount.to_string(), amount);
        }
    }

    #[test]
    fn what_is_not_json_is_malformed() {
        let deep = with(&format!(
            r#""metadata":{{"a":{}{}}}"#,
            "[".repeat(200),
            "]".repeat(200)
        ));
        let bad: [&[u8]; 10] = [
            b"",
            b" \n",
            b"{",
            b"{\"amount\":01}",
            b"{\"amount\":NaN}",
            b"{\"amount\":1}x",
            b"{\"currency\":\"\xff\"}",
            b"amount=1",
            b"{\"currency\":\"\\ud800\"}",
            deep.as_bytes(),
        ];
        for body in bad {
            let error = parse(body).unwrap_err();
            assert_eq!(error.code(), Code::MalformedJson);
        }
    }

    #[test]
    fn only_an_object_is_taken() {
        for body in ["[]", "[{}]", "1", "\"x\"", "null", "true"] {
            assert_eq!(faults(body), one("#", "type"), "{body}");
        }
    }

    #[test]
    fn a_key_written_twice_is_refused_at_any_depth() {
        for (body, pointer) in [
            (with(r#""amount":100000"#), "#/amount"),
            (with(r#""\u0061mount":1"#), "#/amount"),
            (
                with(r#""metadata":{"order":"1","order":"2"}"#),
                "#/metadata/order",
            ),
            (with(r#""metadata":{},"metadata":{}"#), "#/metadata"),
        ] {
            assert_eq!(faults(&body), one(pointer, "duplicate_field"), "{body}");
        }
        let deep = faults(&with(r#""metadata":{"a":[{"b":{"c":1,"c":1}}]}"#));
        assert!(deep.contains(&("#/metadata/a/0/b/c".to_owned(), "duplicate_field")));
    }

    #[test]
    fn nul_is_refused_anywhere() {
        for (field, pointer) in [
            (r#""metadata":{"note":"a\u0000b"}"#, "#/metadata/note"),
            (r#""metadata":{"a\u0000b":"x"}"#, "#/metadata"),
            (r#""reference":"\u0000""#, "#/reference"),
        ] {
            let faults = faults(&with(field));
            assert_eq!(faults, one(pointer, "nul"), "{field}");
        }
    }

    #[test]
    fn an_unknown_field_is_refused_and_the_one_that_was_meant_is_named() {
        for (name, meant) in [
            ("curency", "is currency meant?"),
            ("Amount", "is amount meant?"),
            ("payment-method", "is payment_method meant?"),
            ("meta_data", "is metadata meant?"),
            ("Idempotency-Key", "Idempotency-Key header"),
            ("capture", "is no field"),
        ] {
            let body = with(&format!(r#""{name}":"x""#));
            assert_eq!(faults(&body), one(&format!("#/{name}"), "unknown_field"));
            let parsed = parse(body.as_bytes()).unwrap();
            assert!(parsed.faults[0].detail.contains(meant), "{name}");
        }
    }

    #[test]
    fn what_is_no_name_is_not_told_back() {
        for name in [
            "4242424242424242",
            "sk_live_x",
            "a b",
            "x/y",
            &"k".repeat(41),
        ] {
            let body = with(&format!(r#""{name}":1,"metadata":{{"{name}":1}}"#));
            let parsed = parse(body.as_bytes()).unwrap();
            assert_eq!(parsed.faults.len(), 2);
            assert!(!format!("{:?}", parsed.faults).contains(name), "{name}");
        }
        let violation = safe(Violation::new("#/metadata/4242424242424242", "x", "y"));
        assert_eq!(violation.pointer, "#/metadata");
    }

    #[test]
    fn every_fault_is_named_at_once() {
        let body = r#"{"amount":"1","currency":5,"x":1,"metadata":{"a":1,"b":null},"off_session":"yes","reference":{}}"#;
        let pointers: Vec<String> = faults(body).into_iter().map(|(at, _)| at).collect();
        let all = [
            "#/x",
            "#/amount",
            "#/currency",
            "#/payment_method",
            "#/off_session",
            "#/reference",
            "#/metadata/a",
            "#/metadata/b",
        ];
        assert_eq!(pointers, all);
    }

    #[test]
    fn thousands_of_keys_are_read_in_time() {
        let fields: Vec<String> = (0..8000).map(|n| format!("\"{n}\":1")).collect();
        assert_eq!(faults(&with(&fields.join(","))).len(), 8000);
    }

    proptest::proptest! {
        #[test]
        fn reading_a_body_never_panics(body in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200)) {
            let _ = parse(&body);
        }

        #[test]
        fn reading_what_is_nearly_json_never_panics(body in r#"[\{\}\[\]",:0-9a-e\\u.\- ]{0,60}"#) {
            let _ = parse(body.as_bytes());
        }
    }
}
