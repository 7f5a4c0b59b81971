//! Tells an endpoint what happens in an account, signed as Stripe signs: at least once, in any order, and on purpose late,
//! twice or not at all. A delivery that is not answered 2xx is tried again a few times.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::Sha256;
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Shared;
use super::listing::EventView;
use super::model::{Snapshot, Status};
use super::refunds::Refund;
use super::state::{Event, EventKind, Owner};

/// Beyond it the oldest are lost, as a provider's may be.
const MOST_WAITING: usize = 100_000;
const MOST_AT_ONCE: usize = 32;
const MOST_TRIES: u32 = 8;
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const TIMEOUT: Duration = Duration::from_secs(5);

/// Where events go, and what becomes of some of them.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Endpoint {
    pub(super) url: String,
    pub(super) secret: String,
    /// Whose events, as `/_sim/objects` shows the account; left out, of all that have no endpoint of their own.
    #[serde(default)]
    pub(super) account: Option<String>,
    #[serde(default)]
    pub(super) seed: u64,
    /// The share that is never delivered.
    #[serde(default)]
    pub(super) lost: f64,
    /// The share that is delivered twice.
    #[serde(default)]
    pub(super) twice: f64,
    /// Each is delivered up to so much later, so that they overtake each other.
    #[serde(default)]
    pub(super) late_ms: u64,
}

impl Endpoint {
    /// Everything is delivered, once and at once.
    pub(super) fn new(url: String, secret: String) -> Self {
        Self {
            url,
            secret,
            account: None,
            seed: 0,
            lost: 0.0,
            twice: 0.0,
            late_ms: 0,
        }
    }

    pub(super) fn check(&self) -> Result<(), &'static str> {
        let share = 0.0..=1.0;
        if !share.contains(&self.lost) || !share.contains(&self.twice) {
            return Err("lost and twice are shares between 0 and 1");
        }
        let plain = reqwest::Url::parse(&self.url).is_ok_and(|url| url.scheme() == "http");
        plain.then_some(()).ok_or("url is no http address")
    }
}

struct Delivery {
    id: String,
    body: String,
    late: Duration,
    endpoint: Arc<Endpoint>,
}

/// An endpoint, and by what dice its deliveries go wrong.
struct Told {
    endpoint: Arc<Endpoint>,
    dice: StdRng,
}

/// What waits to be delivered.
pub(super) struct Outgoing {
    told: Vec<Told>,
    waiting: VecDeque<Delivery>,
    ring: Arc<Notify>,
}

impl Outgoing {
    pub(super) fn new() -> Self {
        Self {
            told: Vec::new(),
            waiting: VecDeque::new(),
            ring: Arc::new(Notify::new()),
        }
    }

    /// From now on the events of its account go there, and no longer to where they went before; what waits to be is
    /// forgotten.
    pub(super) fn set(&mut self, endpoint: Endpoint) {
        self.told
            .retain(|told| told.endpoint.account != endpoint.account);
        self.waiting
            .retain(|delivery| delivery.endpoint.account != endpoint.account);
        self.told.push(Told {
            dice: StdRng::seed_from_u64(endpoint.seed),
            endpoint: Arc::new(endpoint),
        });
    }

    /// From now on no events go anywhere; what waits is forgotten.
    pub(super) fn clear(&mut self) {
        self.told.clear();
        self.waiting.clear();
    }

    fn of(&self, owner: &Owner) -> Option<usize> {
        let with = |account: Option<&str>| {
            let is_it = |told: &Told| told.endpoint.account.as_deref() == account;
            self.told.iter().position(is_it)
        };
        with(Some(&owner.hint)).or_else(|| with(None))
    }

    /// `place` is the event's in its account.
    pub(super) fn tell(&mut self, owner: &Owner, place: usize, event: &Event, then: &Snapshot) {
        let Some(endpoint) = self.of(owner) else {
            return;
        };
        let view = EventView::new(place, event, then);
        let of_intent = (view.id.clone(), serde_json::to_string(&view));
        let of_charge = charge_event(place, event, then).map(|(id, body)| (id, Ok(body)));
        let told = of_charge.into_iter().chain([of_intent]);
        self.put(
            endpoint,
            told.filter_map(|(id, body)| Some((id, body.ok()?))),
        );
    }

    /// A refund is made, or has changed.
    pub(super) fn tell_refund(&mut self, owner: &Owner, refund: &Refund, is_new: bool, at: i64) {
        let Some(endpoint) = self.of(owner) else {
            return;
        };
        let tail = refund.id.trim_start_matches("re_");
        let view = refund.view();
        let (kind, of) = match (is_new, view.status) {
            (true, _) => ("refund.created", "new"),
            (false, "failed") => ("refund.failed", "failed"),
            (false, other) => ("refund.updated", other),
        };
        let event = |id: String, kind: &str, object: serde_json::Value| {
            let body = json!({
                "id": id,
                "object": "event",
                "type": kind,
                "created": at,
                "livemode": owner.livemode,
                "data": {"object": object},
            });
            (id, body.to_string())
        };
        let of_refund = event(format!("evt_{tail}{of}"), kind, json!(view));
        // Stripe tells it of the charge, too.
        let of_charge = is_new.then(|| {
            let charge = json!({
                "id": view.charge(),
                "object": "charge",
                "created": at,
                "payment_intent": refund.payment_intent,
                "refunded": true,
            });
            event(format!("evt_{tail}charge"), "charge.refunded", charge)
        });
        self.put(endpoint, of_charge.into_iter().chain([of_refund]));
    }

    fn put(&mut self, endpoint: usize, events: impl IntoIterator<Item = (String, String)>) {
        let Told { endpoint, dice } = &mut self.told[endpoint];
        for (id, body) in events {
            if dice.random_bool(endpoint.lost) {
                continue;
            }
            let times = 1 + usize::from(dice.random_bool(endpoint.twice));
            for _ in 0..times {
                let late = Duration::from_millis(dice.random_range(0..=endpoint.late_ms));
                self.waiting.push_back(Delivery {
                    id: id.clone(),
                    body: body.clone(),
                    late,
                    endpoint: Arc::clone(endpoint),
                });
            }
        }
        while self.waiting.len() > MOST_WAITING {
            self.waiting.pop_front();
        }
        self.ring.notify_one();
    }
}

/// Stripe tells the end of a try twice: of the charge, and of the intent that it belongs to.
fn charge_event(place: usize, event: &Event, then: &Snapshot) -> Option<(String, String)> {
    let kind = match event.kind {
        EventKind::Succeeded => "charge.succeeded",
        EventKind::Failed => "charge.failed",
        EventKind::Created
        | EventKind::RequiresAction
        | EventKind::Processing
        | EventKind::Canceled => return None,
    };
    let metadata: serde_json::Map<_, _> = then
        .fixed
        .metadata
        .iter()
        .map(|(key, value)| (key.to_string(), json!(value)))
        .collect();
    let id = format!("evt_{}c{place}", then.fixed.tail());
    let body = json!({
        "id": id,
        "object": "event",
        "type": kind,
        "created": event.at,
        "livemode": then.fixed.livemode,
        "data": {"object": {
            "id": then.charge_id(),
            "object": "charge",
            "amount": then.fixed.amount,
            "currency": then.fixed.currency,
            "created": event.at,
            "metadata": metadata,
            "paid": then.now.status == Status::Succeeded,
            "payment_intent": then.fixed.id,
            "status": if then.now.status == Status::Succeeded { "succeeded" } else { "failed" },
        }},
    });
    Some((id, body.to_string()))
}

/// Delivers until the simulator stops.
pub(super) async fn deliver(shared: Arc<Shared>) {
    let mut client = None;
    let (ring, stop) = (shared.lock().outgoing.ring.clone(), shared.stop.clone());
    let (at_once, under_way) = (Arc::new(Semaphore::new(MOST_AT_ONCE)), TaskTracker::new());
    loop {
        let next = shared.lock().outgoing.waiting.pop_front();
        let Some(delivery) = next else {
            tokio::select! {
                () = ring.notified() => continue,
                () = stop.cancelled() => break,
            }
        };
        let permit = tokio::select! {
            permit = Arc::clone(&at_once).acquire_owned() => permit,
            () = stop.cancelled() => break,
        };
        let Ok(permit) = permit else { break };
        let Some(client) = client.get_or_insert_with(client_of_http).clone() else {
            break;
        };
        let (shared, stop) = (Arc::clone(&shared), stop.clone());
        under_way.spawn(async move {
            // Those that wait for their time hold up nobody.
            if !delivery.late.is_zero() {
                drop(permit);
                stop.run_until_cancelled(tokio::time::sleep(delivery.late))
                    .await;
            }
            attempt(&client, &shared, &delivery, &stop).await;
        });
    }
    under_way.close();
    under_way.wait().await;
}

/// Of plain HTTP, so that it need not read the machine's certificates.
fn client_of_http() -> Option<reqwest::Client> {
    // Already done where the service runs in this process.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder()
        .timeout(TIMEOUT)
        .no_proxy()
        .tls_certs_only([])
        .build();
    client
        .inspect_err(|error| tracing::warn!(%error, "the simulator can deliver no events"))
        .ok()
}

async fn attempt(
    client: &reqwest::Client,
    shared: &Shared,
    delivery: &Delivery,
    stop: &CancellationToken,
) {
    let mut pause = FIRST_PAUSE;
    for _ in 0..MOST_TRIES {
        let at = {
            let mut state = shared.lock();
            shared.now_ms(&mut state).div_euclid(1000)
        };
        let signature = sign(&delivery.endpoint.secret, at, &delivery.body);
        let request = client
            .post(&delivery.endpoint.url)
            .header("content-type", "application/json; charset=utf-8")
            .header("stripe-signature", format!("t={at},v1={signature}"))
            .body(delivery.body.clone());
        match stop.run_until_cancelled(request.send()).await {
            None => return,
            Some(Ok(response)) if response.status().is_success() => return,
            Some(_) => {}
        }
        tracing::debug!(event.id = delivery.id, "the endpoint did not take an event");
        let waited = stop.run_until_cancelled(tokio::time::sleep(pause)).await;
        if waited.is_none() {
            return;
        }
        pause *= 2;
    }
}

fn sign(secret: &str, at: i64, body: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes())
        .expect("an HMAC takes a key of any length");
    mac.update(format!("{at}.{body}").as_bytes());
    hex::encode(mac.finalize().into_bytes())
}
