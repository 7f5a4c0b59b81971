//! Several accounts at the provider, each merchant on one: a charge is made, looked for, refunded and told of in its own
//! account, and no account's trouble is another's.

mod desk;
mod identity;
mod merchants;
mod outages;
mod pace;
mod webhooks;

use payonce::domain::ids::MerchantId;
use serde_json::Value;

use crate::support::client::Client;
use crate::support::service::{API, TestSettings};
use crate::support::{TestService, charge_body};

/// Besides the default account of the tests, whose key is `sk_test_it`.
const ACME: TestSettings<'static> = &[("provider.stripe.accounts.acme.secret_key", "sk_test_acme")];

/// As the simulator shows them.
const HERE: &str = "sk_test_…it";
const AT_ACME: &str = "sk_test_…acme";

impl TestService {
    /// Makes a merchant on the account, with a key of its own.
    async fn make_merchant_on(&self, name: &str, account: &str) -> (MerchantId, String) {
        let made = self.make_merchant(name).await;
        self.put_on(name, Some(account)).await;
        made
    }

    async fn put_on(&self, name: &str, account: Option<&str>) {
        let mut connection = self.books.acquire().await.unwrap();
        let moved = payonce::db::merchants::set_account(&mut connection, name, account).await;
        assert!(moved.unwrap().is_some());
    }

    /// In which accounts money moved for a charge.
    async fn accounts_charged(&self, charge: &str) -> Vec<String> {
        accounts_with_stamp(&self.ledger.charges().await, charge)
    }

    /// The accounts that have an object of a charge.
    async fn accounts_with_object(&self, charge: &str) -> Vec<String> {
        accounts_with_stamp(&self.ledger.objects().await, charge)
    }
}

fn accounts_with_stamp(shown: &[Value], charge: &str) -> Vec<String> {
    shown
        .iter()
        .filter(|found| found["metadata"]["payonce_charge_id"] == charge)
        .map(account)
        .collect()
}

/// A charge of a merchant on `acme` that was told failed, and an object of it there that moved the money all the same.
async fn failed_and_paid_at_acme(service: &TestService, client: &Client) -> (String, String) {
    let body = charge_body("pm_card_chargeDeclined");
    let id = client.charge("order-1", &body).await.id();
    assert_eq!(client.terminal(&id).await["status"], "failed");
    let (key, ledger) = ("sk_test_acme", &service.ledger);
    let object = ledger.make_object_with(key, &id, 1000).await;
    ledger.execute_object_with(key, &object).await;
    (id, object)
}

/// Of what the simulator shows.
fn account(shown: &Value) -> String {
    shown["account"].as_str().unwrap().to_owned()
}

/// `count` charges of the merchant wait.
async fn backlog(service: &TestService, token: &str, payment_method: &str, count: i32) {
    let api = service.run_with(API, &[]).await;
    let client = api.client.with_token(token);
    let id = client
        .charge("order-0", &charge_body(payment_method))
        .await
        .id();
    api.stop().await;
    service.backlog(&id, count - 1).await;
}

async fn completed_of(service: &TestService, its: &str) -> usize {
    let charges = service.ledger.charges().await;
    let at = |charge: &&Value| charge["account"] == its;
    charges.iter().filter(at).count()
}
