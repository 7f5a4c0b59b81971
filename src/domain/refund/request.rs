//! What a client asks for, judged as charges are: first a draft that has the fingerprint, then a request that keeps every
//! rule of the charge's currency.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::domain::idempotency::Fingerprint;
use crate::domain::ids::{ChargeId, ProviderChargeId};
use crate::domain::money::{Currency, MAX_AMOUNT, Money};
use crate::domain::request::{
    ProviderRules, UnitsRefused, Violation, judge_metadata, pointer_token,
};

/// Why the money goes back, in the words that are forwarded to the provider.
pub const REASONS: [&str; 3] = ["duplicate", "fraudulent", "requested_by_customer"];

/// A request of the right shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefundDraft {
    pub charge: ChargeId,
    /// None for all that is left.
    pub amount: Option<i64>,
    pub reason: Option<String>,
    pub metadata: BTreeMap<String, String>,
}

impl RefundDraft {
    /// The names of the fields in which two drafts differ, as JSON pointers; `#/charge_id` stands for the address.
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let mut pointers: Vec<String> = [
            ("#/charge_id", self.charge == other.charge),
            ("#/amount", self.amount == other.amount),
            ("#/reason", self.reason == other.reason),
        ]
        .into_iter()
        .filter(|(_, same)| !same)
        .map(|(pointer, _)| pointer.to_owned())
        .collect();
        let keys: BTreeSet<&String> = self.metadata.keys().chain(other.metadata.keys()).collect();
        pointers.extend(
            keys.into_iter()
                .filter(|key| self.metadata.get(*key) != other.metadata.get(*key))
                .map(|key| format!("#/metadata/{}", pointer_token(key))),
        );
        pointers
    }

    /// Every rule that is broken. The amount is judged in the charge's currency.
    pub fn judge(&self, currency: Currency, rules: &ProviderRules) -> Vec<Violation> {
        let mut violations = Vec::new();
        if let Some(amount) = self.amount {
            judge_amount(amount, currency, rules, &mut violations);
        }
        if let Some(reason) = &self.reason
            && !REASONS.contains(&reason.as_str())
        {
            let words = REASONS.join(", ");
            let detail = format!("must be one of {words}");
            violations.push(Violation::new("#/reason", "word", detail));
        }
        judge_metadata(&self.metadata, &mut violations);
        violations
    }

    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint {
            version: FINGERPRINT_VERSION,
            hash: hash_v1(self),
        }
    }

    /// Whether this draft means what the request behind a fingerprint meant. `None` for a later release's version.
    pub fn matches(&self, fingerprint: &Fingerprint) -> Option<bool> {
        match fingerprint.version {
            1 => Some(fingerprint.hash == hash_v1(self)),
            _ => None,
        }
    }

    /// What goes to the provider for this much, frozen at acceptance. `None` if the provider can't count it.
    pub fn instruction<'a>(
        &'a self,
        amount: i64,
        currency: Currency,
        object: &'a ProviderChargeId,
        rules: &ProviderRules,
    ) -> Option<RefundInstruction<'a>> {
        let money = Money::new(amount, currency)?;
        Some(RefundInstruction {
            amount: (rules.to_provider_units)(money).ok()?,
            currency: Cow::Owned(currency.as_str().to_owned()),
            charge: Cow::Borrowed(object.as_str()),
            reason: self.reason.as_deref().map(Cow::Borrowed),
            metadata: Cow::Borrowed(&self.metadata),
        })
    }
}

fn judge_amount(
    amount: i64,
    currency: Currency,
    rules: &ProviderRules,
    violations: &mut Vec<Violation>,
) {
    let Some(money) = Money::new(amount, currency) else {
        let detail = format!("must be a whole number of minor units from 1 to {MAX_AMOUNT}");
        violations.push(Violation::new("#/amount", "range", detail));
        return;
    };
    match (rules.to_provider_units)(money) {
        // More than the provider takes is more than any charge has.
        Ok(_) | Err(UnitsRefused::MoreThan(_) | UnitsRefused::CurrencyNotTaken) => {}
        Err(UnitsRefused::NotAMultipleOf(step)) => {
            let detail = format!(
                "must be a multiple of {step} in {currency}: {} takes no smaller step",
                rules.provider
            );
            violations.push(Violation::new("#/amount", "multiple_of", detail));
        }
    }
}

const FINGERPRINT_VERSION: i16 = 1;

/// Each field as name and value, each with its length in front, in the names' order; absent fields are left out.
fn hash_v1(draft: &RefundDraft) -> [u8; 32] {
    let mut hasher = Sha256::new();
    hasher.update(b"payonce refund fingerprint 1\n");
    let mut field = |name: &str, value: &str| {
        for part in [name, value] {
            hasher.update((part.len() as u64).to_be_bytes());
            hasher.update(part.as_bytes());
        }
    };
    if let Some(amount) = draft.amount {
        field("amount", &amount.to_string());
    }
    field("charge", &draft.charge.to_string());
    for (key, value) in &draft.metadata {
        field("metadata.", key);
        field("=", value);
    }
    if let Some(reason) = &draft.reason {
        field("reason", reason);
    }
    hasher.finalize().into()
}

/// The instruction to the provider in the provider's own units, written once at acceptance: whatever release runs an
/// attempt, it sends the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RefundInstruction<'a> {
    pub amount: i64,
    pub currency: Cow<'a, str>,
    /// The object of the charge.
    pub charge: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "no_entries")]
    pub metadata: Cow<'a, BTreeMap<String, String>>,
}

#[expect(clippy::ptr_arg, reason = "serde hands over the field as it is")]
fn no_entries(metadata: &Cow<'_, BTreeMap<String, String>>) -> bool {
    metadata.is_empty()
}

impl RefundInstruction<'_> {
    /// The version that it is written in; a worker claims only those it knows.
    pub const VERSION: i16 = 1;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draft() -> RefundDraft {
        RefundDraft {
            charge: "chg_03510a50e711533aba21e1dd9ddf20be".parse().unwrap(),
            amount: Some(500),
            reason: Some("duplicate".to_owned()),
            metadata: BTreeMap::from([("order".to_owned(), "42".to_owned())]),
        }
    }

    #[test]
    fn the_fingerprint_is_the_same_for_ever() {
        let print = draft().fingerprint();
        assert_eq!(draft().matches(&print), Some(true));
        for other in [
            RefundDraft {
                amount: None,
                ..draft()
            },
            RefundDraft {
                reason: None,
                ..draft()
            },
            RefundDraft {
                metadata: BTreeMap::new(),
                ..draft()
            },
        ] {
            assert_eq!(other.matches(&print), Some(false));
            assert_eq!(other.differences(&draft()).len(), 1);
        }
    }

    #[test]
    fn an_instruction_is_written_as_version_1_for_ever() {
        let draft = draft();
        let object = ProviderChargeId::parse("pi_1").unwrap();
        let usd = Currency::parse("usd").unwrap();
        let rules = crate::provider::stripe::currency::RULES;
        let instruction = draft.instruction(500, usd, &object, &rules).unwrap();
        let written = serde_json::to_string(&instruction).unwrap();
        assert_eq!(
            written,
            r#"{"amount":500,"currency":"usd","charge":"pi_1","reason":"duplicate","metadata":{"order":"42"}}"#
        );
        let read: RefundInstruction<'_> = serde_json::from_str(&written).unwrap();
        assert_eq!(read, instruction);
    }
}
