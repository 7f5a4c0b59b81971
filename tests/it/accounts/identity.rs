//! Nothing is sent with a key of another of the provider's accounts than its name stands for.

use payonce::config::Roles;
use serde_json::{Value, json};

use super::{ACME, AT_ACME, HERE};
use crate::operator::{Said, payonce_with};
use crate::support::provider_proxy::Closed;
use crate::support::service::{API, TestSettings};
use crate::support::{TestService, charge_body, until};

const WHOLE: &str = "api,worker,reconciler";

/// What an operator mixed up.
const EXCHANGED: TestSettings<'static> = &[
    ("provider.stripe.secret_key", "sk_test_acme"),
    ("provider.stripe.accounts.acme.secret_key", "sk_test_it"),
];
/// One of the two is another account's.
const OTHER_ACME: TestSettings<'static> =
    &[("provider.stripe.accounts.acme.secret_key", "sk_test_other")];
const OTHER_DEFAULT: TestSettings<'static> = &[
    ("provider.stripe.secret_key", "sk_test_other"),
    ("provider.stripe.accounts.acme.secret_key", "sk_test_acme"),
];

impl TestService {
    /// What each name stands for.
    async fn pins(&self) -> Vec<(String, String)> {
        sqlx::query_as("SELECT name, account_id FROM provider_accounts ORDER BY name")
            .fetch_all(&self.books)
            .await
            .unwrap()
    }

    async fn pin_of(&self, name: &str) -> String {
        let pins = self.pins().await;
        let pin = pins.into_iter().find(|(pinned, _)| pinned == name);
        pin.unwrap_or_else(|| panic!("{name} is not pinned")).1
    }

    /// Runs with the right keys until both names are pinned. Returns the token of a merchant on `acme`.
    async fn pinned(&self) -> String {
        let (_, token) = self.make_merchant_on("acme", "acme").await;
        let running = self.run_with(Roles::ALL, ACME).await;
        until("both are pinned", async || {
            (self.pins().await.len() == 2).then_some(())
        })
        .await;
        running.stop().await;
        token
    }

    async fn job_attempts(&self) -> Vec<i32> {
        sqlx::query_scalar("SELECT attempt FROM outbox")
            .fetch_all(&self.books)
            .await
            .unwrap()
    }
}

fn refused(said: &Said) {
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.err.contains("is pinned to acct_"), "{said:?}");
}

#[tokio::test]
async fn exchanged_keys_charge_nobody_and_say_so_and_all_goes_on_when_they_are_put_right() {
    let service = TestService::new().await;
    let token = service.pinned().await;
    let exchanged = service.spawn(WHOLE, EXCHANGED).await;
    let body = charge_body("pm_card_visa");
    let here = exchanged.client.charge("order-1", &body).await.id();
    let acme = exchanged.client.with_token(&token);
    let at_acme = acme.charge("order-1", &body).await.id();
    service.want_sweep().await;
    for (name, other) in [("default", "acme"), ("acme", "default")] {
        let line = exchanged.logged_of("account_mismatch", name).await;
        assert_eq!(line["level"], "ERROR");
        assert_eq!(line["pinned.account_id"], service.pin_of(name).await);
        assert_eq!(line["key.account_id"], service.pin_of(other).await);
    }
    until("the sweep was refused", async || {
        let failed = "SELECT count(*) FROM sweeps WHERE last_error LIKE '%is pinned to%'";
        (service.count(failed).await > 0).then_some(())
    })
    .await;
    for arguments in [
        &["reconcile", "--since", "1h"][..],
        &[
            "charges", "resolve", &here, "--as", "failed", "--reason", "r", "--yes",
        ],
    ] {
        refused(&payonce_with(&service, EXCHANGED, arguments).await);
    }
    assert_eq!(service.job_attempts().await, [0, 0]);
    assert!(service.ledger.requests().await.is_empty());
    assert_eq!(service.count("SELECT count(*) FROM discrepancies").await, 0);
    // Once a minute, however often it is seen.
    assert_eq!(exchanged.times_logged("account_mismatch"), 2);
    assert!(exchanged.terminate().await);

    let running = service.run_with(Roles::ALL, ACME).await;
    for (id, token, its) in [(&here, &service.token, HERE), (&at_acme, &token, AT_ACME)] {
        let client = running.client.with_token(token);
        assert_eq!(client.terminal(id).await["status"], "completed");
        assert_eq!(service.accounts_with_object(id).await, [its]);
    }
    running.stop().await;
    service.check_books().await;
}

#[tokio::test]
async fn an_account_with_another_ones_key_keeps_no_other_waiting() {
    for (settings, stuck, its) in [
        (OTHER_ACME, "acme", HERE),
        (OTHER_DEFAULT, "default", AT_ACME),
    ] {
        let service = TestService::new().await;
        let token = service.pinned().await;
        let running = service.spawn(WHOLE, settings).await;
        let acme = running.client.with_token(&token);
        let (waits, goes) = if stuck == "acme" {
            (&acme, &running.client)
        } else {
            (&running.client, &acme)
        };
        let body = charge_body("pm_card_visa");
        let waiting = waits.charge("order-1", &body).await.id();
        running.logged_of("account_mismatch", stuck).await;
        for number in 0..5 {
            let id = goes.charge(&format!("order-{number}"), &body).await.id();
            assert_eq!(goes.terminal(&id).await["status"], "completed");
            assert_eq!(service.accounts_charged(&id).await, [its]);
        }
        assert_eq!(waits.show(&waiting).await.body["stage"], "pending");
        assert_eq!(service.job_attempts().await, [0]);
        assert!(running.terminate().await);
    }
}

fn forbidden(message: &str) -> Value {
    let body = json!({"error": {"type": "invalid_request_error", "message": message}});
    json!({"phase": "account", "status": 403, "body": body.to_string()})
}

#[tokio::test]
async fn a_restricted_key_that_may_not_ask_whose_it_is_works_and_is_told_of_once() {
    let service = TestService::new().await;
    service.ledger.dictate(forbidden("You may not.")).await;
    let restricted = [("provider.stripe.secret_key", "rk_test_it")];
    let running = service.spawn(WHOLE, &restricted).await;
    for number in 0..3 {
        let (key, body) = (format!("order-{number}"), charge_body("pm_card_visa"));
        let id = running.client.charge(&key, &body).await.id();
        assert_eq!(running.client.terminal(&id).await["status"], "completed");
    }
    running.logged("WARN", "account_unverified").await;
    assert_eq!(running.times_logged("account_unverified"), 1);
    assert_eq!(service.pins().await, []);
    assert!(running.terminate().await);
    service.check_books().await;
}

/// Stripe's refusal names the account that the key is of.
#[tokio::test]
async fn a_restricted_key_that_may_not_ask_is_still_known_by_what_the_refusal_names() {
    let service = TestService::new().await;
    service.pinned().await;
    let message = "The provided key 'rk_test_*****' does not have the required permissions for this endpoint on account \
                   'acct_another'.";
    service.ledger.dictate(forbidden(message)).await;
    let restricted = [("provider.stripe.secret_key", "rk_test_another")];
    let running = service.spawn(WHOLE, &restricted).await;
    let line = running.logged_of("account_mismatch", "default").await;
    assert_eq!(line["key.account_id"], "acct_another");
    assert!(running.terminate().await);
}

#[tokio::test]
async fn a_provider_that_is_down_when_a_process_starts_delays_charges_and_loses_none() {
    let service = TestService::new().await;
    let down = Closed::reserve();
    let base_url = down.base_url();
    let settings = [
        ("provider.stripe.base_url", base_url.as_str()),
        ("worker.breaker_threshold", "3"),
    ];
    let running = service.spawn(WHOLE, &settings).await;
    let body = charge_body("pm_card_visa");
    let id = running.client.charge("order-1", &body).await.id();
    running.logged("ERROR", "provider_ailing").await;
    assert_eq!(service.job_attempts().await, [0]);
    let _proxy = down.open(service.ledger.address);
    assert_eq!(running.client.terminal(&id).await["status"], "completed");
    assert!(running.terminate().await);
    service.check_books().await;
}

/// Answers that say nothing of the key, one after the other, and the true one at last.
#[tokio::test]
async fn whatever_is_answered_in_the_place_of_an_account_opens_nothing() {
    let service = TestService::new().await;
    let missing =
        json!({"error": {"type": "invalid_request_error", "message": "Unrecognized request URL"}});
    for (status, body) in [
        (200, "{}".to_owned()),
        (200, r#"{"id":"pi_1"}"#.to_owned()),
        (403, "<html>Forbidden</html>".to_owned()),
        (404, missing.to_string()),
        (302, String::new()),
        (500, "{}".to_owned()),
        (429, "{}".to_owned()),
    ] {
        let answer = json!({"phase": "account", "status": status, "body": body});
        service.ledger.dictate(answer).await;
    }
    service.ledger.hold("account", "before").await;
    let running = service.run().await;
    let body = charge_body("pm_card_visa");
    let id = running.client.charge("order-1", &body).await.id();
    service.ledger.held().await;
    assert!(service.ledger.requests().await.is_empty());
    assert_eq!(service.job_attempts().await, [0]);
    service.ledger.release().await;
    assert_eq!(running.client.terminal(&id).await["status"], "completed");
    running.stop().await;
    service.check_books().await;
}

#[tokio::test]
async fn a_pin_stays_until_it_is_forgotten_and_the_next_key_pins_anew() {
    let service = TestService::new().await;
    service.pinned().await;
    let was = service.pins().await;
    let running = service.run_with(Roles::ALL, ACME).await;
    let body = charge_body("pm_card_visa");
    let id = running.client.charge("order-1", &body).await.id();
    running.client.terminal(&id).await;
    running.stop().await;
    assert_eq!(service.pins().await, was);

    // Another account, and a charge that waits.
    let other = [("provider.stripe.secret_key", "sk_test_other")];
    let api = service.run_with(API, &other).await;
    let id = api.client.charge("order-2", &body).await.id();
    api.stop().await;
    let forget = async |arguments: &[&str]| {
        let arguments = [&["accounts", "forget"], arguments].concat();
        payonce_with(&service, &other, &arguments).await
    };
    let said = forget(&["nobody", "--yes"]).await;
    assert!(
        said.code == 1 && said.err.contains("acme, default"),
        "{said:?}"
    );
    let said = forget(&["default"]).await;
    let refused = "1 charges and 0 refunds of the account `default` are under way";
    assert!(said.code == 1 && said.err.contains(refused), "{said:?}");
    assert_eq!(service.pins().await, was);
    let said = forget(&["default", "--yes"]).await;
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.err.contains("account_forgotten"), "{said:?}");
    assert!(said.out.contains(&was[1].1), "{said:?}");

    let running = service.run_with(Roles::ALL, &other).await;
    running.client.terminal(&id).await;
    assert_eq!(service.accounts_charged(&id).await, ["sk_test_…ther"]);
    assert_ne!(service.pin_of("default").await, was[1].1);
    running.stop().await;
    service.check_books().await;
}

/// Each has another key: one of them is first, and the other one sends nothing.
#[tokio::test]
async fn of_two_processes_that_pin_at_once_with_keys_of_two_accounts_one_sends() {
    for _ in 0..3 {
        let service = TestService::new().await;
        let api = service.run_with(API, &[]).await;
        let mut ids = Vec::new();
        for number in 0..20 {
            let (key, body) = (format!("order-{number}"), charge_body("pm_card_visa"));
            ids.push(api.client.charge(&key, &body).await.id());
        }
        let other = [("provider.stripe.secret_key", "sk_test_other")];
        let (one, two) = tokio::join!(
            service.run_with(Roles::ALL, &[]),
            service.run_with(Roles::ALL, &other),
        );
        service.drained().await;
        let mut charged = Vec::new();
        for id in &ids {
            charged.extend(service.accounts_charged(id).await);
        }
        assert_eq!(charged.len(), ids.len());
        charged.dedup();
        assert_eq!(charged.len(), 1, "{charged:?}");
        assert_eq!(service.pins().await.len(), 1);
        for running in [api, one, two] {
            running.stop().await;
        }
    }
}

#[tokio::test]
async fn two_processes_that_pin_at_once_with_one_key_both_send() {
    let service = TestService::new().await;
    let settings = [("worker.permits", "1")];
    let (one, two) = tokio::join!(
        service.run_with(Roles::ALL, &settings),
        service.run_with(Roles::ALL, &settings),
    );
    service.ledger.hold("prepare", "before").await;
    let body = charge_body("pm_card_visa");
    let held = one.client.charge("order-1", &body).await.id();
    service.ledger.held().await;
    // One holds it and can begin no other.
    let id = one.client.charge("order-2", &body).await.id();
    assert_eq!(one.client.terminal(&id).await["status"], "completed");
    service.ledger.release().await;
    one.client.terminal(&held).await;
    assert_eq!(service.pins().await.len(), 1);
    one.stop().await;
    two.stop().await;
    service.check_books().await;
}

#[tokio::test]
async fn one_account_under_two_names_is_used_under_the_first() {
    let service = TestService::new().await;
    let token = service.pinned().await;
    sqlx::query("UPDATE provider_accounts SET name = 'before' WHERE name = 'acme'")
        .execute(&service.books)
        .await
        .unwrap();
    let running = service.spawn(WHOLE, ACME).await;
    let body = charge_body("pm_card_visa");
    let acme = running.client.with_token(&token);
    acme.charge("order-1", &body).await.id();
    let line = running.logged_of("account_mismatch", "acme").await;
    assert_eq!(line["pinned.account"], "before");
    let id = running.client.charge("order-1", &body).await.id();
    assert_eq!(running.client.terminal(&id).await["status"], "completed");
    assert_eq!(service.job_attempts().await, [0]);
    assert!(running.terminate().await);
}

/// The name was forgotten and given to another account while this process ran.
#[tokio::test]
async fn a_process_stops_sending_when_its_accounts_name_is_given_to_another_and_goes_on_when_it_has_it_back()
 {
    let service = TestService::new().await;
    let running = service.spawn(WHOLE, &[]).await;
    let body = charge_body("pm_card_visa");
    let id = running.client.charge("order-1", &body).await.id();
    running.client.terminal(&id).await;
    let its = service.pin_of("default").await;
    let give_to = async |account: &str| {
        sqlx::query("UPDATE provider_accounts SET account_id = $1")
            .bind(account)
            .execute(&service.books)
            .await
            .unwrap();
    };
    give_to("acct_another").await;
    running.logged_of("account_mismatch", "default").await;
    let id = running.client.charge("order-2", &body).await.id();
    service.want_sweep().await;
    until("the sweep was refused", async || {
        let failed = "SELECT count(*) FROM sweeps WHERE last_error IS NOT NULL";
        (service.count(failed).await > 0).then_some(())
    })
    .await;
    assert_eq!(service.job_attempts().await, [0]);
    give_to(&its).await;
    assert_eq!(running.client.terminal(&id).await["status"], "completed");
    assert!(running.terminate().await);
    service.check_books().await;
}

/// The default account has another name since, and the old one's section has another account's key. The jobs of what it had
/// begun name no account, and stand in the new one's queue.
#[tokio::test]
async fn jobs_that_name_no_account_wait_with_those_of_their_charges_account() {
    let service = TestService::new().await;
    let running = service.run().await;
    service.key_checked().await;
    running.stop().await;
    let api = service.run_with(API, &[]).await;
    let body = charge_body("pm_card_visa");
    let id = api.client.charge("order-1", &body).await.id();
    api.stop().await;
    sqlx::query("UPDATE charges SET provider_account = 'default'")
        .execute(&service.books)
        .await
        .unwrap();
    let renamed = |key| {
        [
            ("provider.account", "new"),
            ("provider.stripe.secret_key", "sk_test_new"),
            ("provider.stripe.accounts.default.secret_key", key),
        ]
    };
    let running = service.spawn(WHOLE, &renamed("sk_test_wrong")).await;
    running.logged_of("account_mismatch", "default").await;
    let other = running.client.charge("order-2", &body).await.id();
    assert_eq!(running.client.terminal(&other).await["status"], "completed");
    until("it is left to its account", async || {
        let named =
            "SELECT count(*) FROM outbox WHERE provider_account = 'default' AND state = 'ready'";
        (service.count(named).await == 1).then_some(())
    })
    .await;
    assert!(service.accounts_with_object(&id).await.is_empty());
    assert!(running.terminate().await);
    let running = service.run_with(Roles::ALL, &renamed("sk_test_it")).await;
    assert_eq!(running.client.terminal(&id).await["status"], "completed");
    assert_eq!(service.accounts_with_object(&id).await, [HERE]);
    running.stop().await;
    service.check_books().await;
}
