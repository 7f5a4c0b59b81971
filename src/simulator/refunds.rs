//! The rules of a refund: what a request makes of one. Pure: it proposes, `state` commits.
//!
//! Invariant: the refunds of a `PaymentIntent` that have not failed never add up to more than it received. There is no
//! other: each request without a key, or with one that is forgotten, makes another refund.

use serde::{Deserialize, Serialize};

use super::form::Form;
use super::intents::missing;
use super::listing::{self, Listed};
use super::model::{Answer, ApiError, Snapshot, Status, as_map};
use super::params;
use super::state::Account;

const CREATE: &[&str] = &[
    "amount",
    "charge",
    "expand",
    "instructions_email",
    "metadata",
    "payment_intent",
    "reason",
    "refund_application_fee",
    "reverse_transfer",
];

const REASONS: &[&str] = &["duplicate", "fraudulent", "requested_by_customer"];

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum RefundStatus {
    Pending,
    RequiresAction,
    Succeeded,
    Failed,
    Canceled,
}

impl RefundStatus {
    fn takes(self) -> bool {
        match self {
            Self::Pending | Self::RequiresAction | Self::Succeeded => true,
            Self::Failed | Self::Canceled => false,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::RequiresAction => "requires_action",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Canceled => "canceled",
        }
    }
}

/// One refund, as it is now.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Refund {
    pub(super) id: Box<str>,
    pub(super) payment_intent: Box<str>,
    charge: Option<Box<str>>,
    pub(super) amount: i64,
    pub(super) currency: Box<str>,
    pub(super) created: i64,
    pub(super) metadata: Vec<(Box<str>, Box<str>)>,
    reason: Option<Box<str>>,
    pub(super) status: RefundStatus,
    failure_reason: Option<Box<str>>,
}

/// The JSON of a refund.
#[derive(Debug, Serialize)]
pub(super) struct View<'a> {
    id: &'a str,
    object: &'static str,
    amount: i64,
    charge: Option<&'a str>,
    created: i64,
    currency: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure_reason: Option<&'a str>,
    #[serde(serialize_with = "as_map")]
    metadata: &'a [(Box<str>, Box<str>)],
    payment_intent: &'a str,
    reason: Option<&'a str>,
    pub(super) status: &'static str,
}

impl<'a> View<'a> {
    pub(super) fn charge(&self) -> Option<&'a str> {
        self.charge
    }
}

impl Refund {
    pub(super) fn view(&self) -> View<'_> {
        View {
            id: &self.id,
            object: "refund",
            amount: self.amount,
            charge: self.charge.as_deref(),
            created: self.created,
            currency: &self.currency,
            failure_reason: self.failure_reason.as_deref(),
            metadata: &self.metadata,
            payment_intent: &self.payment_intent,
            reason: self.reason.as_deref(),
            status: self.status.as_str(),
        }
    }

    /// It ends, or ends otherwise: a pending one is settled, one that succeeded fails at the bank. None where it can't.
    pub(super) fn settled(&self, success: bool) -> Option<Self> {
        let status = match (self.status, success) {
            (RefundStatus::Pending | RefundStatus::RequiresAction, true) => RefundStatus::Succeeded,
            (
                RefundStatus::Pending | RefundStatus::RequiresAction | RefundStatus::Succeeded,
                false,
            ) => RefundStatus::Failed,
            (RefundStatus::Succeeded | RefundStatus::Failed | RefundStatus::Canceled, _) => {
                return None;
            }
        };
        Some(Self {
            status,
            failure_reason: (!success).then(|| "expired_or_canceled_card".into()),
            ..self.clone()
        })
    }
}

/// What came of a request to make one; `executed` as of an intent's.
pub(super) struct Made {
    pub(super) answer: Answer,
    pub(super) refund: Option<Refund>,
    pub(super) executed: bool,
}

impl Made {
    fn refused(error: ApiError) -> Self {
        Self {
            answer: Answer::error(400, error),
            refund: None,
            executed: false,
        }
    }

    pub(super) fn failed(error: ApiError) -> Self {
        Self {
            answer: Answer::error(400, error),
            refund: None,
            executed: true,
        }
    }
}

/// The refusal of an account without the money.
pub(super) fn without_funds() -> ApiError {
    ApiError::invalid("Insufficient funds in Stripe account.").code("balance_insufficient")
}

pub(super) fn create(account: &Account, form: &Form, id: String, now: i64) -> Made {
    let params = params::known(form, CREATE)
        .and_then(|()| params::choice(form, "reason", REASONS))
        .and_then(|()| params::metadata(form));
    let metadata = match params {
        Ok(metadata) => metadata,
        Err(error) => return Made::refused(error),
    };
    let amount = match form
        .filled("amount")
        .map(|it| params::integer("amount", it))
    {
        None => None,
        Some(Ok(amount)) => Some(amount),
        Some(Err(error)) => return Made::refused(error),
    };
    let Some(intent) = form.filled("payment_intent") else {
        let message = "One of the following params should be provided for this request: payment_intent or charge.";
        return Made::refused(ApiError::invalid(message));
    };
    let Some(current) = account.snapshot(intent) else {
        return Made {
            answer: Answer::error(404, missing("payment_intent", intent, "payment_intent")),
            refund: None,
            executed: true,
        };
    };
    let amount = match room(account, current, amount) {
        Ok(amount) => amount,
        Err(error) => return Made::failed(error),
    };
    // As Stripe's test cards: `pm_card_pendingRefund` stays pending, here until it is settled by hand.
    let status = match current.now.payment_method.as_deref() {
        Some("pm_card_pendingRefund") => RefundStatus::Pending,
        Some("pm_sim_refund_requires_action") => RefundStatus::RequiresAction,
        _ => RefundStatus::Succeeded,
    };
    let refund = Refund {
        id: id.into(),
        payment_intent: intent.into(),
        charge: current.charge_id().map(Into::into),
        amount,
        currency: current.fixed.currency.clone(),
        created: now,
        metadata,
        reason: form.filled("reason").map(Into::into),
        status,
        failure_reason: None,
    };
    Made {
        answer: Answer::refund(refund.clone()),
        refund: Some(refund),
        executed: true,
    }
}

/// How much is refunded: what was asked for, or all that is left.
fn room(account: &Account, current: &Snapshot, amount: Option<i64>) -> Result<i64, ApiError> {
    let intent = &*current.fixed.id;
    if current.now.status != Status::Succeeded {
        let message =
            format!("This PaymentIntent ({intent}) does not have a successful charge to refund.");
        return Err(ApiError::invalid(message).param("payment_intent"));
    }
    let taken: i64 = account
        .refunds
        .iter()
        .filter(|refund| *refund.payment_intent == *intent && refund.status.takes())
        .map(|refund| refund.amount)
        .sum();
    let left = current.now.amount_received - taken;
    if left <= 0 {
        let message = format!(
            "Charge {} has already been refunded.",
            current.charge_id().unwrap_or_default()
        );
        return Err(ApiError::invalid(message).code("charge_already_refunded"));
    }
    let amount = amount.unwrap_or(left);
    if amount < 1 {
        return Err(
            ApiError::invalid("This value must be greater than or equal to 1.")
                .code("parameter_invalid_integer")
                .param("amount"),
        );
    }
    if amount > left {
        let message = format!(
            "Refund amount ({amount}) is greater than unrefunded amount on charge ({left})"
        );
        return Err(ApiError::invalid(message).param("amount"));
    }
    Ok(amount)
}

pub(super) fn list(account: Option<&Account>, form: &Form) -> Listed {
    params::known(
        form,
        &[
            "charge",
            "created",
            "ending_before",
            "expand",
            "limit",
            "payment_intent",
            "starting_after",
        ],
    )?;
    let intent = form.filled("payment_intent");
    if let Some(id) = intent
        && account.is_none_or(|account| account.snapshot(id).is_none())
    {
        return Err(missing("payment_intent", id, "payment_intent"));
    }
    let refunds = account.map_or(&[][..], |account| &account.refunds);
    let (found, has_more) = listing::page(
        refunds,
        form,
        |refund: &Refund| refund.created,
        |id| refunds.iter().position(|refund| *refund.id == *id),
        |refund| intent.is_none_or(|intent| *refund.payment_intent == *intent),
    )?;
    let data = found.into_iter().map(|(_, refund)| refund.view()).collect();
    Ok(listing::json(&listing::List {
        object: "list",
        data,
        has_more,
        next_page: None,
        url: "/v1/refunds",
    }))
}
