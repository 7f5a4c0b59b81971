//! Bodies of one meaning agree, and bodies of two differ: whatever they are made of, and however they are written.

use std::fmt::Write as _;

use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::domain::idempotency::Fingerprint;

/// Few letters, so that two of them are often nearly the same; quotes and escapes, so that they have to be escaped.
const TEXT: &str = "[ab=\"\\\\/ä\u{1f375}\n]{0,3}";

prop_compose! {
    fn drafts()(
        amount in prop_oneof![Just(1), Just(11), any::<i64>()],
        currency in "usd|eur|[a-z]{0,3}",
        payment_method in TEXT,
        customer in option(),
        return_url in option(),
        off_session in any::<bool>(),
        reference in option(),
        description in option(),
        metadata in proptest::collection::btree_map(TEXT, TEXT, 0..3),
    ) -> Draft {
        Draft { amount, currency, payment_method, customer, return_url, off_session, reference, description, metadata }
    }
}

fn option() -> impl Strategy<Value = Option<String>> {
    proptest::option::of(TEXT)
}

/// The draft as JSON, in one of the many ways in which it can be written.
fn written(draft: &Draft, random: &mut StdRng) -> String {
    let mut fields = vec![
        ("amount", Some(draft.amount.to_string())),
        (
            "currency",
            Some(text(&any_case(&draft.currency, random), random)),
        ),
        ("payment_method", Some(text(&draft.payment_method, random))),
        ("off_session", draft.off_session.then(|| "true".to_owned())),
        (
            "metadata",
            (!draft.metadata.is_empty()).then(|| metadata(draft, random)),
        ),
    ];
    for (name, value) in [
        ("customer", &draft.customer),
        ("return_url", &draft.return_url),
        ("reference", &draft.reference),
        ("description", &draft.description),
    ] {
        fields.push((name, value.as_ref().map(|value| text(value, random))));
    }
    let nothing = |name: &str, random: &mut StdRng| match (random.random_range(0..3), name) {
        (0, _) => Some("null"),
        (1, "metadata") => Some("{ }"),
        (1, "off_session") => Some("false"),
        _ => None,
    };
    let written = fields.into_iter().filter_map(|(name, value)| {
        let value = value.or_else(|| nothing(name, random).map(str::to_owned))?;
        Some((text(name, random), value))
    });
    let written = written.collect();
    object(written, random)
}

fn metadata(draft: &Draft, random: &mut StdRng) -> String {
    let entries = draft.metadata.iter();
    let entries = entries.map(|(name, value)| (text(name, random), text(value, random)));
    let entries = entries.collect();
    object(entries, random)
}

fn object(mut fields: Vec<(String, String)>, random: &mut StdRng) -> String {
    fields.shuffle(random);
    let fields: Vec<String> = fields
        .into_iter()
        .map(|(name, value)| {
            let space = [" ", "\n", "\t\r\n", ""][random.random_range(0..4)];
            format!("{space}{name}{space}:{value}{space}")
        })
        .collect();
    format!("{{{}}}", fields.join(","))
}

/// A string, its characters escaped here and there whether they have to be or not.
fn text(text: &str, random: &mut StdRng) -> String {
    let mut json = String::from("\"");
    for c in text.chars() {
        let must = c == '"' || c == '\\' || c.is_control();
        if must || random.random_range(0..4) == 0 {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing to a string never fails.
                let _ = write!(json, "\\u{unit:04x}");
            }
        } else {
            json.push(c);
        }
    }
    json.push('"');
    json
}

fn any_case(text: &str, random: &mut StdRng) -> String {
    let turn = |c: char| {
        if random.random_bool(0.5) {
            c.to_ascii_uppercase()
        } else {
            c
        }
    };
    text.chars().map(turn).collect()
}

fn read(body: &str) -> Draft {
    let parsed = parse(body.as_bytes()).unwrap();
    assert!(parsed.faults.is_empty(), "{body}: {:?}", parsed.faults);
    parsed.draft
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn bodies_of_one_meaning_agree_however_they_are_written(draft in drafts(), seed in any::<u64>()) {
        let random = &mut StdRng::seed_from_u64(seed);
        let (left, right) = (written(&draft, random), written(&draft, random));
        prop_assert_eq!(&read(&left), &draft, "{}", left);
        prop_assert_eq!(Fingerprint::of(&read(&left)), Fingerprint::of(&read(&right)));
        prop_assert_eq!(Fingerprint::of(&draft).matches(&read(&right)), Some(true));
        prop_assert!(draft.differences(&read(&right)).is_empty());
    }

    #[test]
    fn bodies_of_two_meanings_differ_however_they_are_written(a in drafts(), b in drafts(), seed in any::<u64>()) {
        let random = &mut StdRng::seed_from_u64(seed);
        let (left, right) = (read(&written(&a, random)), read(&written(&b, random)));
        prop_assert_eq!(Fingerprint::of(&left).hash == Fingerprint::of(&right).hash, a == b);
        prop_assert_eq!(left.differences(&right).is_empty(), a == b);
    }

    /// Two drafts at random differ in much; these differ in one field, or by what moved from one field to the next.
    #[test]
    fn a_change_of_one_field_is_another_meaning(draft in drafts(), field in 0..9_usize, value in TEXT, seed in any::<u64>()) {
        let mut other = draft.clone();
        match field {
            0 => other.amount = other.amount.wrapping_add(1),
            1 => other.currency.push('x'),
            2 => other.payment_method = value,
            3 => other.customer = Some(value),
            4 => other.return_url = Some(value),
            5 => other.off_session = !other.off_session,
            6 => std::mem::swap(&mut other.reference, &mut other.description),
            7 => other.description = None,
            _ => { other.metadata.insert(value, String::new()); }
        }
        let random = &mut StdRng::seed_from_u64(seed);
        let (left, right) = (read(&written(&draft, random)), read(&written(&other, random)));
        prop_assert_eq!(Fingerprint::of(&left).hash == Fingerprint::of(&right).hash, draft == other);
    }
}
