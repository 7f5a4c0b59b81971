//! The provider's answers: whatever comes back is one row of the table, and money has moved, or never will, only where
//! the object itself says so.
//!
//! The input is two bytes for the status, one for the headers, and a body.

#![no_main]

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use libfuzzer_sys::fuzz_target;
use oracle::Json;
use payonce::domain::ids::ChargeId;
use payonce::domain::outcome::{
    Answer, Asked, Context, Object, ObjectStatus, Phase, Reason, Step, decide,
};
use payonce::domain::refund::outcome::{RefundObject, RefundPhase, RefundStatus};
use payonce::provider::stripe::wire;
use serde_json::Value;

const PHASES: [Phase; 4] = [Phase::Prepare, Phase::Execute, Phase::Read, Phase::Cancel];
const STAMP: &str = "chg_03510a50e711533aba21e1dd9ddf20be";

fuzz_target!(|bytes: &[u8]| {
    let Some(([high, low, flags], body)) = bytes.split_first_chunk::<3>() else {
        return;
    };
    let status = u16::from_be_bytes([*high, *low]) % 1000;
    let (headers, body) = headers(*flags, body);
    for phase in PHASES {
        let reply = wire::decode(status, &headers, body, phase);
        let id = reply.request_id.as_deref();
        assert!(id.is_none_or(|id| (1..=255).contains(&id.len())));
        check_answer(status, body, phase, &reply.answer);
        for cancel_requested in [false, true] {
            check_step(status, body, phase, reply.answer.clone(), cancel_requested);
        }
    }
    check_page(status, &headers, body);
    for phase in [RefundPhase::Refund, RefundPhase::ReadRefund] {
        let answer = wire::decode(status, &headers, body, phase).answer;
        if let Answer::Object { object, .. } = &answer {
            assert_eq!(status, 200);
            check_refund(&Json::of(body), object);
        }
        let refused = matches!(answer, Answer::Refused { .. });
        assert!(!refused || matches!(status, 400 | 402 | 404));
    }
    check_refunds(status, &headers, body);
});

/// Any of those that count, and the request id and the wait of a rate limiter from the body's first line.
fn headers(flags: u8, body: &[u8]) -> (HeaderMap, &[u8]) {
    let mut headers = HeaderMap::new();
    for (bit, name) in ["idempotent-replayed", "stripe-should-retry"]
        .into_iter()
        .enumerate()
    {
        if flags & (1 << bit) != 0 {
            headers.insert(
                HeaderName::from_static(name),
                HeaderValue::from_static("true"),
            );
        }
    }
    let date = HeaderValue::from_static("Sun, 29 Nov 2026 20:15:00 GMT");
    headers.insert("date", date);
    let line = body.iter().position(|byte| *byte == b'\n');
    let (line, rest) = line.map_or((&[][..], body), |at| (&body[..at], &body[at + 1..]));
    if flags & 4 == 0 {
        return (headers, body);
    }
    if let Ok(value) = HeaderValue::from_bytes(line) {
        headers.insert("retry-after", value.clone());
        headers.insert("request-id", value);
    }
    (headers, rest)
}

/// What is read of an object is what the body says, by another reader.
fn check_answer(status: u16, body: &[u8], phase: Phase, answer: &Answer) {
    match answer {
        Answer::Object { object, .. } => {
            assert_eq!(status, 200);
            check_object(&Json::of(body), object);
        }
        Answer::Refused { failure, .. } => {
            assert!(matches!(status, 400 | 402 | 404));
            assert!(!failure.code.is_empty() && !failure.message.is_empty());
        }
        Answer::NotFound => assert!(status == 404 && phase != Phase::Prepare),
        Answer::Rejected { .. } => assert!(matches!(status, 400 | 404)),
        Answer::Denied => assert_eq!(status, 401),
        Answer::Forbidden => assert_eq!(status, 403),
        Answer::RateLimited { retry_after } => {
            assert_eq!(status, 429);
            assert!(retry_after.is_none_or(|wait| wait <= Duration::from_hours(1)));
        }
        Answer::NotSent => panic!("an answer came"),
        Answer::Unclear { .. } => {}
    }
}

fn check_object(json: &Json, object: &Object) {
    assert_eq!(json.at(&["id"]), object.id.as_str());
    assert_eq!(json.at(&["amount"]), object.amount);
    let currency = json.at(&["currency"]);
    assert!(
        currency
            .as_str()
            .is_some_and(|code| code.eq_ignore_ascii_case(&object.currency))
    );
    assert_eq!(stamp(json).as_str(), object.stamp.as_deref());
    let status = json.at(&["status"]);
    assert_eq!(
        object.status == ObjectStatus::Succeeded,
        status == "succeeded"
    );
    assert_eq!(
        object.status == ObjectStatus::Canceled,
        status == "canceled"
    );
    if object.status == ObjectStatus::Succeeded {
        assert_eq!(json.at(&["amount_received"]), object.amount_received);
    }
}

fn stamp(json: &Json) -> Value {
    json.at(&["metadata", "payonce_charge_id"])
}

/// What follows from it.
fn check_step(status: u16, body: &[u8], phase: Phase, answer: Answer, cancel_requested: bool) {
    let asked = Asked {
        amount: 1999,
        currency: "usd".to_owned(),
        stamp: STAMP.to_owned(),
    };
    let canceling = (phase == Phase::Cancel).then_some(&Reason::Client);
    let context = Context {
        asked: &asked,
        canceling,
        cancel_requested,
        action_expired: false,
        looked: false,
    };
    let refused = matches!(answer, Answer::Refused { .. });
    let json = Json::of(body);
    let says = |word: &str| status == 200 && json.at(&["status"]) == word;
    let is_ours = || {
        let currency = json.at(&["currency"]);
        stamp(&json) == STAMP
            && currency
                .as_str()
                .is_some_and(|code| code.eq_ignore_ascii_case("usd"))
    };
    match decide(phase, answer, context) {
        Step::Succeed(object) => {
            assert!(says("succeeded") && is_ours());
            assert_eq!(json.at(&["amount_received"]), 1999);
            assert_eq!(json.at(&["id"]), object.as_str());
        }
        // A refusal to make an object at all, or an object that is canceled.
        Step::Fail(..) => {
            let unmade = phase == Phase::Prepare && refused;
            assert!(unmade || (says("canceled") && is_ours()));
        }
        Step::Canceled(_) => assert!(says("canceled") && is_ours()),
        Step::Execute(object) => {
            assert!(status == 200 && is_ours() && !says("succeeded") && !says("canceled"));
            assert_eq!(json.at(&["id"]), object.as_str());
        }
        Step::Cancel(_) | Step::Read | Step::Look | Step::Wait { .. } | Step::Park { .. } => {}
    }
}

fn check_page(status: u16, headers: &HeaderMap, body: &[u8]) {
    match wire::decode_page(status, headers, body) {
        Ok(page) => {
            assert_eq!(status, 200);
            let json = Json::of(body);
            assert_eq!(json.at(&["has_more"]), page.next.is_some());
            // Each in its order, and none left out that has a stamp of ours.
            let all = json.items(&["data"]).into_iter().filter_map(|json| {
                let charge: ChargeId = stamp(&json).as_str()?.parse().ok()?;
                Some((charge, json))
            });
            let all: Vec<_> = all.collect();
            assert_eq!(all.len(), page.objects.len());
            for ((charge, object), (told, json)) in page.objects.iter().zip(&all) {
                assert_eq!(charge, told);
                check_object(json, object);
            }
        }
        Err(answer) => assert!(!matches!(*answer, Answer::Object { .. } | Answer::NotSent)),
    }
}

fn check_refund(json: &Json, refund: &RefundObject) {
    assert_eq!(json.at(&["id"]), refund.id.as_str());
    assert_eq!(json.at(&["amount"]), refund.amount);
    let currency = json.at(&["currency"]);
    let currency = currency.as_str().map(str::to_ascii_lowercase);
    assert_eq!(currency.as_deref(), Some(refund.currency.as_str()));
    let stamp = json.at(&["metadata", "payonce_refund_id"]);
    assert_eq!(stamp.as_str(), refund.stamp.as_deref());
    let status = json.at(&["status"]);
    for (known, word) in [
        (RefundStatus::Succeeded, "succeeded"),
        (RefundStatus::Failed, "failed"),
        (RefundStatus::Canceled, "canceled"),
    ] {
        assert_eq!(refund.status == known, status == word);
    }
}

fn check_refunds(status: u16, headers: &HeaderMap, body: &[u8]) {
    let Ok(page) = wire::decode_refunds(status, headers, body) else {
        return;
    };
    assert_eq!(status, 200);
    let json = Json::of(body);
    assert_eq!(json.at(&["has_more"]), page.next.is_some());
    let all = json.items(&["data"]);
    let all: Vec<_> = all
        .iter()
        .filter(|json| !json.at(&["payment_intent"]).is_null())
        .collect();
    assert_eq!(all.len(), page.refunds.len());
    for (refund, json) in page.refunds.iter().zip(all) {
        check_refund(json, refund);
    }
}
