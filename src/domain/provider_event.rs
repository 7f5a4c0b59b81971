//! What a provider tells by itself. An event is news and no truth: it may come late, twice, before our own commit or not
//! at all, so nothing is concluded from it but that somebody should look.

use std::sync::Arc;

use time::OffsetDateTime;

use super::ids::{ChargeId, ProviderChargeId, ProviderRefundId, RefundId};

/// One event, as far as it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderEvent {
    /// The provider's own id, by which a repeat is known.
    pub id: String,
    /// The provider's word for what happened: `payment_intent.succeeded`.
    pub kind: String,
    /// Whether it is about real money.
    pub live: bool,
    /// By the provider's clock.
    pub created_at: OffsetDateTime,
    pub about: Option<About>,
}

/// The object that an event is about or belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    pub object: Option<ProviderChargeId>,
    /// The charge that our stamp on it names.
    pub charge: Option<ChargeId>,
    /// If it is about a refund of the object.
    pub refund: Option<AboutRefund>,
    /// The object was made then or later.
    pub made_from: OffsetDateTime,
    pub says: Says,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AboutRefund {
    pub id: ProviderRefundId,
    /// The refund that our stamp on it names.
    pub stamp: Option<RefundId>,
}

/// How much the event claims; it decides whether anybody looks, never what is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Says {
    /// The object has been made: nobody need look for that.
    Made,
    /// Something has happened to it.
    Changed,
    /// Money has moved; of a refund, back.
    Moved,
    /// The object, or the refund, can move no money any more.
    Over,
}

/// Why a delivery is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EventRefused {
    #[error("the Stripe-Signature header is missing, sent twice or not of the form t=…,v1=…")]
    SignatureUnreadable,
    #[error("no signature is one of this endpoint's secrets over this body")]
    SignatureWrong,
    #[error("the signature is of a time too far from this machine's clock")]
    OutOfTolerance,
    #[error(
        "the body is signed and is no event: an `id`, a `type`, `created`, `livemode` and `data.object` are needed"
    )]
    Unreadable,
}

/// Checks who sent a delivery and reads it: the value of the signature's header, if there is one and only one, and the
/// body as it came.
pub type OpenEvent =
    Arc<dyn Fn(Option<&str>, &[u8]) -> Result<ProviderEvent, EventRefused> + Send + Sync>;
