//! The query of an address, read to the letter: a parameter that is unknown, repeated or badly encoded is a fault, because
//! a misspelt filter would answer with something else than was asked for.

use std::borrow::Cow;
use std::collections::HashSet;

use super::body::{distance, is_name};
use super::problem::{ApiError, Fault, Place};
use crate::domain::request::looks_like_card_number;

/// What other interfaces call the same thing.
const ELSEWHERE: &[(&str, &str)] = &[
    ("created", "created_from"),
    ("createdgt", "created_from"),
    ("createdgte", "created_from"),
    ("created_after", "created_from"),
    ("created_since", "created_from"),
    ("from", "created_from"),
    ("since", "created_from"),
    ("createdlt", "created_before"),
    ("createdlte", "created_before"),
    ("created_to", "created_before"),
    ("created_until", "created_before"),
    ("to", "created_before"),
    ("until", "created_before"),
    ("before", "created_before"),
    ("state", "stage"),
    ("key", "idempotency_key"),
    ("ref", "reference"),
    ("provider_id", "provider_charge_id"),
    ("payment_intent", "provider_charge_id"),
    ("count", "limit"),
    ("page_size", "limit"),
    ("per_page", "limit"),
    ("after", "cursor"),
    ("next_cursor", "cursor"),
    ("page", "cursor"),
    ("page_token", "cursor"),
    ("starting_after", "cursor"),
];

/// The parameters that were given, and every fault so far.
#[derive(Debug)]
pub(super) struct Parameters {
    names: &'static [&'static str],
    values: Vec<Option<String>>,
    faults: Vec<Fault>,
}

impl Parameters {
    /// Reads a query as forms write it: `%` and two hex digits, and `+` for a space.
    pub(super) fn read(query: Option<&str>, names: &'static [&'static str]) -> Self {
        let mut parameters = Self {
            names,
            values: vec![None; names.len()],
            faults: Vec::new(),
        };
        let mut seen = HashSet::new();
        let mut told = HashSet::new();
        let pairs = query.unwrap_or_default().split('&');
        for pair in pairs.filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            // A name that can't be decoded is no name of ours.
            let name = decode(name).unwrap_or_default();
            let known = names.iter().position(|known| *known == name);
            let is_new = seen.insert(name.clone());
            if !is_new {
                if told.insert(name.clone()) {
                    parameters.refuse_named(
                        told_name(&name),
                        "repeated",
                        "is given more than once",
                    );
                }
                continue;
            }
            let Some(at) = known else {
                let advice = advise(&name, names);
                parameters.refuse_named(told_name(&name), "unknown_parameter", advice);
                continue;
            };
            match decode(value) {
                Some(value) => parameters.values[at] = Some(value),
                None => parameters.refuse(
                    names[at],
                    "encoding",
                    "must be UTF-8, with every % followed by two hex digits (a % itself is %25)",
                ),
            }
        }
        parameters
    }

    /// The value of a parameter as `parse` understands it; a fault if it doesn't, with the mend that `parse` gives.
    pub(super) fn take<T>(
        &mut self,
        name: &'static str,
        rule: &'static str,
        parse: impl FnOnce(&str) -> Result<T, Cow<'static, str>>,
    ) -> Option<T> {
        let at = self.names.iter().position(|known| *known == name)?;
        let value = self.values[at].take()?;
        match parse(&value) {
            Ok(parsed) => Some(parsed),
            Err(detail) => {
                self.refuse(name, rule, detail);
                None
            }
        }
    }

    pub(super) fn refuse(
        &mut self,
        name: &'static str,
        rule: &'static str,
        detail: impl Into<Cow<'static, str>>,
    ) {
        self.refuse_named(name.into(), rule, detail);
    }

    fn refuse_named(
        &mut self,
        name: Cow<'static, str>,
        rule: &'static str,
        detail: impl Into<Cow<'static, str>>,
    ) {
        self.faults.push(Fault {
            place: Place::Parameter(name),
            rule,
            detail: detail.into(),
        });
    }

    /// All faults at once, if there are any.
    pub(super) fn finish(self) -> Result<(), ApiError> {
        if self.faults.is_empty() {
            Ok(())
        } else {
            Err(ApiError::invalid_parameters(self.faults))
        }
    }
}

/// `None` for what is not UTF-8 or has a `%` without two hex digits.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => hex(rest.next()?)? << 4 | hex(rest.next()?)?,
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit)
        .to_digit(16)
        .and_then(|value| u8::try_from(value).ok())
}

/// A name as it may be told back; brackets are how other interfaces write a range. They may stand before a card number.
fn told_name(name: &str) -> Cow<'static, str> {
    if is_name(&plain(name)) && !looks_like_card_number(name) {
        name.to_owned().into()
    } else {
        "?".into()
    }
}

fn plain(name: &str) -> String {
    name.replace(['[', ']'], "")
}

fn advise(name: &str, names: &[&'static str]) -> Cow<'static, str> {
    let plain = plain(name);
    if !is_name(&plain) {
        return "a parameter is unknown; its name is not repeated here".into();
    }
    let folded = plain.to_ascii_lowercase().replace(['-', '.'], "_");
    let elsewhere = ELSEWHERE
        .iter()
        .find(|(other, ours)| *other == folded && names.contains(ours))
        .map(|(_, ours)| *ours);
    let near = || {
        let all = names
            .iter()
            .map(|known| (letters_apart(&folded, known), *known));
        all.filter(|(apart, _)| *apart <= 2)
            .min()
            .map(|(_, known)| known)
    };
    match elsewhere.or_else(near) {
        Some(known) => format!("is no parameter of this address; is {known} meant?").into(),
        None => format!(
            "is no parameter of this address; it takes {}",
            names.join(", ")
        )
        .into(),
    }
}

/// As written, or with the underscores left out (`createdFrom`).
fn letters_apart(name: &str, known: &str) -> usize {
    let bare = known.replace('_', "");
    distance(name, known).min(distance(name, &bare))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: &[&str] = &["status", "stage", "created_from", "cursor", "limit"];

    fn faults(query: &str) -> Vec<(String, &'static str, String)> {
        let told = |fault: Fault| match fault.place {
            Place::Parameter(name) => (name.into_owned(), fault.rule, fault.detail.into_owned()),
            Place::Pointer(_) | Place::Header(_) => panic!("a parameter"),
        };
        Parameters::read(Some(query), NAMES)
            .faults
            .into_iter()
            .map(told)
            .collect()
    }

    fn value(query: &str, name: &'static str) -> Option<String> {
        let mut parameters = Parameters::read(Some(query), NAMES);
        assert_eq!(parameters.faults, [], "{query}");
        parameters.take(name, "any", |value| Ok(value.to_owned()))
    }

    #[test]
    fn values_are_decoded_as_forms_write_them() {
        assert_eq!(value("stage=a+b%2Bc%25", "stage").unwrap(), "a b+c%");
        assert_eq!(value("&&stage=%C3%a4&", "stage").unwrap(), "ä");
        assert_eq!(value("st%61ge=x=y", "stage").unwrap(), "x=y");
        assert_eq!(value("stage", "stage").unwrap(), "");
        assert_eq!(value("", "stage"), None);
    }

    #[test]
    fn what_is_unknown_repeated_or_badly_encoded_is_named_all_at_once() {
        let all =
            faults("stage=a&stage=b&stage=c&colour=1&colour=2&limit=%zz&cursor=%C3&status=%2");
        let told: Vec<_> = all
            .iter()
            .map(|(name, rule, _)| (name.as_str(), *rule))
            .collect();
        assert_eq!(
            told,
            [
                ("stage", "repeated"),
                ("colour", "unknown_parameter"),
                ("colour", "repeated"),
                ("limit", "encoding"),
                ("cursor", "encoding"),
                ("status", "encoding"),
            ]
        );
    }

    #[test]
    fn a_misspelt_parameter_is_told_what_is_meant() {
        for (query, meant) in [
            ("staus=failed", "status"),
            ("Status=failed", "status"),
            ("createdFrom=x", "created_from"),
            ("created-from=x", "created_from"),
            ("created%5Bgte%5D=1", "created_from"),
            ("starting_after=x", "cursor"),
            ("limits=5", "limit"),
        ] {
            let all = faults(query);
            assert_eq!(all.len(), 1);
            assert!(all[0].2.ends_with(&format!("is {meant} meant?")), "{all:?}");
        }
        assert!(faults("colour=red")[0].2.contains("it takes status, stage"));
    }

    #[test]
    fn a_name_that_could_be_a_secret_is_not_told_back() {
        for name in [
            "4242424242424242",
            "x-9[4242424242424242]",
            "99999%5B4242424242424242",
            "sk_test_1",
            "%zz",
            "a%20b",
            "%3Cscript%3E",
            "",
        ] {
            let all = faults(&format!("{name}=1"));
            assert_eq!((all[0].0.as_str(), all[0].1), ("?", "unknown_parameter"));
        }
    }
}
