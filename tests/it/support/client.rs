//! A client of the API, without any cleverness: no retries, no redirects.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};

#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    pub base: String,
    pub token: String,
}

/// What came back.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: reqwest::header::HeaderMap,
    pub body: Value,
}

impl Answer {
    pub fn id(&self) -> String {
        self.body["id"]
            .as_str()
            .unwrap_or_else(|| panic!("no id in {self:?}"))
            .to_owned()
    }

    pub fn is_replay(&self) -> bool {
        self.headers
            .get("idempotent-replayed")
            .is_some_and(|value| value == "true")
    }

    pub fn code(&self) -> &str {
        self.body["code"].as_str().unwrap_or_default()
    }
}

pub fn http() -> reqwest::Client {
    // Already there when another test was first.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .timeout(Duration::from_mins(1))
        .build()
        .unwrap()
}

pub fn charge_body(payment_method: &str) -> Value {
    json!({"amount": 1000, "currency": "usd", "payment_method": payment_method})
}

impl Client {
    pub fn new(at: SocketAddr, token: &str) -> Self {
        Self {
            http: http(),
            base: format!("http://{at}"),
            token: token.to_owned(),
        }
    }

    /// The same client with another key.
    pub fn with_token(&self, token: &str) -> Self {
        Self {
            token: token.to_owned(),
            ..self.clone()
        }
    }

    /// POSTs a charge; `Err` when the connection gave no answer.
    pub async fn try_charge(&self, key: &str, body: &Value) -> Result<Answer, reqwest::Error> {
        answer(self.post_charge(key, body).send().await?).await
    }

    fn post_charge(&self, key: &str, body: &Value) -> reqwest::RequestBuilder {
        self.http
            .post(format!("{}/v1/charges", self.base))
            .bearer_auth(&self.token)
            .header("idempotency-key", key)
            .header("content-type", "application/json")
            .body(body.to_string())
    }

    /// POSTs a charge and prefers to wait.
    pub async fn charge_and_wait(&self, key: &str, body: &Value, seconds: u64) -> Answer {
        let request = self
            .post_charge(key, body)
            .header("prefer", format!("wait={seconds}"));
        answer(request.send().await.unwrap()).await.unwrap()
    }

    /// The bytes of a POST, for a client that does with its connection as it likes.
    pub fn raw_charge(&self, key: &str, body: &Value) -> String {
        let (token, body) = (&self.token, body.to_string());
        let length = body.len();
        format!(
            "POST /v1/charges HTTP/1.1\r\nhost: payonce\r\nauthorization: Bearer {token}\r\nidempotency-key: {key}\r\n\
             content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        )
    }

    /// A connection of one's own to the API.
    pub async fn connect(&self) -> tokio::net::TcpStream {
        let address = self.base.trim_start_matches("http://");
        tokio::net::TcpStream::connect(address).await.unwrap()
    }

    pub async fn charge(&self, key: &str, body: &Value) -> Answer {
        self.try_charge(key, body).await.unwrap()
    }

    /// Sends the same request until it is answered with 200 or 202, as a client should.
    pub async fn charge_until_accepted(&self, key: &str, body: &Value) -> Answer {
        super::until(&format!("{key} is accepted"), async || {
            match self.try_charge(key, body).await {
                Ok(answer) if matches!(answer.status, 200 | 202) => Some(answer),
                Ok(answer) => {
                    assert!(answer.status >= 500 || answer.status == 429, "{answer:?}");
                    None
                }
                Err(_) => None,
            }
        })
        .await
    }

    pub async fn get(&self, path: &str) -> Answer {
        let request = self
            .http
            .get(format!("{}{path}", self.base))
            .bearer_auth(&self.token);
        answer(request.send().await.unwrap()).await.unwrap()
    }

    fn post_refund(&self, charge: &str, key: &str, body: &Value) -> reqwest::RequestBuilder {
        self.http
            .post(format!("{}/v1/charges/{charge}/refunds", self.base))
            .bearer_auth(&self.token)
            .header("idempotency-key", key)
            .header("content-type", "application/json")
            .body(body.to_string())
    }

    /// POSTs a refund; `Err` when the connection gave no answer.
    pub async fn try_refund(
        &self,
        charge: &str,
        key: &str,
        body: &Value,
    ) -> Result<Answer, reqwest::Error> {
        answer(self.post_refund(charge, key, body).send().await?).await
    }

    pub async fn refund(&self, charge: &str, key: &str, body: &Value) -> Answer {
        let request = self.post_refund(charge, key, body);
        answer(request.send().await.unwrap()).await.unwrap()
    }

    /// POSTs a refund and prefers to wait.
    pub async fn refund_and_wait(&self, charge: &str, key: &str, body: &Value) -> Answer {
        let request = self
            .post_refund(charge, key, body)
            .header("prefer", "wait=20");
        answer(request.send().await.unwrap()).await.unwrap()
    }

    /// The refund as it is once it is terminal.
    pub async fn refund_ended(&self, id: &str) -> Value {
        super::until(&format!("{id} is terminal"), async || {
            let answer = self.get(&format!("/v1/refunds/{id}")).await;
            (answer.body["status"] != "in_progress" && answer.status == 200).then_some(answer.body)
        })
        .await
    }

    /// The refund as it is once it is at `stage`.
    pub async fn refund_at_stage(&self, id: &str, stage: &str) -> Value {
        super::until(&format!("{id} is at {stage}"), async || {
            let answer = self.get(&format!("/v1/refunds/{id}")).await;
            (answer.body["stage"] == stage).then_some(answer.body)
        })
        .await
    }

    /// Any request with a key, with a JSON body if there is one.
    pub async fn send(&self, method: &str, path: &str, body: Option<Value>) -> Answer {
        let method = reqwest::Method::from_bytes(method.as_bytes()).unwrap();
        let mut request = self
            .http
            .request(method, format!("{}{path}", self.base))
            .bearer_auth(&self.token);
        if let Some(body) = body {
            request = request
                .header("content-type", "application/json")
                .body(body.to_string());
        }
        answer(request.send().await.unwrap()).await.unwrap()
    }

    pub async fn cancel(&self, id: &str) -> Answer {
        let url = format!("{}/v1/charges/{id}/cancel", self.base);
        let request = self.http.post(url).bearer_auth(&self.token);
        answer(request.send().await.unwrap()).await.unwrap()
    }

    /// Cancels a charge and prefers to wait.
    pub async fn cancel_and_wait(&self, id: &str, seconds: u64) -> Answer {
        let request = self
            .http
            .post(format!("{}/v1/charges/{id}/cancel", self.base))
            .bearer_auth(&self.token)
            .header("prefer", format!("wait={seconds}"));
        answer(request.send().await.unwrap()).await.unwrap()
    }

    /// GETs a charge and prefers to wait.
    pub async fn show_and_wait(&self, id: &str, seconds: u64) -> Answer {
        let request = self
            .http
            .get(format!("{}/v1/charges/{id}", self.base))
            .bearer_auth(&self.token)
            .header("prefer", format!("wait={seconds}"));
        answer(request.send().await.unwrap()).await.unwrap()
    }

    pub async fn show(&self, id: &str) -> Answer {
        self.get(&format!("/v1/charges/{id}")).await
    }

    /// The charge as it is once it is terminal.
    pub async fn terminal(&self, id: &str) -> Value {
        super::until(&format!("{id} is terminal"), async || {
            let answer = self.show(id).await;
            (answer.body["status"] != "in_progress" && answer.status == 200).then_some(answer.body)
        })
        .await
    }

    /// The charge as it is once it is at `stage`.
    pub async fn at_stage(&self, id: &str, stage: &str) -> Value {
        super::until(&format!("{id} is at {stage}"), async || {
            let answer = self.show(id).await;
            (answer.body["stage"] == stage).then_some(answer.body)
        })
        .await
    }
}

pub async fn answer(response: reqwest::Response) -> Result<Answer, reqwest::Error> {
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let bytes = response.bytes().await?;
    let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
    Ok(Answer {
        status,
        headers,
        body,
    })
}
