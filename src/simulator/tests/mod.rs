//! The simulator over real HTTP. Its clock stands still unless a test moves it.

use std::time::Duration;

use serde_json::{Value, json};
use time::OffsetDateTime;

use super::*;

mod faults;
mod memory;
mod rules;

const SECRET: &str = "sk_test_one";
const CREATE: &str = "/v1/payment_intents";

struct Rig {
    base: String,
    client: reqwest::Client,
    shutdown: CancellationToken,
    running: tokio::task::JoinHandle<Result<(), SimulatorError>>,
}

#[derive(Debug)]
struct Got {
    status: u16,
    headers: reqwest::header::HeaderMap,
    text: String,
}

impl Got {
    fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    fn id(&self) -> String {
        assert_eq!(self.status, 200, "{}", self.text);
        self.json()["id"].as_str().unwrap().to_owned()
    }

    fn error(&self) -> Value {
        self.json()["error"].clone()
    }

    fn replayed(&self) -> bool {
        self.headers
            .get("idempotent-replayed")
            .is_some_and(|value| value == "true")
    }
}

type Sent = Result<Got, reqwest::Error>;

impl Rig {
    async fn new() -> Self {
        Self::with_state(None).await
    }

    async fn with_state(state_dir: Option<PathBuf>) -> Self {
        // An error means that another test was first.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let clock = Clock::from_fn(|| OffsetDateTime::from_unix_timestamp(1_800_000_000).unwrap());
        let simulator = Simulator::bind("127.0.0.1:0".parse().unwrap(), state_dir, clock)
            .await
            .unwrap();
        let shutdown = CancellationToken::new();
        let base = format!("http://{}", simulator.local_addr());
        let running = tokio::spawn(simulator.run(shutdown.clone()));
        let client = reqwest::Client::builder()
            .timeout(Duration::from_secs(10))
            .build()
            .unwrap();
        Self {
            base,
            client,
            shutdown,
            running,
        }
    }

    async fn stop(self) {
        self.shutdown.cancel();
        self.running.await.unwrap().unwrap();
    }

    async fn send(&self, request: reqwest::RequestBuilder) -> Sent {
        let response = request.send().await?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        Ok(Got {
            status,
            headers,
            text: response.text().await?,
        })
    }

    async fn try_post(&self, path: &str, key: &str, form: &[(&str, &str)]) -> Sent {
        let mut request = self
            .client
            .post(format!("{}{path}", self.base))
            .bearer_auth(SECRET)
            .form(form);
        if !key.is_empty() {
            request = request.header("Idempotency-Key", key);
        }
        self.send(request).await
    }

    async fn post(&self, path: &str, key: &str, form: &[(&str, &str)]) -> Got {
        self.try_post(path, key, form).await.unwrap()
    }

    async fn get(&self, path: &str) -> Got {
        self.send(
            self.client
                .get(format!("{}{path}", self.base))
                .bearer_auth(SECRET),
        )
        .await
        .unwrap()
    }

    async fn control(&self, method: &str, path: &str, body: Value) -> Got {
        let method = method.parse().unwrap();
        self.send(
            self.client
                .request(method, format!("{}/_sim{path}", self.base))
                .body(body.to_string()),
        )
        .await
        .unwrap()
    }

    async fn settings(&self, settings: Value) {
        let got = self.control("PUT", "/settings", settings).await;
        assert_eq!(got.status, 200, "{}", got.text);
    }

    async fn prepare(&self, key: &str, payment_method: &str) -> String {
        self.post(CREATE, key, &of(payment_method)).await.id()
    }

    async fn try_confirm(&self, id: &str, key: &str) -> Sent {
        self.try_post(&confirm(id), key, &[]).await
    }

    async fn status(&self, id: &str) -> String {
        self.get(&format!("{CREATE}/{id}")).await.json()["status"]
            .as_str()
            .unwrap()
            .to_owned()
    }

    /// The ids of what moved money.
    async fn ledger(&self) -> Vec<String> {
        let charges = self.control("GET", "/charges", Value::Null).await.json();
        charges
            .as_array()
            .unwrap()
            .iter()
            .map(|charge| charge["id"].as_str().unwrap().to_owned())
            .collect()
    }

    async fn until_held(&self) {
        assert_eq!(
            self.control("GET", "/hold?wait_ms=5000", Value::Null)
                .await
                .json(),
            json!({"held": 1})
        );
    }
}

fn confirm(id: &str) -> String {
    format!("{CREATE}/{id}/confirm")
}

fn of(payment_method: &str) -> [(&str, &str); 5] {
    [
        ("amount", "1000"),
        ("currency", "usd"),
        ("payment_method", payment_method),
        ("payment_method_types[]", "card"),
        ("metadata[order]", "A-1"),
    ]
}
