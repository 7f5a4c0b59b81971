//! Takes charges in: a valid request becomes a request row, a charge and an outbox row in one statement, or none of them.
//!
//! Who hands a submission in may go away at any moment; the batch goes on. If the process dies before the statement
//! commits, nothing is stored and nobody was answered; if it dies after, the client's retry finds its charge.

mod batcher;
pub mod meters;
pub mod refunds;

use std::sync::Arc;

use tokio::sync::Notify;

use crate::batch::{self, BatchLimits, Batcher, Fullness, Queue, Refusal};
use crate::db::session::Session;
use crate::domain::charge::{Charge, Progress};
use crate::domain::idempotency::{Fingerprint, IdempotencyKey};
use crate::domain::ids::{ChargeId, MerchantId};
use crate::domain::request::{ChargeRequest, Draft};
use crate::random::Random;
pub use batcher::Accept;
use batcher::{Entry, Fate};
pub use meters::IntakeMeters;

/// A valid request, on its way to the books.
#[derive(Clone, Debug)]
pub struct Submission {
    pub merchant: MerchantId,
    /// The account that the merchant is on now; `None` for the default one.
    pub account: Option<Arc<str>>,
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
    #[error("the database refused the data; nothing was stored")]
    Refused,
}

/// The way in. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Intake {
    /// One for each batcher; a key always goes to the same one, so that duplicates meet in memory.
    queues: Vec<Queue<Accept>>,
    random: Random,
    live: bool,
    provider: &'static str,
}

/// What all charges of a process share.
#[derive(Clone, Copy, Debug)]
pub struct IntakeSettings {
    pub live: bool,
    pub provider: &'static str,
    pub batchers: usize,
    pub limits: BatchLimits,
}

impl Intake {
    /// Makes the intake and its batchers, which the caller runs. `accepted` is notified of every batch with new charges.
    pub fn new(
        settings: IntakeSettings,
        session: impl Fn() -> Session,
        accepted: &Arc<Notify>,
        random: &Random,
        meters: &IntakeMeters,
    ) -> (Self, Vec<Batcher<Accept>>) {
        let statement = Accept {
            live: settings.live,
            provider: settings.provider,
            accepted: accepted.clone(),
            counted: meters.accepted.clone(),
        };
        let (queues, batchers) = (0..settings.batchers.max(1))
            .map(|_| {
                let limits = settings.limits;
                batch::batcher(&statement, &session, limits, random, &meters.batch)
            })
            .unzip();
        let intake = Self {
            queues,
            random: random.clone(),
            live: settings.live,
            provider: settings.provider,
        };
        (intake, batchers)
    }

    /// For looking at how full each batcher's queue is.
    pub fn gauges(&self) -> Vec<Fullness<Accept>> {
        self.queues.iter().map(Queue::gauge).collect()
    }

    /// Hands a submission in and waits for what became of it. It is on its way once this was polled, whether or not
    /// anybody goes on waiting.
    pub async fn submit(&self, submission: Submission) -> Result<Verdict, IntakeError> {
        let entry = Arc::new(Entry::new(submission, self.random.uuid()));
        let charge = entry.charge_id;
        let shard = usize::from(charge.as_uuid().as_bytes()[0]) % self.queues.len();
        let answer = self.queues[shard]
            .hand_in(entry.clone())
            .map_err(|refusal| intake_error(refusal, charge))?;
        match answer.await {
            Ok(Fate::Created { created_at }) => Ok(Verdict::Created(Box::new(entry.to_charge(
                created_at,
                self.live,
                self.provider,
            )))),
            Ok(Fate::Found { charge, ours: true }) => Ok(Verdict::Created(charge)),
            Ok(Fate::Found {
                charge,
                ours: false,
            }) => Ok(judge(charge, entry.request.draft())),
            Err(refusal) => Err(intake_error(refusal, charge)),
        }
    }
}

/// What a later request is to the charge that has its key, whether or not today's rules would take it.
pub fn judge(charge: Box<Charge>, draft: &Draft) -> Verdict {
    // A fingerprint from a later release can't be recomputed here; the fields themselves can be compared.
    let same = charge
        .fingerprint
        .matches(draft)
        .unwrap_or_else(|| charge.request == *draft);
    if same {
        Verdict::Duplicate(charge)
    } else {
        Verdict::Reused {
            charge: charge.id,
            differences: charge.request.differences(draft),
        }
    }
}

fn intake_error(refusal: Refusal, charge: ChargeId) -> IntakeError {
    match refusal {
        Refusal::Full => IntakeError::Overloaded,
        Refusal::Closed | Refusal::GaveUp { maybe_done: false } => IntakeError::Unavailable,
        Refusal::GaveUp { maybe_done: true } => IntakeError::AcceptanceUnknown(charge),
        Refusal::Data => IntakeError::Refused,
    }
}

impl Entry {
    fn to_charge(&self, created_at: time::OffsetDateTime, live: bool, provider: &str) -> Charge {
        Charge {
            id: self.charge_id,
            merchant: self.merchant,
            idempotency_key: self.key.clone(),
            fingerprint: self.fingerprint,
            request: self.request.draft().clone(),
            live,
            provider: provider.to_owned(),
            progress: Progress::new(),
            created_at,
            updated_at: created_at,
            finished_at: None,
            cancel_requested: false,
            amount_refunded: 0,
            account: self.account.clone(),
        }
    }

    fn new(submission: Submission, intake_id: uuid::Uuid) -> Self {
        let Submission {
            merchant,
            account,
            key,
            request,
        } = submission;
        Self {
            charge_id: ChargeId::derive(merchant, &key),
            fingerprint: Fingerprint::of(request.draft()),
            metadata: serde_json::to_string(&request.draft().metadata)
                .expect("a map of strings is always valid JSON"),
            payload: serde_json::to_string(&request.instruction())
                .expect("an instruction of strings and numbers is always valid JSON"),
            intake_id,
            merchant,
            account,
            key,
            request,
        }
    }
}
