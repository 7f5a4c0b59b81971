//! What merchants run to be told: an HTTP server that keeps what it was sent and answers as it is bidden.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// One request.
#[derive(Clone, Debug)]
pub struct Got {
    pub headers: HeaderMap,
    pub body: Bytes,
    pub at: Instant,
}

impl Got {
    pub fn header(&self, name: &str) -> &str {
        self.headers[name].to_str().unwrap()
    }

    pub fn id(&self) -> &str {
        self.header("webhook-id")
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub fn kind(&self) -> String {
        self.json()["type"].as_str().unwrap().to_owned()
    }
}

/// What to do with a request, after it was kept.
#[derive(Clone, Debug)]
pub enum Does {
    Status(u16),
    /// Never answers.
    Hangs,
    /// Answers so much later.
    Late(Duration),
    Redirects(String),
    /// Answers 200 with a body without an end.
    Floods,
}

pub struct Receiver {
    pub address: SocketAddr,
    told: Arc<Told>,
    server: JoinHandle<()>,
}

#[derive(Default)]
struct Told {
    got: Mutex<Vec<Got>>,
    next: Mutex<VecDeque<Does>>,
    always: Mutex<Option<Does>>,
}

impl Receiver {
    /// Answers 200 until told otherwise.
    pub async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let told = Arc::<Told>::default();
        let router = Router::new().fallback(take).with_state(told.clone());
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self {
            address,
            told,
            server,
        }
    }

    pub fn url(&self) -> String {
        format!("http://{}/hooks", self.address)
    }

    /// What to do with the next requests, one after the other.
    pub fn next(&self, does: impl IntoIterator<Item = Does>) {
        self.told.next.lock().unwrap().extend(does);
    }

    pub fn always(&self, does: Does) {
        *self.told.always.lock().unwrap() = Some(does);
    }

    pub fn got(&self) -> Vec<Got> {
        self.told.got.lock().unwrap().clone()
    }

    /// Waits for so many requests.
    pub async fn has(&self, count: usize) -> Vec<Got> {
        super::until(&format!("{count} requests at a receiver"), async || {
            let got = self.got();
            (got.len() >= count).then_some(got)
        })
        .await
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn take(State(told): State<Arc<Told>>, headers: HeaderMap, body: Bytes) -> Response {
    told.got.lock().unwrap().push(Got {
        headers,
        body,
        at: Instant::now(),
    });
    let next = told.next.lock().unwrap().pop_front();
    let does = next.or_else(|| told.always.lock().unwrap().clone());
    match does.unwrap_or(Does::Status(200)) {
        Does::Status(status) => StatusCode::from_u16(status).unwrap().into_response(),
        Does::Hangs => std::future::pending().await,
        Does::Late(delay) => {
            tokio::time::sleep(delay).await;
            StatusCode::OK.into_response()
        }
        Does::Redirects(to) => (StatusCode::FOUND, [(header::LOCATION, to)]).into_response(),
        Does::Floods => {
            let chunk = Bytes::from(vec![b'x'; 65536]);
            let endless =
                futures_util::stream::repeat_with(move || Ok::<_, std::io::Error>(chunk.clone()));
            axum::body::Body::from_stream(endless).into_response()
        }
    }
}
