//! What the merchant was told by itself: the events of the API, and the same at its endpoints.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::chronicle::Chronicle;
use crate::evidence::Evidence;
use crate::http::{Answer, Http};
use crate::receiver::{Got, Receiver};
use crate::service::Service;

/// How long it is tried to ask anything of the API.
const PATIENCE: Duration = Duration::from_mins(1);
const PAUSE: Duration = Duration::from_millis(100);

/// The merchant's endpoints.
pub struct Endpoints {
    /// Takes what comes, more or less.
    pub good: Receiver,
    pub good_id: String,
    _silent: Receiver,
}

impl Endpoints {
    pub async fn make(
        seed: u64,
        http: &Http,
        services: &[Service],
        chronicle: &Arc<Chronicle>,
    ) -> anyhow::Result<Self> {
        let good = Receiver::start(Some(seed), chronicle.clone()).await?;
        let silent = Receiver::start(None, chronicle.clone()).await?;
        let mut ids = Vec::new();
        for receiver in [&good, &silent] {
            let body = json!({"url": receiver.url()});
            let made = asked(services, async |at| http.make_endpoint(at, &body).await).await?;
            anyhow::ensure!(made.status == 201, "an endpoint: {made:?}");
            receiver.set_secret(made.body["secret"].as_str().context("a secret")?)?;
            ids.push(made.body["id"].as_str().context("an id")?.to_owned());
        }
        Ok(Self {
            good,
            good_id: ids.swap_remove(0),
            _silent: silent,
        })
    }
}

/// Of whichever service answers.
async fn asked(
    services: &[Service],
    ask: impl AsyncFn(std::net::SocketAddr) -> Result<Answer, reqwest::Error>,
) -> anyhow::Result<Answer> {
    let answered = timeout(PATIENCE, async {
        loop {
            for at in services.iter().filter_map(Service::address) {
                if let Ok(answer) = ask(at).await
                    && answer.status < 500
                {
                    return answer;
                }
            }
            sleep(PAUSE).await;
        }
    });
    answered.await.context("no service answers")
}

/// One event of the API.
#[derive(Debug)]
pub struct Event {
    id: String,
    kind: String,
    data: Value,
}

/// All events, as a client reads them: page after page, to the end.
pub async fn read(http: &Http, services: &[Service]) -> anyhow::Result<Vec<Event>> {
    let mut events = Vec::new();
    let mut cursor = String::new();
    loop {
        let path = match cursor.as_str() {
            "" => "events?limit=100".to_owned(),
            cursor => format!("events?limit=100&cursor={cursor}"),
        };
        let page = asked(services, async |at| http.get(at, &path, None).await).await?;
        anyhow::ensure!(page.status == 200, "events: {page:?}");
        let data = page.body["data"].as_array().context("a page")?;
        for event in data {
            let text = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
            events.push(Event {
                id: text("id"),
                kind: text("type"),
                data: event["data"].clone(),
            });
        }
        let next = page.body["next_cursor"].as_str().context("a cursor")?;
        if next == cursor {
            return Ok(events);
        }
        next.clone_into(&mut cursor);
    }
}

/// How many of each type.
pub fn kinds(events: &[Event]) -> BTreeMap<String, usize> {
    let mut kinds = BTreeMap::new();
    for event in events {
        *kinds.entry(event.kind.clone()).or_default() += 1;
    }
    kinds
}

/// Each end was told once, truly, here and at the endpoint.
pub fn check(
    evidence: &Evidence,
    events: &[Event],
    got: &HashMap<String, Got>,
    chronicle: &Chronicle,
) {
    let mut of_object: HashMap<&str, Vec<&Event>> = HashMap::new();
    let mut by_id: HashMap<&str, &Event> = HashMap::new();
    for event in events {
        let object = event.data["id"].as_str().unwrap_or_default();
        of_object.entry(object).or_default().push(event);
        if by_id.insert(&event.id, event).is_some() {
            let what = format!("{event:?} is listed twice");
            chronicle.breach("one transition is one event", Some(object), what);
        }
        delivered(event, got.get(&event.id), chronicle);
    }
    for id in got.keys().filter(|id| !by_id.contains_key(id.as_str())) {
        let what = format!("{id} was delivered and is not listed");
        chronicle.breach("what is told is an event", None, what);
    }
    for (id, charge) in &evidence.charges {
        let told = of_object.remove(id.as_str()).unwrap_or_default();
        let ended = match charge.stage.as_str() {
            "succeeded" => Some("completed"),
            "failed" | "canceled" => Some("failed"),
            _ => None,
        };
        let end = End {
            id,
            object: "charge",
            told: ended,
            stage: &charge.stage,
            // Refunds are no correction of how it ended.
            ends: ended,
        };
        end.check(&told, chronicle);
    }
    for (id, refund) in &evidence.refunds.rows {
        let told = of_object.remove(id.as_str()).unwrap_or_default();
        let ended = match refund.stage.as_str() {
            "succeeded" => Some("completed"),
            "failed" | "canceled" => Some("failed"),
            _ => None,
        };
        let was_corrected = told.iter().any(|event| event.kind == "refund.corrected");
        let end = End {
            id,
            object: "refund",
            told: ended,
            stage: &refund.stage,
            // The bank takes back what was completed.
            ends: if was_corrected {
                Some("completed")
            } else {
                ended
            },
        };
        end.check(&told, chronicle);
    }
    for (id, told) in of_object {
        let what = format!("{told:?} is of nothing that is there");
        chronicle.breach("what is told is an event", Some(id), what);
    }
}

/// It came to the good endpoint, and said there what it says here.
fn delivered(event: &Event, got: Option<&Got>, chronicle: &Chronicle) {
    let object = event.data["id"].as_str();
    let Some(got) = got.filter(|got| got.taken > 0) else {
        let what = format!("{event:?} was not delivered: {got:?}");
        chronicle.breach("every event is delivered", object, what);
        return;
    };
    if got.other.is_some() {
        let what = format!("{got:?}");
        let promise = "every delivery of an event has the same bytes";
        chronicle.breach(promise, object, what);
    }
    let body: Value = serde_json::from_slice(&got.body).unwrap_or_default();
    if body["type"] != *event.kind || body["data"] != event.data {
        let what = format!("{event:?} is listed, and {body} was delivered");
        chronicle.breach("what is delivered is what is listed", object, what);
    }
}

/// How an object stands in the books at the end.
struct End<'a> {
    id: &'a str,
    object: &'static str,
    /// What the last event about its end must say; none while it is open.
    told: Option<&'static str>,
    stage: &'a str,
    /// What the one event of its end must be.
    ends: Option<&'static str>,
}

impl End<'_> {
    fn check(&self, told: &[&Event], chronicle: &Chronicle) {
        let kinds = ["completed", "failed"].map(|kind| format!("{}.{kind}", self.object));
        let ends: Vec<&str> = told
            .iter()
            .map(|event| event.kind.as_str())
            .filter(|kind| kinds.iter().any(|end| end == kind))
            .collect();
        let right: Vec<String> = self
            .ends
            .into_iter()
            .map(|end| format!("{}.{end}", self.object))
            .collect();
        if ends != right {
            let what = format!("{ends:?} was told, and {right:?} is right: {told:?}");
            chronicle.breach("each end is told once", Some(self.id), what);
        }
        let newest = told
            .iter()
            .filter(|event| event.data["status"] != "in_progress")
            .max_by_key(|event| event.data["version"].as_i64());
        if let (Some(status), Some(newest)) = (self.told, newest)
            && (newest.data["status"] != status || newest.data["stage"] != self.stage)
        {
            let what = format!("it is {}, and the last event is {newest:?}", self.stage);
            chronicle.breach("what is told is how it stands", Some(self.id), what);
        }
        let mut versions: Vec<_> = told
            .iter()
            .map(|event| event.data["version"].as_i64())
            .collect();
        versions.sort();
        if versions.windows(2).any(|two| two[0] == two[1]) {
            let what = format!("{told:?}");
            chronicle.breach("one version is told once", Some(self.id), what);
        }
    }
}
