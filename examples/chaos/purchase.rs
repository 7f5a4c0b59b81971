//! What clients buy: amounts, currencies and payment methods by chance.

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, RngExt};
use serde_json::{Value, json};

/// Currency, the step of its amounts, and how often the provider's unit goes into ours.
const CURRENCIES: [(&str, i64, i64); 7] = [
    ("usd", 1, 1),
    ("eur", 1, 1),
    ("gbp", 1, 1),
    ("jpy", 1, 1),
    ("kwd", 10, 1),
    ("isk", 1, 100),
    ("ugx", 1, 100),
];

const CARD: &str = "pm_card_visa";
/// The least that they charge: some purchases are smaller, and fail.
const SMALL: i64 = 40;

/// Each with its weight. The faults of the simulator's own payment methods meet the first execution of a charge, and
/// those that end in `_always` would never end.
const METHODS: [(&str, u32); 22] = [
    (CARD, 560),
    ("pm_card_mastercard", 100),
    ("pm_card_chargeDeclined", 60),
    ("pm_card_chargeDeclinedInsufficientFunds", 20),
    ("pm_card_authenticationRequired", 60),
    ("pm_card_threeDSecure2Required", 20),
    ("pm_sim_charge_then_drop", 20),
    ("pm_sim_decline_then_drop", 15),
    ("pm_sim_drop_before_charge", 15),
    ("pm_sim_slow", 10),
    ("pm_sim_land_late", 20),
    ("pm_sim_error_500_after_charge", 20),
    ("pm_sim_error_500_before_charge", 15),
    ("pm_sim_html", 10),
    ("pm_sim_truncated", 10),
    ("pm_sim_unknown_status", 10),
    ("pm_sim_unknown", 5),
    (PROCESSING, 10),
    (PARTIAL, 3),
    ("pm_sim_key_in_use", 5),
    ("pm_card_pendingRefund", 40),
    ("pm_sim_refund_requires_action", 15),
];

/// Its charges stay open until the bank decides.
pub const PROCESSING: &str = "pm_sim_processing";
/// Its charges move less than was asked for: a discrepancy, and an operator's.
pub const PARTIAL: &str = "pm_sim_partial";

/// A purchase intent: one key, one meaning.
#[derive(Clone, Debug)]
pub struct Purchase {
    pub key: String,
    pub amount: i64,
    pub currency: &'static str,
    pub payment_method: &'static str,
    pub return_url: bool,
    pub reference: String,
}

impl Purchase {
    pub fn draw(random: &mut StdRng, key: String) -> Self {
        let &(currency, step, _) = CURRENCIES.choose(random).expect("there are some");
        let amount = if random.random_bool(0.02) {
            random.random_range(1..SMALL)
        } else {
            random.random_range(SMALL * 2..100_000)
        };
        let methods: u32 = METHODS.iter().map(|(_, weight)| weight).sum();
        let mut drawn = random.random_range(0..methods);
        let method = METHODS.iter().find(|(_, weight)| {
            let here = drawn < *weight;
            drawn = drawn.saturating_sub(*weight);
            here
        });
        Self {
            amount: amount * step,
            currency,
            payment_method: method.map_or(CARD, |(method, _)| method),
            return_url: random.random_bool(0.6),
            reference: format!("{key}-{:08x}", random.next_u32()),
            key,
        }
    }

    pub fn body(&self) -> Value {
        let mut body = json!({
            "amount": self.amount,
            "currency": self.currency,
            "payment_method": self.payment_method,
            "reference": self.reference,
            "metadata": {"cart": self.reference},
        });
        if self.return_url {
            body["return_url"] = json!("https://shop.example/back");
        }
        body
    }

    /// Something else under the same key.
    pub fn other_body(&self) -> Value {
        let mut body = self.body();
        body["amount"] = json!(self.amount + 10);
        body
    }
}

/// What the provider must have charged for an amount of ours.
pub fn in_provider_units(amount: i64, currency: &str) -> i64 {
    amount * of(currency).map_or(1, |&(.., factor)| factor)
}

/// What amounts of a currency are multiples of.
pub fn step_of(currency: &str) -> i64 {
    of(currency).map_or(1, |&(_, step, _)| step)
}

fn of(currency: &str) -> Option<&'static (&'static str, i64, i64)> {
    CURRENCIES.iter().find(|(name, ..)| *name == currency)
}
