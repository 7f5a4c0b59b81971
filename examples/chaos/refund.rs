//! What clients want back: a part of a charge or all that is left of it, each under a key of its own.

use rand::rngs::StdRng;
use rand::{Rng, RngExt};
use serde_json::{Value, json};

use crate::purchase::{Purchase, step_of};

const REASONS: [Option<&str>; 3] = [None, Some("requested_by_customer"), Some("duplicate")];

/// A charge that its client was told has completed.
#[derive(Clone, Debug)]
pub struct Completed {
    pub charge: String,
    pub amount: i64,
    pub currency: &'static str,
}

impl Completed {
    pub fn new(charge: &str, purchase: &Purchase) -> Self {
        Self {
            charge: charge.to_owned(),
            amount: purchase.amount,
            currency: purchase.currency,
        }
    }
}

/// A refund intent: one key, one meaning.
#[derive(Clone, Debug)]
pub struct Refund {
    pub key: String,
    pub of: Completed,
    /// None for all that is left.
    pub amount: Option<i64>,
    pub reason: Option<&'static str>,
    pub mark: String,
}

impl Refund {
    /// `share`: of the charge, in hundredths; none for all that is left.
    pub fn draw(random: &mut StdRng, of: &Completed, key: String, share: Option<i64>) -> Self {
        let step = step_of(of.currency);
        let part = |share: i64| (of.amount * share / 100 / step).max(1) * step;
        Self {
            of: of.clone(),
            amount: share.map(part),
            reason: REASONS[random.random_range(0..REASONS.len())],
            mark: format!("{key}-{:08x}", random.next_u32()),
            key,
        }
    }

    pub fn body(&self) -> Value {
        let mut body = json!({"metadata": {"return": self.mark}});
        if let Some(amount) = self.amount {
            body["amount"] = json!(amount);
        }
        if let Some(reason) = self.reason {
            body["reason"] = json!(reason);
        }
        body
    }

    /// Something else under the same key.
    pub fn other_body(&self) -> Value {
        let mut body = self.body();
        body["amount"] = match self.amount {
            Some(_) => Value::Null,
            None => json!(self.of.amount),
        };
        body
    }
}
