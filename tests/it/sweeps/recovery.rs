//! `serve --recovery`: the books go back to a backup, the provider does not, and clients go on as if nothing had happened.

use futures_util::future::join_all;
use payonce::app::recovery::Since;
use serde_json::{Value, json};

use super::{API, kinds, payonce, reconcile, text};
use crate::support::client::Client;
use crate::support::{TestService, charge_body, until};

const DAY: u64 = 24 * 3600;

/// Every fifth is declined.
fn order(number: usize) -> (String, Value) {
    let method = if number.is_multiple_of(5) {
        "pm_card_chargeDeclined"
    } else {
        "pm_card_visa"
    };
    (format!("order-{number}"), charge_body(method))
}

async fn charged(client: &Client, keys: std::ops::Range<usize>) -> Vec<Value> {
    join_all(keys.map(async |number| {
        let (key, body) = order(number);
        let id = client.charge_until_accepted(&key, &body).await.id();
        client.terminal(&id).await
    }))
    .await
}

fn told(charges: &[Value]) -> Vec<(Value, Value, Value)> {
    charges
        .iter()
        .map(|charge| {
            (
                charge["id"].clone(),
                charge["status"].clone(),
                charge["provider_charge_id"].clone(),
            )
        })
        .collect()
}

/// What was accepted before the backup, what was under way then, and what the books have forgotten: all of it comes out as
/// it was, though the provider has forgotten every key.
#[tokio::test]
async fn a_backup_two_days_old_restored_under_live_clients_charges_nobody_twice() {
    let mut service = TestService::new().await;
    let running = service.run().await;
    let mut before = charged(&running.client, 0..20).await;
    running.stop().await;
    // Accepted, and not begun when the backup is made.
    let api = service.run_with(crate::support::service::API, &[]).await;
    for number in 20..30 {
        let (key, body) = order(number);
        api.client.charge(&key, &body).await;
    }
    api.stop().await;
    let backup = service.back_up().await;
    let running = service.run().await;
    service.drained().await;
    before.extend(charged(&running.client, 20..60).await);
    running.stop().await;
    let paid = service.ledger.charges().await.len();
    service.ledger.advance(2 * DAY).await;

    service.restore(backup).await;
    let running = service.run_recovering(Since::Remembered).await;
    let after = charged(&running.client, 0..60).await;
    assert_eq!(told(&after).len(), 60);
    for (was, is) in before.iter().zip(&after) {
        assert_eq!(was["id"], is["id"]);
        assert_eq!(was["status"], is["status"], "{was} {is}");
        if was["status"] == "completed" {
            assert_eq!(was["provider_charge_id"], is["provider_charge_id"]);
        }
    }
    assert_eq!(service.ledger.charges().await.len(), paid);
    let pauses = "SELECT count(*) FROM pauses";
    assert_eq!(service.count(pauses).await, 0);
    service.check_books().await;
    let said = reconcile(&service).await;
    assert_eq!((said.code, kinds(&said).len()), (0, 0), "{said:?}");
    running.stop().await;
}

/// Clients never came back for it: the money is told to a person.
#[tokio::test]
async fn money_of_rows_that_a_restore_lost_and_nobody_asks_for_is_told() {
    let mut service = TestService::new().await;
    let running = service.run().await;
    charged(&running.client, 1..3).await;
    running.stop().await;
    let backup = service.back_up().await;
    let running = service.run().await;
    let lost = charged(&running.client, 6..8).await;
    running.stop().await;
    service.restore(backup).await;
    let running = service.run_recovering(Since::Remembered).await;
    until("the recovery is done", async || {
        (service.count("SELECT count(*) FROM pauses").await == 0).then_some(())
    })
    .await;
    running.stop().await;
    let said = payonce(&service, &["discrepancies", "list", "--json"]).await;
    let mut found: Vec<_> = kinds(&said)
        .into_iter()
        .map(|(kind, charge, _)| (kind, charge))
        .collect();
    found.sort();
    let mut expected: Vec<_> = lost
        .iter()
        .map(|charge| ("theirs_only".to_owned(), text(&charge["id"]).to_owned()))
        .collect();
    expected.sort();
    assert_eq!(found, expected);
}

/// The sweep can't come to its end: nothing is sent by anybody, and clients are served.
#[tokio::test]
async fn nothing_is_sent_until_the_recovery_is_done() {
    let service = TestService::new().await;
    let running = service.run().await;
    charged(&running.client, 1..2).await;
    running.stop().await;
    service
        .ledger
        .settings(json!({"rates": {"read.unavailable": 1.0}}))
        .await;
    // One that was started without the flag is held too.
    let (recovering, other) = (
        service.run_recovering(Since::Remembered).await,
        service.run().await,
    );
    let sent = service.ledger.prepare_keys().await.len();
    let body = charge_body("pm_card_visa");
    let id = other.client.charge("order-9", &body).await.id();
    // Not certain while rows may have been lost.
    let second = other.client.charge("order-10", &body).await.id();
    assert_eq!(other.client.cancel(&second).await.status, 202);
    until("a sweep was given up", async || {
        let failed = "SELECT count(*) FROM sweeps WHERE last_error IS NOT NULL";
        (service.count(failed).await > 0).then_some(())
    })
    .await;
    assert_eq!(service.ledger.prepare_keys().await.len(), sent);
    assert_eq!(other.client.show(&id).await.body["stage"], "pending");
    service.ledger.settings(json!({})).await;
    assert_eq!(other.client.terminal(&id).await["status"], "completed");
    assert_eq!(other.client.terminal(&second).await["stage"], "canceled");
    recovering.stop().await;
    other.stop().await;
    service.check_books().await;
}

/// Books without any event can't say since when they have forgotten.
#[tokio::test]
async fn a_recovery_of_empty_books_must_be_told_since_when() {
    let service = TestService::new().await;
    let said = payonce(&service, &["serve", "--recovery"]).await;
    assert_eq!(said.code, 1);
    assert!(said.err.contains("--since"), "{said:?}");
}

#[tokio::test]
async fn the_newest_charge_says_up_to_when_the_books_remember_however_old_it_is() {
    let service = TestService::new().await;
    let running = service.run_with(API, &[]).await;
    let mut connection = service.books.acquire().await.unwrap();
    let remembered = payonce::db::recovery::remembered;
    assert_eq!(remembered(&mut connection).await.unwrap(), None);
    let newest = "SELECT (extract(epoch FROM max(created_at)) * 1000000)::bigint FROM charges";
    // Each newer than those before it.
    for (number, hours) in [400_000, 24 * 365, 3, 0].into_iter().enumerate() {
        let key = format!("order-{number}");
        let accepted = running
            .client
            .charge(&key, &charge_body("pm_card_visa"))
            .await;
        service.age(&accepted.id(), hours).await;
        let at = remembered(&mut connection).await.unwrap().unwrap();
        let micros = i64::try_from(at.unix_timestamp_nanos() / 1000).unwrap();
        assert_eq!(micros, service.count(newest).await, "{hours} hours");
    }
    // The database's clock was three days ahead for a moment.
    let before = remembered(&mut connection).await.unwrap();
    let body = charge_body("pm_card_visa");
    let ahead = running.client.charge("order-ahead", &body).await;
    service.age(&ahead.id(), -72).await;
    assert_eq!(remembered(&mut connection).await.unwrap(), before);
    running.stop().await;
}
