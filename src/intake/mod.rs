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

/// A submission and where its verdict goes.
#[derive(Debug)]
pub struct Pending {
    pub submission: Submission,
    pub reply: tokio::sync::oneshot::Sender<Result<Verdict, IntakeError>>,
}

/// The way into the bounded queue in front of the batchers.
#[derive(Clone, Debug)]
pub struct Intake {
    queue: tokio::sync::mpsc::Sender<Pending>,
}

impl Intake {
    pub fn new(queue: tokio::sync::mpsc::Sender<Pending>) -> Self {
        Self { queue }
    }

    /// Hands a submission to a batcher and waits for its verdict. Dropping the wait takes nothing back.
    pub async fn submit(&self, submission: Submission) -> Result<Verdict, IntakeError> {
        let charge = ChargeId::derive(submission.merchant, &submission.key);
        let (reply, verdict) = tokio::sync::oneshot::channel();
        self.queue
            .try_send(Pending { submission, reply })
            .map_err(|_| IntakeError::Overloaded)?;
        verdict
            .await
            .unwrap_or(Err(IntakeError::AcceptanceUnknown(charge)))
    }
}
