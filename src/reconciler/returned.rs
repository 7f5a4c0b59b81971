//! Sends back what moved for charges that were told failed, where the policy says so or an operator does.
//!
//! Only where what was seen of the object is exactly what the charge asked for: anything else is for a person to judge. If
//! the process dies before the one statement of [`crate::db::discrepancy_refunds`], the next page finds the discrepancy
//! again; after it, the refund's own job goes on.

use std::collections::BTreeMap;

use serde_json::Value;
use sqlx::PgConnection;

use crate::db::DbError;
use crate::db::discrepancy_refunds::{self, NewRefund, Refundable};
use crate::domain::idempotency::IdempotencyKey;
use crate::domain::ids::{ChargeId, MerchantId, ProviderChargeId, RefundId};
use crate::domain::money::Currency;
use crate::domain::refund::request::{RefundDraft, RefundInstruction};
use crate::domain::request::ProviderRules;

/// Who wants the money to go back, and why.
#[derive(Clone, Copy, Debug)]
pub struct Wish<'a> {
    pub actor: &'static str,
    pub reason: &'a str,
}

impl Wish<'static> {
    const OF_THE_POLICY: Self = Self {
        actor: "reconciler",
        reason: "the charge was told failed and its money moved",
    };
}

/// As the policy `refund` says. Returns how many refunds were accepted.
pub(super) async fn by_policy(
    connection: &mut PgConnection,
    rules: &ProviderRules,
    limit: i64,
) -> Result<u64, DbError> {
    let open = discrepancy_refunds::refundable(connection, rules.provider, None, limit).await?;
    let mut accepted = 0;
    for discrepancy in &open {
        if let Some(id) = refund(connection, rules, discrepancy, Wish::OF_THE_POLICY).await? {
            accepted += 1;
            tracing::warn!(
                code = "discrepancy_refunded",
                charge.id = %ChargeId::from_uuid(discrepancy.charge_id),
                refund.id = %id,
                provider_charge_id = discrepancy.provider_charge_id,
                "money moved for a charge that was told failed: it goes back"
            );
        }
    }
    Ok(accepted)
}

/// Accepts the refund of a discrepancy. `None` if that is not for us to do or was done.
pub async fn refund(
    connection: &mut PgConnection,
    rules: &ProviderRules,
    discrepancy: &Refundable,
    wish: Wish<'_>,
) -> Result<Option<RefundId>, DbError> {
    let Some(object) = ProviderChargeId::parse(&discrepancy.provider_charge_id) else {
        return Ok(None);
    };
    let Some(currency) = Currency::parse(&discrepancy.currency) else {
        return Ok(None);
    };
    let draft = RefundDraft {
        charge: ChargeId::from_uuid(discrepancy.charge_id),
        amount: Some(discrepancy.amount),
        reason: None,
        metadata: BTreeMap::new(),
    };
    let instruction = draft
        .instruction(discrepancy.amount, currency, &object, rules)
        .filter(|instruction| is_all_that_moved(instruction, &discrepancy.detail));
    let Some(instruction) = instruction else {
        return Ok(None);
    };
    let payload = serde_json::to_string(&instruction)
        .expect("an instruction of strings and numbers is always valid JSON");
    let key = IdempotencyKey::parse(format!("discrepancy-{object}").as_bytes());
    let Ok(key) = key else { return Ok(None) };
    let id = RefundId::of_discrepancy(MerchantId::from_uuid(discrepancy.merchant_id), &object);
    let new = NewRefund {
        id,
        key: &key,
        fingerprint: draft.fingerprint(),
        payload_version: RefundInstruction::VERSION,
        payload: &payload,
        actor: wish.actor,
        reason: wish.reason,
    };
    let accepted = discrepancy_refunds::accept(connection, discrepancy, new).await?;
    Ok(accepted.then_some(id))
}

/// What a worker learned of its own object was compared before; of an object that a sweep found, amounts are told.
fn is_all_that_moved(instruction: &RefundInstruction<'_>, seen: &Value) -> bool {
    let amount = seen.get("amount_received").map(Value::as_i64);
    let currency = seen.get("currency").map(Value::as_str);
    amount.is_none_or(|amount| amount == Some(instruction.amount))
        && currency.is_none_or(|currency| currency == Some(&instruction.currency))
}
