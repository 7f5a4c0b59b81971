//! What the merchant runs to be told: one endpoint that takes what comes, at times late, with an error or not at all, and
//! one that never answers.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::FutureExt;
use hmac::{Hmac, KeyInit, Mac};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use payonce::clock::Clock;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use sha2::Sha256;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

use crate::chronicle::Chronicle;

/// How far a delivery's time may be from ours, after the specification.
const TOLERANCE: Duration = Duration::from_mins(5);

pub struct Receiver {
    pub address: SocketAddr,
    told: Arc<Told>,
}

/// One event, as it was told.
#[derive(Clone, Debug)]
pub struct Got {
    pub body: Bytes,
    /// Something else that came under the same id.
    pub other: Option<Bytes>,
    /// How often it came, and how often it was answered with 200.
    pub times: u32,
    pub taken: u32,
}

struct Told {
    chronicle: Arc<Chronicle>,
    /// None for an endpoint that never answers.
    random: Option<Mutex<StdRng>>,
    /// Set when the endpoint is known, after which something may come.
    secret: Mutex<Vec<u8>>,
    is_calm: AtomicBool,
    got: Mutex<HashMap<String, Got>>,
}

/// What it does with a delivery, once that is kept.
enum Does {
    Takes,
    TakesLate(Duration),
    Errs,
    HangsUp,
    NeverAnswers,
}

impl Receiver {
    /// With a seed one that takes what comes, without one that never answers.
    pub async fn start(seed: Option<u64>, chronicle: Arc<Chronicle>) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let told = Arc::new(Told {
            chronicle,
            random: seed.map(|seed| Mutex::new(StdRng::seed_from_u64(seed))),
            secret: Mutex::default(),
            is_calm: AtomicBool::new(false),
            got: Mutex::default(),
        });
        tokio::spawn(accept(listener, told.clone()));
        Ok(Self { address, told })
    }

    pub fn url(&self) -> String {
        format!("http://{}/events", self.address)
    }

    /// `whsec_` and the key in base64.
    pub fn set_secret(&self, secret: &str) -> anyhow::Result<()> {
        let key = STANDARD.decode(secret.trim_start_matches("whsec_"))?;
        *self.told.secret.lock().unwrap() = key;
        Ok(())
    }

    /// From now on it takes whatever comes.
    pub fn calm(&self) {
        self.told.is_calm.store(true, Ordering::Relaxed);
    }

    /// All that came, by its `webhook-id`.
    pub fn got(&self) -> HashMap<String, Got> {
        self.told.got.lock().unwrap().clone()
    }
}

async fn accept(listener: TcpListener, told: Arc<Told>) {
    loop {
        // Out of descriptors, say: the sender tries again.
        if let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, told.clone()));
        }
    }
}

async fn serve(stream: TcpStream, told: Arc<Told>) {
    let service = service_fn(|request| take(told.clone(), request));
    let connection =
        hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    // It ends with an error where it hangs up.
    connection.map(|_| ()).await;
}

async fn take(
    told: Arc<Told>,
    request: Request<Incoming>,
) -> Result<Response<Empty<Bytes>>, io::Error> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    told.judge(&head.headers, &body);
    let id = text(&head.headers, "webhook-id");
    told.keep(&id, &body);
    let status = match told.draw() {
        Does::Takes => StatusCode::OK,
        Does::TakesLate(delay) => {
            sleep(delay).await;
            StatusCode::NO_CONTENT
        }
        Does::Errs => StatusCode::INTERNAL_SERVER_ERROR,
        Does::HangsUp => return Err(io::ErrorKind::ConnectionAborted.into()),
        Does::NeverAnswers => match std::future::pending::<Infallible>().await {},
    };
    if status.is_success()
        && let Some(got) = told.got.lock().unwrap().get_mut(&id)
    {
        got.taken += 1;
    }
    let mut response = Response::new(Empty::new());
    *response.status_mut() = status;
    Ok(response)
}

impl Told {
    fn draw(&self) -> Does {
        let Some(random) = &self.random else {
            return Does::NeverAnswers;
        };
        if self.is_calm.load(Ordering::Relaxed) {
            return Does::Takes;
        }
        let mut random = random.lock().unwrap();
        match random.random_range(0..100) {
            0..3 => Does::Errs,
            3..5 => Does::HangsUp,
            // Some longer than a delivery may take.
            5..7 => Does::TakesLate(Duration::from_millis(random.random_range(20..1300))),
            _ => Does::Takes,
        }
    }

    fn keep(&self, id: &str, body: &Bytes) {
        let mut all = self.got.lock().unwrap();
        let got = all.entry(id.to_owned()).or_insert_with(|| Got {
            body: body.clone(),
            other: None,
            times: 0,
            taken: 0,
        });
        got.times += 1;
        if got.body != *body {
            got.other = Some(body.clone());
        }
    }

    /// By the rules of Standard Webhooks, with nothing of the sender's code.
    fn judge(&self, headers: &HeaderMap, body: &[u8]) {
        let [id, at, signatures] = ["webhook-id", "webhook-timestamp", "webhook-signature"]
            .map(|name| text(headers, name));
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.secret.lock().unwrap())
            .expect("keys of any length are taken");
        mac.update(format!("{id}.{at}.").as_bytes());
        mac.update(body);
        let right = STANDARD.encode(mac.finalize().into_bytes());
        let is_signed = signatures
            .split(' ')
            .any(|signature| signature.strip_prefix("v1,") == Some(&right));
        let now = Clock::system().now().unix_timestamp();
        let is_near = at
            .parse()
            .is_ok_and(|at| now.abs_diff(at) <= TOLERANCE.as_secs());
        if id.is_empty() || !is_signed || !is_near {
            let what = format!("{id} at {at}, signed {signatures:?}");
            self.chronicle.breach("what is told is signed", None, what);
        }
    }
}

fn text(headers: &HeaderMap, name: &str) -> String {
    let value = headers.get(name).and_then(|value| value.to_str().ok());
    value.unwrap_or_default().to_owned()
}
