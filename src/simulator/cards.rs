//! What a payment method does when it is charged: Stripe's test tokens and a few of our own.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Charged {
    Approved,
    /// Succeeds with a tenth less than was asked for.
    Partly,
    /// Stays open until it is settled by hand.
    Processing,
    AuthenticationNeeded,
    Declined(Decline),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Decline {
    pub(super) code: &'static str,
    /// Stripe's `decline_code`.
    pub(super) reason: Option<&'static str>,
    pub(super) message: &'static str,
}

const DECLINED: &str = "Your card was declined.";
pub(super) const GENERIC: Decline = declined("generic_decline", DECLINED);
pub(super) const AUTHENTICATION_REQUIRED: Decline = Decline {
    code: "authentication_required",
    reason: Some("authentication_required"),
    message: "Your card was declined. This transaction requires authentication.",
};

const fn declined(reason: &'static str, message: &'static str) -> Decline {
    Decline {
        code: "card_declined",
        reason: Some(reason),
        message,
    }
}

const fn refused(code: &'static str, message: &'static str) -> Decline {
    Decline {
        code,
        reason: None,
        message,
    }
}

pub(super) fn charge(payment_method: &str) -> Charged {
    // Stripe takes the old names of its test cards, too.
    let name = payment_method
        .strip_prefix("pm_card_")
        .or_else(|| payment_method.strip_prefix("tok_"));
    match name {
        Some("chargeDeclined") => Charged::Declined(GENERIC),
        Some("chargeDeclinedInsufficientFunds" | "visa_chargeDeclinedInsufficientFunds") => {
            Charged::Declined(declined(
                "insufficient_funds",
                "Your card has insufficient funds.",
            ))
        }
        Some("chargeDeclinedLostCard" | "visa_chargeDeclinedLostCard") => {
            Charged::Declined(declined("lost_card", DECLINED))
        }
        Some("chargeDeclinedStolenCard" | "visa_chargeDeclinedStolenCard") => {
            Charged::Declined(declined("stolen_card", DECLINED))
        }
        Some("chargeDeclinedExpiredCard") => {
            Charged::Declined(refused("expired_card", "Your card has expired."))
        }
        Some("chargeDeclinedIncorrectCvc") => Charged::Declined(refused(
            "incorrect_cvc",
            "Your card's security code is incorrect.",
        )),
        Some("chargeDeclinedProcessingError") => Charged::Declined(refused(
            "processing_error",
            "An error occurred while processing your card. Try again in a little bit.",
        )),
        Some("authenticationRequired" | "threeDSecure2Required" | "threeDSecureRequired") => {
            Charged::AuthenticationNeeded
        }
        _ => match payment_method {
            "pm_sim_processing" => Charged::Processing,
            "pm_sim_partial" => Charged::Partly,
            _ => Charged::Approved,
        },
    }
}

pub(super) fn is_known(payment_method: &str) -> bool {
    payment_method != "pm_sim_unknown"
        && ["pm_", "tok", "card_", "src_"]
            .iter()
            .any(|prefix| payment_method.starts_with(prefix))
}

pub(super) fn is_known_customer(customer: &str) -> bool {
    customer != "cus_sim_unknown" && customer.starts_with("cus_")
}
