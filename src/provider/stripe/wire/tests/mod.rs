//! One row of the decoding table a test case; the last test feeds it anything at all.

mod declines;
mod errors;
mod objects;

use proptest::prelude::*;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use super::*;
use crate::domain::charge::Failure;
use crate::domain::outcome::{Object, ObjectStatus};

const PHASES: [Phase; 4] = [Phase::Prepare, Phase::Execute, Phase::Read, Phase::Cancel];

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        let value = HeaderValue::from_str(value).unwrap();
        headers.insert(HeaderName::from_static(name), value);
    }
    headers
}

fn answer_with(status: u16, pairs: &[(&'static str, &str)], body: &str, phase: Phase) -> Answer {
    decode(status, &headers(pairs), body.as_bytes(), phase).answer
}

fn answer(status: u16, body: &str, phase: Phase) -> Answer {
    answer_with(status, &[], body, phase)
}

fn error(kind: &str, code: &str, param: &str) -> String {
    format!(r#"{{"error":{{"type":"{kind}","code":"{code}","param":"{param}","message":"No."}}}}"#)
}

fn unclear(reason: Unclear) -> Answer {
    Answer::Unclear {
        reason,
        replayed: false,
    }
}

fn refusal(answer: Answer) -> Failure {
    match answer {
        Answer::Refused {
            failure,
            replayed: false,
        } => failure,
        other => panic!("{other:?}"),
    }
}

const STAMP: &str = "chg_03510a50e711533aba21e1dd9ddf20be";

fn intent(status: &str, more: &str) -> String {
    format!(
        r#"{{"id":"pi_3QZ9","object":"payment_intent","amount":1999,"amount_received":1999,"currency":"USD",
        "status":"{status}","metadata":{{"order":"1","payonce_charge_id":"{STAMP}"}},"last_payment_error":null,
        "next_action":null,"livemode":false{more}}}"#
    )
}

fn object(status: ObjectStatus) -> Object {
    Object {
        id: crate::domain::ids::ProviderChargeId::parse("pi_3QZ9").unwrap(),
        status,
        amount: 1999,
        amount_received: 1999,
        currency: "usd".to_owned(),
        stamp: Some(STAMP.to_owned()),
        failure: None,
        next_url: None,
    }
}

proptest! {
    /// No body and no status makes a success or a refusal of what does not say so in full.
    #[test]
    fn nothing_at_random_moves_a_charge(status in 0_u16..1000, body in proptest::collection::vec(any::<u8>(), 0..200)) {
        for phase in PHASES {
            let answer = decode(status, &HeaderMap::new(), &body, phase).answer;
            let moved = matches!(answer, Answer::Object { .. } | Answer::Refused { .. } | Answer::NotFound);
            prop_assert!(!moved, "{answer:?}");
        }
    }
}
