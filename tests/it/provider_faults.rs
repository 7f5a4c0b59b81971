//! Each way in which the provider goes wrong, on each of its steps: no silence and no error page ever becomes `failed`,
//! and money moves once at most.

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::support::service::Running;
use crate::support::{TestService, charge_body, until};

/// Every fault that passes by itself. `unsaved_400` is an operator's and has tests of its own.
const PASSING: [&str; 16] = [
    "charge_then_drop",
    "decline_then_drop",
    "drop_before_charge",
    "slow",
    "land_late",
    "error_500_after_charge",
    "error_500_before_charge",
    "key_in_use",
    "rate_limited",
    "unavailable",
    "unauthorized",
    "html",
    "truncated",
    "unknown_status",
    "trickle",
    "forget_keys",
];

/// Calls that end soon, so that a loop over slow answers does too.
pub(crate) const IMPATIENT: [(&str, &str); 3] = [
    ("provider.stripe.timeout", "400ms"),
    ("worker.breaker_cap", "100ms"),
    ("worker.retry_cap", "100ms"),
];

/// Rates, with times that fit [`IMPATIENT`].
pub(crate) fn rates(rates: &Value) -> Value {
    json!({"seed": 7, "slow_ms": 600, "land_late_ms": 100, "rates": rates})
}

/// A charge whose execute met a fault once.
struct Met {
    service: TestService,
    charge: Value,
    executes: Vec<(String, Value)>,
}

impl Met {
    async fn once(fault: &str) -> Self {
        let service = TestService::new().await;
        // Whoever searched would find nothing.
        service
            .ledger
            .settings(json!({"search_lag_ms": 600_000}))
            .await;
        let running = service.run().await;
        let body = charge_body(&format!("pm_sim_{fault}"));
        let accepted = running.client.charge("order-1", &body).await;
        let charge = running.client.terminal(&accepted.id()).await;
        service.provider_is_quiet().await;
        let executes = service.ledger.executes().await;
        running.stop().await;
        Self {
            service,
            charge,
            executes,
        }
    }

    async fn completed_with(self, executes: &[(&str, Value)], attempts: u32) {
        assert_eq!(self.charge["status"], "completed", "{}", self.charge);
        assert_eq!(self.charge["attempts"], attempts);
        let executes: Vec<_> = executes
            .iter()
            .map(|(number, status)| ((*number).to_owned(), status.clone()))
            .collect();
        assert_eq!(self.executes, executes);
        let requests = self.service.ledger.requests().await;
        let path = |request: &Value| request["path"].as_str().unwrap().to_owned();
        assert!(
            !requests
                .iter()
                .any(|request| path(request).contains("/search"))
        );
        assert_eq!(self.service.ledger.charges().await.len(), 1);
        self.service.check_books().await;
    }
}

#[tokio::test]
async fn a_charge_whose_reply_was_lost_is_read_and_not_executed_again() {
    let met = Met::once("charge_then_drop").await;
    met.completed_with(&[("x1", json!("dropped"))], 1).await;
}

#[tokio::test]
async fn a_decline_whose_reply_was_lost_is_read_canceled_and_failed() {
    let Met {
        service,
        charge,
        executes,
    } = Met::once("decline_then_drop").await;
    assert_eq!(charge["status"], "failed");
    assert_eq!(charge["failure"]["code"], "card_declined");
    assert_eq!(executes, [("x1".to_owned(), json!("dropped"))]);
    assert_eq!(service.ledger.objects().await[0]["status"], "canceled");
    service.check_books().await;
}

#[tokio::test]
async fn an_execute_that_was_lost_is_sent_again_under_another_key_once_a_read_shows_so() {
    let met = Met::once("drop_before_charge").await;
    met.completed_with(&[("x1", json!("dropped")), ("x2", json!(200))], 2)
        .await;
}

#[tokio::test]
async fn an_execute_that_answers_after_the_timeout_is_read_and_not_executed_again() {
    let met = Met::once("slow").await;
    met.completed_with(&[("x1", json!(200))], 1).await;
}

/// Its effect lands when the object was executed again already, or makes the next read find it.
#[tokio::test]
async fn an_execute_that_lands_late_moves_money_once() {
    let service = TestService::new().await;
    service.ledger.settings(json!({"land_late_ms": 300})).await;
    let running = service.run().await;
    for method in ["pm_sim_land_late", "pm_sim_land_late_always"] {
        let accepted = running.client.charge(method, &charge_body(method)).await;
        let charge = running.client.terminal(&accepted.id()).await;
        assert_eq!(charge["status"], "completed");
        assert!(charge["attempts"].as_u64().unwrap() >= 2, "{charge}");
    }
    // Nothing shows that a late execute found its object succeeded but the time it takes.
    tokio::time::sleep(std::time::Duration::from_millis(400)).await;
    assert_eq!(service.ledger.charges().await.len(), 2);
    running.stop().await;
    service.check_books().await;
}

#[tokio::test]
async fn an_error_page_after_the_money_moved_is_read_and_not_executed_again() {
    let met = Met::once("error_500_after_charge").await;
    met.completed_with(&[("x1", json!(500))], 1).await;
}

/// The key would replay the error for ever, so the next one is another.
#[tokio::test]
async fn an_error_that_the_provider_keeps_under_the_key_is_left_behind_with_the_key() {
    let met = Met::once("error_500_before_charge").await;
    met.completed_with(&[("x1", json!(500)), ("x2", json!(200))], 2)
        .await;
}

#[tokio::test]
async fn a_key_in_use_is_no_decline() {
    let met = Met::once("key_in_use").await;
    met.completed_with(&[("x1", json!(409)), ("x2", json!(200))], 2)
        .await;
}

#[tokio::test]
async fn a_rate_limited_execute_did_nothing_and_is_sent_again_as_it_was() {
    let met = Met::once("rate_limited").await;
    met.completed_with(&[("x1", json!(429)), ("x1", json!(200))], 1)
        .await;
}

#[tokio::test]
async fn an_unavailable_provider_may_have_executed_and_is_read_first() {
    let met = Met::once("unavailable").await;
    met.completed_with(&[("x1", json!(503)), ("x2", json!(200))], 2)
        .await;
}

#[tokio::test]
async fn an_execute_with_refused_credentials_did_nothing_and_fails_nothing() {
    let met = Met::once("unauthorized").await;
    met.completed_with(&[("x1", json!(401)), ("x1", json!(200))], 1)
        .await;
}

#[tokio::test]
async fn a_page_of_somebody_else_in_place_of_the_answer_is_unclear() {
    let met = Met::once("html").await;
    met.completed_with(&[("x1", json!(200))], 1).await;
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_unclear() {
    let met = Met::once("truncated").await;
    met.completed_with(&[("x1", json!(200))], 1).await;
}

#[tokio::test]
async fn a_status_that_nobody_knows_is_unclear() {
    let met = Met::once("unknown_status").await;
    met.completed_with(&[("x1", json!(200))], 1).await;
}

/// Each byte comes in time and the whole never does.
#[tokio::test]
async fn an_answer_that_trickles_ends_at_the_deadline_of_the_call() {
    let met = Met::once("trickle").await;
    met.completed_with(&[("x1", json!(200))], 1).await;
}

#[tokio::test]
async fn a_provider_that_forgets_its_keys_executes_once_all_the_same() {
    let met = Met::once("forget_keys").await;
    met.completed_with(&[("x1", json!(200))], 1).await;
}

/// A 400 that blames nothing of the payment's: ours to mend, and money unknown until then.
#[tokio::test]
async fn a_refusal_of_a_parameter_of_ours_parks_the_charge_and_fails_nothing() {
    let service = TestService::new().await;
    let process = service.spawn("api,worker,reconciler", &[]).await;
    let body = charge_body("pm_sim_unsaved_400");
    let id = process.client.charge("order-1", &body).await.id();
    assert_eq!(service.parked(&id).await, "request_rejected");
    process.alerted("request_rejected").await;
    process.alerted("jobs_parked").await;
    let charge = process.client.show(&id).await.body;
    assert_eq!(
        (&charge["status"], &charge["money"]),
        (&json!("in_progress"), &json!("unknown"))
    );
    service.check_books().await;
    service.parked_go_on().await;
    let charge = process.client.terminal(&id).await;
    assert_eq!(charge["status"], "completed");
    assert_eq!(service.ledger.executes().await.len(), 2);
    assert!(process.terminate().await);
    service.check_books().await;
}

/// Charges with each method of `faults`, at once. Returns their ids.
async fn charge_each(running: &Running, faults: &[&str]) -> Vec<String> {
    join_all(faults.iter().map(async |fault| {
        let body = charge_body(&format!("pm_sim_{fault}_always"));
        running.client.charge(fault, &body).await.id()
    }))
    .await
}

#[tokio::test]
async fn whatever_meets_every_execute_after_its_effect_leads_to_one_charge() {
    let service = TestService::new().await;
    let running = service.run().await;
    let after = [
        "charge_then_drop",
        "slow",
        "land_late",
        "error_500_after_charge",
        "html",
        "truncated",
        "unknown_status",
        "trickle",
        "forget_keys",
    ];
    for id in charge_each(&running, &after).await {
        let charge = running.client.terminal(&id).await;
        assert_eq!(charge["status"], "completed", "{charge}");
        assert_eq!(service.ledger.times_charged(&id).await, 1);
    }
    running.stop().await;
    service.check_books().await;
}

#[tokio::test]
async fn whatever_meets_every_execute_before_its_effect_never_fails_a_charge() {
    let service = TestService::new().await;
    let running = service
        .run_with(payonce::config::Roles::ALL, &IMPATIENT)
        .await;
    let before = [
        "drop_before_charge",
        "error_500_before_charge",
        "key_in_use",
        "rate_limited",
        "unavailable",
        "unauthorized",
    ];
    for id in charge_each(&running, &before).await {
        until(&format!("{id} was tried often"), async || {
            (service.job(&id).await.attempt >= 6).then_some(())
        })
        .await;
        let charge = running.client.show(&id).await.body;
        assert_eq!(charge["status"], "in_progress", "{charge}");
        assert_eq!(charge["money"], "unknown", "{charge}");
    }
    assert!(service.ledger.charges().await.is_empty());
    running.stop().await;
    service.check_books().await;
}

/// Whether the charge has been tried `times` times, or has ended.
async fn tried(service: &TestService, id: &str, times: i32) {
    until(&format!("{id} was tried"), async || {
        let job = service.jobs(id).await.pop();
        job.is_none_or(|job| job.attempt >= times).then_some(())
    })
    .await;
}

/// Every request of `phase` meets the fault until the charge was tried three times; then the provider is well again.
/// `others` are rates of the other phases that hold meanwhile.
async fn each_fault_on(phase: &str, payment_method: &str, others: &Value, outcome: &str) {
    let service = TestService::new().await;
    let running = service
        .run_with(payonce::config::Roles::ALL, &IMPATIENT)
        .await;
    for fault in PASSING {
        // Declined for good: of prepare, the refusal is replayed and no object was ever made.
        let declined = fault == "decline_then_drop" && matches!(phase, "prepare" | "execute");
        let expected = if declined { "failed" } else { outcome };
        let mut wrong = others.clone();
        wrong[format!("{phase}.{fault}")] = json!(1.0);
        service.ledger.settings(rates(&wrong)).await;
        let body = charge_body(payment_method);
        let id = running.client.charge(fault, &body).await.id();
        tried(&service, &id, 3).await;
        let meanwhile = running.client.show(&id).await.body;
        assert!(
            meanwhile["status"] == "in_progress" || meanwhile["status"] == expected,
            "{phase}.{fault}: {meanwhile}"
        );
        service.ledger.settings(rates(&json!({}))).await;
        let charge = running.client.terminal(&id).await;
        assert_eq!(charge["status"], expected, "{phase}.{fault}: {charge}");
        let times = usize::from(expected == "completed");
        assert_eq!(service.ledger.times_charged(&id).await, times, "{fault}");
    }
    running.stop().await;
    service.check_books().await;
}

#[tokio::test]
async fn whatever_meets_prepare_delays_the_charge_and_no_more() {
    each_fault_on("prepare", "pm_card_visa", &json!({}), "completed").await;
}

#[tokio::test]
async fn whatever_meets_execute_delays_the_charge_and_no_more() {
    each_fault_on("execute", "pm_card_visa", &json!({}), "completed").await;
}

#[tokio::test]
async fn whatever_meets_read_delays_the_charge_and_no_more() {
    let unclear = json!({"execute.charge_then_drop": 1.0});
    each_fault_on("read", "pm_card_visa", &unclear, "completed").await;
}

#[tokio::test]
async fn whatever_meets_cancel_delays_the_failure_and_no_more() {
    each_fault_on("cancel", "pm_card_chargeDeclined", &json!({}), "failed").await;
}

#[tokio::test]
async fn every_attempt_to_prepare_has_one_key_the_charges_id() {
    let service = TestService::new().await;
    let running = service
        .run_with(payonce::config::Roles::ALL, &IMPATIENT)
        .await;
    let unkept = [
        "drop_before_charge",
        "charge_then_drop",
        "key_in_use",
        "unavailable",
        "html",
        "slow",
    ];
    let mut expected = Vec::new();
    for fault in unkept {
        let mut wrong = json!({});
        wrong[format!("prepare.{fault}")] = json!(1.0);
        service.ledger.settings(rates(&wrong)).await;
        let body = charge_body("pm_card_visa");
        let id = running.client.charge(fault, &body).await.id();
        tried(&service, &id, 3).await;
        service.ledger.settings(rates(&json!({}))).await;
        running.client.terminal(&id).await;
        let keys = service.ledger.prepare_keys().await;
        assert!(keys.len() - expected.len() >= 2, "{fault}: {keys:?}");
        expected.resize(keys.len(), id);
        assert_eq!(keys, expected, "{fault}");
    }
    running.stop().await;
    service.check_books().await;
}

#[tokio::test]
async fn a_prepare_whose_error_is_replayed_goes_on_under_numbered_keys() {
    let service = TestService::new().await;
    let running = service.run().await;
    service
        .ledger
        .settings(json!({"rates": {"prepare.error_500_after_charge": 1.0}}))
        .await;
    let body = charge_body("pm_card_visa");
    let id = running.client.charge("order-1", &body).await.id();
    until("a third key", async || {
        let keys = service.ledger.prepare_keys().await;
        keys.iter().any(|key| key.ends_with("-p2")).then_some(())
    })
    .await;
    service.ledger.settings(json!({})).await;
    running.client.terminal(&id).await;
    let mut keys = service.ledger.prepare_keys().await;
    keys.dedup();
    let numbered = (1..keys.len()).map(|number| format!("{id}-p{number}"));
    assert!(
        keys.iter()
            .cloned()
            .eq(std::iter::once(id.clone()).chain(numbered)),
        "{keys:?}"
    );
    assert!(service.ledger.objects().await.len() > 1);
    assert_eq!(service.ledger.times_charged(&id).await, 1);
    running.stop().await;
    service.check_books().await;
}

/// The key was revoked, or the wrong one was configured: nothing fails, somebody is called, few calls go out, and all of
/// it drains once the credentials are good again.
#[tokio::test]
async fn refused_credentials_fail_nothing_and_the_charges_drain_once_they_are_mended() {
    let service = TestService::new().await;
    let process = service.spawn("api,worker,reconciler", &[]).await;
    service
        .ledger
        .settings(json!({"rates": {"prepare.unauthorized": 1.0}}))
        .await;
    let body = charge_body("pm_card_visa");
    let first = process.client.charge("order-0", &body).await.id();
    process.alerted("provider_denied").await;
    let mut ids = vec![first];
    for number in 1..30 {
        let key = format!("order-{number}");
        ids.push(process.client.charge(&key, &body).await.id());
    }
    let before = service.ledger.requests().await.len();
    until("some probes went out", async || {
        (service.ledger.requests().await.len() >= before + 4).then_some(())
    })
    .await;
    // One job probes at a time: in this time each of the thirty would have been tried several times.
    assert!(service.ledger.requests().await.len() < 30);
    for id in &ids {
        let charge = process.client.show(id).await.body;
        assert_eq!(charge["status"], "in_progress");
        assert_eq!(charge["money"], "not_moved");
    }
    service.ledger.settings(json!({})).await;
    for id in &ids {
        assert_eq!(process.client.terminal(id).await["status"], "completed");
    }
    assert!(process.terminate().await);
    service.check_books().await;
}

/// Three hundred charges while one request in five goes wrong, in every way and on every step.
#[tokio::test]
async fn whatever_goes_wrong_at_once_all_charges_end_once_it_stops() {
    let service = TestService::new().await;
    let running = service
        .run_with(payonce::config::Roles::ALL, &IMPATIENT)
        .await;
    let mut wrong = json!({});
    for phase in ["prepare", "execute", "read", "cancel"] {
        for fault in PASSING.iter().chain(&["unsaved_400"]) {
            wrong[format!("{phase}.{fault}")] = json!(0.2 / 17.0);
        }
    }
    service.ledger.settings(rates(&wrong)).await;
    let accepted = join_all((0..300).map(async |number| {
        let method = match number % 6 {
            0 => "pm_card_chargeDeclined",
            _ => "pm_card_visa",
        };
        let key = format!("order-{number}");
        let answer = running
            .client
            .charge_until_accepted(&key, &charge_body(method))
            .await;
        (method, answer.id())
    }))
    .await;
    until("most of them have ended", async || {
        let open = service.count("SELECT count(*) FROM outbox").await;
        (open < 60).then_some(())
    })
    .await;
    service.ledger.settings(json!({})).await;
    until("all of them have ended", async || {
        // What a 400 parked is an operator's.
        service.parked_go_on().await;
        let open = service.count("SELECT count(*) FROM outbox").await;
        (open == 0).then_some(())
    })
    .await;
    for (method, id) in &accepted {
        let charge = running.client.show(id).await.body;
        let times = service.ledger.times_charged(id).await;
        match charge["status"].as_str().unwrap() {
            "completed" => assert_eq!((times, *method), (1, "pm_card_visa")),
            // A visa too, where the provider declined it.
            "failed" => assert_eq!(
                (times, &charge["failure"]["code"]),
                (0, &json!("card_declined"))
            ),
            other => panic!("{id} is {other}"),
        }
    }
    running.stop().await;
    service.check_books().await;
}

/// No answer about an executed object can be read, many times over: nothing is called failed, somebody is called, the
/// others go on, and it completes once an answer is whole.
#[tokio::test]
async fn a_charge_whose_answers_are_never_readable_is_told_and_completes_once_they_are() {
    let service = TestService::new().await;
    let process = service.spawn("api,worker,reconciler", &IMPATIENT).await;
    let client = &process.client;
    service
        .ledger
        .settings(rates(&json!({"read.html": 1.0})))
        .await;
    let methods = ["pm_sim_html_always", "pm_sim_charge_then_drop_always"];
    let mut unreadable = Vec::new();
    for method in methods {
        unreadable.push(client.charge(method, &charge_body(method)).await.id());
    }
    for id in &unreadable {
        tried(&service, id, 8).await;
        let charge = client.show(id).await.body;
        assert_eq!(
            (&charge["stage"], &charge["money"]),
            (&json!("requires_reconciliation"), &json!("unknown"))
        );
    }
    process.alerted("jobs_stuck").await;
    let body = charge_body("pm_card_visa");
    for number in 0..5 {
        let id = client.charge(&format!("order-{number}"), &body).await.id();
        assert_eq!(client.terminal(&id).await["status"], "completed");
    }
    service.ledger.settings(rates(&json!({}))).await;
    for id in &unreadable {
        let charge = client.terminal(id).await;
        assert_eq!(
            (&charge["status"], &charge["attempts"]),
            (&json!("completed"), &json!(1))
        );
    }
    assert!(process.terminate().await);
    assert_eq!(service.ledger.charges().await.len(), 7);
    service.check_books().await;
}
