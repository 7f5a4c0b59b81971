//! Errors by status and code.

use std::time::Duration;

use super::*;

#[test]
fn documented_final_refusals_are_refused_whatever_their_status() {
    for (status, code, param, ours) in [
        (400, "amount_too_small", "amount", "amount_too_small"),
        (400, "amount_too_large", "amount", "amount_too_large"),
        (
            400,
            "resource_missing",
            "payment_method",
            "payment_method_unknown",
        ),
        (
            404,
            "resource_missing",
            "payment_method",
            "payment_method_unknown",
        ),
        (400, "resource_missing", "customer", "customer_unknown"),
        (404, "resource_missing", "customer", "customer_unknown"),
        (
            400,
            "payment_method_unactivated",
            "",
            "payment_method_unactivated",
        ),
        (
            400,
            "card_decline_rate_limit_exceeded",
            "",
            "card_decline_rate_limit_exceeded",
        ),
        (
            402,
            "payment_intent_action_required",
            "",
            "authentication_required",
        ),
        (400, "url_invalid", "return_url", "url_invalid"),
        (400, "", "payment_method", "declined"),
    ] {
        for phase in [Phase::Prepare, Phase::Execute] {
            let failure = refusal(answer(
                status,
                &error("invalid_request_error", code, param),
                phase,
            ));
            assert_eq!(failure.code, ours, "{status} {code} {param}");
        }
    }
}

#[test]
fn a_missing_object_is_not_found_once_there_was_one() {
    let body = error("invalid_request_error", "resource_missing", "intent");
    for phase in [Phase::Execute, Phase::Read, Phase::Cancel] {
        assert_eq!(answer(404, &body, phase), Answer::NotFound);
        assert_eq!(
            answer_with(404, &[("idempotent-replayed", "true")], &body, phase),
            Answer::Unclear {
                reason: Unclear::ServerError,
                replayed: true
            }
        );
    }
    assert!(matches!(
        answer(404, &body, Phase::Prepare),
        Answer::Rejected { .. }
    ));
    let unknown_route =
        r#"{"error":{"type":"invalid_request_error","message":"Unrecognized request URL"}}"#;
    assert!(matches!(
        answer(404, unknown_route, Phase::Read),
        Answer::Rejected { .. }
    ));
    assert_eq!(
        answer(404, "<html>", Phase::Read),
        unclear(Unclear::Unreadable)
    );
}

#[test]
fn another_bad_request_is_ours_and_names_no_value() {
    let body = r#"{"error":{"type":"invalid_request_error","code":"parameter_unknown","param":"payment_method","message":"pm_secret"}}"#;
    assert_eq!(
        answer(400, body, Phase::Execute),
        Answer::Rejected {
            detail: "status 400, code parameter_unknown, parameter payment_method".to_owned()
        }
    );
    assert_eq!(
        answer(
            400,
            &error("invalid_request_error", "a b", "<x>"),
            Phase::Prepare
        ),
        Answer::Rejected {
            detail: "status 400".to_owned()
        }
    );
    assert_eq!(
        answer_with(
            400,
            &[("idempotent-replayed", "true")],
            body,
            Phase::Execute
        ),
        Answer::Unclear {
            reason: Unclear::ServerError,
            replayed: true
        }
    );
}

#[test]
fn what_says_nothing_about_the_money_is_unclear() {
    let invalid = |code: &str| error("invalid_request_error", code, "");
    for (status, body, reason) in [
        (
            400,
            invalid("payment_intent_unexpected_state"),
            Unclear::UnexpectedState,
        ),
        (
            400,
            error("idempotency_error", "", ""),
            Unclear::IdempotencyError,
        ),
        (
            409,
            error("idempotency_error", "", ""),
            Unclear::IdempotencyError,
        ),
        (
            409,
            error("idempotency_error", "idempotency_key_in_use", ""),
            Unclear::KeyInUse,
        ),
        (409, invalid("idempotency_key_in_use"), Unclear::KeyInUse),
        (400, invalid("lock_timeout"), Unclear::KeyInUse),
        (409, invalid("lock_timeout"), Unclear::KeyInUse),
        (429, invalid("lock_timeout"), Unclear::KeyInUse),
        (409, invalid("something_else"), Unclear::UnknownStatus),
        (409, String::new(), Unclear::UnknownStatus),
        (400, "<html>".to_owned(), Unclear::Unreadable),
        (400, String::new(), Unclear::Unreadable),
        (400, "{\"error\":\"no\"}".to_owned(), Unclear::Unreadable),
        (400, error("novel_error", "", ""), Unclear::Unreadable),
        (402, "<html>".to_owned(), Unclear::Unreadable),
        (402, error("novel_error", "x", ""), Unclear::UnknownStatus),
        (402, invalid("x"), Unclear::UnknownStatus),
        (400, error("api_error", "", ""), Unclear::ServerError),
        (500, String::new(), Unclear::ServerError),
        (502, "<html>".to_owned(), Unclear::ServerError),
        (
            503,
            error("card_error", "card_declined", ""),
            Unclear::ServerError,
        ),
        (599, String::new(), Unclear::ServerError),
        (301, String::new(), Unclear::Redirect),
        (307, intent("succeeded", ""), Unclear::Redirect),
        (424, invalid("x"), Unclear::UnknownStatus),
        (418, String::new(), Unclear::UnknownStatus),
        (202, intent("succeeded", ""), Unclear::UnknownStatus),
        (204, String::new(), Unclear::UnknownStatus),
        (700, String::new(), Unclear::UnknownStatus),
    ] {
        let expected = unclear(reason);
        for phase in [Phase::Prepare, Phase::Execute] {
            assert_eq!(answer(status, &body, phase), expected, "{status} {body}");
        }
        let replayed = answer_with(
            status,
            &[("idempotent-replayed", "true")],
            &body,
            Phase::Execute,
        );
        assert!(
            matches!(replayed, Answer::Unclear { replayed: true, .. }),
            "{status} {body}: {replayed:?}"
        );
    }
}

#[test]
fn credentials_that_are_not_taken_are_denied() {
    for (status, denied) in [(401, Answer::Denied), (403, Answer::Forbidden)] {
        for body in ["", "<html>", &error("invalid_request_error", "x", "")] {
            assert_eq!(answer(status, body, Phase::Execute), denied);
        }
    }
}

#[test]
fn stripes_wish_for_a_retry_makes_a_client_error_unclear() {
    for status in [400, 401, 402, 404, 424] {
        let body = error("card_error", "card_declined", "");
        assert_eq!(
            answer_with(
                status,
                &[("stripe-should-retry", "true")],
                &body,
                Phase::Execute
            ),
            unclear(Unclear::ServerError)
        );
    }
    assert!(matches!(
        answer_with(429, &[("stripe-should-retry", "true")], "", Phase::Execute),
        Answer::RateLimited { .. }
    ));
}

#[test]
fn a_rate_limit_says_when_to_come_back_if_it_makes_sense() {
    const NOW: &str = "Sun, 29 Nov 2026 20:15:00 GMT";
    for (value, expected) in [
        ("7", Some(7)),
        ("0", Some(0)),
        ("3600", Some(3600)),
        ("86400", Some(3600)),
        ("99999999999999999999999", Some(3600)),
        ("-1", None),
        ("1.5", None),
        ("soon", None),
        ("", None),
        ("Sun, 29 Nov 2026 20:15:30 GMT", Some(30)),
        ("Sun, 29 Nov 2026 20:14:30 GMT", None),
        ("Mon, 29 Nov 2027 20:15:30 GMT", Some(3600)),
    ] {
        assert_eq!(
            answer_with(
                429,
                &[("retry-after", value), ("date", NOW)],
                "",
                Phase::Execute
            ),
            Answer::RateLimited {
                retry_after: expected.map(Duration::from_secs)
            },
            "{value}"
        );
    }
    let no_date = &[("retry-after", "Sun, 29 Nov 2026 20:15:30 GMT")];
    assert_eq!(
        answer_with(429, no_date, "", Phase::Execute),
        Answer::RateLimited { retry_after: None }
    );
}
