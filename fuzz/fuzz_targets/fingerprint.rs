//! Bodies of one meaning have one fingerprint and those of two have two, by another reading of the same JSON.
//!
//! The input is one body, or two with a NUL between them, which no JSON holds.

#![no_main]

use libfuzzer_sys::fuzz_target;
use oracle::{in_other_words, meaning};
use payonce::domain::idempotency::Fingerprint;
use payonce::domain::request::Draft;
use payonce::http::body;
use serde_json::{Map, Value};

fuzz_target!(|bytes: &[u8]| {
    let mut bodies = bytes.splitn(2, |byte| *byte == 0);
    let Some(one) = bodies.next().and_then(read) else {
        return;
    };
    for same in [
        in_other_words(&Value::Object(one.json.clone())),
        serde_json::to_string_pretty(&one.json).expect("it is JSON"),
    ] {
        let other = read(same.as_bytes()).expect("the same body in other words");
        assert_eq!(other.draft, one.draft, "{same}");
        compare(&one, &other);
    }
    for json in changed(&one.json) {
        let text = serde_json::to_string(&json).expect("it is JSON");
        if let Some(other) = read(text.as_bytes()) {
            compare(&one, &other);
        }
    }
    if let Some(other) = bodies.next().and_then(read) {
        compare(&one, &other);
    }
});

struct Body {
    json: Map<String, Value>,
    draft: Draft,
}

/// A body of the right shape, as the service reads it and as another reader does.
fn read(bytes: &[u8]) -> Option<Body> {
    let parsed = body::parse(bytes)
        .ok()
        .filter(|read| read.faults.is_empty())?;
    let json: Map<String, Value> = serde_json::from_slice(bytes).expect("it was taken for JSON");
    let draft = parsed.draft;
    let text = |name: &str| json.get(name).and_then(Value::as_str).map(str::to_owned);
    assert_eq!(
        json.get("amount").and_then(Value::as_i64),
        Some(draft.amount)
    );
    assert_eq!(text("payment_method").as_ref(), Some(&draft.payment_method));
    assert_eq!(text("customer"), draft.customer);
    assert_eq!(text("return_url"), draft.return_url);
    assert_eq!(text("reference"), draft.reference);
    assert_eq!(text("description"), draft.description);
    Some(Body { json, draft })
}

fn compare(one: &Body, other: &Body) {
    let same = meaning(&one.json) == meaning(&other.json);
    let fingerprint = Fingerprint::of(&one.draft);
    assert_eq!(fingerprint == Fingerprint::of(&other.draft), same);
    assert_eq!(fingerprint.matches(&other.draft), Some(same));
    assert_eq!(one.draft.differences(&other.draft).is_empty(), same);
}

/// The body with one thing changed: a member less, another value, or what stands in one member in another's place.
fn changed(json: &Map<String, Value>) -> Vec<Map<String, Value>> {
    let mut all = Vec::new();
    for (name, value) in json {
        let mut without = json.clone();
        without.remove(name);
        for (other, there) in &without {
            let mut swapped = json.clone();
            swapped.insert(name.clone(), there.clone());
            swapped.insert(other.clone(), value.clone());
            all.push(swapped);
        }
        all.push(without);
        for value in others(value) {
            let mut with = json.clone();
            with.insert(name.clone(), value);
            all.push(with);
        }
    }
    all
}

fn others(value: &Value) -> Vec<Value> {
    match value {
        Value::Object(entries) => changed(entries).into_iter().map(Value::Object).collect(),
        Value::String(text) => {
            let shorter = text.char_indices().last().map_or("", |(at, _)| &text[..at]);
            vec![
                format!("{text}x").into(),
                shorter.into(),
                text.to_ascii_uppercase().into(),
            ]
        }
        Value::Number(number) => {
            let number = number.as_i64().unwrap_or_default();
            vec![number.wrapping_add(1).into(), number.wrapping_neg().into()]
        }
        Value::Bool(is) => vec![(!is).into()],
        Value::Null => vec!["".into(), Value::Object(Map::new())],
        Value::Array(_) => Vec::new(),
    }
}
