//! The load: a number of connections in a closed loop, each with a key of its own in each request.
//!
//! It lives on one thread, writes a prepared request into which only the key is copied, and reads a reply by its length,
//! so that nearly all of the machine is left to what is measured; what it costs is told beside the rates.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use payonce::domain::ids::ChargeId;
use payonce::random::Random;
use tokio::task::JoinSet;

use super::http::{self, Connection};
use super::report::Sample;

#[derive(Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) address: SocketAddr,
    pub(crate) token: &'a str,
}

/// What stands where a key or a charge's id goes: both have as many characters.
const PLACE: &str = "00000000-0000-0000-0000-000000000000";
type Text = [u8; PLACE.len()];

/// How much is sent.
#[derive(Clone, Copy)]
pub(crate) enum Amount {
    For(Duration),
    Requests(usize),
}

/// Charges, each under a new key. Anything but 202 is an error: it would count what is no acceptance.
pub(crate) async fn run(
    target: Target<'_>,
    connections: usize,
    amount: Amount,
) -> anyhow::Result<Sample> {
    let random = Random::from_os();
    let headers = format!(
        "Authorization: Bearer {}\r\nIdempotency-Key: {PLACE}\r\nContent-Type: application/json\r\n",
        target.token
    );
    let request = Request::new(
        http::request("POST /v1/charges", &headers, &body(PLACE)),
        202,
    );
    let key = move |text: &mut Text| {
        random.uuid().hyphenated().encode_lower(text);
    };
    send(target, connections, amount, &request, key).await
}

/// Reads of these charges at random.
pub(crate) async fn reads(
    target: Target<'_>,
    connections: usize,
    amount: Amount,
    ids: Arc<[ChargeId]>,
) -> anyhow::Result<Sample> {
    let random = Random::from_os();
    let headers = format!("Authorization: Bearer {}\r\n", target.token);
    let line = format!("GET /v1/charges/{PLACE}");
    let request = Request::new(http::request(&line, &headers, ""), 200);
    let id = move |text: &mut Text| {
        let at = random.uuid().as_u128() % ids.len() as u128;
        let id = usize::try_from(at).map_or_else(|_| String::new(), |at| ids[at].to_string());
        text.copy_from_slice(id.as_bytes());
    };
    send(target, connections, amount, &request, id).await
}

async fn send(
    target: Target<'_>,
    connections: usize,
    amount: Amount,
    request: &Request,
    fill: impl Fn(&mut Text) + Clone + Send + 'static,
) -> anyhow::Result<Sample> {
    let mut idle = Vec::new();
    for _ in 0..connections {
        idle.push(Client {
            connection: Connection::open(target.address).await?,
            request: request.clone(),
            fill: fill.clone(),
        });
    }
    let begun = Instant::now();
    let more = Arc::new(match amount {
        Amount::For(time) => More::Until(begun + time),
        Amount::Requests(count) => More::Left(count.into()),
    });
    let mut clients = JoinSet::new();
    for client in idle {
        clients.spawn(client.run(more.clone()));
    }
    let mut latencies = Vec::new();
    while let Some(client) = clients.join_next().await {
        latencies.append(&mut client??);
    }
    Ok(Sample::of(latencies, begun.elapsed()))
}

/// Whether there is something left to send.
enum More {
    Until(Instant),
    Left(AtomicUsize),
}

impl More {
    fn takes(&self, now: Instant) -> bool {
        match self {
            Self::Until(end) => now < *end,
            Self::Left(count) => count
                .fetch_update(Relaxed, Relaxed, |count| count.checked_sub(1))
                .is_ok(),
        }
    }
}

struct Client<F> {
    connection: Connection,
    request: Request,
    fill: F,
}

impl<F: Fn(&mut Text)> Client<F> {
    /// Sends as long as there is more; the microseconds of each request.
    async fn run(mut self, more: Arc<More>) -> anyhow::Result<Vec<u32>> {
        let mut latencies = Vec::with_capacity(64 * 1024);
        let mut text = [0; PLACE.len()];
        let mut begun = Instant::now();
        while more.takes(begun) {
            (self.fill)(&mut text);
            self.request.set(&text);
            self.connection
                .call(&self.request.bytes)
                .await?
                .expect(self.request.expected)?;
            let done = Instant::now();
            latencies.push(u32::try_from((done - begun).as_micros())?);
            begun = done;
        }
        Ok(latencies)
    }
}

/// The body that is stored: what a shop sends, with its order's number twice.
pub(crate) fn body(order: &str) -> String {
    format!(
        r#"{{"amount":1999,"currency":"usd","payment_method":"pm_card_visa","reference":"{order}","metadata":{{"order":"{order}"}}}}"#
    )
}

#[derive(Clone)]
struct Request {
    bytes: Vec<u8>,
    places: Vec<usize>,
    expected: u16,
}

impl Request {
    fn new(bytes: Vec<u8>, expected: u16) -> Self {
        let places = (0..=bytes.len() - PLACE.len())
            .filter(|at| bytes[*at..].starts_with(PLACE.as_bytes()))
            .collect();
        Self {
            bytes,
            places,
            expected,
        }
    }

    fn set(&mut self, text: &Text) {
        for at in &self.places {
            self.bytes[*at..*at + text.len()].copy_from_slice(text);
        }
    }
}
