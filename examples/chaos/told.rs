//! What a client asked for under one key and what it was told: the promises that it can check by itself.

use serde_json::Value;

use crate::chronicle::Chronicle;
use crate::purchase::Purchase;

pub struct Told {
    pub purchase: Purchase,
    /// Named by the first answer.
    pub id: Option<String>,
    /// How often it was told that it was the first.
    created: u32,
    version: i64,
    /// The last answer's `status/stage/money`.
    pub stands: String,
    /// Once it is final.
    pub terminal: Option<String>,
    /// Where the customer must go.
    pub action: Option<String>,
    /// In a run with a restore, the books may go back to an earlier moment: versions may, and a cancel of a charge that
    /// the provider never heard of may be forgotten.
    pub restored: bool,
}

const TRIPLES: [&str; 8] = [
    "in_progress/pending/not_moved",
    "in_progress/processing/not_moved",
    "in_progress/processing/unknown",
    "in_progress/requires_action/unknown",
    "in_progress/requires_reconciliation/unknown",
    COMPLETED,
    "failed/failed/not_moved",
    "failed/canceled/not_moved",
];

const COMPLETED: &str = "completed/succeeded/moved";

impl Told {
    pub fn new(purchase: Purchase, restored: bool) -> Self {
        Self {
            purchase,
            id: None,
            created: 0,
            version: 0,
            stands: String::new(),
            terminal: None,
            action: None,
            restored,
        }
    }

    pub fn has_completed(&self) -> bool {
        self.terminal.as_deref() == Some(COMPLETED)
    }

    /// Takes in answers to requests that were under way at once.
    pub fn hear(&mut self, chronicle: &Chronicle, answers: &[(u16, &Value)]) {
        // Of answers that crossed each other none is the older one, but all came after those before.
        let before = self.version;
        let was_terminal = self.terminal.is_some() && !self.restored;
        for &(status, charge) in answers {
            self.created += u32::from(status == 202);
            if self.created > 1 && status == 202 && !self.restored {
                self.broken(chronicle, "one key is accepted once", charge);
            }
            self.fields(chronicle, charge);
            self.standing(chronicle, before, was_terminal, charge);
        }
    }

    fn fields(&mut self, chronicle: &Chronicle, charge: &Value) {
        let id = charge["id"].as_str().unwrap_or_default();
        if self.id.get_or_insert_with(|| id.to_owned()) != id {
            self.broken(chronicle, "a key names one charge", charge);
        }
        let Purchase {
            key,
            amount,
            currency,
            payment_method,
            return_url,
            reference,
        } = &self.purchase;
        let same = charge["idempotency_key"] == **key
            && charge["amount"] == *amount
            && charge["currency"] == *currency
            && charge["payment_method"] == *payment_method
            && charge["return_url"].is_string() == *return_url
            && charge["reference"] == **reference
            && charge["metadata"]["cart"] == **reference;
        if !same {
            self.broken(chronicle, "an answer has the fields that were sent", charge);
        }
    }

    fn standing(&mut self, chronicle: &Chronicle, before: i64, was_terminal: bool, charge: &Value) {
        let text = |name: &str| charge[name].as_str().unwrap_or("?").to_owned();
        let stands = format!("{}/{}/{}", text("status"), text("stage"), text("money"));
        if !TRIPLES.contains(&stands.as_str()) {
            self.broken(chronicle, "only these triples exist", charge);
        }
        let version = charge["version"].as_i64().unwrap_or_default();
        if version < before && !self.restored {
            self.broken(chronicle, "a version never goes back", charge);
        }
        self.version = self.version.max(version);
        if self.restored && self.terminal.as_deref() == Some("failed/canceled/not_moved") {
            self.terminal = None;
        }
        self.action = charge["next_action"]["url"].as_str().map(str::to_owned);
        let is_terminal = !stands.starts_with("in_progress");
        match &self.terminal {
            Some(terminal) if *terminal != stands && (is_terminal || was_terminal) => {
                self.broken(chronicle, "a final state is told once and stays", charge);
            }
            None if is_terminal => self.terminal = Some(stands.clone()),
            Some(_) | None => {}
        }
        self.stands = stands;
    }

    fn broken(&self, chronicle: &Chronicle, promise: &'static str, charge: &Value) {
        let Self {
            purchase,
            version,
            stands,
            terminal,
            ..
        } = self;
        let what = format!(
            "{purchase:?} was told version {version}, {stands}, final {terminal:?}; and then {charge}"
        );
        chronicle.breach(promise, self.id.as_deref(), what);
    }
}
