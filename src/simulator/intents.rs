//! The rules of a `PaymentIntent`: what a request makes of one. Pure: it proposes, `state` commits.
//!
//! Invariant: nothing leads out of `succeeded` or `canceled`, so an object moves money once at most.

use std::sync::Arc;

use super::cards::{self, Charged, Decline};
use super::currencies;
use super::form::Form;
use super::model::{Answer, ApiError, Fixed, Moving, Snapshot, Status};
use super::params::{self, Confirm};
use super::state::EventKind;

/// What the rules need to know besides the request.
pub(super) struct Context<'a> {
    /// Unix seconds.
    pub(super) now: i64,
    pub(super) livemode: bool,
    /// Where the customer's browser finds this server.
    pub(super) base_url: &'a str,
    pub(super) version: Option<&'a str>,
    /// A fault has the card declined, whichever it is.
    pub(super) declined: bool,
}

pub(super) struct Proposal {
    pub(super) answer: Answer,
    pub(super) change: Option<Change>,
    /// Execution began, so the answer is kept under the key.
    pub(super) executed: bool,
}

pub(super) struct Change {
    pub(super) after: Snapshot,
    pub(super) events: Vec<EventKind>,
}

impl Proposal {
    pub(super) fn refused(error: ApiError) -> Self {
        Self {
            answer: Answer::error(400, error),
            change: None,
            executed: false,
        }
    }

    fn failed(status: u16, error: ApiError) -> Self {
        Self {
            answer: Answer::error(status, error),
            change: None,
            executed: true,
        }
    }

    fn unexpected(error: ApiError, current: &Snapshot) -> Self {
        Self {
            answer: Answer::error(400, error).about(current.clone()),
            change: None,
            executed: true,
        }
    }
}

pub(super) fn missing(what: &str, id: &str, param: &'static str) -> ApiError {
    ApiError::invalid(format!("No such {what}: '{id}'"))
        .code("resource_missing")
        .param(param)
}

pub(super) fn create(form: &Form, id: String, context: &Context<'_>) -> Proposal {
    let params = match params::create(form, context.version) {
        Ok(params) => params,
        Err(error) => return Proposal::refused(error),
    };
    let (customer, payment_method) = (form.filled("customer"), form.filled("payment_method"));
    if let Err(error) =
        amount(params.amount, &params.currency).and_then(|()| known(customer, payment_method))
    {
        return Proposal::failed(400, error);
    }
    if context.declined && params.confirm.is_none() {
        return Proposal::failed(402, decline_error(cards::GENERIC));
    }
    let fixed = Arc::new(Fixed {
        id: id.into(),
        amount: params.amount,
        currency: params.currency.into(),
        created: context.now,
        livemode: context.livemode,
        customer: customer.map(Into::into),
        description: form.filled("description").map(Into::into),
        metadata: params.metadata,
        manual_confirmation: params.manual_confirmation,
        redirects: params.redirects,
    });
    let now = Arc::new(Moving {
        status: if payment_method.is_some() {
            Status::RequiresConfirmation
        } else {
            Status::RequiresPaymentMethod
        },
        payment_method: payment_method.map(Into::into),
        return_url: None,
        amount_received: 0,
        attempts: 0,
        error: None,
        action_url: None,
        canceled_at: None,
        cancellation_reason: None,
    });
    let made = Snapshot { fixed, now };
    let Some(confirmation) = params.confirm else {
        return Proposal {
            answer: Answer::object(made.clone()),
            change: Some(Change {
                after: made,
                events: vec![EventKind::Created],
            }),
            executed: true,
        };
    };
    let mut proposal = attempt(&made, &confirmation, context);
    match &mut proposal.change {
        Some(change) => change.events.insert(0, EventKind::Created),
        // A confirmation that cannot be tried makes no object.
        None => proposal.answer.intent = None,
    }
    proposal
}

pub(super) fn confirm(current: &Snapshot, form: &Form, context: &Context<'_>) -> Proposal {
    let params = match params::confirm(form) {
        Ok(params) => params,
        Err(error) => return Proposal::refused(error),
    };
    if let Err(error) = known(None, params.payment_method) {
        return Proposal::failed(400, error);
    }
    attempt(current, &params, context)
}

pub(super) fn cancel(current: &Snapshot, form: &Form, context: &Context<'_>) -> Proposal {
    let reason = match params::cancel(form) {
        Ok(reason) => reason,
        Err(error) => return Proposal::refused(error),
    };
    match current.now.status {
        Status::RequiresPaymentMethod | Status::RequiresConfirmation | Status::RequiresAction => {}
        status @ (Status::Processing | Status::Succeeded | Status::Canceled) => {
            let message = format!(
                "You cannot cancel this PaymentIntent because it has a status of {}. Only a PaymentIntent with one of the following statuses may be canceled: requires_payment_method, requires_capture, requires_confirmation, requires_action.",
                status.as_str()
            );
            return Proposal::unexpected(
                ApiError::invalid(message).code("payment_intent_unexpected_state"),
                current,
            );
        }
    }
    let now = Moving {
        status: Status::Canceled,
        action_url: None,
        canceled_at: Some(context.now),
        cancellation_reason: reason.map(Into::into),
        ..(*current.now).clone()
    };
    let after = Snapshot {
        fixed: Arc::clone(&current.fixed),
        now: Arc::new(now),
    };
    Proposal {
        answer: Answer::object(after.clone()),
        change: Some(Change {
            after,
            events: vec![EventKind::Canceled],
        }),
        executed: true,
    }
}

/// The customer came back from authenticating. None when nobody was waiting for that.
pub(super) fn authenticated(current: &Snapshot, success: bool) -> Option<Change> {
    let failure = ApiError::invalid(
        "The provided PaymentMethod has failed authentication. You can provide payment_method_data or a new PaymentMethod to attempt to fulfill this PaymentIntent again.",
    )
    .code("payment_intent_authentication_failure");
    (current.now.status == Status::RequiresAction)
        .then(|| ended(current, (!success).then_some(failure)))
}

/// A processing payment comes to its end. None when it was not processing.
pub(super) fn settled(current: &Snapshot, success: bool) -> Option<Change> {
    let failure = decline_error(cards::GENERIC);
    (current.now.status == Status::Processing)
        .then(|| ended(current, (!success).then_some(failure)))
}

fn ended(current: &Snapshot, failure: Option<ApiError>) -> Change {
    match failure {
        None => succeeded(current, (*current.now).clone(), current.fixed.amount),
        Some(error) => declined(current, (*current.now).clone(), error).0,
    }
}

fn amount(amount: i64, currency: &str) -> Result<(), ApiError> {
    let error = if amount > currencies::MAXIMUM {
        ApiError::invalid("Amount must be no more than 99999999").code("amount_too_large")
    } else if amount < 1 {
        ApiError::invalid("This value must be greater than or equal to 1.")
            .code("parameter_invalid_integer")
    } else if amount < currencies::minimum(currency) {
        ApiError::invalid(format!(
            "Amount must be at least {} {currency}",
            currencies::minimum(currency)
        ))
        .code("amount_too_small")
    } else if amount % currencies::step(currency) != 0 {
        ApiError::invalid(format!(
            "Invalid {currency} amount: it must be divisible by {}",
            currencies::step(currency)
        ))
        .code("parameter_invalid_integer")
    } else {
        return Ok(());
    };
    Err(error.param("amount"))
}

fn known(customer: Option<&str>, payment_method: Option<&str>) -> Result<(), ApiError> {
    if let Some(id) = customer.filter(|id| !cards::is_known_customer(id)) {
        return Err(missing("customer", id, "customer"));
    }
    match payment_method.filter(|id| !cards::is_known(id)) {
        Some(id) => Err(missing("PaymentMethod", id, "payment_method")),
        None => Ok(()),
    }
}

fn attempt(current: &Snapshot, params: &Confirm<'_>, context: &Context<'_>) -> Proposal {
    if let Some(error) = not_confirmable(current, params) {
        return Proposal::unexpected(error, current);
    }
    let mut now = (*current.now).clone();
    if let Some(return_url) = params.return_url {
        now.return_url = Some(return_url.into());
    }
    if current.fixed.redirects && now.return_url.is_none() {
        return Proposal::unexpected(
            ApiError::invalid(
                "This PaymentIntent is configured to accept payment methods enabled in your Dashboard. Because some of these payment methods might redirect your customer off of your page, you must provide a `return_url`. If you don't want to accept redirect-based payment methods, set `automatic_payment_methods[enabled]` to `true` and `automatic_payment_methods[allow_redirects]` to `never` when creating Setup Intents and Payment Intents.",
            ),
            current,
        );
    }
    if let Some(payment_method) = params.payment_method {
        now.payment_method = Some(payment_method.into());
    }
    now.attempts += 1;
    now.error = None;
    now.action_url = None;
    let card = now
        .payment_method
        .as_deref()
        .map_or(Charged::Approved, cards::charge);
    let change = match if context.declined {
        Charged::Declined(cards::GENERIC)
    } else {
        card
    } {
        Charged::Approved => succeeded(current, now, current.fixed.amount),
        Charged::Partly => succeeded(
            current,
            now,
            current.fixed.amount - current.fixed.amount / 10,
        ),
        Charged::Declined(decline) => return refused(current, now, decline),
        Charged::AuthenticationNeeded if params.off_session || params.error_on_requires_action => {
            return refused(current, now, cards::AUTHENTICATION_REQUIRED);
        }
        Charged::AuthenticationNeeded => {
            now.status = Status::RequiresAction;
            // Nothing is charged before the customer comes back.
            now.attempts -= 1;
            now.action_url = Some(
                format!(
                    "{}/_sim/authenticate/{}?result=success",
                    context.base_url, current.fixed.id
                )
                .into(),
            );
            moved(current, now, EventKind::RequiresAction)
        }
        Charged::Processing => {
            now.status = Status::Processing;
            moved(current, now, EventKind::Processing)
        }
    };
    Proposal {
        answer: Answer::object(change.after.clone()),
        change: Some(change),
        executed: true,
    }
}

fn not_confirmable(current: &Snapshot, params: &Confirm<'_>) -> Option<ApiError> {
    let message = match current.now.status {
        Status::RequiresConfirmation | Status::RequiresAction => return None,
        Status::RequiresPaymentMethod if params.payment_method.is_some() => return None,
        Status::RequiresPaymentMethod => {
            "You cannot confirm this PaymentIntent because it's missing a payment method. You can either update the PaymentIntent with a payment method and then confirm it again, or confirm it again directly with a payment method or ConfirmationToken.".to_owned()
        }
        Status::Succeeded => "You cannot confirm this PaymentIntent because it has already succeeded after being previously confirmed.".to_owned(),
        status @ (Status::Processing | Status::Canceled) => format!(
            "You cannot confirm this PaymentIntent because it has a status of {}. Only a PaymentIntent with one of the following statuses may be confirmed: requires_confirmation, requires_action.",
            status.as_str()
        ),
    };
    Some(ApiError::invalid(message).code("payment_intent_unexpected_state"))
}

fn decline_error(decline: Decline) -> ApiError {
    ApiError::new("card_error", decline.message)
        .code(decline.code)
        .decline_code(decline.reason)
}

fn moved(current: &Snapshot, now: Moving, event: EventKind) -> Change {
    Change {
        after: Snapshot {
            fixed: Arc::clone(&current.fixed),
            now: Arc::new(now),
        },
        events: vec![event],
    }
}

fn succeeded(current: &Snapshot, mut now: Moving, amount: i64) -> Change {
    now.status = Status::Succeeded;
    now.amount_received = amount;
    now.attempts = now.attempts.max(1);
    now.error = None;
    now.action_url = None;
    moved(current, now, EventKind::Succeeded)
}

fn declined(current: &Snapshot, mut now: Moving, error: ApiError) -> (Change, ApiError) {
    now.status = Status::RequiresPaymentMethod;
    now.action_url = None;
    let failed = Snapshot {
        fixed: Arc::clone(&current.fixed),
        now: Arc::new(now.clone()),
    };
    // Stripe takes the failed method off the object and names it in the error.
    let error = error.of_charge(failed.charge_id(), now.payment_method.take().as_deref());
    now.error = Some(error.clone());
    (moved(current, now, EventKind::Failed), error)
}

fn refused(current: &Snapshot, now: Moving, decline: Decline) -> Proposal {
    let (change, error) = declined(current, now, decline_error(decline));
    Proposal {
        answer: Answer::error(402, error).about(change.after.clone()),
        change: Some(change),
        executed: true,
    }
}
