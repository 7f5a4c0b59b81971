//! What single answers of the provider mean for a charge, from the first request to the books.

use payonce::config::Roles;
use payonce::domain::idempotency::IdempotencyKey;
use payonce::domain::ids::ChargeId;
use serde_json::{Value, json};

use crate::support::service::Running;
use crate::support::{TestService, charge_body, until};

struct Case {
    service: TestService,
    running: Running,
}

impl Case {
    async fn new() -> Self {
        Self::with(&[]).await
    }

    async fn with(settings: &[(&'static str, &str)]) -> Self {
        let service = TestService::new().await;
        let running = service.run_with(Roles::ALL, settings).await;
        Self { service, running }
    }

    async fn accept(&self, body: &Value) -> String {
        let accepted = self.running.client.charge("order-1", body).await;
        assert_eq!(accepted.status, 202, "{accepted:?}");
        accepted.id()
    }

    async fn show(&self, id: &str) -> Value {
        self.running.client.show(id).await.body
    }

    async fn object(&self) -> String {
        let objects = self.service.ledger.objects().await;
        objects[0]["id"].as_str().unwrap().to_owned()
    }

    async fn ends(&self, id: &str, status: &str) -> Value {
        let charge = self.running.client.terminal(id).await;
        assert_eq!(charge["status"], status, "{charge}");
        charge
    }

    /// Parked for `reason`, with the money unknown; then mended, and completed once.
    async fn parks_and_goes_on(self, id: &str, reason: &str) {
        assert_eq!(self.service.parked(id).await, reason);
        let charge = self.show(id).await;
        assert_eq!(
            (&charge["status"], &charge["money"]),
            (&json!("in_progress"), &json!("unknown"))
        );
        self.service.check_books().await;
        self.service.parked_go_on().await;
        self.ends(id, "completed").await;
        assert_eq!(self.service.ledger.times_charged(id).await, 1);
        self.done().await;
    }

    async fn done(self) {
        self.running.stop().await;
        self.service.check_books().await;
    }
}

fn with_return_url() -> Value {
    let mut body = charge_body("pm_card_authenticationRequired");
    body["return_url"] = json!("https://shop.example/back");
    body
}

#[tokio::test]
async fn a_partial_amount_is_a_discrepancy_and_completes_nothing() {
    let case = Case::new().await;
    let id = case.accept(&charge_body("pm_sim_partial")).await;
    assert_eq!(case.service.parked(&id).await, "amount_differs");
    let charge = case.show(&id).await;
    assert_eq!(
        (&charge["status"], &charge["money"]),
        (&json!("in_progress"), &json!("unknown"))
    );
    let found: (String, String, Value) =
        sqlx::query_as("SELECT kind, provider_charge_id, detail FROM discrepancies")
            .fetch_one(&case.service.books)
            .await
            .unwrap();
    assert_eq!(
        (found.0.as_str(), found.1),
        ("amount_differs", case.object().await)
    );
    assert_eq!(found.2["amount_received"], 900);
    // An operator who lets it go on changes nothing: it is looked at, found the same and not written twice.
    case.service.parked_go_on().await;
    assert_eq!(case.service.parked(&id).await, "amount_differs");
    assert_eq!(
        case.service
            .count("SELECT count(*) FROM discrepancies")
            .await,
        1
    );
    assert_eq!(case.service.ledger.executes().await.len(), 1);
    case.done().await;
}

#[tokio::test]
async fn a_customer_who_authenticates_completes_the_charge() {
    let case = Case::new().await;
    let id = case.accept(&with_return_url()).await;
    let acting = case.running.client.at_stage(&id, "requires_action").await;
    assert_eq!(acting["status"], "in_progress");
    let object = case.object().await;
    let url = acting["next_action"]["url"].as_str().unwrap();
    assert!(url.contains(&object), "{url}");
    let again = case
        .running
        .client
        .charge("order-1", &with_return_url())
        .await;
    assert_eq!(
        (again.status, &again.body["next_action"]),
        (200, &acting["next_action"])
    );
    case.service.ledger.authenticate(&object, "success").await;
    let charge = case.ends(&id, "completed").await;
    assert!(charge.get("next_action").is_none_or(Value::is_null));
    assert_eq!(case.service.ledger.executes().await.len(), 1);
    case.done().await;
}

#[tokio::test]
async fn a_customer_who_fails_to_authenticate_fails_the_charge() {
    let case = Case::new().await;
    let id = case.accept(&with_return_url()).await;
    case.running.client.at_stage(&id, "requires_action").await;
    let object = case.object().await;
    case.service.ledger.authenticate(&object, "fail").await;
    let charge = case.ends(&id, "failed").await;
    assert_eq!(charge["failure"]["code"], "authentication_failed");
    assert_eq!(case.service.ledger.objects().await[0]["status"], "canceled");
    case.done().await;
}

#[tokio::test]
async fn a_customer_who_never_comes_back_fails_the_charge_once_the_object_is_canceled() {
    let case = Case::with(&[("worker.action_expiry", "500ms")]).await;
    let id = case.accept(&with_return_url()).await;
    let acting = case.running.client.at_stage(&id, "requires_action").await;
    assert!(acting["next_action"]["expires_at"].is_string(), "{acting}");
    let charge = case.ends(&id, "failed").await;
    assert_eq!(charge["failure"]["code"], "authentication_expired");
    assert_eq!(case.service.ledger.objects().await[0]["status"], "canceled");
    case.done().await;
}

/// The cancel at the expiry meets a success.
#[tokio::test]
async fn a_customer_who_authenticates_as_the_time_runs_out_completes_the_charge() {
    let case = Case::with(&[("worker.action_expiry", "300ms")]).await;
    case.service.ledger.hold("cancel", "before").await;
    let id = case.accept(&with_return_url()).await;
    case.service.ledger.held().await;
    let object = case.object().await;
    case.service.ledger.authenticate(&object, "success").await;
    case.service.ledger.release().await;
    case.ends(&id, "completed").await;
    case.done().await;
}

#[tokio::test]
async fn a_charge_that_needs_a_customer_who_is_not_there_fails_for_that() {
    let case = Case::new().await;
    let id = case
        .accept(&charge_body("pm_card_authenticationRequired"))
        .await;
    let charge = case.ends(&id, "failed").await;
    assert_eq!(charge["failure"]["code"], "authentication_required");
    case.done().await;
}

#[tokio::test]
async fn a_processing_charge_stays_open_until_the_provider_settles_it() {
    for (result, status) in [("succeeded", "completed"), ("failed", "failed")] {
        let case = Case::new().await;
        let id = case.accept(&charge_body("pm_sim_processing")).await;
        until("it was looked at again and again", async || {
            let jobs = case.service.jobs(&id).await;
            jobs.iter().any(|job| job.attempt >= 4).then_some(())
        })
        .await;
        let charge = case.show(&id).await;
        assert_eq!(
            (&charge["stage"], &charge["money"]),
            (&json!("processing"), &json!("unknown"))
        );
        let object = case.object().await;
        case.service.ledger.settle(&object, result).await;
        case.ends(&id, status).await;
        assert_eq!(case.service.ledger.executes().await.len(), 1);
        case.done().await;
    }
}

#[tokio::test]
async fn an_amount_too_small_fails_at_once_with_one_call() {
    let case = Case::new().await;
    let id = case
        .accept(&json!({"amount": 1, "currency": "usd", "payment_method": "pm_card_visa"}))
        .await;
    let charge = case.ends(&id, "failed").await;
    assert_eq!(charge["failure"]["code"], "amount_too_small");
    assert_eq!(charge["attempts"], 0);
    assert_eq!(case.service.ledger.requests().await.len(), 1);
    case.done().await;
}

#[tokio::test]
async fn an_unknown_payment_method_fails_the_charge() {
    let case = Case::new().await;
    let id = case.accept(&charge_body("pm_sim_unknown")).await;
    let charge = case.ends(&id, "failed").await;
    assert_eq!(charge["failure"]["code"], "payment_method_unknown");
    case.done().await;
}

#[tokio::test]
async fn a_redirect_is_never_followed() {
    let case = Case::new().await;
    let location = format!("{}/v1/balance", case.service.ledger.base_url());
    for phase in ["prepare", "execute", "read"] {
        case.service
            .ledger
            .dictate(json!({"phase": phase, "status": 302, "location": location, "effect": true}))
            .await;
    }
    let id = case.accept(&charge_body("pm_card_visa")).await;
    case.ends(&id, "completed").await;
    let requests = case.service.ledger.requests().await;
    let redirected = |request: &&Value| request["status"] == 302;
    assert_eq!(requests.iter().filter(redirected).count(), 3);
    assert!(
        requests
            .iter()
            .all(|request| request["path"] != "/v1/balance")
    );
    assert_eq!(case.service.ledger.executes().await.len(), 1);
    case.done().await;
}

fn missing() -> String {
    json!({"error": {
        "type": "invalid_request_error",
        "code": "resource_missing",
        "param": "intent",
        "message": "No such payment_intent",
    }})
    .to_string()
}

#[tokio::test]
async fn a_stored_object_that_a_read_does_not_find_parks_the_charge() {
    let case = Case::new().await;
    case.service
        .ledger
        .dictate(json!({"phase": "read", "status": 404, "body": missing()}))
        .await;
    let id = case.accept(&charge_body("pm_sim_charge_then_drop")).await;
    case.parks_and_goes_on(&id, "object_not_found").await;
}

#[tokio::test]
async fn a_stored_object_that_execute_does_not_find_parks_the_charge() {
    let case = Case::new().await;
    case.service
        .ledger
        .dictate(json!({"phase": "execute", "status": 404, "body": missing()}))
        .await;
    let id = case.accept(&charge_body("pm_card_visa")).await;
    case.parks_and_goes_on(&id, "object_not_found").await;
}

/// As a proxy says it, without Stripe's words: that proves nothing.
#[tokio::test]
async fn a_404_in_nobodys_words_is_unclear() {
    let case = Case::new().await;
    for phase in ["execute", "read"] {
        case.service
            .ledger
            .dictate(json!({"phase": phase, "status": 404, "body": "not here", "effect": true}))
            .await;
    }
    let id = case.accept(&charge_body("pm_card_visa")).await;
    case.ends(&id, "completed").await;
    assert_eq!(case.service.ledger.executes().await.len(), 1);
    case.done().await;
}

#[tokio::test]
async fn a_forbidden_stored_object_waits_and_fails_nothing() {
    let case = Case::new().await;
    let body = json!({"error": {"type": "invalid_request_error", "message": "no"}}).to_string();
    case.service
        .ledger
        .dictate(json!({"phase": "read", "status": 403, "body": body, "times": 3}))
        .await;
    let id = case.accept(&charge_body("pm_sim_charge_then_drop")).await;
    until("it was denied", async || {
        let requests = case.service.ledger.requests().await;
        requests
            .iter()
            .any(|request| request["status"] == 403)
            .then_some(())
    })
    .await;
    assert_ne!(case.show(&id).await["status"], "failed");
    case.ends(&id, "completed").await;
    assert_eq!(case.service.ledger.executes().await.len(), 1);
    case.done().await;
}

#[tokio::test]
async fn a_failed_dependency_of_the_provider_is_unclear_whether_or_not_it_executed() {
    for effect in [true, false] {
        let case = Case::new().await;
        case.service
            .ledger
            .dictate(json!({"phase": "execute", "status": 424, "effect": effect}))
            .await;
        let id = case.accept(&charge_body("pm_card_visa")).await;
        let charge = case.ends(&id, "completed").await;
        assert_eq!(charge["attempts"], if effect { 1 } else { 2 });
        assert_eq!(case.service.ledger.times_charged(&id).await, 1);
        case.done().await;
    }
}

/// A cancel that is refused says nothing: the object is read, and what it says decides.
#[tokio::test]
async fn a_charge_is_not_failed_while_its_object_can_still_move_money() {
    let case = Case::new().await;
    case.service
        .ledger
        .dictate(json!({"phase": "cancel", "status": 424, "times": 4}))
        .await;
    let id = case.accept(&charge_body("pm_card_chargeDeclined")).await;
    until("the cancel was refused", async || {
        let requests = case.service.ledger.requests().await;
        let refused = requests.iter().filter(|request| request["status"] == 424);
        (refused.count() >= 2).then_some(())
    })
    .await;
    let charge = case.ends(&id, "failed").await;
    assert_eq!(charge["failure"]["code"], "card_declined");
    let requests = case.service.ledger.requests().await;
    let refused = requests.iter().filter(|request| request["status"] == 424);
    assert_eq!(refused.count(), 4);
    case.done().await;
}

/// What execute is answered with, in the object's own form.
fn said(id: &str, status: &str, received: i64, currency: &str) -> String {
    json!({
        "id": "pi_said", "object": "payment_intent", "status": status, "amount": 1000, "amount_received": received,
        "currency": currency, "metadata": {"payonce_charge_id": id},
    })
    .to_string()
}

impl Case {
    /// The id that the charge is going to have.
    fn id(&self) -> String {
        let key = IdempotencyKey::parse(b"order-1").unwrap();
        ChargeId::derive(self.service.merchant, &key).to_string()
    }

    async fn execute_answers(&self, status: u16, body: &str, effect: bool) {
        let answer = json!({"phase": "execute", "status": status, "body": body, "effect": effect});
        self.service.ledger.dictate(answer).await;
    }
}

/// More than was asked for, or in other money, is no completion, whoever says so.
#[tokio::test]
async fn a_success_with_more_money_or_in_another_currency_completes_nothing() {
    for (received, currency, reason) in [
        (2000, "usd", "amount_differs"),
        (1000, "eur", "currency_differs"),
    ] {
        let case = Case::new().await;
        let id = case.id();
        let body = said(&id, "succeeded", received, currency);
        case.execute_answers(200, &body, true).await;
        assert_eq!(case.accept(&charge_body("pm_card_visa")).await, id);
        assert_eq!(case.service.parked(&id).await, reason);
        let detail: Value = sqlx::query_scalar("SELECT detail FROM discrepancies")
            .fetch_one(&case.service.books)
            .await
            .unwrap();
        assert_eq!(
            (&detail["amount_received"], &detail["currency"]),
            (&json!(received), &json!(currency))
        );
        case.parks_and_goes_on(&id, reason).await;
    }
}

/// Dressed as a success or as a refusal, and neither: the object is read.
#[tokio::test]
async fn an_answer_that_only_looks_like_an_end_is_unclear_whether_or_not_it_executed() {
    let error = |kind: &str| json!({"error": {"type": kind, "code": "novel"}}).to_string();
    for effect in [true, false] {
        for number in 0..6 {
            let case = Case::new().await;
            let id = case.id();
            let (status, body) = match number {
                0 => (200, said(&id, "failed", 0, "usd")),
                1 => (200, json!({"status": "failed"}).to_string()),
                2 => (202, json!({"status": "REJECT"}).to_string()),
                3 => (202, said(&id, "succeeded", 1000, "usd")),
                4 => (402, error("novel_error")),
                _ => (409, error("invalid_request_error")),
            };
            case.execute_answers(status, &body, effect).await;
            case.accept(&charge_body("pm_card_visa")).await;
            let charge = case.ends(&id, "completed").await;
            assert_eq!(charge["attempts"], if effect { 1 } else { 2 }, "{body}");
            assert_eq!(case.service.ledger.times_charged(&id).await, 1);
            case.done().await;
        }
    }
}

/// It has the status of a bad request of ours.
#[tokio::test]
async fn a_decline_in_a_400_fails_the_charge_once_its_object_is_canceled() {
    let case = Case::new().await;
    let declined = json!({"error": {
        "type": "invalid_request_error", "code": "card_decline_rate_limit_exceeded", "message": "Too often.",
    }});
    case.execute_answers(400, &declined.to_string(), false)
        .await;
    let id = case.accept(&charge_body("pm_card_visa")).await;
    let charge = case.ends(&id, "failed").await;
    assert_eq!(
        (
            &charge["failure"]["code"],
            &charge["failure"]["advice"],
            &charge["money"]
        ),
        (
            &json!("card_decline_rate_limit_exceeded"),
            &json!("try_again_later"),
            &json!("not_moved")
        )
    );
    assert_eq!(case.service.ledger.objects().await[0]["status"], "canceled");
    assert_eq!(case.service.ledger.executes().await.len(), 1);
    case.done().await;
}
