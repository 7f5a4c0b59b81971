//! Why Stripe refused a payment, in words that a client may show.
//!
//! The messages are ours: Stripe's name the card's history, and it asks that fraud, loss and theft are shown as any
//! other decline. The decline code itself goes to the merchant in `provider_code`. The advice follows Stripe's tables
//! (<https://docs.stripe.com/declines/codes>, <https://docs.stripe.com/error-codes>) and the network's own advice where
//! Stripe passes it on.

use std::borrow::Cow;

use serde::Deserialize;

use crate::domain::charge::Advice::{self, DoNotTryAgain, TryAgainLater, UseAnotherPaymentMethod};
use crate::domain::charge::Failure;

/// A text that is borrowed from the body wherever it holds no escape.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(super) struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl Text<'_> {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

/// What is read of Stripe's error object, in an error and in `last_payment_error` alike.
#[derive(Debug, Deserialize)]
pub struct ErrorObject<'a> {
    #[serde(borrow, rename = "type", default)]
    kind: Option<Text<'a>>,
    #[serde(borrow, default)]
    code: Option<Text<'a>>,
    #[serde(borrow, default)]
    decline_code: Option<Text<'a>>,
    #[serde(borrow, default)]
    advice_code: Option<Text<'a>>,
    #[serde(borrow, default)]
    param: Option<Text<'a>>,
}

impl ErrorObject<'_> {
    pub(super) fn kind(&self) -> &str {
        text(self.kind.as_ref())
    }

    pub(super) fn code(&self) -> &str {
        text(self.code.as_ref())
    }

    /// The parameter that is at fault: `payment_method`, `metadata[order]`.
    pub(super) fn param(&self) -> &str {
        text(self.param.as_ref())
    }

    pub(super) fn failure(&self) -> Failure {
        let (code, decline) = (self.code(), text(self.decline_code.as_ref()));
        let reason = if decline.is_empty() { code } else { decline };
        let (ours, message, advice) = match (code, self.param()) {
            ("resource_missing", "customer") => unknown("customer_unknown"),
            ("resource_missing", _) => unknown("payment_method_unknown"),
            _ => explain(reason, code),
        };
        let advice = match (advice, text(self.advice_code.as_ref())) {
            (DoNotTryAgain, _) | (_, "do_not_try_again") => DoNotTryAgain,
            (_, "try_again_later") => TryAgainLater,
            (advice, _) => advice,
        };
        Failure {
            code: ours
                .unwrap_or(if is_word(code) { code } else { "declined" })
                .to_owned(),
            message: message.to_owned(),
            provider_code: is_word(reason).then(|| reason.to_owned()),
            advice,
        }
    }
}

fn text<'a>(text: Option<&'a Text<'_>>) -> &'a str {
    text.map_or("", Text::as_str)
}

/// A code as Stripe writes them, and nothing that could not be stored and shown.
pub(super) fn is_word(code: &str) -> bool {
    (1..=80).contains(&code.len())
        && code
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

/// Our code where Stripe's own is too coarse or says too much, the message and the advice.
type Explained = (Option<&'static str>, &'static str, Advice);

fn unknown(code: &'static str) -> Explained {
    let message = if code == "customer_unknown" {
        "The payment provider does not know this customer."
    } else {
        "The payment provider does not know this payment method."
    };
    (Some(code), message, UseAnotherPaymentMethod)
}

/// By Stripe's decline code, or its error code if there is none.
fn explain(reason: &str, code: &str) -> Explained {
    if let Some((_, explained)) = EXPLAINED
        .iter()
        .find(|(reasons, _)| reasons.contains(&reason))
    {
        *explained
    } else if code.starts_with("payment_method_") || code.starts_with("payment_intent_") {
        (
            None,
            "The payment method can't be used for this payment.",
            UseAnotherPaymentMethod,
        )
    } else {
        // Among them do_not_honor, generic_decline, call_issuer: the customer must ask the bank.
        (None, DECLINED, UseAnotherPaymentMethod)
    }
}

const EXPLAINED: &[(&[&str], Explained)] = &[
    (
        // Shown as any other decline.
        &[
            "fraudulent",
            "lost_card",
            "stolen_card",
            "pickup_card",
            "restricted_card",
            "merchant_blacklist",
            "security_violation",
            "do_not_try_again",
            "revocation_of_authorization",
            "revocation_of_all_authorizations",
            "stop_payment_order",
        ],
        (Some("card_declined"), DECLINED, DoNotTryAgain),
    ),
    (
        &["duplicate_transaction"],
        (
            None,
            "The same payment was made a short time ago.",
            DoNotTryAgain,
        ),
    ),
    (
        &[
            "try_again_later",
            "processing_error",
            "issuer_not_available",
            "reenter_transaction",
            "approve_with_id",
            "payment_method_provider_timeout",
        ],
        (
            None,
            "The payment could not be processed at this time.",
            TryAgainLater,
        ),
    ),
    (
        &[
            "card_decline_rate_limit_exceeded",
            "payment_intent_rate_limit_exceeded",
        ],
        (
            None,
            "The payment method was declined too often; try again after 24 hours.",
            TryAgainLater,
        ),
    ),
    (
        &[
            "insufficient_funds",
            "withdrawal_count_limit_exceeded",
            "card_velocity_exceeded",
        ],
        (
            None,
            "The payment method does not cover the amount.",
            UseAnotherPaymentMethod,
        ),
    ),
    (
        &[
            "authentication_required",
            "authentication_not_handled",
            "mobile_device_authentication_required",
            "payment_intent_action_required",
        ],
        (
            Some("authentication_required"),
            "The customer must authenticate this payment and was not there to do so.",
            UseAnotherPaymentMethod,
        ),
    ),
    (
        &["payment_intent_authentication_failure"],
        (
            Some("authentication_failed"),
            "The customer's authentication failed.",
            UseAnotherPaymentMethod,
        ),
    ),
    (
        &[
            "expired_card",
            "invalid_expiry_month",
            "invalid_expiry_year",
        ],
        (
            None,
            "The card has expired, or its expiry date is wrong.",
            UseAnotherPaymentMethod,
        ),
    ),
    (
        &[
            "incorrect_cvc",
            "invalid_cvc",
            "incorrect_number",
            "invalid_number",
            "incorrect_zip",
            "incorrect_address",
            "incorrect_pin",
            "invalid_pin",
        ],
        (
            None,
            "The details of the payment method are wrong.",
            UseAnotherPaymentMethod,
        ),
    ),
    (
        &["amount_too_small"],
        (
            None,
            "The amount is smaller than the payment provider takes.",
            DoNotTryAgain,
        ),
    ),
    (
        &[
            "amount_too_large",
            "charge_exceeds_source_limit",
            "charge_exceeds_transaction_limit",
        ],
        (
            None,
            "The amount is larger than the payment provider takes.",
            DoNotTryAgain,
        ),
    ),
    (
        &["url_invalid"],
        (
            None,
            "The payment provider does not take the return_url.",
            DoNotTryAgain,
        ),
    ),
];

const DECLINED: &str = "The payment was declined.";

/// The codes of a 4xx other than a decline that are about this payment and final for it, as `docs.stripe.com/error-codes`
/// describes them: no operator can mend them and the same request would be refused again. The rest is ours.
pub(super) fn is_final_refusal(error: &ErrorObject<'_>) -> bool {
    match error.code() {
        "amount_too_small"
        | "amount_too_large"
        | "charge_exceeds_source_limit"
        | "charge_exceeds_transaction_limit"
        | "card_decline_rate_limit_exceeded"
        | "card_declined"
        | "expired_card"
        | "incorrect_cvc"
        | "incorrect_number"
        | "incorrect_zip"
        | "invalid_cvc"
        | "invalid_number"
        | "invalid_expiry_month"
        | "invalid_expiry_year"
        | "processing_error"
        | "authentication_required"
        | "payment_intent_action_required"
        | "payment_intent_authentication_failure"
        | "payment_intent_incompatible_payment_method"
        | "payment_intent_mandate_invalid"
        | "payment_intent_payment_attempt_failed"
        | "payment_intent_rate_limit_exceeded"
        | "payment_method_bank_account_blocked"
        | "payment_method_billing_details_address_missing"
        | "payment_method_currency_mismatch"
        | "payment_method_customer_decline"
        | "payment_method_invalid_parameter"
        | "payment_method_invalid_parameter_testmode"
        | "payment_method_not_available"
        | "payment_method_provider_decline"
        | "payment_method_provider_timeout"
        | "payment_method_unactivated"
        | "payment_method_unexpected_state"
        | "payment_method_unsupported_type" => true,
        "url_invalid" => error.param() == "return_url",
        // A token that the client sent and Stripe does not take (`resource_missing`, or no code at all: a method of
        // another customer, one used up). How we name and write a parameter is ours.
        code => {
            matches!(error.param(), "payment_method" | "customer") && !code.starts_with("parameter")
        }
    }
}
