//! The simulator of one test and its ledger: the only witness of money.

use std::net::SocketAddr;

use payonce::clock::Clock;
use payonce::simulator::Simulator;
use serde_json::{Value, json};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::client::http;

/// Of the account that the tests' services have unless they are told otherwise.
pub const SECRET_KEY: &str = "sk_test_it";

pub struct Ledger {
    http: reqwest::Client,
    pub address: SocketAddr,
    _running: Option<DropGuard>,
}

impl Ledger {
    pub async fn start() -> Self {
        let simulator = Simulator::bind("127.0.0.1:0".parse().unwrap(), None, Clock::system())
            .await
            .unwrap();
        let (address, stop) = (simulator.local_addr(), CancellationToken::new());
        tokio::spawn(simulator.run(stop.clone()));
        Self {
            http: http(),
            address,
            _running: Some(stop.drop_guard()),
        }
    }

    /// The simulator of another process.
    pub fn at(address: SocketAddr) -> Self {
        Self {
            http: http(),
            address,
            _running: None,
        }
    }

    pub fn base_url(&self) -> String {
        format!("http://{}", self.address)
    }

    async fn get(&self, path: &str) -> Value {
        let url = format!("{}{path}", self.base_url());
        let bytes = self
            .http
            .get(url)
            .send()
            .await
            .unwrap()
            .bytes()
            .await
            .unwrap();
        serde_json::from_slice(&bytes).unwrap()
    }

    async fn send(&self, method: reqwest::Method, path: &str, body: Option<Value>) {
        let mut request = self
            .http
            .request(method, format!("{}{path}", self.base_url()));
        if let Some(body) = body {
            request = request
                .header("content-type", "application/json")
                .body(body.to_string());
        }
        let response = request.send().await.unwrap();
        assert!(
            response.status().is_success(),
            "{path}: {}",
            response.status()
        );
    }

    /// Every charge that moved money.
    pub async fn charges(&self) -> Vec<Value> {
        self.get("/_sim/charges").await.as_array().unwrap().clone()
    }

    /// How often money moved for a charge of ours.
    pub async fn times_charged(&self, charge_id: &str) -> usize {
        let charges = self.charges().await;
        charges
            .iter()
            .filter(|charge| charge["metadata"]["payonce_charge_id"] == charge_id)
            .count()
    }

    /// Every refund, whoever made it.
    pub async fn refunds(&self) -> Vec<Value> {
        self.get("/_sim/refunds").await.as_array().unwrap().clone()
    }

    /// The refunds that have the stamp of a refund of ours.
    pub async fn refunds_of(&self, refund: &str) -> Vec<Value> {
        let mut refunds = self.refunds().await;
        refunds.retain(|found| found["metadata"]["payonce_refund_id"] == refund);
        refunds
    }

    /// Refunds an object behind payonce's back, and returns the refund's id.
    pub async fn refund_outside(&self, object: &str, amount: i64, stamp: Option<&str>) -> String {
        let stamp = stamp.map_or_else(String::new, |stamp| {
            format!("&metadata%5Bpayonce_refund_id%5D={stamp}")
        });
        let form = format!("payment_intent={object}&amount={amount}{stamp}");
        let made = self.as_account(SECRET_KEY, "/v1/refunds", form).await;
        made["id"]
            .as_str()
            .unwrap_or_else(|| panic!("{made}"))
            .to_owned()
    }

    /// The keys of the requests to make a refund, in their order.
    pub async fn refund_keys(&self) -> Vec<String> {
        let requests = self.requests().await;
        requests
            .iter()
            .filter(|request| request["method"] == "POST" && request["path"] == "/v1/refunds")
            .map(|request| key_of(request).to_owned())
            .collect()
    }

    /// Every object that was made, whether or not it moved money.
    pub async fn objects(&self) -> Vec<Value> {
        self.get("/_sim/objects").await.as_array().unwrap().clone()
    }

    /// The requests that came in for charges and refunds, oldest first; a process that starts asks whose its key is, too.
    pub async fn requests(&self) -> Vec<Value> {
        let mut requests = self.all_requests().await;
        requests.retain(|request| request["path"] != "/v1/account");
        requests
    }

    /// Every request that came in, oldest first.
    pub async fn all_requests(&self) -> Vec<Value> {
        self.get("/_sim/requests").await.as_array().unwrap().clone()
    }

    /// The requests to make an object: each one's key, in their order.
    pub async fn prepare_keys(&self) -> Vec<String> {
        let requests = self.requests().await;
        requests
            .iter()
            .filter(|request| {
                request["method"] == "POST" && request["path"] == "/v1/payment_intents"
            })
            .map(|request| key_of(request).to_owned())
            .collect()
    }

    /// The keys of the requests that payonce made to prepare an object for one charge.
    pub async fn prepare_keys_of(&self, charge: &str) -> Vec<String> {
        let mut keys = self.prepare_keys().await;
        keys.retain(|key| key.starts_with(charge));
        keys
    }

    /// The requests to execute an object: what each one's key adds to the charge's id, and how it was answered.
    pub async fn executes(&self) -> Vec<(String, Value)> {
        let requests = self.requests().await;
        requests
            .iter()
            .filter(|request| request["path"].as_str().unwrap().ends_with("/confirm"))
            .map(|request| {
                let number = key_of(request).rsplit('-').next().unwrap();
                (number.to_owned(), request["status"].clone())
            })
            .collect()
    }

    /// Replaces the settings: `{"latency_ms": 5, "rates": {"execute.html": 0.2}}`.
    pub async fn settings(&self, settings: Value) {
        self.send(reqwest::Method::PUT, "/_sim/settings", Some(settings))
            .await;
    }

    pub async fn advance(&self, seconds: u64) {
        self.send(
            reqwest::Method::POST,
            "/_sim/clock",
            Some(json!({"advance_seconds": seconds})),
        )
        .await;
    }

    /// The next request of a phase (`prepare`, `execute`, `read`, `cancel`) stops before or after its effect.
    pub async fn hold(&self, phase: &str, when: &str) {
        self.send(
            reqwest::Method::PUT,
            "/_sim/hold",
            Some(json!({"phase": phase, "when": when})),
        )
        .await;
    }

    /// Returns when a request is held.
    pub async fn held(&self) {
        super::until("a request is held", async || {
            let held = self.get("/_sim/hold?wait_ms=1000").await;
            held["held"]
                .as_u64()
                .is_some_and(|count| count > 0)
                .then_some(())
        })
        .await;
    }

    /// Lets go what is held and holds nothing more.
    pub async fn release(&self) {
        self.send(reqwest::Method::DELETE, "/_sim/hold", None).await;
    }

    /// Dictates the next answers: `{"phase": "execute", "status": 424, "body": "", "effect": false, "times": 1}`.
    pub async fn dictate(&self, answer: Value) {
        self.send(reqwest::Method::PUT, "/_sim/answer", Some(answer))
            .await;
    }

    /// Takes back what was dictated and not answered yet.
    pub async fn dictate_nothing(&self) {
        self.send(reqwest::Method::DELETE, "/_sim/answer", None)
            .await;
    }

    /// Has events delivered: `{"url": …, "secret": …, "twice": 0.5, "lost": 0.1, "late_ms": 300, "seed": 1}`.
    pub async fn deliver_to(&self, endpoint: Value) {
        self.send(reqwest::Method::PUT, "/_sim/webhook", Some(endpoint))
            .await;
    }

    /// The customer comes back from the bank: `success` or `fail`.
    pub async fn authenticate(&self, object: &str, result: &str) {
        self.send(
            reqwest::Method::POST,
            &format!("/_sim/authenticate/{object}?result={result}"),
            None,
        )
        .await;
    }

    /// Makes an object behind payonce's back, as a process does whose rows were lost, and returns its id.
    pub async fn make_object(&self, stamp: &str, amount: i64) -> String {
        self.make_object_with(SECRET_KEY, stamp, amount).await
    }

    /// In the account of this secret key.
    pub async fn make_object_with(&self, key: &str, stamp: &str, amount: i64) -> String {
        let form = format!(
            "amount={amount}&currency=usd&payment_method=pm_card_visa\
             &automatic_payment_methods%5Benabled%5D=true&automatic_payment_methods%5Ballow_redirects%5D=never\
             &metadata%5Bpayonce_charge_id%5D={stamp}"
        );
        let made = self.as_account(key, "/v1/payment_intents", form).await;
        made["id"].as_str().unwrap().to_owned()
    }

    /// Executes an object behind payonce's back.
    pub async fn execute_object(&self, object: &str) {
        self.execute_object_with(SECRET_KEY, object).await;
    }

    /// In the account of this secret key.
    pub async fn execute_object_with(&self, key: &str, object: &str) {
        let path = format!("/v1/payment_intents/{object}/confirm");
        let executed = self.as_account(key, &path, String::new()).await;
        assert_eq!(executed["status"], "succeeded");
    }

    async fn as_account(&self, key: &str, path: &str, form: String) -> Value {
        let response = self
            .http
            .post(format!("{}{path}", self.base_url()))
            .header("authorization", format!("Bearer {key}"))
            .header("content-type", "application/x-www-form-urlencoded")
            .body(form)
            .send()
            .await
            .unwrap();
        serde_json::from_slice(&response.bytes().await.unwrap()).unwrap()
    }

    /// The status of one object.
    pub async fn status_of(&self, object: &str) -> String {
        let objects = self.objects().await;
        let found = objects.iter().find(|found| found["id"] == object).unwrap();
        found["status"].as_str().unwrap().to_owned()
    }

    /// The provider forgets everything.
    pub async fn forget_everything(&self) {
        self.send(reqwest::Method::DELETE, "/_sim", None).await;
    }

    /// A `processing` object is settled: `succeeded` or `failed`.
    pub async fn settle(&self, object: &str, result: &str) {
        self.send(
            reqwest::Method::POST,
            &format!("/_sim/settle/{object}?result={result}"),
            None,
        )
        .await;
    }
}

/// The one key of a request.
fn key_of(request: &Value) -> &str {
    request["headers"]["idempotency-key"]
        .as_str()
        .unwrap_or_default()
}
