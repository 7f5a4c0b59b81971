//! Checks the parameters of a request before it executes. What fails here is not kept under an idempotency key.

use std::borrow::Cow;

use super::form::Form;
use super::model::ApiError;

const CREATE: &[&str] = &[
    "amount",
    "automatic_payment_methods",
    "capture_method",
    "confirm",
    "confirmation_method",
    "currency",
    "customer",
    "description",
    "error_on_requires_action",
    "expand",
    "metadata",
    "off_session",
    "payment_method",
    "payment_method_options",
    "payment_method_types",
    "receipt_email",
    "return_url",
    "setup_future_usage",
    "statement_descriptor",
    "statement_descriptor_suffix",
    "transfer_group",
    "use_stripe_sdk",
];

const CONFIRM: &[&str] = &[
    "error_on_requires_action",
    "expand",
    "mandate_data",
    "off_session",
    "payment_method",
    "payment_method_options",
    "payment_method_types",
    "receipt_email",
    "return_url",
    "setup_future_usage",
    "use_stripe_sdk",
];

/// Stripe takes these only together with the confirmation.
const CONFIRM_ONLY: &[&str] = &[
    "error_on_requires_action",
    "off_session",
    "return_url",
    "use_stripe_sdk",
];

const REASONS: &[&str] = &[
    "duplicate",
    "fraudulent",
    "requested_by_customer",
    "abandoned",
];

type Checked<T> = Result<T, ApiError>;

/// The typed parameters of a create.
#[derive(Debug)]
pub(super) struct Create<'a> {
    pub(super) amount: i64,
    pub(super) currency: String,
    pub(super) manual_confirmation: bool,
    pub(super) redirects: bool,
    pub(super) metadata: Vec<(Box<str>, Box<str>)>,
    /// Present when the object is to be confirmed at once.
    pub(super) confirm: Option<Confirm<'a>>,
}

/// The typed parameters of a confirmation.
#[derive(Debug, Default)]
pub(super) struct Confirm<'a> {
    pub(super) payment_method: Option<&'a str>,
    pub(super) return_url: Option<&'a str>,
    pub(super) off_session: bool,
    pub(super) error_on_requires_action: bool,
}

/// `version` is the `Stripe-Version` the caller pinned, if any.
pub(super) fn create<'a>(form: &'a Form, version: Option<&str>) -> Checked<Create<'a>> {
    known(form, CREATE)?;
    let amount = integer("amount", required(form, "amount")?)?;
    let currency = required(form, "currency")?.to_ascii_lowercase();
    if !super::currencies::is_known(&currency) {
        return Err(ApiError::invalid(format!(
            "Invalid currency: {currency}. Stripe currently supports these currencies: usd, …"
        ))
        .param("currency"));
    }
    let confirm = flag(form, "confirm")?;
    if let (false, Some(name)) = (confirm, CONFIRM_ONLY.iter().find(|name| form.has(name))) {
        return Err(ApiError::invalid(format!(
            "The parameter `{name}` can only be used with `confirm` set to `true`."
        ))
        .param(*name));
    }
    choice(form, "capture_method", &["automatic", "automatic_async"])?;
    choice(form, "confirmation_method", &["automatic", "manual"])?;
    choice(
        form,
        "automatic_payment_methods[allow_redirects]",
        &["always", "never"],
    )?;
    if form.has("automatic_payment_methods") && form.has("payment_method_types") {
        return Err(ApiError::invalid("You may only specify one of these parameters: automatic_payment_methods, payment_method_types.").param("payment_method_types"));
    }
    let automatic = match form.filled("automatic_payment_methods[enabled]") {
        Some(_) => flag(form, "automatic_payment_methods[enabled]")?,
        // From this version on they are the default.
        None => {
            !form.has("payment_method_types")
                && version.is_none_or(|version| version >= "2023-08-16")
        }
    };
    Ok(Create {
        amount,
        currency,
        manual_confirmation: form.get("confirmation_method") == Some("manual"),
        redirects: automatic
            && form.get("automatic_payment_methods[allow_redirects]") != Some("never"),
        metadata: metadata(form)?,
        confirm: if confirm {
            Some(confirmation(form)?)
        } else {
            None
        },
    })
}

pub(super) fn confirm(form: &Form) -> Checked<Confirm<'_>> {
    known(form, CONFIRM)?;
    confirmation(form)
}

pub(super) fn cancel(form: &Form) -> Checked<Option<&str>> {
    known(form, &["cancellation_reason", "expand"])?;
    choice(form, "cancellation_reason", REASONS)?;
    Ok(form.filled("cancellation_reason"))
}

fn confirmation(form: &Form) -> Checked<Confirm<'_>> {
    let return_url = form.filled("return_url");
    if return_url.is_some_and(|url| !url.contains("://")) {
        return Err(ApiError::invalid("Not a valid URL")
            .code("url_invalid")
            .param("return_url"));
    }
    Ok(Confirm {
        payment_method: form.filled("payment_method"),
        return_url,
        // It may also be `one_off` or `recurring`.
        off_session: !matches!(form.filled("off_session"), None | Some("false")),
        error_on_requires_action: flag(form, "error_on_requires_action")?,
    })
}

pub(super) fn metadata(form: &Form) -> Checked<Vec<(Box<str>, Box<str>)>> {
    let mut pairs: Vec<(Box<str>, Box<str>)> = Vec::new();
    for (key, value) in form
        .nested("metadata")
        .filter(|(_, value)| !value.is_empty())
    {
        if key.is_empty() || key.chars().count() > 40 {
            return Err(
                ApiError::invalid("Metadata keys must be between 1 and 40 characters.")
                    .param("metadata"),
            );
        }
        if value.chars().count() > 500 {
            return Err(ApiError::invalid(format!(
                "Metadata values can have up to 500 characters, but `{key}` has more."
            ))
            .param("metadata"));
        }
        pairs.retain(|(earlier, _)| **earlier != *key);
        pairs.push((key.into(), value.into()));
    }
    if pairs.len() > 50 {
        return Err(ApiError::invalid("Metadata can have up to 50 keys.").param("metadata"));
    }
    Ok(pairs)
}

pub(super) fn known(form: &Form, names: &[&str]) -> Checked<()> {
    match form.unknown(names) {
        None => Ok(()),
        Some(name) => Err(
            ApiError::invalid(format!("Received unknown parameter: {name}"))
                .code("parameter_unknown")
                .param(name.to_owned()),
        ),
    }
}

fn required<'a>(form: &'a Form, name: &'static str) -> Checked<&'a str> {
    match form.get(name) {
        None => Err(ApiError::invalid(format!("Missing required param: {name}.")).code("parameter_missing").param(name)),
        Some("") => Err(ApiError::invalid(format!(
            "You passed an empty string for '{name}'. We assume empty values are an attempt to unset a parameter; however '{name}' cannot be unset."
        ))
        .code("parameter_invalid_empty")
        .param(name)),
        Some(value) => Ok(value),
    }
}

pub(super) fn integer(name: impl Into<Cow<'static, str>>, value: &str) -> Checked<i64> {
    let digits = value.strip_prefix('-').unwrap_or(value);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(ApiError::invalid(format!("Invalid integer: {value}"))
            .code("parameter_invalid_integer")
            .param(name));
    }
    // What has more digits than fit is too large, and is said to be so where the limit is checked.
    Ok(value.parse().unwrap_or(if value.starts_with('-') {
        i64::MIN
    } else {
        i64::MAX
    }))
}

fn flag(form: &Form, name: &'static str) -> Checked<bool> {
    match form.filled(name) {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(other) => Err(ApiError::invalid(format!("Invalid boolean: {other}")).param(name)),
    }
}

pub(super) fn choice(form: &Form, name: &'static str, choices: &[&str]) -> Checked<()> {
    match form.filled(name) {
        Some(given) if !choices.contains(&given) => Err(ApiError::invalid(format!(
            "Invalid {name}: must be one of {}",
            choices.join(", ")
        ))
        .param(name)),
        _ => Ok(()),
    }
}
