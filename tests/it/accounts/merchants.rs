//! Where a charge is made: in its merchant's account as it was at acceptance, whatever happens to the merchant later.

use std::time::Duration;

use payonce::app::recovery::Since;
use payonce::batch::Statement;
use payonce::completion::Hold;
use payonce::config::Roles;
use payonce::db::sweeps::{self, Account};
use payonce::db::{claim, claimed};
use payonce::domain::charge::StoredObject;
use payonce::domain::ids::{LeaseToken, ProviderChargeId};
use payonce::domain::request::Instruction;
use payonce::worker::stored::{Start, Started, StoreObject};
use serde_json::{Value, json};

use super::{ACME, AT_ACME, HERE, account, failed_and_paid_at_acme};
use crate::operator::payonce_with;
use crate::support::service::{API, RECONCILER, WORKER};
use crate::support::{TestService, charge_body, until};

async fn accounts_refunded(service: &TestService, refund: &str) -> Vec<String> {
    let refunds = service.ledger.refunds_of(refund).await;
    refunds.iter().map(account).collect()
}

#[tokio::test]
async fn each_merchant_is_charged_and_refunded_in_its_own_account() {
    let service = TestService::new().await;
    let (_, token) = service.make_merchant_on("acme", "acme").await;
    let running = service.run_with(Roles::ALL, ACME).await;
    for (client, its) in [
        (running.client.with_token(&service.token), HERE),
        (running.client.with_token(&token), AT_ACME),
    ] {
        // The same key, and neither meets the other.
        let id = client
            .charge("order-1", &charge_body("pm_card_visa"))
            .await
            .id();
        assert_eq!(client.terminal(&id).await["status"], "completed");
        assert_eq!(service.accounts_charged(&id).await, [its]);
        let refund = client.refund(&id, "back-1", &json!({"amount": 400})).await;
        assert_eq!(refund.status, 202, "{refund:?}");
        let refund = refund.body["id"].as_str().unwrap().to_owned();
        assert_eq!(client.refund_ended(&refund).await["status"], "completed");
        assert_eq!(accounts_refunded(&service, &refund).await, [its]);
    }
    running.stop().await;
    service.check_books().await;
}

/// Accepts a charge in a process of its own, so that nothing it knows of the merchant is old.
async fn accepted(service: &TestService, token: &str, key: &str) -> String {
    let api = service.run_with(API, &[]).await;
    let client = api.client.with_token(token);
    let id = client.charge(key, &charge_body("pm_card_visa")).await.id();
    api.stop().await;
    id
}

#[tokio::test]
async fn what_a_merchant_has_begun_stays_where_it_was_begun_when_the_merchant_is_moved() {
    let service = TestService::new().await;
    let (_, token) = service.make_merchant("mover").await;
    let at_default = accepted(&service, &token, "order-1").await;
    service.put_on("mover", Some("acme")).await;
    let at_acme = accepted(&service, &token, "order-2").await;
    service.put_on("mover", None).await;
    let back_again = accepted(&service, &token, "order-3").await;
    let running = service.run_with(Roles::ALL, ACME).await;
    let client = running.client.with_token(&token);
    for (id, its) in [
        (&at_default, HERE),
        (&at_acme, AT_ACME),
        (&back_again, HERE),
    ] {
        assert_eq!(client.terminal(id).await["status"], "completed");
        assert_eq!(service.accounts_with_object(id).await, [its]);
        assert_eq!(service.accounts_charged(id).await, [its]);
    }
    // Its key answers for it, wherever the merchant is now.
    let again = client.charge("order-2", &charge_body("pm_card_visa")).await;
    assert_eq!((again.status, again.id()), (200, at_acme));
    running.stop().await;
    service.check_books().await;
}

/// A running process learns of the move within two seconds.
#[tokio::test]
async fn a_merchant_that_is_moved_is_soon_charged_elsewhere() {
    let service = TestService::new().await;
    let (_, token) = service.make_merchant("mover").await;
    let running = service.run_with(Roles::ALL, ACME).await;
    let client = running.client.with_token(&token);
    let body = charge_body("pm_card_visa");
    let before = client.charge("order-0", &body).await.id();
    client.terminal(&before).await;
    service.put_on("mover", Some("acme")).await;
    let mut number = 0;
    until("a charge is made in the other account", async || {
        number += 1;
        let id = client.charge(&format!("order-{number}"), &body).await.id();
        client.terminal(&id).await;
        (service.accounts_charged(&id).await == [AT_ACME]).then_some(())
    })
    .await;
    assert_eq!(service.accounts_charged(&before).await, [HERE]);
    running.stop().await;
    service.check_books().await;
}

/// The job names its account in a version that a release with one account leaves alone.
#[tokio::test]
async fn jobs_of_a_named_account_are_of_a_version_that_releases_before_do_not_claim() {
    let service = TestService::new().await;
    let (_, token) = service.make_merchant_on("acme", "acme").await;
    let named = accepted(&service, &token, "order-1").await;
    let unnamed = accepted(&service, &service.token, "order-1").await;
    for (id, version) in [
        (named, Instruction::VERSION_WITH_ACCOUNT),
        (unnamed, Instruction::VERSION),
    ] {
        let versions: Vec<i16> =
            sqlx::query_scalar("SELECT payload_version FROM outbox WHERE charge_id = $1")
                .bind(crate::support::books::uuid_of(&id))
                .fetch_all(&service.books)
                .await
                .unwrap();
        assert_eq!(versions, [version]);
    }
}

#[tokio::test]
async fn a_process_without_an_account_leaves_its_jobs_to_one_that_has_it() {
    let service = TestService::new().await;
    let (_, token) = service.make_merchant_on("acme", "acme").await;
    let id = accepted(&service, &token, "order-1").await;
    let without = service.run_with(WORKER, &[]).await;
    // Another job, accepted later, is done meanwhile.
    let other = accepted(&service, &service.token, "order-1").await;
    until("the other one is done", async || {
        (service.times_claimed(&other).await.is_none()).then_some(())
    })
    .await;
    assert_eq!(service.times_claimed(&id).await, Some(0));
    let with = service.run_with(Roles::ALL, ACME).await;
    let client = with.client.with_token(&token);
    assert_eq!(client.terminal(&id).await["status"], "completed");
    assert_eq!(service.accounts_with_object(&id).await, [AT_ACME]);
    without.stop().await;
    with.stop().await;
    service.check_books().await;
}

/// Accepted by who has the account, left untouched by who has not.
#[tokio::test]
async fn what_moved_after_a_failure_goes_back_in_the_account_that_it_moved_in() {
    let service = TestService::new().await;
    let (_, token) = service.make_merchant_on("acme", "acme").await;
    let running = service.run_with(Roles::ALL, ACME).await;
    let client = running.client.with_token(&token);
    let (id, object) = failed_and_paid_at_acme(&service, &client).await;
    running.stop().await;

    let by_policy = [ACME, &[("reconciler.success_after_failed", "refund")]].concat();
    let reconciler = service.run_with(RECONCILER, &by_policy).await;
    let swept = payonce_with(&service, ACME, &["reconcile", "--since", "1h"]).await;
    assert!(swept.out.contains("success_after_failed"), "{swept:?}");
    until("its refund is accepted", async || {
        service.times_claimed(&id).await
    })
    .await;
    reconciler.stop().await;
    let without = service.run_with(WORKER, &[]).await;
    let other = accepted(&service, &service.token, "order-1").await;
    until("another job is done", async || {
        (service.times_claimed(&other).await.is_none()).then_some(())
    })
    .await;
    assert_eq!(service.times_claimed(&id).await, Some(0));
    without.stop().await;
    let running = service.run_with(Roles::ALL, ACME).await;
    service.drained().await;
    let refunds = service.ledger.refunds().await;
    assert_eq!(refunds.len(), 1, "{refunds:?}");
    assert_eq!(
        (&refunds[0]["payment_intent"], account(&refunds[0])),
        (&json!(object), AT_ACME.to_owned())
    );
    running.stop().await;
    service.check_books().await;
}

impl TestService {
    /// `None` once its job is gone.
    async fn times_claimed(&self, charge: &str) -> Option<i32> {
        sqlx::query_scalar("SELECT attempt FROM outbox WHERE charge_id = $1")
            .bind(crate::support::books::uuid_of(charge))
            .fetch_optional(&self.books)
            .await
            .unwrap()
    }
}

/// Its object was executed by rows that were lost, and the provider has forgotten the key.
#[tokio::test]
async fn a_look_goes_to_the_charges_own_account_and_no_other_accounts_walk_answers_it() {
    let service = TestService::new().await;
    let (_, token) = service.make_merchant_on("acme", "acme").await;
    let running = service.run_with(Roles::ALL, ACME).await;
    let client = running.client.with_token(&token);
    let body = charge_body("pm_card_visa");
    let id = client.charge("order-1", &body).await.id();
    let before = client.terminal(&id).await;
    running.stop().await;
    sqlx::query("TRUNCATE charges, idempotent_requests, outbox, charge_events")
        .execute(&service.books)
        .await
        .unwrap();
    service.ledger.advance(25 * 3600).await;
    let again = accepted(&service, &token, "order-1").await;
    assert_eq!(again, id);
    service.age(&id, 25).await;
    // The default account alone is swept: there is nothing, and nothing follows from it.
    let without = service.run_with(Roles::ALL, &[]).await;
    walked(&service).await;
    without.stop().await;
    assert_eq!(service.times_claimed(&id).await, Some(0));

    let running = service.run_with(Roles::ALL, ACME).await;
    let client = running.client.with_token(&token);
    let after: Value = client.terminal(&id).await;
    for field in ["status", "provider_charge_id"] {
        assert_eq!(after[field], before[field]);
    }
    running.stop().await;
    assert_eq!(service.accounts_charged(&id).await, [AT_ACME]);
    assert_eq!(service.accounts_with_object(&id).await, [AT_ACME]);
    service.check_books().await;
}

/// A failover lost the charge, and its merchant was put on another account before the client came again: the sweep of the
/// other one knows that its money is there.
#[tokio::test]
async fn a_charge_that_has_an_object_in_another_account_waits_and_is_not_made_again() {
    let service = TestService::new().await;
    let id = accepted(&service, &service.token, "order-1").await;
    let (key, ledger) = ("sk_test_acme", &service.ledger);
    let object = ledger.make_object_with(key, &id, 1000).await;
    ledger.execute_object_with(key, &object).await;
    payonce_with(&service, ACME, &["reconcile", "--since", "1h"]).await;
    let running = service.run_with(Roles::ALL, ACME).await;
    until("it waits for somebody", async || {
        let job = service.job(&id).await;
        (job.last_error.as_deref() == Some("account_not_configured")).then_some(())
    })
    .await;
    running.stop().await;
    assert_eq!(service.accounts_with_object(&id).await, [AT_ACME]);
    assert_eq!(service.accounts_charged(&id).await, [AT_ACME]);
    let wants = [
        "charges", "resolve", &id, "--as", "failed", "--reason", "x", "--yes",
    ];
    let said = payonce_with(&service, ACME, &wants).await;
    assert!(
        said.code == 1 && said.err.contains("another account than its own"),
        "{said:?}"
    );
    // As the documentation says: its job goes on with what is there.
    let charge = crate::support::books::uuid_of(&id);
    sqlx::query(GIVEN_TO_ACME)
        .bind(charge)
        .execute(&service.books)
        .await
        .unwrap();
    let running = service.run_with(Roles::ALL, ACME).await;
    let ended = running.client.terminal(&id).await;
    assert_eq!(ended["status"], "completed");
    running.stop().await;
    assert_eq!(service.accounts_charged(&id).await, [AT_ACME]);
    service.check_books().await;
}

const GIVEN_TO_ACME: &str = "
    WITH moved AS (
        UPDATE charges SET provider_account = 'acme'
        WHERE id = $1 AND provider_charge_id IS NULL AND attempts = 0
        RETURNING id
    )
    UPDATE outbox SET provider_account = 'acme', payload_version = 2
    FROM moved WHERE outbox.charge_id = moved.id
";

/// Asks for a walk of the default account, as far back as any look, and returns when it is finished.
async fn walked(service: &TestService) {
    let mut connection = service.books.acquire().await.unwrap();
    let account = Account {
        provider: "stripe",
        name: "default".to_owned(),
        is_default: true,
    };
    let window = Duration::from_hours(200);
    let id = sweeps::ask(&mut connection, &account, window)
        .await
        .unwrap();
    until("the walk is finished", async || {
        let standing = sweeps::find(&mut connection, id).await.unwrap()?;
        standing.finished_at
    })
    .await;
}

/// Only its own account's executor may store its object, whoever holds the job.
#[tokio::test]
async fn an_object_of_another_account_passes_no_gate() {
    let service = TestService::new().await;
    let (_, token) = service.make_merchant_on("acme", "acme").await;
    let id = accepted(&service, &token, "order-1").await;
    let mut connection = service.books.acquire().await.unwrap();
    let terms = claim::Terms {
        limit: 10,
        due_within: None,
        accounts: claim::Most::default(),
        token: LeaseToken::from_uuid(uuid::Uuid::from_u128(7)),
        lease: Duration::from_mins(1),
        payload_versions: &Instruction::VERSIONS,
        refund_payload_versions: &[],
        ours: claimed::Ours {
            account: "default",
            key_window: Duration::from_hours(23),
        },
        shares: None,
    };
    let claimed = claim::claim(&mut connection, terms).await.unwrap();
    assert!(claimed.is_empty(), "{claimed:?}");
    let accounts = claim::Most {
        names: &["acme"],
        most: &[10],
    };
    let terms = claim::Terms { accounts, ..terms };
    let mut claimed = claim::claim(&mut connection, terms).await.unwrap();
    let claimed::Job::Charge(job) = claimed.remove(0).unwrap() else {
        panic!("a charge")
    };
    assert_eq!((job.charge.to_string(), job.account.as_str()), (id, "acme"));
    for (account, started) in [("default", Started::No), ("acme", Started::Yes)] {
        let start = Start {
            hold: Hold {
                charge: job.charge,
                outbox_id: job.outbox_id,
                lease: job.lease,
                version: job.progress.version,
            },
            object: StoredObject {
                id: ProviderChargeId::parse("pi_3QabcdefghijklmnopqrstuV").unwrap(),
                account: account.to_owned(),
            },
            executes: true,
        };
        let answer = StoreObject.run(&mut connection, &[start], false).await;
        assert_eq!(answer.unwrap(), [started], "{account}");
    }
}

/// One of them is in no configuration of the process that recovers: nothing is sent before its objects are seen.
#[tokio::test]
async fn a_recovery_waits_for_the_accounts_that_merchants_are_on() {
    let service = TestService::new().await;
    let (_, token) = service.make_merchant_on("acme", "acme").await;
    let running = service.run_with(Roles::ALL, ACME).await;
    let body = charge_body("pm_card_visa");
    for client in [running.client.clone(), running.client.with_token(&token)] {
        let id = client.charge("order-1", &body).await.id();
        client.terminal(&id).await;
    }
    running.stop().await;
    let recovering = service.run_recovering(Since::Remembered).await;
    let id = recovering.client.charge("order-2", &body).await.id();
    until("the default account is compared", async || {
        let finished = "SELECT count(*) FROM sweeps
            WHERE reason = 'recovery' AND provider_account = 'default' AND finished_at IS NOT NULL";
        (service.count(finished).await == 1).then_some(())
    })
    .await;
    let pauses = "SELECT count(*) FROM pauses WHERE kind = 'recovery'";
    assert_eq!(service.count(pauses).await, 1);
    assert!(service.accounts_with_object(&id).await.is_empty());
    let with = service.run_with(Roles::ALL, ACME).await;
    assert_eq!(with.client.terminal(&id).await["status"], "completed");
    assert_eq!(service.count(pauses).await, 0);
    recovering.stop().await;
    with.stop().await;
    service.check_books().await;
}

/// Its merchant is on another since, and what it had begun is sent again by whoever has the account.
#[tokio::test]
async fn a_recovery_waits_for_the_accounts_that_open_charges_are_in() {
    let service = TestService::new().await;
    let (_, token) = service.make_merchant_on("mover", "acme").await;
    let id = accepted(&service, &token, "order-1").await;
    service.put_on("mover", None).await;
    let recovering = service
        .run_recovering(Since::Ago(Duration::from_hours(1)))
        .await;
    let asked = "SELECT count(*) FROM sweeps
        WHERE reason = 'recovery' AND provider_account = 'acme' AND finished_at IS NULL";
    assert_eq!(service.count(asked).await, 1);
    until("the default account is compared", async || {
        let finished = "SELECT count(*) FROM sweeps
            WHERE reason = 'recovery' AND provider_account = 'default' AND finished_at IS NOT NULL";
        (service.count(finished).await == 1).then_some(())
    })
    .await;
    assert_eq!(service.count("SELECT count(*) FROM pauses").await, 1);
    let with = service.run_with(Roles::ALL, ACME).await;
    let client = with.client.with_token(&token);
    assert_eq!(client.terminal(&id).await["status"], "completed");
    assert_eq!(service.accounts_charged(&id).await, [AT_ACME]);
    recovering.stop().await;
    with.stop().await;
    service.check_books().await;
}

/// What nobody takes while sending is paused is nobody's fault.
#[tokio::test]
async fn no_account_is_missed_while_sending_is_paused() {
    let service = TestService::new().await;
    let (_, token) = service.make_merchant_on("acme", "acme").await;
    accepted(&service, &token, "order-1").await;
    let mut connection = service.books.acquire().await.unwrap();
    let known = ["default".to_owned()];
    for (paused, missed) in [(false, 1), (true, 0)] {
        if paused {
            service.pause("operator").await;
        }
        let unserved = claim::unserved(&mut connection, &known).await.unwrap();
        assert_eq!(unserved.len(), missed, "{unserved:?}");
    }
}

#[tokio::test]
async fn commands_know_the_accounts_of_the_configuration() {
    let service = TestService::new().await;
    let run = async |arguments: &[&str]| payonce_with(&service, ACME, arguments).await;
    let unknown = run(&["merchants", "create", "a", "--account", "nobody"]).await;
    assert_eq!(unknown.code, 1, "{unknown:?}");
    assert!(unknown.err.contains("acme"), "{unknown:?}");
    assert_eq!(
        run(&["merchants", "set-account", "shop", "nobody"])
            .await
            .code,
        1
    );
    assert_eq!(
        run(&["merchants", "set-account", "nobody", "acme"])
            .await
            .code,
        1
    );
    assert_eq!(
        run(&["merchants", "create", "a", "--account", "acme"])
            .await
            .code,
        0
    );
    let list = run(&["merchants", "list"]).await.out;
    let of = |name: &str| {
        let line = list.lines().find(|line| line.ends_with(name)).unwrap();
        line.contains("acme")
    };
    assert!(of(" a") && !of(" shop"), "{list}");
    for (arguments, says) in [
        (["merchants", "set-account", "shop", "acme"], "new charges"),
        (["merchants", "set-account", "shop", "acme"], "before"),
        (["merchants", "set-account", "shop", "--default"], "`acme`"),
    ] {
        let said = run(&arguments).await;
        assert!(said.code == 0 && said.err.contains(says), "{said:?}");
    }
    let swept = run(&["reconcile", "--since", "1h"]).await;
    assert!(
        swept.code == 0 && swept.err.contains("`default`") && swept.err.contains("`acme`"),
        "{swept:?}"
    );
    let swept = run(&["reconcile", "--since", "1h", "--account", "acme"]).await;
    assert!(
        swept.code == 0 && !swept.err.contains("`default`"),
        "{swept:?}"
    );
    assert_eq!(run(&["reconcile", "--account", "nobody"]).await.code, 1);
    // An account that does not answer keeps nobody from knowing of the others.
    service
        .ledger
        .settings(json!({"revoked": ["sk_test_it"]}))
        .await;
    let swept = run(&["reconcile", "--since", "1h"]).await;
    assert!(
        swept.code == 1
            && swept.err.contains("not compared to the end: `default`")
            && swept.err.contains("swept the account `acme`"),
        "{swept:?}"
    );
}
