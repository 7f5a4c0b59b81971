//! From the bytes of a request to what it asks for: its head as the wire sees it, its headers, its body by every rule.

#![no_main]

use http::{HeaderMap, HeaderName, HeaderValue};
use libfuzzer_sys::fuzz_target;
use oracle::check_refusal;
use payonce::domain::idempotency::IdempotencyKey;
use payonce::domain::money::MAX_AMOUNT;
use payonce::domain::request::Instruction;
use payonce::http::body::{self, Judged};
use payonce::http::head_scan::HeadScan;
use payonce::http::problem::ApiError;
use payonce::http::{headers, prefer};
use payonce::provider::stripe::currency::RULES;

fuzz_target!(|bytes: &[u8]| {
    let is_ambiguous = scan(bytes, bytes.len());
    for size in [1, 2, 17] {
        assert_eq!(scan(bytes, size), is_ambiguous);
    }
    // As hyper reads it.
    let mut lines = [httparse::EMPTY_HEADER; 100];
    let mut head = httparse::Request::new(&mut lines);
    let Ok(httparse::Status::Complete(length)) = head.parse(bytes) else {
        return;
    };
    let says = |name: &str| {
        let mut lines = head.headers.iter();
        lines.any(|line| line.name.eq_ignore_ascii_case(name))
    };
    assert_eq!(
        is_ambiguous,
        says("content-length") && says("transfer-encoding")
    );
    let headers = head.headers.iter().filter_map(|line| {
        let name = HeaderName::from_bytes(line.name.as_bytes()).ok()?;
        Some((name, HeaderValue::from_bytes(line.value).ok()?))
    });
    let headers: Vec<_> = headers.collect();
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.append(name, value);
    }
    check_headers(&map);
    check_body(&bytes[length..]);
});

fn scan(bytes: &[u8], size: usize) -> bool {
    let mut scan = HeadScan::default();
    for piece in bytes.chunks(size.max(1)) {
        scan.feed(piece);
    }
    scan.is_ambiguous()
}

fn check_headers(map: &HeaderMap) {
    match headers::idempotency_key(map) {
        Ok(key) => {
            assert_eq!(map.get_all("idempotency-key").iter().count(), 1);
            let text = key.as_str();
            assert!((1..=255).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic()));
            // One key, however it is written.
            for same in [text.to_owned(), format!("\"{text}\""), format!(" {text}\t")] {
                assert_eq!(IdempotencyKey::parse(same.as_bytes()).as_ref(), Ok(&key));
            }
        }
        Err(error) => check_refusal(&error),
    }
    if let Err(error) = headers::json_content(map) {
        check_refusal(&error);
    }
    assert!(prefer::wait(map).is_none_or(|seconds| seconds <= prefer::MOST_SECONDS));
}

fn check_body(bytes: &[u8]) {
    match body::parse(bytes).and_then(|parsed| body::judge(parsed, &RULES)) {
        Ok(Judged::Good(request)) => {
            let draft = request.draft();
            assert!((1..=MAX_AMOUNT).contains(&draft.amount));
            assert!(
                !format!("{draft:?}").contains("\\0"),
                "Postgres takes no NUL"
            );
            // What is frozen for the worker comes back as it went.
            let frozen = serde_json::to_string(&request.instruction()).expect("it is JSON");
            let read: Instruction<'_> = serde_json::from_str(&frozen).expect("it is read");
            assert_eq!(read, request.instruction());
            assert!(read.amount > 0);
        }
        Ok(Judged::Refused(_, violations)) => {
            assert!(!violations.is_empty());
            check_refusal(&ApiError::invalid_request(violations));
        }
        Err(error) => check_refusal(&error),
    }
}
