//! The refund as a client sees it, and the request that makes one, for the published document.

use std::collections::BTreeMap;

use serde::Serialize;
use utoipa::ToSchema;

use super::charge_body::{FailureBody, Shown, shown, told};
use crate::clock::Instant;
use crate::domain::ids::{ChargeId, ProviderRefundId, RefundId};
use crate::domain::refund::{Refund, RefundState};

/// A refund of a charge. Branch on `status`, show `stage`, and ask `money` whether it went back. One that is `completed` can
/// still fail at the customer's bank, days later: `status` becomes `failed` then, and `version` grows.
#[derive(Serialize, ToSchema)]
#[schema(as = Refund)]
pub struct RefundBody<'a> {
    /// Follows from the merchant and the idempotency key, and never changes.
    #[schema(value_type = String, pattern = "^rfd_[0-9a-f]{32}$", example = "rfd_03510a50e711533aba21e1dd9ddf20be")]
    id: Shown<RefundId>,
    /// The charge that the money goes back from.
    #[schema(value_type = String, pattern = "^chg_[0-9a-f]{32}$", example = "chg_03510a50e711533aba21e1dd9ddf20be")]
    charge_id: Shown<ChargeId>,
    /// The key that made it.
    #[schema(min_length = 1, max_length = 255, example = "order-42-return")]
    idempotency_key: &'a str,
    /// Grows with every change, in answers and webhooks alike.
    #[schema(minimum = 1, example = 3)]
    version: i32,
    #[schema(value_type = super::charge_body::ChargeStatus, example = "completed")]
    status: &'static str,
    /// Where the refund stands; new values may come.
    #[schema(example = "succeeded", extensions(("x-extensible-enum" = json!(["pending", "processing", "requires_action", "requires_reconciliation", "succeeded", "failed", "canceled"]))))]
    stage: &'static str,
    #[schema(value_type = super::charge_body::Money, example = "moved")]
    money: &'static str,
    /// In ISO 4217 minor units of the charge's currency.
    #[schema(minimum = 1, maximum = 999_999_999_999_i64, example = 500)]
    amount: i64,
    /// ISO 4217 code in lower case.
    #[schema(pattern = "^[a-z]{3}$", example = "usd")]
    currency: &'a str,
    /// As the request gave it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "requested_by_customer", extensions(("x-extensible-enum" = json!(["duplicate", "fraudulent", "requested_by_customer"]))))]
    reason: Option<&'a str>,
    /// What the request said; empty if it said nothing.
    #[schema(example = json!({"return": "7"}))]
    metadata: &'a BTreeMap<String, String>,
    /// Whether real money is meant.
    #[schema(example = false)]
    live: bool,
    /// Who carries it out.
    #[schema(example = "stripe", extensions(("x-extensible-enum" = json!(["stripe"]))))]
    provider: &'a str,
    /// The provider's own id of the refund, once it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(
        nullable = false,
        min_length = 1,
        max_length = 255,
        example = "re_3QZ9"
    )]
    provider_refund_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    failure: Option<FailureBody<'a>>,
    /// When it was accepted.
    #[schema(value_type = String, format = DateTime, example = "2026-11-29T20:15:00.104233Z")]
    created_at: Shown<Instant>,
    /// When it last changed.
    #[schema(value_type = String, format = DateTime, example = "2026-11-29T20:15:01.330021Z")]
    updated_at: Shown<Instant>,
    /// When the refund ended, if it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, nullable = false, format = DateTime, example = "2026-11-29T20:15:01.330021Z")]
    finished_at: Option<Shown<Instant>>,
}

/// A refund to make. Unknown fields are refused; null counts as absent.
#[derive(ToSchema)]
#[schema(example = json!({"amount": 500, "reason": "requested_by_customer"}))]
pub struct CreateRefund {
    /// In ISO 4217 minor units of the charge's currency, at most what is neither refunded nor reserved. Absent: all of that.
    #[schema(
        nullable = false,
        minimum = 1,
        maximum = 999_999_999_999_i64,
        example = 500
    )]
    pub amount: Option<i64>,
    /// Forwarded to the provider: `duplicate`, `fraudulent` or `requested_by_customer`.
    #[schema(nullable = false, example = "requested_by_customer", extensions(("x-extensible-enum" = json!(["duplicate", "fraudulent", "requested_by_customer"]))))]
    pub reason: Option<String>,
    /// By the rules of a charge's metadata; forwarded to the provider.
    #[schema(nullable = false, example = json!({"return": "7"}))]
    pub metadata: Option<BTreeMap<String, String>>,
}

impl<'a> From<&'a Refund> for RefundBody<'a> {
    fn from(refund: &'a Refund) -> Self {
        let (request, progress) = (&refund.request, &refund.progress);
        let failure = match &progress.state {
            RefundState::Failed(why) => Some(FailureBody::from(why)),
            RefundState::Pending
            | RefundState::Processing
            | RefundState::RequiresAction
            | RefundState::RequiresReconciliation
            | RefundState::Succeeded
            | RefundState::Canceled => None,
        };
        Self {
            id: told(refund.id),
            charge_id: told(refund.charge()),
            idempotency_key: refund.idempotency_key.as_str(),
            version: progress.version,
            status: progress.state.status().as_str(),
            stage: progress.state.stage().as_str(),
            money: progress.state.money().as_str(),
            amount: refund.amount,
            currency: &refund.currency,
            reason: request.reason.as_deref(),
            metadata: &request.metadata,
            live: refund.live,
            provider: &refund.provider,
            provider_refund_id: progress.object.as_ref().map(ProviderRefundId::as_str),
            failure,
            created_at: shown(refund.created_at),
            updated_at: shown(refund.updated_at),
            finished_at: refund.finished_at.map(shown),
        }
    }
}
