//! Takes refunds in: a valid request becomes a request row, a refund and an outbox row, and its amount is reserved on its
//! charge, in one statement or not at all.
//!
//! What is left of the charge is read and reserved under the charge's lock, so that refunds in progress and completed ones
//! never add up to more than it. If the process dies before the statement commits, nothing is stored and nobody was
//! answered; if it dies after, the client's retry finds its refund.

use std::sync::Arc;

use sqlx::PgConnection;
use tokio::sync::Notify;
use uuid::Uuid;

use crate::batch::{self, BatchLimits, BatchMeters, Batcher, Queue, Refusal, Statement};
use crate::db::refund_steps::{self, NewRefund};
use crate::db::session::Session;
use crate::db::{self, DbError};
use crate::domain::charge::Stage;
use crate::domain::idempotency::IdempotencyKey;
use crate::domain::ids::{ChargeId, MerchantId, ProviderChargeId, RefundId};
use crate::domain::money::Currency;
use crate::domain::refund::Refund;
use crate::domain::refund::request::{RefundDraft, RefundInstruction};
use crate::domain::request::ProviderRules;
use crate::random::Random;

/// A request that keeps every rule, with what does not change of its charge.
#[derive(Clone, Debug)]
pub struct RefundSubmission {
    pub merchant: MerchantId,
    pub key: IdempotencyKey,
    pub draft: RefundDraft,
    pub currency: Currency,
    /// The provider's object of the charge.
    pub object: ProviderChargeId,
    /// What was left of the charge when it was read; only where to begin.
    pub unrefunded: i64,
}

#[derive(Clone, Debug)]
pub enum RefundVerdict {
    /// This submission made the refund.
    Created(Box<Refund>),
    /// An earlier one of the same meaning did; the refund as it stands now.
    Duplicate(Box<Refund>),
    /// An earlier one of another meaning has the key.
    Reused {
        refund: Box<Refund>,
        /// JSON pointers of the fields that differ.
        differences: Vec<String>,
    },
    /// The charge has not completed.
    NotRefundable { charge: ChargeId, stage: Stage },
    /// No more than this is left of the charge; `asked` is none where all of that was asked for.
    Exceeds {
        charge: ChargeId,
        unrefunded: i64,
        asked: Option<i64>,
    },
    /// There is no such charge any more.
    NoCharge,
}

/// The way in. Cheap to clone.
#[derive(Clone, Debug)]
pub struct RefundIntake {
    queue: Queue<AcceptRefund>,
    random: Random,
}

impl RefundIntake {
    /// Makes the way in and its batcher, which the caller runs. `accepted` is notified of every new refund.
    pub fn new(
        rules: ProviderRules,
        limits: BatchLimits,
        session: impl Fn() -> Session,
        accepted: &Arc<Notify>,
        random: &Random,
    ) -> (Self, Batcher<AcceptRefund>) {
        let statement = AcceptRefund {
            rules,
            accepted: accepted.clone(),
        };
        // A charge whose lock is held must hold up no other: what waits for one goes to the side lane alone.
        let limits = BatchLimits { items: 1, ..limits };
        let (queue, batcher) =
            batch::batcher(&statement, session, limits, random, &BatchMeters::none());
        let random = random.clone();
        (Self { queue, random }, batcher)
    }

    /// Hands a submission in and waits for what became of it. It is on its way once this was polled, whether or not
    /// anybody goes on waiting.
    pub async fn submit(&self, submission: RefundSubmission) -> Result<RefundVerdict, Refusal> {
        let draft = submission.draft.clone();
        let entry = Entry {
            intake_id: self.random.uuid(),
            submission,
        };
        Ok(match self.queue.hand_in(entry)?.await? {
            Fate::Found { refund, ours: true } => RefundVerdict::Created(refund),
            Fate::Found {
                refund,
                ours: false,
            } => judge(refund, &draft),
            Fate::NotRefundable { stage } => RefundVerdict::NotRefundable {
                charge: draft.charge,
                stage,
            },
            Fate::Exceeds { unrefunded } => RefundVerdict::Exceeds {
                charge: draft.charge,
                unrefunded,
                asked: draft.amount,
            },
            Fate::NoCharge => RefundVerdict::NoCharge,
        })
    }
}

/// What a later request is to the refund that has its key, whether or not today's rules would take it.
pub fn judge(refund: Box<Refund>, draft: &RefundDraft) -> RefundVerdict {
    let same = draft
        .matches(&refund.fingerprint)
        .unwrap_or_else(|| refund.request == *draft);
    if same {
        RefundVerdict::Duplicate(refund)
    } else {
        let differences = refund.request.differences(draft);
        RefundVerdict::Reused {
            refund,
            differences,
        }
    }
}

/// A submission with the mark of the rows it makes.
#[derive(Clone, Debug)]
pub struct Entry {
    submission: RefundSubmission,
    intake_id: Uuid,
}

/// What became of a submission.
#[derive(Clone, Debug)]
pub enum Fate {
    /// The refund is there. `ours` if this very submission made it.
    Found {
        refund: Box<Refund>,
        ours: bool,
    },
    NotRefundable {
        stage: Stage,
    },
    Exceeds {
        unrefunded: i64,
    },
    NoCharge,
}

#[derive(Clone, Debug)]
pub struct AcceptRefund {
    rules: ProviderRules,
    accepted: Arc<Notify>,
}

impl Statement for AcceptRefund {
    type Item = Entry;
    type Reply = Fate;

    const NAME: &'static str = "refund_intake";

    async fn run(
        &mut self,
        connection: &mut PgConnection,
        items: &[Entry],
        _repeated: bool,
    ) -> Result<Vec<Fate>, DbError> {
        let mut fates = Vec::with_capacity(items.len());
        for entry in items {
            fates.push(self.accept(connection, entry).await?);
        }
        Ok(fates)
    }

    fn weight(_item: &Entry) -> usize {
        1
    }
}

impl AcceptRefund {
    async fn accept(&self, connection: &mut PgConnection, entry: &Entry) -> Result<Fate, DbError> {
        let Entry {
            submission,
            intake_id,
        } = entry;
        let draft = &submission.draft;
        let id = RefundId::derive(submission.merchant, &submission.key);
        let metadata =
            serde_json::to_string(&draft.metadata).expect("a map of strings is always valid JSON");
        // All that is left is another amount each time that somebody else takes from it.
        let mut amount = draft.amount.unwrap_or(submission.unrefunded.max(1));
        for _ in 0..8 {
            let instruction =
                draft.instruction(amount, submission.currency, &submission.object, &self.rules);
            let Some(instruction) = instruction else {
                return Ok(Fate::Exceeds { unrefunded: 0 });
            };
            let payload = serde_json::to_string(&instruction)
                .expect("an instruction of strings and numbers is always valid JSON");
            let new = NewRefund {
                id,
                charge: draft.charge,
                merchant: submission.merchant,
                key: &submission.key,
                intake_id: *intake_id,
                fingerprint: draft.fingerprint(),
                asked_amount: draft.amount,
                amount,
                reason: draft.reason.as_deref(),
                metadata: &metadata,
                payload_version: RefundInstruction::VERSION,
                payload: &payload,
            };
            let room = refund_steps::accept(connection, new).await?;
            if room.as_ref().is_some_and(|room| room.created_at.is_some()) {
                self.accepted.notify_one();
            }
            // In a statement of its own: in the one above, a winner's row can't be seen.
            let found = db::refunds::find_all(connection, &[id.as_uuid()])
                .await
                .map_err(|error| DbError::AfterCommit(Box::new(error)))?
                .pop();
            if let Some((refund, made_by)) = found {
                return Ok(Fate::Found {
                    refund: Box::new(refund),
                    ours: made_by == Some(*intake_id),
                });
            }
            let Some(room) = room else {
                return Ok(Fate::NoCharge);
            };
            match Stage::parse(&room.stage) {
                Some(Stage::Succeeded) => {}
                Some(stage) => return Ok(Fate::NotRefundable { stage }),
                None => {
                    return Err(DbError::Unreadable {
                        charge: draft.charge,
                        column: "stage",
                    });
                }
            }
            if room.unrefunded < draft.amount.unwrap_or(1) {
                return Ok(Fate::Exceeds {
                    unrefunded: room.unrefunded.max(0),
                });
            }
            // Somebody else took from it, or a winner of the key was rolled back.
            amount = draft.amount.unwrap_or(room.unrefunded);
        }
        Err(DbError::WinnersVanish)
    }
}
