//! Stripe's refund, a page of them, and the refusals that are final for one.

use serde::Deserialize;

use super::failure::{ErrorObject, Text, is_word};
use crate::domain::charge::{Advice, Failure};
use crate::domain::ids::{ProviderChargeId, ProviderRefundId};
use crate::domain::refund::outcome::{RefundObject, RefundStatus};
use crate::provider::RefundPage;

/// Everything optional, so that on a page of strangers only what is like ours must be whole.
#[derive(Deserialize)]
struct Wire<'a> {
    #[serde(borrow, default)]
    id: Option<Text<'a>>,
    #[serde(borrow, default)]
    object: Option<Text<'a>>,
    #[serde(default)]
    amount: Option<i64>,
    #[serde(borrow, default)]
    currency: Option<Text<'a>>,
    #[serde(borrow, default)]
    payment_intent: Option<Text<'a>>,
    #[serde(borrow, default)]
    status: Option<Text<'a>>,
    #[serde(borrow, default)]
    failure_reason: Option<Text<'a>>,
    #[serde(borrow, default)]
    metadata: Option<Metadata<'a>>,
}

#[derive(Deserialize)]
pub(super) struct Metadata<'a> {
    // The field's name is `form::REFUND_STAMP`.
    #[serde(borrow, default)]
    payonce_refund_id: Option<Text<'a>>,
}

impl Metadata<'_> {
    pub(super) fn stamp(&self) -> Option<&str> {
        self.payonce_refund_id.as_ref().map(Text::as_str)
    }
}

impl Wire<'_> {
    /// The refund, if all of it is there that money depends on.
    fn whole(&self) -> Option<RefundObject> {
        if self
            .object
            .as_ref()
            .is_some_and(|kind| kind.as_str() != "refund")
        {
            return None;
        }
        let stamp = self.metadata.as_ref().and_then(Metadata::stamp);
        Some(RefundObject {
            id: ProviderRefundId::parse(self.id.as_ref()?.as_str())?,
            charge: self
                .payment_intent
                .as_ref()
                .and_then(|id| ProviderChargeId::parse(id.as_str())),
            status: status(self.status.as_ref()?.as_str()),
            amount: self.amount?,
            currency: self.currency.as_ref()?.as_str().to_ascii_lowercase(),
            stamp: stamp.map(str::to_owned),
            failure_reason: self
                .failure_reason
                .as_ref()
                .map(Text::as_str)
                .filter(|reason| is_word(reason))
                .map(str::to_owned),
        })
    }
}

fn status(text: &str) -> RefundStatus {
    match text {
        "pending" => RefundStatus::Pending,
        "requires_action" => RefundStatus::RequiresAction,
        "succeeded" => RefundStatus::Succeeded,
        "failed" => RefundStatus::Failed,
        "canceled" => RefundStatus::Canceled,
        _ => RefundStatus::Unknown,
    }
}

pub(super) fn refund(body: &[u8]) -> Option<RefundObject> {
    serde_json::from_slice::<Wire<'_>>(body).ok()?.whole()
}

#[derive(Deserialize)]
struct List<'a> {
    has_more: bool,
    #[serde(borrow)]
    data: Vec<Wire<'a>>,
}

/// None if anything on the page can't be read that a look depends on: then nothing is known. Refunds without a
/// `PaymentIntent` are of charges that are not ours.
pub(super) fn page(body: &[u8]) -> Option<RefundPage> {
    let list: List<'_> = serde_json::from_slice(body).ok()?;
    let next = if list.has_more {
        Some(ProviderRefundId::parse(
            list.data.last()?.id.as_ref()?.as_str(),
        )?)
    } else {
        None
    };
    let refunds = list
        .data
        .iter()
        .filter(|refund| refund.payment_intent.is_some())
        .map(Wire::whole)
        .collect::<Option<Vec<_>>>()?;
    Some(RefundPage { refunds, next })
}

/// A refusal that no repeat of the same refund changes. An amount above what is left has no code of its own.
pub(super) fn final_refusal(error: &ErrorObject<'_>) -> Option<Failure> {
    let (code, message, advice) = match (error.code(), error.param()) {
        ("charge_already_refunded", _) => (
            "charge_already_refunded",
            "The charge has been refunded in full, also from outside.",
            Advice::DoNotTryAgain,
        ),
        ("refund_disputed_payment" | "charge_disputed", _) => (
            "charge_disputed",
            "The customer has disputed the charge.",
            Advice::DoNotTryAgain,
        ),
        ("balance_insufficient" | "insufficient_funds", _) => (
            "insufficient_funds",
            "The balance at the payment provider does not cover the refund.",
            Advice::TryAgainLater,
        ),
        ("charge_expired_for_refund" | "charge_not_refundable", _) => (
            "charge_not_refundable",
            "The payment provider does not refund this charge any more.",
            Advice::DoNotTryAgain,
        ),
        ("" | "amount_too_large", "amount") => (
            "refund_exceeds_charge",
            "The amount is more than is left of the charge at the payment provider.",
            Advice::DoNotTryAgain,
        ),
        _ => return None,
    };
    Some(Failure {
        code: code.to_owned(),
        message: message.to_owned(),
        provider_code: is_word(error.code()).then(|| error.code().to_owned()),
        advice,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = r#"{"id":"re_1","object":"refund","amount":500,"currency":"USD","payment_intent":"pi_1",
        "status":"failed","failure_reason":"expired_or_canceled_card","metadata":{"payonce_refund_id":"rfd_1"},"x":1}"#;

    #[test]
    fn a_refund_is_read_and_half_of_one_is_none() {
        let read = refund(WHOLE.as_bytes()).unwrap();
        assert_eq!(read.currency, "usd");
        assert_eq!(read.status, RefundStatus::Failed);
        assert_eq!(read.stamp.as_deref(), Some("rfd_1"));
        assert_eq!(
            read.failure_reason.as_deref(),
            Some("expired_or_canceled_card")
        );
        for field in ["id", "amount", "currency", "status"] {
            let half = WHOLE.replace(&format!("\"{field}\":"), "\"gone\":");
            assert_eq!(refund(half.as_bytes()), None, "{field}");
        }
        assert_eq!(refund(b"<html>"), None);
    }

    #[test]
    fn a_page_with_half_a_refund_says_nothing_and_strangers_are_left_out() {
        let list = |data: &str| format!(r#"{{"object":"list","has_more":true,"data":[{data}]}}"#);
        let stranger = r#"{"id":"re_0","charge":"ch_1"}"#;
        let read = page(list(&format!("{WHOLE},{stranger}")).as_bytes()).unwrap();
        assert_eq!(read.refunds.len(), 1);
        assert_eq!(read.next.unwrap().as_str(), "re_0");
        let half = WHOLE.replace("\"amount\":", "\"gone\":");
        assert_eq!(page(list(&half).as_bytes()), None);
        assert_eq!(page(br#"{"data":[]}"#), None);
    }
}
