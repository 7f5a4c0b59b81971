//! The charge as a client sees it, and the request that makes one, for the published document.
//!
//! What has no value is absent, never null. Fields are written in the contract's order.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Serialize, Serializer};
use time::OffsetDateTime;
use utoipa::ToSchema;

use crate::clock::{self, Instant};
use crate::domain::charge::{Advice, Charge, Failure, State};

/// A charge. Branch on `status`, show `stage`, and ask `money` whether it moved.
#[derive(Serialize, ToSchema)]
#[schema(as = Charge)]
pub struct ChargeBody<'a> {
    /// Follows from the merchant and the idempotency key, and never changes.
    #[schema(value_type = String, pattern = "^chg_[0-9a-f]{32}$", example = "chg_03510a50e711533aba21e1dd9ddf20be")]
    id: Shown<crate::domain::ids::ChargeId>,
    /// The key that made it.
    #[schema(min_length = 1, max_length = 255, example = "order-42")]
    idempotency_key: &'a str,
    /// Grows with every change, in answers and webhooks alike.
    #[schema(minimum = 1, example = 3)]
    version: i32,
    #[schema(value_type = ChargeStatus, example = "completed")]
    status: &'static str,
    /// Where the charge stands; new values may come.
    #[schema(example = "succeeded", extensions(("x-extensible-enum" = json!(["pending", "processing", "requires_action", "requires_reconciliation", "succeeded", "failed", "canceled"]))))]
    stage: &'static str,
    #[schema(value_type = Money, example = "moved")]
    money: &'static str,
    /// In ISO 4217 minor units.
    #[schema(minimum = 1, maximum = 999_999_999_999_i64, example = 1999)]
    amount: i64,
    /// How much of `amount` went back, in the same units: completed refunds, and those made outside payonce.
    #[schema(minimum = 0, maximum = 999_999_999_999_i64, example = 0)]
    amount_refunded: i64,
    /// ISO 4217 code in lower case.
    #[schema(pattern = "^[a-z]{3}$", example = "usd")]
    currency: &'a str,
    /// The provider's token.
    #[schema(min_length = 1, max_length = 255, example = "pm_1QZ8")]
    payment_method: &'a str,
    /// The provider's id of the customer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(
        nullable = false,
        min_length = 1,
        max_length = 255,
        example = "cus_R4t"
    )]
    customer: Option<&'a str>,
    /// Where the customer comes back to after authentication.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(
        nullable = false,
        format = "uri",
        max_length = 2048,
        example = "https://shop.example/orders/42"
    )]
    return_url: Option<&'a str>,
    /// The merchant's own name for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(
        nullable = false,
        min_length = 1,
        max_length = 255,
        example = "order-42"
    )]
    reference: Option<&'a str>,
    /// For people.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(
        nullable = false,
        min_length = 1,
        max_length = 500,
        example = "Two books"
    )]
    description: Option<&'a str>,
    /// What the request said; empty if it said nothing.
    #[schema(example = json!({"order": "42"}))]
    metadata: &'a BTreeMap<String, String>,
    /// Whether real money is meant.
    #[schema(example = false)]
    live: bool,
    /// Who carries it out.
    #[schema(example = "stripe", extensions(("x-extensible-enum" = json!(["stripe"]))))]
    provider: &'a str,
    /// The provider's own id, once there is an object at the provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(
        nullable = false,
        min_length = 1,
        max_length = 255,
        example = "pi_3QZ9"
    )]
    provider_charge_id: Option<&'a str>,
    /// How often the step that moves money was sent.
    #[schema(minimum = 0, example = 1)]
    attempts: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    failure: Option<FailureBody<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    next_action: Option<NextActionBody<'a>>,
    /// When it was accepted.
    #[schema(value_type = String, format = DateTime, example = "2026-11-29T20:15:00.104233Z")]
    created_at: Shown<Instant>,
    /// When it last changed.
    #[schema(value_type = String, format = DateTime, example = "2026-11-29T20:15:01.330021Z")]
    updated_at: Shown<Instant>,
    /// When the charge ended, if it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, nullable = false, format = DateTime, example = "2026-11-29T20:15:01.330021Z")]
    finished_at: Option<Shown<Instant>>,
}

/// Why a charge failed. `failed` is final for its key, and the money can no longer move.
#[derive(Serialize, ToSchema)]
#[schema(as = Failure)]
pub struct FailureBody<'a> {
    /// Why, in a word; new values may come.
    #[schema(example = "card_declined", extensions(("x-extensible-enum" = json!(["card_declined"]))))]
    code: &'a str,
    /// For people.
    #[schema(example = "The card was declined.")]
    message: &'a str,
    /// The provider's own word.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "insufficient_funds")]
    provider_code: Option<&'a str>,
    /// What a new try, under a new key, would have to change.
    #[schema(example = "use_another_payment_method", extensions(("x-extensible-enum" = json!(["try_again_later", "use_another_payment_method", "do_not_try_again"]))))]
    advice: &'static str,
}

/// What the customer must do before the provider goes on.
#[derive(Serialize, ToSchema)]
#[schema(as = NextAction)]
pub struct NextActionBody<'a> {
    /// What to do; new values may come.
    #[schema(example = "redirect", extensions(("x-extensible-enum" = json!(["redirect"]))))]
    r#type: &'static str,
    /// Where to send the customer.
    #[schema(
        format = "uri",
        example = "https://hooks.stripe.com/redirect/authenticate/src_1"
    )]
    url: &'a str,
    /// After this the charge is canceled.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, nullable = false, format = DateTime, example = "2026-11-29T20:45:00.000000Z")]
    expires_at: Option<Shown<Instant>>,
}

/// What became of the idempotent request: the word to branch on.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub enum ChargeStatus {
    InProgress,
    Completed,
    Failed,
}

/// Did it move?
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub enum Money {
    NotMoved,
    Unknown,
    Moved,
}

/// A charge to make. Unknown fields are refused; null for an optional field counts as absent.
#[derive(ToSchema)]
#[schema(example = json!({"amount": 1999, "currency": "usd", "payment_method": "pm_card_visa"}))]
pub struct CreateCharge {
    /// In ISO 4217 minor units (usd has 2 decimals, jpy 0, kwd 3): 1999 is 19.99 usd. The provider may take less in
    /// some currencies.
    #[schema(minimum = 1, maximum = 999_999_999_999_i64, example = 1999)]
    pub amount: i64,
    /// ISO 4217 code of an active currency, in any case.
    #[schema(pattern = "^[A-Za-z]{3}$", example = "usd")]
    pub currency: String,
    /// The provider's token, never a card number.
    #[schema(
        min_length = 1,
        max_length = 255,
        pattern = "^[!-~]{1,255}$",
        example = "pm_card_visa"
    )]
    pub payment_method: String,
    /// The provider's id of the customer.
    #[schema(
        nullable = false,
        min_length = 1,
        max_length = 255,
        pattern = "^[!-~]{1,255}$",
        example = "cus_R4t"
    )]
    pub customer: Option<String>,
    /// Where the customer comes back to after authentication: https, or http for localhost. If absent, nobody is there
    /// to act, and the provider is asked to decline rather than to wait.
    #[schema(
        nullable = false,
        format = "uri",
        max_length = 2048,
        example = "https://shop.example/orders/42"
    )]
    pub return_url: Option<String>,
    // No `default`: openapi-typescript would make the field required of every caller.
    /// Whether the customer is not there: a saved method, a renewal. If absent, the customer is.
    #[schema(nullable = false, example = false)]
    pub off_session: Option<bool>,
    /// The merchant's own name for it, without control characters.
    #[schema(
        nullable = false,
        min_length = 1,
        max_length = 255,
        example = "order-42"
    )]
    pub reference: Option<String>,
    /// For people, without control characters.
    #[schema(
        nullable = false,
        min_length = 1,
        max_length = 500,
        example = "Two books"
    )]
    pub description: Option<String>,
    /// Up to 20 entries, forwarded to the provider. A key is 1 to 40 of `A-Z a-z 0-9 _ . -` and does not start with
    /// `payonce_`; a value is a string up to 500 characters.
    #[schema(nullable = false, example = json!({"order": "42"}))]
    pub metadata: Option<BTreeMap<String, String>>,
}

impl<'a> From<&'a Charge> for ChargeBody<'a> {
    fn from(charge: &'a Charge) -> Self {
        let (request, progress) = (&charge.request, &charge.progress);
        let (mut failure, mut next_action) = (None, None);
        match &progress.state {
            State::Failed(why) => {
                failure = Some(FailureBody::from(why));
            }
            State::RequiresAction(action) => {
                next_action = Some(NextActionBody {
                    r#type: "redirect",
                    url: &action.url,
                    expires_at: action.expires_at.map(shown),
                });
            }
            State::Pending
            | State::Processing { .. }
            | State::RequiresReconciliation
            | State::Succeeded
            | State::Canceled => {}
        }
        Self {
            id: Shown(charge.id),
            idempotency_key: charge.idempotency_key.as_str(),
            version: progress.version,
            status: progress.state.status().as_str(),
            stage: progress.state.stage().as_str(),
            money: progress.state.money().as_str(),
            amount: request.amount,
            amount_refunded: charge.amount_refunded,
            currency: &request.currency,
            payment_method: &request.payment_method,
            customer: request.customer.as_deref(),
            return_url: request.return_url.as_deref(),
            reference: request.reference.as_deref(),
            description: request.description.as_deref(),
            metadata: &request.metadata,
            live: charge.live,
            provider: &charge.provider,
            provider_charge_id: progress.object.as_ref().map(|object| object.id.as_str()),
            attempts: progress.attempts,
            failure,
            next_action,
            created_at: shown(charge.created_at),
            updated_at: shown(charge.updated_at),
            finished_at: charge.finished_at.map(shown),
        }
    }
}

impl<'a> From<&'a Failure> for FailureBody<'a> {
    fn from(why: &'a Failure) -> Self {
        Self {
            code: &why.code,
            message: &why.message,
            provider_code: why.provider_code.as_deref(),
            advice: advice(why.advice),
        }
    }
}

fn advice(advice: Advice) -> &'static str {
    match advice {
        Advice::TryAgainLater => "try_again_later",
        Advice::UseAnotherPaymentMethod => "use_another_payment_method",
        Advice::DoNotTryAgain => "do_not_try_again",
    }
}

pub(super) fn told<T>(id: T) -> Shown<T> {
    Shown(id)
}

pub(super) fn shown(at: OffsetDateTime) -> Shown<Instant> {
    Shown(clock::shown(at))
}

/// Written by its `Display`, without a string in between.
pub(super) struct Shown<T>(T);

impl<T> Shown<T> {
    pub(super) fn of(value: T) -> Self {
        Self(value)
    }
}

impl<T: fmt::Display> Serialize for Shown<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}
