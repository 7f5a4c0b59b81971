//! The connection dies around a statement of the worker's: whether it was committed is found out, and the provider is
//! asked to execute once.

use payonce::config::Roles;
use serde_json::json;

use super::{CLAIM, FINISH, STORE};
use crate::support::books::SHORT_LEASES;
use crate::support::database_proxy::{DatabaseProxy, Fault};
use crate::support::service::TestSettings;
use crate::support::{TestService, charge_body};

/// Silent connections are given up soon.
fn through<'a>(proxy: &'a DatabaseProxy, more: TestSettings<'a>) -> Vec<(&'static str, &'a str)> {
    let quick = [
        ("database.url", proxy.url()),
        ("database.statement_timeout", "1s"),
        ("database.connect_timeout", "500ms"),
    ];
    quick.iter().chain(more).copied().collect()
}

/// The statement is cut off or falls silent, before or after its commit.
async fn executed_once(
    statement: &'static str,
    methods: &[(&str, &str)],
    settings: TestSettings<'_>,
) {
    let service = TestService::new().await;
    let proxy = DatabaseProxy::start(&service.database_url).await;
    let settings = through(&proxy, settings);
    let running = service.run_with(Roles::ALL, &settings).await;
    let mut executed = 0;
    for fault in [
        Fault::CutBefore,
        Fault::CutAfter,
        Fault::HoldBefore,
        Fault::HoldAfter,
    ] {
        for (method, status) in methods {
            let mut met = proxy.arm(statement, fault);
            let key = format!("{fault:?}-{method}");
            let accepted = running.client.charge(&key, &charge_body(method)).await;
            assert_eq!(accepted.status, 202, "{accepted:?}");
            met.struck().await;
            let charge = running.client.terminal(&accepted.id()).await;
            assert_eq!(charge["status"], *status, "{fault:?}");
            assert_eq!(charge["attempts"], 1, "{fault:?}");
            executed += 1;
            assert_eq!(service.ledger.executes().await.len(), executed);
        }
    }
    running.stop().await;
    service.check_books().await;
}

const PAID: (&str, &str) = ("pm_card_visa", "completed");
const DECLINED: (&str, &str) = ("pm_card_chargeDeclined", "failed");

/// The lease that nobody knows of runs out.
#[tokio::test]
async fn a_charge_whose_claim_is_lost_is_claimed_again_and_executed_once() {
    let lease: Vec<_> = SHORT_LEASES
        .iter()
        .chain(&[("worker.lease", "4s")])
        .copied()
        .collect();
    executed_once(CLAIM, &[PAID], &lease).await;
}

#[tokio::test]
async fn a_charge_whose_object_was_stored_or_not_without_a_word_is_executed_once() {
    executed_once(STORE, &[PAID, DECLINED], &[]).await;
}

#[tokio::test]
async fn a_charge_whose_end_was_written_or_not_without_a_word_is_executed_once() {
    executed_once(FINISH, &[PAID, DECLINED], &[]).await;
}

/// What was given up as lost reaches Postgres after the charge has ended without it.
#[tokio::test]
async fn a_stored_id_or_an_end_that_arrives_late_changes_nothing() {
    let service = TestService::new().await;
    let proxy = DatabaseProxy::start(&service.database_url).await;
    let running = service.run_with(Roles::ALL, &through(&proxy, &[])).await;
    for statement in [STORE, FINISH] {
        let mut late = proxy.arm(statement, Fault::HoldBefore);
        let key = format!("order-{}", statement.len());
        let id = running
            .client
            .charge(&key, &charge_body("pm_card_visa"))
            .await
            .id();
        late.struck().await;
        let ended = running.client.terminal(&id).await;
        let history = service.history(&id).await;
        let before = proxy.executions(statement);
        late.release();
        // The connection of the late one is not spoken to any more: the next charge shows that all is done.
        let next = running
            .client
            .charge(&format!("{key}-next"), &charge_body("pm_card_visa"))
            .await
            .id();
        running.client.terminal(&next).await;
        assert!(proxy.executions(statement) > before);
        assert_eq!(running.client.show(&id).await.body, ended);
        assert_eq!(service.history(&id).await, history);
    }
    running.stop().await;
    assert_eq!(service.ledger.executes().await.len(), 4);
    service.check_books().await;
}

/// Nobody learns what became of the stored id until the lease is over: the next run reads before it sends.
#[tokio::test]
async fn a_worker_that_can_not_learn_whether_its_object_was_stored_executes_nothing() {
    for fault in [Fault::HoldBefore, Fault::HoldAfter] {
        let service = TestService::new().await;
        let proxy = DatabaseProxy::start(&service.database_url).await;
        let settings = through(&proxy, &[]);
        let running = service.run_with(Roles::ALL, &settings).await;
        let mut met = proxy.arm(STORE, fault);
        let id = running
            .client
            .charge("order-1", &charge_body("pm_card_visa"))
            .await
            .id();
        met.struck().await;
        proxy.network.swallow();
        service.leases_run_out().await;
        // Longer than a silent connection is waited for: whatever would be sent in doubt is sent by then.
        tokio::time::sleep(std::time::Duration::from_secs(2)).await;
        assert_eq!(service.ledger.executes().await, []);
        proxy.network.recover();
        assert_eq!(running.client.terminal(&id).await["status"], "completed");
        running.stop().await;
        let executes = service.ledger.executes().await;
        assert_eq!(executes.len(), 1, "{fault:?}: {executes:?}");
        assert_eq!(executes[0].1, json!(200));
        service.check_books().await;
    }
}
