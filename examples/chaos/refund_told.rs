//! What a client asked back under one key and what it was told, as [`crate::told`] is for charges.

use serde_json::Value;

use crate::chronicle::Chronicle;
use crate::refund::Refund;

pub struct RefundTold {
    pub refund: Refund,
    /// Named by the first answer.
    pub id: Option<String>,
    created: u32,
    version: i64,
    /// Chosen by the first answer where all that is left was asked for.
    amount: Option<i64>,
    /// The last answer's `status/stage/money`.
    pub stands: String,
    is_terminal: bool,
    restored: bool,
}

const TRIPLES: [&str; 7] = [
    "in_progress/pending/not_moved",
    "in_progress/processing/unknown",
    "in_progress/requires_action/unknown",
    "in_progress/requires_reconciliation/unknown",
    COMPLETED,
    FAILED,
    "failed/canceled/not_moved",
];
const COMPLETED: &str = "completed/succeeded/moved";
const FAILED: &str = "failed/failed/not_moved";

impl RefundTold {
    pub fn new(refund: Refund, restored: bool) -> Self {
        Self {
            id: None,
            created: 0,
            version: 0,
            amount: refund.amount,
            stands: String::new(),
            is_terminal: false,
            restored,
            refund,
        }
    }

    pub fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// Takes in answers to requests that were under way at once.
    pub fn hear(&mut self, chronicle: &Chronicle, answers: &[(u16, &Value)]) {
        // Of answers that crossed each other none is the older one, but all came after those before.
        let before = self.version;
        for &(status, refund) in answers {
            self.created += u32::from(status == 202);
            if self.created > 1 && status == 202 && !self.restored {
                self.broken(chronicle, "one key is accepted once", refund);
            }
            self.fields(chronicle, refund);
            self.standing(chronicle, before, refund);
        }
    }

    fn fields(&mut self, chronicle: &Chronicle, refund: &Value) {
        let id = refund["id"].as_str().unwrap_or_default();
        if self.id.get_or_insert_with(|| id.to_owned()) != id {
            self.broken(chronicle, "a key names one refund", refund);
        }
        let amount = refund["amount"].as_i64().unwrap_or_default();
        let asked = *self.amount.get_or_insert(amount);
        let Refund {
            key,
            of,
            reason,
            mark,
            ..
        } = &self.refund;
        let same = refund["idempotency_key"] == **key
            && refund["charge_id"] == *of.charge
            && amount == asked
            && (1..=of.amount).contains(&amount)
            && refund["currency"] == of.currency
            && refund["reason"].as_str() == *reason
            && refund["metadata"]["return"] == **mark;
        if !same {
            self.broken(chronicle, "an answer has the fields that were sent", refund);
        }
    }

    fn standing(&mut self, chronicle: &Chronicle, before: i64, refund: &Value) {
        let text = |name: &str| refund[name].as_str().unwrap_or("?").to_owned();
        let stands = format!("{}/{}/{}", text("status"), text("stage"), text("money"));
        if !TRIPLES.contains(&stands.as_str()) {
            self.broken(chronicle, "only these triples exist", refund);
        }
        let version = refund["version"].as_i64().unwrap_or_default();
        if version < before && !self.restored {
            self.broken(chronicle, "a version never goes back", refund);
        }
        // What crossed a newer answer says nothing of how it stands.
        if version < self.version && !self.restored {
            return;
        }
        let is_same = self.stands == stands;
        // One that completed can still fail at the bank, and nothing else.
        let is_correction = self.stands == COMPLETED && stands == FAILED && version > self.version;
        if self.is_terminal && !is_same && !is_correction && !self.restored {
            let promise = "a final state is told once and stays, but for the bank's word";
            self.broken(chronicle, promise, refund);
        }
        if version == self.version && !is_same && !self.stands.is_empty() && !self.restored {
            self.broken(chronicle, "one version is one state", refund);
        }
        self.version = version;
        self.is_terminal = !stands.starts_with("in_progress");
        self.stands = stands;
    }

    fn broken(&self, chronicle: &Chronicle, promise: &'static str, refund: &Value) {
        let Self {
            refund: asked,
            version,
            stands,
            ..
        } = self;
        let what = format!("{asked:?} was told version {version}, {stands}; and then {refund}");
        chronicle.breach(promise, self.id.as_deref(), what);
    }
}
