//! A `PaymentIntent` as the simulator keeps it: what never changes, what moves, and how both look in JSON.
//!
//! Both halves are shared by pointer between the object, its events and the answers kept under idempotency keys, so a
//! replayed answer is a picture of the past for the price of a pointer.

use std::borrow::Cow;
use std::sync::Arc;

use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};

use super::refunds::Refund;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Status {
    RequiresPaymentMethod,
    RequiresConfirmation,
    RequiresAction,
    Processing,
    Succeeded,
    Canceled,
}

impl Status {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::RequiresPaymentMethod => "requires_payment_method",
            Self::RequiresConfirmation => "requires_confirmation",
            Self::RequiresAction => "requires_action",
            Self::Processing => "processing",
            Self::Succeeded => "succeeded",
            Self::Canceled => "canceled",
        }
    }
}

/// What is decided when the object is made.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Fixed {
    pub(super) id: Box<str>,
    pub(super) amount: i64,
    pub(super) currency: Box<str>,
    pub(super) created: i64,
    pub(super) livemode: bool,
    pub(super) customer: Option<Box<str>>,
    pub(super) description: Option<Box<str>>,
    pub(super) metadata: Vec<(Box<str>, Box<str>)>,
    pub(super) manual_confirmation: bool,
    /// Methods that send the customer elsewhere are possible, so a confirm needs a `return_url`.
    pub(super) redirects: bool,
}

impl Fixed {
    /// The part of the id that ids derived from it carry on.
    pub(super) fn tail(&self) -> &str {
        self.id.get(3..).unwrap_or_default()
    }
}

/// What changes over the object's life.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Moving {
    pub(super) status: Status,
    pub(super) payment_method: Option<Box<str>>,
    pub(super) return_url: Option<Box<str>>,
    pub(super) amount_received: i64,
    /// How many charges were tried; the latest one's id is made from it.
    pub(super) attempts: u32,
    pub(super) error: Option<ApiError>,
    pub(super) action_url: Option<Box<str>>,
    pub(super) canceled_at: Option<i64>,
    pub(super) cancellation_reason: Option<Box<str>>,
}

/// One object at one moment.
#[derive(Debug, Clone)]
pub(super) struct Snapshot {
    pub(super) fixed: Arc<Fixed>,
    pub(super) now: Arc<Moving>,
}

impl Snapshot {
    pub(super) fn charge_id(&self) -> Option<String> {
        (self.now.attempts > 0).then(|| format!("ch_{}{}", self.fixed.tail(), self.now.attempts))
    }

    pub(super) fn view(&self) -> View<'_> {
        let (fixed, now) = (&*self.fixed, &*self.now);
        View {
            id: &fixed.id,
            object: "payment_intent",
            amount: fixed.amount,
            amount_capturable: 0,
            amount_received: now.amount_received,
            automatic_payment_methods: fixed.redirects.then_some(Automatic {
                allow_redirects: "always",
                enabled: true,
            }),
            canceled_at: now.canceled_at,
            cancellation_reason: now.cancellation_reason.as_deref(),
            capture_method: "automatic",
            client_secret: format!(
                "{}_secret_{}",
                fixed.id,
                fixed.tail().get(..12).unwrap_or_default()
            ),
            confirmation_method: if fixed.manual_confirmation {
                "manual"
            } else {
                "automatic"
            },
            created: fixed.created,
            currency: &fixed.currency,
            customer: fixed.customer.as_deref(),
            description: fixed.description.as_deref(),
            last_payment_error: now.error.as_ref().map(|error| error.view(None)),
            latest_charge: self.charge_id(),
            livemode: fixed.livemode,
            metadata: &fixed.metadata,
            next_action: now.action_url.as_deref().map(|url| NextAction {
                kind: "redirect_to_url",
                redirect_to_url: Redirect {
                    return_url: now.return_url.as_deref(),
                    url,
                },
            }),
            payment_method: now.payment_method.as_deref(),
            payment_method_types: ["card"],
            status: now.status.as_str(),
        }
    }
}

/// The JSON of a `PaymentIntent`.
#[derive(Debug, Serialize)]
pub(super) struct View<'a> {
    id: &'a str,
    object: &'static str,
    amount: i64,
    amount_capturable: i64,
    amount_received: i64,
    automatic_payment_methods: Option<Automatic>,
    canceled_at: Option<i64>,
    cancellation_reason: Option<&'a str>,
    capture_method: &'static str,
    client_secret: String,
    confirmation_method: &'static str,
    created: i64,
    currency: &'a str,
    customer: Option<&'a str>,
    description: Option<&'a str>,
    last_payment_error: Option<ErrorView<'a>>,
    latest_charge: Option<String>,
    livemode: bool,
    #[serde(serialize_with = "as_map")]
    metadata: &'a [(Box<str>, Box<str>)],
    next_action: Option<NextAction<'a>>,
    payment_method: Option<&'a str>,
    payment_method_types: [&'static str; 1],
    pub(super) status: &'static str,
}

#[derive(Debug, Serialize)]
struct Automatic {
    allow_redirects: &'static str,
    enabled: bool,
}

#[derive(Debug, Serialize)]
struct NextAction<'a> {
    redirect_to_url: Redirect<'a>,
    #[serde(rename = "type")]
    kind: &'static str,
}

#[derive(Debug, Serialize)]
struct Redirect<'a> {
    return_url: Option<&'a str>,
    url: &'a str,
}

pub(super) fn as_map<S: Serializer>(
    pairs: &[(Box<str>, Box<str>)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(pairs.len()))?;
    for (key, value) in pairs {
        map.serialize_entry(key, value)?;
    }
    map.end()
}

/// An error of the API, as it is kept; [`ApiError::view`] is its JSON.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct ApiError(Box<Fields>);

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Fields {
    kind: Cow<'static, str>,
    code: Option<Cow<'static, str>>,
    message: Cow<'static, str>,
    param: Option<Cow<'static, str>>,
    decline_code: Option<Cow<'static, str>>,
    charge: Option<Box<str>>,
    payment_method: Option<Box<str>>,
}

impl ApiError {
    pub(super) fn new(kind: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self(Box::new(Fields {
            kind: kind.into(),
            code: None,
            message: message.into(),
            param: None,
            decline_code: None,
            charge: None,
            payment_method: None,
        }))
    }

    pub(super) fn invalid(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new("invalid_request_error", message)
    }

    pub(super) fn code(mut self, code: &'static str) -> Self {
        self.0.code = Some(code.into());
        self
    }

    pub(super) fn param(mut self, param: impl Into<Cow<'static, str>>) -> Self {
        self.0.param = Some(param.into());
        self
    }

    pub(super) fn decline_code(mut self, code: Option<&'static str>) -> Self {
        self.0.decline_code = code.map(Into::into);
        self
    }

    pub(super) fn of_charge(
        mut self,
        charge: Option<String>,
        payment_method: Option<&str>,
    ) -> Self {
        self.0.charge = charge.map(Into::into);
        self.0.payment_method = payment_method.map(Into::into);
        self
    }

    pub(super) fn view<'a>(&'a self, intent: Option<&'a Snapshot>) -> ErrorView<'a> {
        ErrorView {
            charge: self.0.charge.as_deref(),
            code: self.0.code.as_deref(),
            decline_code: self.0.decline_code.as_deref(),
            doc_url: self.0.code.as_deref().map(|code| {
                format!(
                    "https://stripe.com/docs/error-codes/{}",
                    code.replace('_', "-")
                )
            }),
            message: &self.0.message,
            param: self.0.param.as_deref(),
            payment_intent: intent.map(|intent| Box::new(intent.view())),
            payment_method: self.0.payment_method.as_deref().map(|id| Method {
                id,
                object: "payment_method",
                kind: "card",
            }),
            kind: &self.0.kind,
        }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct ErrorView<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    charge: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    decline_code: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    doc_url: Option<String>,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    param: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payment_intent: Option<Box<View<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payment_method: Option<Method<'a>>,
    #[serde(rename = "type")]
    kind: &'a str,
}

#[derive(Debug, Serialize)]
struct Method<'a> {
    id: &'a str,
    object: &'static str,
    #[serde(rename = "type")]
    kind: &'static str,
}

/// What a request is answered with and, under a key, what is kept of it.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) intent: Option<Snapshot>,
    pub(super) refund: Option<Refund>,
    pub(super) error: Option<ApiError>,
}

impl Answer {
    pub(super) fn refund(refund: Refund) -> Self {
        Self {
            status: 200,
            intent: None,
            refund: Some(refund),
            error: None,
        }
    }

    pub(super) fn object(intent: Snapshot) -> Self {
        Self {
            status: 200,
            intent: Some(intent),
            refund: None,
            error: None,
        }
    }

    pub(super) fn error(status: u16, error: ApiError) -> Self {
        Self {
            status,
            intent: None,
            refund: None,
            error: Some(error),
        }
    }

    pub(super) fn about(mut self, intent: Snapshot) -> Self {
        self.intent = Some(intent);
        self
    }

    /// The body; `status` overrides the object's own, for the fault that makes it unknown.
    pub(super) fn body(&self, status: Option<&'static str>) -> Vec<u8> {
        #[derive(Serialize)]
        struct Enveloped<'a> {
            error: ErrorView<'a>,
        }
        let body = match (&self.error, &self.intent) {
            (Some(error), intent) => serde_json::to_vec(&Enveloped {
                error: error.view(intent.as_ref()),
            }),
            (None, Some(intent)) => {
                let mut view = intent.view();
                view.status = status.unwrap_or(view.status);
                serde_json::to_vec(&view)
            }
            (None, None) => match &self.refund {
                Some(refund) => {
                    let mut view = refund.view();
                    view.status = status.unwrap_or(view.status);
                    serde_json::to_vec(&view)
                }
                None => Ok(b"{}".to_vec()),
            },
        };
        body.unwrap_or_default()
    }
}
