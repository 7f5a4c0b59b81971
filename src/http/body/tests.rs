//! Each case of a body that a client could send by mistake or by malice.

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
    let pointer = safe("#/metadata/4242424242424242".to_owned());
    assert_eq!(pointer, "#/metadata");
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
