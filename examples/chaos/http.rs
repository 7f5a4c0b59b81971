//! HTTP as a client of the API speaks it: to whichever service answers.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;

/// Longer than a healthy service takes for anything but a wait; whoever hears nothing for so long asks another one.
const PATIENCE: Duration = Duration::from_millis(1500);

#[derive(Clone)]
pub struct Http {
    client: reqwest::Client,
    token: String,
}

/// What came back.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub is_replay: bool,
    pub body: Value,
}

pub fn client() -> anyhow::Result<reqwest::Client> {
    // An error means that it is there already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Ok(reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .connect_timeout(Duration::from_millis(500))
        .timeout(PATIENCE)
        .build()?)
}

impl Http {
    pub fn new(client: reqwest::Client, token: String) -> Self {
        Self { client, token }
    }

    /// POSTs a charge; `Err` when no answer came.
    pub async fn charge(
        &self,
        at: SocketAddr,
        key: &str,
        body: &Value,
        wait: Option<u64>,
    ) -> Result<Answer, reqwest::Error> {
        let request = self
            .client
            .post(format!("http://{at}/v1/charges"))
            .header("idempotency-key", key)
            .header("content-type", "application/json")
            .body(body.to_string());
        self.send(request, wait).await
    }

    /// POSTs a refund of a charge.
    pub async fn refund(
        &self,
        at: SocketAddr,
        charge: &str,
        key: &str,
        body: &Value,
        wait: Option<u64>,
    ) -> Result<Answer, reqwest::Error> {
        let request = self
            .client
            .post(format!("http://{at}/v1/charges/{charge}/refunds"))
            .header("idempotency-key", key)
            .header("content-type", "application/json")
            .body(body.to_string());
        self.send(request, wait).await
    }

    /// GETs a path under /v1.
    pub async fn get(
        &self,
        at: SocketAddr,
        path: &str,
        wait: Option<u64>,
    ) -> Result<Answer, reqwest::Error> {
        let request = self.client.get(format!("http://{at}/v1/{path}"));
        self.send(request, wait).await
    }

    pub async fn make_endpoint(
        &self,
        at: SocketAddr,
        body: &Value,
    ) -> Result<Answer, reqwest::Error> {
        let request = self
            .client
            .post(format!("http://{at}/v1/webhook_endpoints"))
            .header("content-type", "application/json")
            .body(body.to_string());
        self.send(request, None).await
    }

    pub async fn cancel(&self, at: SocketAddr, id: &str) -> Result<Answer, reqwest::Error> {
        let request = self
            .client
            .post(format!("http://{at}/v1/charges/{id}/cancel"));
        self.send(request, None).await
    }

    /// The customer's browser.
    pub async fn visit(&self, url: &str) {
        // Whether it came there shows in the charge.
        let _ = self.client.get(url).send().await;
    }

    async fn send(
        &self,
        mut request: reqwest::RequestBuilder,
        wait: Option<u64>,
    ) -> Result<Answer, reqwest::Error> {
        if let Some(seconds) = wait {
            request = request
                .header("prefer", format!("wait={seconds}"))
                .timeout(PATIENCE + Duration::from_secs(seconds));
        }
        let response = request.bearer_auth(&self.token).send().await?;
        let status = response.status().as_u16();
        let is_replay = response.headers().contains_key("idempotent-replayed");
        let bytes = response.bytes().await?;
        Ok(Answer {
            status,
            is_replay,
            body: serde_json::from_slice(&bytes).unwrap_or_default(),
        })
    }
}
