//! Stripe's `PaymentIntent`, and a page of them, as far as they are read.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::failure::{ErrorObject, Text};
use crate::domain::ids::{ChargeId, ProviderChargeId};
use crate::domain::outcome::{Object, ObjectStatus};
use crate::provider::Page;

/// Everything optional, so that on a page of strangers only our own objects must be whole.
#[derive(Deserialize)]
struct Intent<'a> {
    #[serde(borrow, default)]
    id: Option<Text<'a>>,
    #[serde(borrow, default)]
    object: Option<Text<'a>>,
    #[serde(default)]
    amount: Option<i64>,
    #[serde(default)]
    amount_received: Option<i64>,
    #[serde(borrow, default)]
    currency: Option<Text<'a>>,
    #[serde(borrow, default)]
    status: Option<Text<'a>>,
    #[serde(borrow, default)]
    metadata: Option<Metadata<'a>>,
    // Read apart: an unknown shape here must not hide a success.
    #[serde(borrow, default)]
    last_payment_error: Option<&'a RawValue>,
    #[serde(borrow, default)]
    next_action: Option<&'a RawValue>,
}

#[derive(Deserialize)]
pub(super) struct Metadata<'a> {
    // The field's name is `form::STAMP`.
    #[serde(borrow, default)]
    payonce_charge_id: Option<Text<'a>>,
}

impl Metadata<'_> {
    pub(super) fn stamp(&self) -> Option<&str> {
        self.payonce_charge_id.as_ref().map(Text::as_str)
    }
}

#[derive(Deserialize)]
struct NextAction<'a> {
    #[serde(borrow, default)]
    redirect_to_url: Option<Redirect<'a>>,
}

#[derive(Deserialize)]
struct Redirect<'a> {
    #[serde(borrow, default)]
    url: Option<Text<'a>>,
}

impl Intent<'_> {
    fn stamp(&self) -> Option<&str> {
        self.metadata.as_ref()?.stamp()
    }

    /// The object, if all of it is there that money depends on.
    fn whole(&self) -> Option<Object> {
        if self
            .object
            .as_ref()
            .is_some_and(|kind| kind.as_str() != "payment_intent")
        {
            return None;
        }
        let status = status(self.status.as_ref()?.as_str());
        let amount_received = match (self.amount_received, &status) {
            (Some(amount), _) => amount,
            (None, ObjectStatus::Succeeded) => return None,
            (None, _) => 0,
        };
        Some(Object {
            id: ProviderChargeId::parse(self.id.as_ref()?.as_str())?,
            status,
            amount: self.amount?,
            amount_received,
            currency: self.currency.as_ref()?.as_str().to_ascii_lowercase(),
            stamp: self.stamp().map(str::to_owned),
            failure: self
                .last_payment_error
                .and_then(|raw| serde_json::from_str::<ErrorObject<'_>>(raw.get()).ok())
                .map(|error| error.failure()),
            next_url: self.next_action.and_then(next_url),
        })
    }
}

fn next_url(raw: &RawValue) -> Option<String> {
    let action: NextAction<'_> = serde_json::from_str(raw.get()).ok()?;
    Some(action.redirect_to_url?.url?.as_str().to_owned())
}

fn status(text: &str) -> ObjectStatus {
    match text {
        "requires_confirmation" => ObjectStatus::RequiresConfirmation,
        "requires_payment_method" => ObjectStatus::RequiresPaymentMethod,
        "requires_action" => ObjectStatus::RequiresAction,
        "processing" => ObjectStatus::Processing,
        "requires_capture" => ObjectStatus::RequiresCapture,
        "succeeded" => ObjectStatus::Succeeded,
        "canceled" => ObjectStatus::Canceled,
        _ => ObjectStatus::Unknown,
    }
}

pub(super) fn intent(body: &[u8]) -> Option<Object> {
    serde_json::from_slice::<Intent<'_>>(body).ok()?.whole()
}

#[derive(Deserialize)]
struct List<'a> {
    has_more: bool,
    #[serde(borrow)]
    data: Vec<Intent<'a>>,
}

/// None if anything on the page can't be read that a walk depends on: then nothing is known. What has no stamp, or one of
/// another shape than ours, is someone else's.
pub(super) fn page(body: &[u8]) -> Option<Page> {
    let list: List<'_> = serde_json::from_slice(body).ok()?;
    let next = if list.has_more {
        Some(ProviderChargeId::parse(
            list.data.last()?.id.as_ref()?.as_str(),
        )?)
    } else {
        None
    };
    let objects = list
        .data
        .iter()
        .filter_map(|intent| Some((intent.stamp()?.parse::<ChargeId>().ok()?, intent)))
        .map(|(charge, intent)| Some((charge, intent.whole()?)))
        .collect::<Option<Vec<_>>>()?;
    Some(Page { objects, next })
}
