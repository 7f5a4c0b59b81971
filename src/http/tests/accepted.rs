//! Requests that reach intake, and what becomes of each verdict.

use super::*;

#[tokio::test]
async fn the_first_request_is_202_and_a_duplicate_200_with_the_same_charge() {
    let rig = Rig::new();
    let body = r#"{"id":"chg_1a8bb9ca44e856c8a8d3a6dba8275373","idempotency_key":"order-42","version":1,"status":"in_progress","stage":"pending","money":"not_moved","amount":1999,"amount_refunded":0,"currency":"usd","payment_method":"pm_card_visa","metadata":{},"live":false,"provider":"stripe","attempts":0,"created_at":"2026-11-29T20:15:00.104233Z","updated_at":"2026-11-29T20:15:00.000000Z"}"#;
    let created = rig.told(Ok(Verdict::Created(charge()))).await;
    assert_eq!(created.status(), StatusCode::ACCEPTED);
    let headers = created.headers();
    assert_eq!(
        headers["location"],
        "/v1/charges/chg_1a8bb9ca44e856c8a8d3a6dba8275373"
    );
    assert_eq!(headers["content-type"], "application/json");
    assert_eq!(headers["cache-control"], "no-store");
    assert!(headers.contains_key("x-request-id"));
    assert!(!headers.contains_key("idempotent-replayed"));
    assert_eq!(text_of(created).await, body);

    let duplicate = rig.told(Ok(Verdict::Duplicate(charge()))).await;
    assert_eq!(duplicate.status(), StatusCode::OK);
    assert_eq!(duplicate.headers()["idempotent-replayed"], "true");
    assert!(duplicate.headers().contains_key("location"));
    assert_eq!(text_of(duplicate).await, body);
}

#[tokio::test]
async fn a_reused_key_names_the_charge_and_the_fields_and_no_value() {
    let rig = Rig::new();
    let verdict = Verdict::Reused {
        charge: charge().id,
        differences: vec!["#/amount".to_owned()],
    };
    let (status, problem) = problem_of(rig.told(Ok(verdict)).await).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(problem["code"], "idempotency_key_reused");
    assert_eq!(problem["retry"], "never");
    assert_eq!(problem["charge_id"], charge().id.to_string());
    assert_eq!(problem["errors"][0]["pointer"], "#/amount");
    assert!(!problem.to_string().contains("1999"));
}

#[tokio::test]
async fn what_intake_can_not_do_is_told_as_it_is() {
    let rig = Rig::new();
    let id = charge().id;
    for (error, code, named) in [
        (IntakeError::Overloaded, "overloaded", false),
        (IntakeError::Unavailable, "unavailable", false),
        (
            IntakeError::AcceptanceUnknown(id),
            "acceptance_unknown",
            true,
        ),
    ] {
        let (status, problem) = problem_of(rig.told(Err(error)).await).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(problem["code"], code);
        assert_eq!(problem["retry"], "same_request");
        assert_eq!(problem.get("charge_id").is_some(), named);
    }
}

#[tokio::test]
async fn a_verdict_that_does_not_come_is_acceptance_unknown_and_the_next_finds_the_queue_full() {
    let rig = Rig::new();
    let (status, problem) = rig.refusal(rig.post().body(GOOD.into()).unwrap()).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(problem["code"], "acceptance_unknown");
    assert_eq!(problem["charge_id"], charge().id.to_string());
    let (_, problem) = rig.refusal(rig.post().body(GOOD.into()).unwrap()).await;
    assert_eq!(problem["code"], "overloaded");
}
