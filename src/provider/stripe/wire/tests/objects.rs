//! Objects and pages of them.

use super::*;
use crate::domain::ids::ProviderChargeId;

#[test]
fn an_object_is_read_in_every_status() {
    for (text, status) in [
        ("requires_confirmation", ObjectStatus::RequiresConfirmation),
        (
            "requires_payment_method",
            ObjectStatus::RequiresPaymentMethod,
        ),
        ("requires_action", ObjectStatus::RequiresAction),
        ("processing", ObjectStatus::Processing),
        ("requires_capture", ObjectStatus::RequiresCapture),
        ("succeeded", ObjectStatus::Succeeded),
        ("canceled", ObjectStatus::Canceled),
        ("requires_a_miracle", ObjectStatus::Unknown),
    ] {
        for phase in PHASES {
            assert_eq!(
                answer(200, &intent(text, ""), phase),
                Answer::Object {
                    object: object(status.clone()),
                    replayed: false
                }
            );
        }
    }
}

#[test]
fn a_replayed_object_says_so_and_the_request_ids_are_kept() {
    let decoded = |pairs: &[(&'static str, &str)]| {
        let body = intent("succeeded", "");
        decode(200, &headers(pairs), body.as_bytes(), Phase::Execute)
    };
    assert_eq!(
        decoded(&[
            ("idempotent-replayed", "true"),
            ("request-id", "req_2"),
            ("original-request", "req_1")
        ]),
        Reply {
            answer: Answer::Object {
                object: object(ObjectStatus::Succeeded),
                replayed: true
            },
            request_id: Some("req_2".to_owned()),
            original_request_id: Some("req_1".to_owned()),
        }
    );
    let first = decoded(&[("request-id", "req_1"), ("original-request", "req_1")]);
    assert_eq!(first.original_request_id, None, "it is the original itself");
}

#[test]
fn a_partial_amount_is_reported_as_it_came() {
    let body =
        intent("succeeded", "").replace("\"amount_received\":1999", "\"amount_received\":900");
    let Answer::Object { object, .. } = answer(200, &body, Phase::Read) else {
        panic!("no object");
    };
    assert_eq!((object.amount, object.amount_received), (1999, 900));
}

#[test]
fn what_a_declined_object_and_a_waiting_one_tell_is_read() {
    let declined = r#"{"id":"pi_1","amount":5,"currency":"usd","status":"requires_payment_method","metadata":{},
        "last_payment_error":{"type":"card_error","code":"card_declined","decline_code":"lost_card","message":"Lost."}}"#;
    let Answer::Object { object, .. } = answer(200, declined, Phase::Read) else {
        panic!("no object");
    };
    let failure = object.failure.unwrap();
    assert_eq!(failure.code, "card_declined");
    assert_eq!(failure.provider_code.as_deref(), Some("lost_card"));
    assert_eq!(failure.message, "The payment was declined.");
    assert_eq!(object.stamp, None);

    let waiting = r#"{"id":"pi_1","amount":5,"currency":"usd","status":"requires_action","metadata":null,
        "next_action":{"type":"redirect_to_url","redirect_to_url":{"url":"https:\/\/hooks.stripe.com\/3ds","return_url":null}}}"#;
    let Answer::Object { object, .. } = answer(200, waiting, Phase::Read) else {
        panic!("no object");
    };
    assert_eq!(
        object.next_url.as_deref(),
        Some("https://hooks.stripe.com/3ds")
    );
}

#[test]
fn an_odd_side_note_does_not_hide_a_success() {
    let body = intent("succeeded", "")
        .replace("\"last_payment_error\":null", "\"last_payment_error\":[1]")
        .replace("\"next_action\":null", "\"next_action\":\"none\"");
    assert_eq!(
        answer(200, &body, Phase::Read),
        Answer::Object {
            object: object(ObjectStatus::Succeeded),
            replayed: false
        }
    );
}

#[test]
fn what_is_no_whole_object_is_unreadable() {
    let whole = intent("succeeded", "");
    for body in [
        String::new(),
        "<html>OK</html>".to_owned(),
        "{}".to_owned(),
        "[]".to_owned(),
        error("card_error", "card_declined", ""),
        whole[..whole.len() / 2].to_owned(),
        whole.replace("\"id\":\"pi_3QZ9\",", ""),
        whole.replace("pi_3QZ9", "pi/../x"),
        whole.replace("\"amount\":1999,", ""),
        whole.replace("\"amount\":1999,", "\"amount\":19.99,"),
        whole.replace("\"amount_received\":1999,", ""),
        whole.replace("\"currency\":\"USD\",", ""),
        whole.replace("\"status\":\"succeeded\",", ""),
        whole.replace("payment_intent\"", "charge\""),
    ] {
        assert_eq!(
            answer(200, &body, Phase::Execute),
            unclear(Unclear::Unreadable),
            "{body}"
        );
    }
}

const OTHER_STAMP: &str = "chg_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

#[test]
fn a_page_gives_our_objects_and_where_to_go_on() {
    let page = |body: &str| decode_page(200, &HeaderMap::new(), body.as_bytes());
    let ours = intent("succeeded", "");
    let second = ours
        .replace(STAMP, OTHER_STAMP)
        .replace("pi_3QZ9", "pi_other");
    let foreign = ours.replace(STAMP, "chg_other");
    let cased = ours.replace(STAMP, &STAMP.to_uppercase());
    let stranger = r#"{"id":"pi_last"}"#;
    assert_eq!(
        page(&format!(
            r#"{{"has_more":true,"data":[{ours},{second},{foreign},{cased},{stranger}]}}"#
        )),
        Ok(Page {
            objects: vec![
                (STAMP.parse().unwrap(), object(ObjectStatus::Succeeded)),
                (
                    OTHER_STAMP.parse().unwrap(),
                    Object {
                        id: ProviderChargeId::parse("pi_other").unwrap(),
                        stamp: Some(OTHER_STAMP.to_owned()),
                        ..object(ObjectStatus::Succeeded)
                    }
                ),
            ],
            next: ProviderChargeId::parse("pi_last")
        })
    );
    assert_eq!(
        page(r#"{"has_more":false,"data":[]}"#),
        Ok(Page {
            objects: vec![],
            next: None
        })
    );
    let torn = ours.replace("\"amount\":1999,", "");
    for body in [
        "",
        "{}",
        r#"{"data":[]}"#,
        r#"{"has_more":true,"data":[]}"#,
        &format!(r#"{{"has_more":false,"data":[{torn}]}}"#),
    ] {
        assert_eq!(
            page(body),
            Err(Box::new(unclear(Unclear::Unreadable))),
            "{body}"
        );
    }
    assert_eq!(
        decode_page(401, &HeaderMap::new(), b""),
        Err(Box::new(Answer::Denied))
    );
}
