//! Deadlocks, serialization failures and locks where a charge is changed: the statement is repeated, the provider is not
//! asked again.

use futures_util::future::join_all;
use payonce::config::Roles;
use serde_json::json;

use crate::support::books::uuid_of;
use crate::support::{TestService, charge_body, until};

/// The first updates of charges to a stage fail as Postgres fails them under contention; a sequence counts them, since
/// its steps are not rolled back.
async fn contend(service: &TestService, stages: &str) {
    let function = format!(
        "CREATE FUNCTION contend() RETURNS trigger LANGUAGE plpgsql AS $$
         DECLARE conflict bigint;
         BEGIN
             IF NEW.stage IN ({stages}) AND NEW.stage <> OLD.stage THEN
                 conflict := nextval('conflicts');
                 IF conflict <= 24 THEN
                     RAISE EXCEPTION 'contended'
                         USING ERRCODE = CASE conflict % 2 WHEN 0 THEN '40P01' ELSE '40001' END;
                 END IF;
             END IF;
             RETURN NEW;
         END $$"
    );
    service.run_sql(&["CREATE SEQUENCE conflicts"]).await;
    sqlx::query(sqlx::AssertSqlSafe(function))
        .execute(&service.books)
        .await
        .unwrap();
    service
        .run_sql(&["CREATE TRIGGER contend BEFORE UPDATE ON charges
                    FOR EACH ROW EXECUTE FUNCTION contend()"])
        .await;
}

async fn each_is_executed_once(stages: &str) {
    let service = TestService::new().await;
    contend(&service, stages).await;
    // One charge may meet all conflicts by itself, for longer than a short lease leaves time for the call behind the gate.
    let patient = [("worker.lease", "60s")];
    let running = service.run_with(Roles::ALL, &patient).await;
    let ended = join_all((0..20).map(async |number| {
        let method = if number % 4 == 3 {
            "pm_card_chargeDeclined"
        } else {
            "pm_card_visa"
        };
        let key = format!("order-{number}");
        let accepted = running.client.charge(&key, &charge_body(method)).await;
        assert_eq!(accepted.status, 202);
        running.client.terminal(&accepted.id()).await
    }))
    .await;
    for charge in &ended {
        assert_eq!(charge["attempts"], 1, "{charge}");
    }
    let conflicts = service.count("SELECT last_value FROM conflicts").await;
    assert!(conflicts > 24, "the conflicts were met: {conflicts}");
    assert_eq!(service.ledger.executes().await.len(), 20);
    assert_eq!(service.ledger.charges().await.len(), 15);
    running.stop().await;
    service.check_books().await;
}

#[tokio::test]
async fn deadlocks_and_serialization_failures_at_the_gate_are_repeated_and_nothing_is_sent_twice() {
    each_is_executed_once("'processing'").await;
}

#[tokio::test]
async fn deadlocks_and_serialization_failures_at_completion_are_repeated_and_nothing_is_sent_twice()
{
    each_is_executed_once("'succeeded', 'failed'").await;
}

/// Somebody holds a charge's row for longer than `lock_timeout`, at the gate and at completion; the others go on.
#[tokio::test]
async fn a_charge_whose_row_is_locked_waits_alone_and_is_executed_once() {
    for phase in ["prepare", "execute"] {
        let service = TestService::new().await;
        service.ledger.hold(phase, "after").await;
        let running = service.run_with(Roles::ALL, &[]).await;
        let body = charge_body("pm_card_visa");
        let id = running.client.charge("locked", &body).await.id();
        service.ledger.held().await;
        let mut somebody = service.books.begin().await.unwrap();
        sqlx::query("SELECT FROM charges WHERE id = $1 FOR UPDATE")
            .bind(uuid_of(&id))
            .execute(&mut *somebody)
            .await
            .unwrap();
        service.ledger.release().await;
        let others = join_all((0..20).map(async |number| {
            let id = running
                .client
                .charge(&format!("free-{number}"), &body)
                .await;
            running.client.terminal(&id.id()).await
        }))
        .await;
        assert!(others.iter().all(|charge| charge["status"] == "completed"));
        until("the locked one was tried", async || {
            let open = running.client.show(&id).await.body;
            (open["status"] == "in_progress").then_some(())
        })
        .await;
        somebody.rollback().await.unwrap();
        let charge = running.client.terminal(&id).await;
        assert_eq!(charge["status"], "completed");
        let executes = service.ledger.executes().await;
        assert_eq!(executes.len(), 21, "{phase}");
        assert!(executes.iter().all(|(_, status)| *status == json!(200)));
        running.stop().await;
        service.check_books().await;
    }
}
