//! Takes refunds from step to step: what a worker is about to do is committed before it does it, and what it learned is
//! written with the charge, the request row, the outbox row and the event.
//!
//! [`RefundEnding::Finish`] and [`RefundEnding::Correct`] are the one place where a refund's status changes. A success is a
//! fact and is written whoever learned it; everything else only while the lease that learned it holds and the refund is as
//! its holder saw it. If the process dies before a statement commits, the lease runs out and the next run looks for itself;
//! if it dies after, nothing is left to do.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use serde_json::{Value, json};
use sqlx::PgConnection;

use crate::batch::{self, BatchLimits, BatchMeters, Batcher, Queue, Refusal, Statement};
use crate::completion::{LastCall, Settled};
use crate::db::external_refunds::{self, OfObject};
use crate::db::refund_steps::{self, Changed, End, RefundHold, Started, Waiting};
use crate::db::session::Session;
use crate::db::{self, DbError};
use crate::domain::charge::Stage;
use crate::domain::ids::{ChargeId, ProviderRefundId, RefundId};
use crate::domain::money::{Currency, Money};
use crate::domain::refund::outcome::{RefundAlert, RefundObject};
use crate::domain::refund::{Refund, RefundProgress, RefundState};
use crate::domain::request::ProviderRules;
use crate::random::Random;
use crate::watches::Watches;

/// How a run ends.
#[derive(Clone, Debug)]
pub enum RefundEnding {
    /// The refund is terminal now.
    Finish {
        progress: RefundProgress,
        detail: Value,
    },
    /// It had ended, and the provider says otherwise now.
    Correct {
        progress: RefundProgress,
        detail: Value,
    },
    /// The job goes on after `delay`. `progress` is where the refund stands then, if that changed.
    Wait {
        progress: Option<RefundProgress>,
        delay: Duration,
        reason: &'static str,
        call: Option<LastCall>,
    },
    /// An operator must look. With the provider's refund if that is not the one we asked for: written down, too.
    Park {
        alert: &'static str,
        object: Option<Box<RefundObject>>,
        call: Option<LastCall>,
    },
    /// It has ended and nothing is new.
    Discard,
}

/// One write.
#[derive(Clone, Debug)]
pub enum RefundWrite {
    /// It is about to be sent.
    Start {
        hold: RefundHold,
        /// How long the provider is relied on to remember a key.
        key_window: Duration,
        /// The last key is spent: another one from here on.
        new_key: bool,
    },
    Settle {
        hold: RefundHold,
        ending: Box<RefundEnding>,
    },
    /// All refunds that the provider lists for a charge: those made outside are counted.
    Count(Vec<RefundObject>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefundWritten {
    Started(Started),
    Settled(Settled),
    Counted,
}

/// The statements.
#[derive(Clone, Debug)]
pub struct KeepRefund {
    pub provider: &'static str,
    pub rules: ProviderRules,
    /// When a completed refund is read again for the first time, and for how long it is at all.
    pub recheck_after: Duration,
    pub recheck_for: Duration,
    /// Told of every refund that changed.
    pub watches: Watches<Refund>,
}

/// The way in. Writes of one charge go one after the other, so that they never wait for each other's locks; others go
/// beside them.
#[derive(Clone, Debug)]
pub struct RefundWrites {
    /// One for each batcher.
    queues: Vec<Queue<KeepRefund>>,
}

impl RefundWrites {
    /// Makes it and its `batchers`, which the caller runs.
    pub fn new(
        statement: &KeepRefund,
        batchers: usize,
        session: impl Fn() -> Session,
        limits: BatchLimits,
        random: &Random,
    ) -> (Self, Vec<Batcher<KeepRefund>>) {
        // Each write is a statement of its own.
        let limits = BatchLimits { items: 1, ..limits };
        let (queues, batchers) = (0..batchers.max(1))
            .map(|_| batch::batcher(statement, &session, limits, random, &BatchMeters::none()))
            .unzip();
        (Self { queues }, batchers)
    }

    /// Hands in a write about a refund of this charge and waits until it is written.
    pub async fn submit(
        &self,
        charge: ChargeId,
        write: RefundWrite,
    ) -> Result<RefundWritten, Refusal> {
        let queue = usize::from(charge.as_uuid().as_bytes()[0]) % self.queues.len();
        self.queues[queue].submit(write).await
    }
}

impl Statement for KeepRefund {
    type Item = RefundWrite;
    type Reply = RefundWritten;

    const NAME: &'static str = "refunds";

    async fn run(
        &mut self,
        connection: &mut PgConnection,
        items: &[RefundWrite],
        repeated: bool,
    ) -> Result<Vec<RefundWritten>, DbError> {
        let mut written = Vec::with_capacity(items.len());
        for item in items {
            written.push(match item {
                RefundWrite::Start {
                    hold,
                    key_window,
                    new_key,
                } => {
                    let before = repeated
                        && refund_steps::already_started(connection, *hold, *new_key).await?;
                    RefundWritten::Started(if before {
                        Started::Yes
                    } else {
                        refund_steps::start(connection, *hold, *key_window, *new_key).await?
                    })
                }
                RefundWrite::Settle { hold, ending } => {
                    let settled = self.settle(connection, *hold, ending).await?;
                    if settled == Settled::Applied {
                        self.watches.changed([hold.refund]);
                    }
                    // Given back by the run whose reply was lost, or held by another by now: either way it goes on.
                    RefundWritten::Settled(if repeated && settled == Settled::LeaseLost {
                        Settled::AlreadySettled
                    } else {
                        settled
                    })
                }
                RefundWrite::Count(refunds) => {
                    count_external(connection, self.provider, &self.rules, refunds).await?;
                    RefundWritten::Counted
                }
            });
        }
        Ok(written)
    }

    fn weight(_item: &RefundWrite) -> usize {
        1
    }
}

impl KeepRefund {
    async fn settle(
        &self,
        connection: &mut PgConnection,
        hold: RefundHold,
        ending: &RefundEnding,
    ) -> Result<Settled, DbError> {
        match ending {
            RefundEnding::Finish { progress, detail } => {
                self.finish(connection, hold, progress, detail).await
            }
            RefundEnding::Correct { progress, detail } => {
                self.correct(connection, hold, progress, detail).await
            }
            RefundEnding::Wait {
                progress,
                delay,
                reason,
                call,
            } => {
                let waiting = Wait {
                    progress: progress.as_ref(),
                    delay: *delay,
                    parked: false,
                    reason,
                    call: call.as_ref(),
                };
                wait(connection, hold, waiting).await
            }
            RefundEnding::Park {
                alert,
                object,
                call,
            } => {
                if let Some(object) = object {
                    let detail = told(object, hold.refund);
                    refund_steps::dispute(
                        connection,
                        hold,
                        self.provider,
                        alert,
                        object.id.as_str(),
                        &detail,
                    )
                    .await?;
                }
                let waiting = Wait {
                    progress: None,
                    delay: Duration::ZERO,
                    parked: true,
                    reason: alert,
                    call: call.as_ref(),
                };
                wait(connection, hold, waiting).await
            }
            RefundEnding::Discard => {
                self.discard(connection, hold).await?;
                Ok(Settled::AlreadySettled)
            }
        }
    }

    async fn finish(
        &self,
        connection: &mut PgConnection,
        hold: RefundHold,
        progress: &RefundProgress,
        detail: &Value,
    ) -> Result<Settled, DbError> {
        let written = Written::of(progress, detail);
        if refund_steps::finish(connection, hold, written.end(self)).await? {
            return Ok(Settled::Applied);
        }
        let Some((stage, object)) = refund_steps::standing(connection, hold.refund).await? else {
            return Ok(Settled::LeaseLost);
        };
        let ours = progress.object.as_ref().map(ProviderRefundId::as_str);
        let succeeded = progress.state == RefundState::Succeeded;
        match Stage::parse(&stage) {
            // Known already; or read before it failed at the bank: of one object, that is the later word.
            Some(Stage::Succeeded | Stage::Failed | Stage::Canceled)
                if succeeded && ours == object.as_deref() =>
            {
                self.discard(connection, hold).await?;
                Ok(Settled::AlreadySettled)
            }
            // A success that the books deny is a fact all the same.
            Some(Stage::Failed | Stage::Canceled) if succeeded => {
                self.correct(connection, hold, progress, detail).await
            }
            Some(Stage::Failed | Stage::Canceled) => {
                self.discard(connection, hold).await?;
                Ok(Settled::AlreadySettled)
            }
            Some(
                Stage::Succeeded
                | Stage::Pending
                | Stage::Processing
                | Stage::RequiresAction
                | Stage::RequiresReconciliation,
            ) if succeeded && ours != object.as_deref() && object.is_some() => {
                let alert = RefundAlert::SecondRefund.code();
                let id = ours.unwrap_or_default();
                refund_steps::dispute(connection, hold, self.provider, alert, id, detail).await?;
                Ok(Settled::Disputed)
            }
            Some(
                Stage::Succeeded
                | Stage::Pending
                | Stage::Processing
                | Stage::RequiresAction
                | Stage::RequiresReconciliation,
            )
            | None => Ok(Settled::LeaseLost),
        }
    }

    async fn correct(
        &self,
        connection: &mut PgConnection,
        hold: RefundHold,
        progress: &RefundProgress,
        detail: &Value,
    ) -> Result<Settled, DbError> {
        let written = Written::of(progress, detail);
        let corrected = refund_steps::correct(connection, hold.refund, written.end(self)).await?;
        if progress.state == RefundState::Succeeded
            && let Some(object) = &progress.object
        {
            // A client that was told `failed` may have refunded again: a person must know.
            let (kind, id) = ("refund_success_after_failed", object.as_str());
            refund_steps::dispute(connection, hold, self.provider, kind, id, detail).await?;
        }
        if corrected {
            return Ok(Settled::Applied);
        }
        self.discard(connection, hold).await?;
        Ok(Settled::AlreadySettled)
    }

    async fn discard(
        &self,
        connection: &mut PgConnection,
        hold: RefundHold,
    ) -> Result<(), DbError> {
        let (after, most) = (self.recheck_after, self.recheck_for);
        refund_steps::discard(connection, hold, after, most).await?;
        Ok(())
    }
}

struct Wait<'a> {
    progress: Option<&'a RefundProgress>,
    delay: Duration,
    parked: bool,
    reason: &'a str,
    call: Option<&'a LastCall>,
}

async fn wait(
    connection: &mut PgConnection,
    hold: RefundHold,
    wait: Wait<'_>,
) -> Result<Settled, DbError> {
    let call = wait
        .call
        .map(|call| serde_json::to_string(call).expect("texts are always valid JSON"));
    let changed = wait.progress.map(|progress| Changed {
        stage: progress.state.stage().as_str(),
        money: progress.state.money().as_str(),
        version: progress.version,
        provider_refund_id: progress.object.as_ref().map(ProviderRefundId::as_str),
        attempts: progress.attempts,
    });
    let waiting = Waiting {
        hold,
        changed,
        delay: wait.delay,
        parked: wait.parked,
        error: wait.reason,
        call: call.as_deref(),
    };
    Ok(if refund_steps::wait(connection, waiting).await? {
        Settled::Applied
    } else {
        Settled::LeaseLost
    })
}

/// The texts of an end.
struct Written {
    stage: &'static str,
    object: Option<String>,
    failure: Option<String>,
    detail: String,
}

impl Written {
    fn of(progress: &RefundProgress, detail: &Value) -> Self {
        let failure = match &progress.state {
            RefundState::Failed(failure) => {
                Some(serde_json::to_string(failure).expect("texts are always valid JSON"))
            }
            RefundState::Pending
            | RefundState::Processing
            | RefundState::RequiresAction
            | RefundState::RequiresReconciliation
            | RefundState::Succeeded
            | RefundState::Canceled => None,
        };
        Self {
            stage: progress.state.stage().as_str(),
            object: progress.object.as_ref().map(ToString::to_string),
            failure,
            detail: detail.to_string(),
        }
    }

    fn end(&self, limits: &KeepRefund) -> End<'_> {
        End {
            stage: self.stage,
            provider_refund_id: self.object.as_deref(),
            failure: self.failure.as_deref(),
            detail: &self.detail,
            recheck_after: limits.recheck_after,
        }
    }
}

fn told(object: &RefundObject, refund: RefundId) -> Value {
    json!({
        "refund_id": refund.to_string(),
        "status": object.status.as_str(),
        "amount": object.amount,
        "currency": object.currency,
        "stamp": object.stamp,
    })
}

/// Counts what the provider lists and payonce did not make in what went back of our charges. Returns how many refunds have
/// a stamp of ours and are not in the books.
pub async fn count_external(
    connection: &mut PgConnection,
    provider: &str,
    rules: &ProviderRules,
    refunds: &[RefundObject],
) -> Result<usize, DbError> {
    let mut objects: Vec<&str> = refunds
        .iter()
        .filter_map(|refund| Some(refund.charge.as_ref()?.as_str()))
        .collect();
    objects.sort_unstable();
    objects.dedup();
    if objects.is_empty() {
        return Ok(0);
    }
    let charges: HashMap<String, OfObject> =
        external_refunds::charges_of(connection, provider, &objects)
            .await?
            .into_iter()
            .map(|charge| (charge.provider_charge_id.clone(), charge))
            .collect();
    let mut rows = db::external_refunds::Rows::default();
    // A list that changes while it is walked may name one twice.
    let mut seen = HashSet::new();
    for refund in refunds.iter().filter(|refund| seen.insert(&refund.id)) {
        let charge = refund
            .charge
            .as_ref()
            .and_then(|charge| charges.get(charge.as_str()));
        let Some(charge) = charge else { continue };
        let Some(amount) = minor_units(refund, charge, rules) else {
            continue;
        };
        rows.provider_refund_ids.push(refund.id.as_str());
        rows.charge_ids.push(charge.charge_id);
        rows.amounts.push(amount);
        rows.statuses.push(refund.status.as_str());
        rows.counted.push(refund.status.takes());
        rows.refund_ids.push(refund.of_ours());
    }
    if rows.charge_ids.is_empty() {
        return Ok(0);
    }
    let written = external_refunds::count(connection, provider, &rows).await?;
    let mut unknown = 0;
    for (id, stamped) in &written {
        if *stamped {
            unknown += 1;
            tracing::error!(
                code = "refund_unknown",
                provider_refund_id = %id,
                "a refund has a stamp of ours and is not in the books"
            );
        } else {
            tracing::warn!(
                code = "refunded_externally",
                provider_refund_id = %id,
                "a charge was refunded outside payonce, or such a refund failed"
            );
        }
    }
    Ok(unknown)
}

/// A refund's amount in minor units, by what its whole charge is in both.
fn minor_units(refund: &RefundObject, charge: &OfObject, rules: &ProviderRules) -> Option<i64> {
    let money = Money::new(charge.amount, Currency::parse(&charge.currency)?)?;
    let units = i128::from((rules.to_provider_units)(money).ok()?);
    let minor = i128::from(refund.amount) * i128::from(charge.amount) / units.max(1);
    i64::try_from(minor).ok().filter(|amount| *amount > 0)
}
