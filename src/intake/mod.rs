//! Takes charges in: a valid request becomes a request row, a charge and an outbox row in one statement, or none of them.

use crate::domain::charge::Charge;
use crate::domain::idempotency::IdempotencyKey;
use crate::domain::ids::{ChargeId, MerchantId};
use crate::domain::request::ChargeRequest;

/// A valid request, on its way to the books.
#[derive(Clone, Debug)]
pub struct Submission {
    pub merchant: MerchantId,
    pub key: IdempotencyKey,
    pub request: ChargeRequest,
}

#[derive(Debug)]
pub enum Verdict {
    /// This submission made the charge.
    Created(Box<Charge>),
    /// An earlier one of the same meaning did; the charge as it stands now.
    Duplicate(Box<Charge>),
    /// An earlier one of another meaning has the key.
    Reused {
        charge: ChargeId,
        /// JSON pointers of the fields that differ.
        differences: Vec<String>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IntakeError {
    #[error("the queue is full; nothing was stored")]
    Overloaded,
    #[error("the database can't be reached; nothing was stored")]
    Unavailable,
    #[error("charge {0} may have been accepted or not")]
    AcceptanceUnknown(ChargeId),
}
