//! Ends runs: takes what a worker learned of a charge and writes charge, request row, outbox row and event together, many
//! charges a statement.
//!
//! A success is a fact and is written whoever learned it. Everything else is written only while the lease that learned it
//! still holds and the charge is as the worker saw it; what was lost is answered as [`Settled::LeaseLost`], and whoever
//! holds the lease now looks for itself. If the process dies before the statement commits, the lease runs out and the
//! next run reads the provider's object; if it dies after, nothing is left to do.

use std::collections::HashSet;
use std::time::Duration;

use serde::Serialize;
use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::batch::{self, BatchLimits, BatchMeters, Batcher, Queue, Refusal, Statement};
use crate::db::session::Session;
use crate::db::{self, DbError};
use crate::domain::charge::{Charge, Progress, Stage, State};
use crate::domain::ids::{ChargeId, LeaseToken};
use crate::domain::outcome::{Alert, Object};
use crate::random::Random;
use crate::watches::Watches;

/// The hold on a job under which something was learned: what every guard names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    pub charge: ChargeId,
    pub outbox_id: i64,
    pub lease: LeaseToken,
    /// The charge's version as the holder saw it.
    pub version: i32,
}

/// How a run ends.
#[derive(Clone, Debug)]
pub enum Ending {
    /// The charge is terminal now. `progress` came out of a transition in `domain`.
    Finish {
        progress: Progress,
        detail: serde_json::Value,
    },
    /// The job goes on after `delay`. `progress` is where the charge stands then, if that changed.
    Wait {
        progress: Option<Progress>,
        delay: Duration,
        reason: &'static str,
        /// From when on a sweep must look for the charge's object before it goes on.
        look_from: Option<OffsetDateTime>,
        /// For people: the last call of the run.
        call: Option<LastCall>,
    },
    /// An operator must look; no worker touches the job until then.
    Park {
        reason: &'static str,
        call: Option<LastCall>,
    },
    /// The provider's object is not the one we asked for: written down, and parked.
    Dispute {
        provider: &'static str,
        /// The one that holds the object.
        account: String,
        alert: Alert,
        object: Box<Object>,
    },
    /// The charge was terminal already: the job goes, the charge stays.
    Discard,
}

/// What was asked of the provider last, what came back in a word, and the provider's own id of the request.
#[derive(Clone, Debug, Serialize)]
pub struct LastCall {
    pub phase: &'static str,
    pub answer: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider_request_id: Option<String>,
}

#[derive(Clone, Debug)]
pub struct Settlement {
    pub hold: Hold,
    pub ending: Ending,
}

impl Settlement {
    fn finishes(&self) -> bool {
        matches!(&self.ending, Ending::Finish { .. })
    }

    /// The charge has changed and has not ended.
    fn moves_on(&self) -> bool {
        matches!(&self.ending, Ending::Wait { progress, .. } if progress.is_some())
    }

    fn succeeds(&self) -> bool {
        matches!(&self.ending, Ending::Finish { progress, .. } if progress.state == State::Succeeded)
    }
}

/// What became of a settlement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    Applied,
    /// Another run had written the same.
    AlreadySettled,
    /// Another run holds the job now, and nothing was written.
    LeaseLost,
    /// The books say otherwise; written as a discrepancy.
    Disputed,
}

/// The way in. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Completion(Queue<Settle>);

impl Completion {
    pub fn new(
        session: impl Fn() -> Session,
        limits: BatchLimits,
        random: &Random,
        meters: &BatchMeters,
        watches: &Watches<Charge>,
    ) -> (Self, Batcher<Settle>) {
        let (queue, batcher) =
            batch::batcher(&Settle::new(watches), session, limits, random, meters);
        (Self(queue), batcher)
    }

    pub async fn settle(&self, settlement: Settlement) -> Result<Settled, Refusal> {
        self.0.submit(settlement).await
    }
}

#[derive(Clone, Debug)]
pub struct Settle {
    /// Told of every charge that changed.
    watches: Watches<Charge>,
}

impl Statement for Settle {
    type Item = Settlement;
    type Reply = Settled;

    const NAME: &'static str = "completion";

    async fn run(
        &mut self,
        connection: &mut PgConnection,
        items: &[Settlement],
        repeated: bool,
    ) -> Result<Vec<Settled>, DbError> {
        let mut order: Vec<usize> = (0..items.len()).collect();
        // One order of locks for all batches; of two jobs for one charge, the one that knows of a success comes first.
        order.sort_by_key(|index| (items[*index].hold.charge, !items[*index].succeeds()));
        let mut settled = vec![Settled::LeaseLost; items.len()];
        // Each statement commits by itself: what the first one wrote stands, whatever becomes of the others.
        finish(connection, items, &order, &mut settled).await?;
        self.tell(items, &settled, Settlement::finishes);
        wait(connection, items, &order, repeated, &mut settled).await?;
        self.tell(items, &settled, Settlement::moves_on);
        for index in order {
            let Settlement { hold, ending } = &items[index];
            match ending {
                Ending::Dispute {
                    provider,
                    account,
                    alert,
                    object,
                } => {
                    let found = Found {
                        provider,
                        account,
                        alert: *alert,
                        object,
                    };
                    let disputed = dispute(connection, *hold, found).await?;
                    // Of a statement whose reply was lost, nobody knows which it was.
                    if disputed.is_new || disputed.parked || repeated {
                        settled[index] = Settled::Disputed;
                    }
                }
                Ending::Discard => {
                    db::completion::discard(connection, &[hold.outbox_id]).await?;
                    settled[index] = Settled::AlreadySettled;
                }
                Ending::Finish { .. } | Ending::Wait { .. } | Ending::Park { .. } => {}
            }
        }
        Ok(settled)
    }

    fn weight(_item: &Settlement) -> usize {
        // Bounded by the number of items alone: a row here is small and of one size.
        1
    }
}

impl Settle {
    pub fn new(watches: &Watches<Charge>) -> Self {
        Self {
            watches: watches.clone(),
        }
    }

    fn tell(
        &self,
        items: &[Settlement],
        settled: &[Settled],
        is_new: impl Fn(&Settlement) -> bool,
    ) {
        let changed = items
            .iter()
            .zip(settled)
            .filter(|(item, settled)| **settled == Settled::Applied && is_new(item));
        self.watches
            .changed(changed.map(|(item, _)| item.hold.charge));
    }
}

/// One last transition of a batch.
#[derive(Clone, Copy)]
struct Last<'a> {
    /// Which settlement of the batch it is.
    index: usize,
    hold: Hold,
    progress: &'a Progress,
    detail: &'a serde_json::Value,
}

/// Of several jobs for one charge each has a statement of its own, in turn: the later ones contradict what the first wrote, or
/// say the same.
async fn finish(
    connection: &mut PgConnection,
    items: &[Settlement],
    order: &[usize],
    settled: &mut [Settled],
) -> Result<(), DbError> {
    let last = |index: &usize| {
        let Settlement {
            hold,
            ending: Ending::Finish { progress, detail },
        } = &items[*index]
        else {
            return None;
        };
        Some(Last {
            index: *index,
            hold: *hold,
            progress,
            detail,
        })
    };
    let mut ending: Vec<Last<'_>> = order.iter().filter_map(last).collect();
    while !ending.is_empty() {
        let mut seen = HashSet::new();
        let (first, later): (Vec<_>, Vec<_>) = ending
            .into_iter()
            .partition(|last| seen.insert(last.hold.charge));
        finish_each(connection, &first, settled).await?;
        ending = later;
    }
    Ok(())
}

/// Each is of another charge.
async fn finish_each(
    connection: &mut PgConnection,
    finishing: &[Last<'_>],
    settled: &mut [Settled],
) -> Result<(), DbError> {
    let mut rows = db::completion::FinishRows::default();
    for Last {
        hold,
        progress,
        detail,
        ..
    } in finishing
    {
        rows.charge_ids.push(hold.charge.as_uuid());
        rows.outbox_ids.push(hold.outbox_id);
        rows.lease_tokens.push(hold.lease.as_uuid());
        rows.versions.push(hold.version);
        rows.stages.push(progress.state.stage().as_str());
        rows.provider_charge_ids
            .push(progress.object.as_ref().map(|object| object.id.as_str()));
        rows.provider_accounts.push(
            progress
                .object
                .as_ref()
                .map(|object| object.account.as_str()),
        );
        rows.failures.push(json_of_failure(&progress.state));
        rows.details.push(detail.to_string());
    }
    let finished = db::completion::finish(connection, &rows).await?;
    // What the statement did not write.
    let mut left = Vec::new();
    for last in finishing {
        if finished.contains(&last.hold.charge.as_uuid()) {
            settled[last.index] = Settled::Applied;
        } else {
            left.push(last);
        }
    }
    if left.is_empty() {
        return Ok(());
    }
    let ids: Vec<Uuid> = left.iter().map(|last| last.hold.charge.as_uuid()).collect();
    let standing = db::completion::standing(connection, &ids).await?;
    for Last {
        index,
        hold,
        progress,
        ..
    } in left
    {
        let stands = standing
            .iter()
            .find(|row| row.charge_id == hold.charge.as_uuid());
        settled[*index] =
            stands.map_or(Settled::LeaseLost, |stands| contradiction(progress, stands));
        // The charge is terminal: whatever job led here has nothing left to do.
        db::completion::discard(connection, &[hold.outbox_id]).await?;
    }
    Ok(())
}

/// What a final transition that changed nothing means.
fn contradiction(progress: &Progress, stands: &db::completion::Standing) -> Settled {
    let ours = progress.object.as_ref().map(|object| object.id.as_str());
    let same_object = ours == stands.provider_charge_id.as_deref();
    let succeeded = progress.state == State::Succeeded;
    match Stage::parse(&stands.stage) {
        Some(Stage::Succeeded) if succeeded && same_object => Settled::AlreadySettled,
        Some(Stage::Failed | Stage::Canceled) if !succeeded => Settled::AlreadySettled,
        // The statement wrote the discrepancy.
        Some(Stage::Failed | Stage::Canceled | Stage::Succeeded) if succeeded => Settled::Disputed,
        Some(
            Stage::Pending
            | Stage::Processing
            | Stage::RequiresAction
            | Stage::RequiresReconciliation,
        ) if succeeded && !same_object => Settled::Disputed,
        Some(
            Stage::Pending
            | Stage::Processing
            | Stage::RequiresAction
            | Stage::RequiresReconciliation
            | Stage::Succeeded
            | Stage::Failed
            | Stage::Canceled,
        )
        | None => Settled::LeaseLost,
    }
}

async fn wait(
    connection: &mut PgConnection,
    items: &[Settlement],
    order: &[usize],
    repeated: bool,
    settled: &mut [Settled],
) -> Result<(), DbError> {
    let mut rows = db::completion::WaitRows::default();
    let mut waiting = Vec::new();
    for index in order {
        let Settlement { hold, ending } = &items[*index];
        let (progress, delay, reason, look_from, call, parked) = match ending {
            Ending::Wait {
                progress,
                delay,
                reason,
                look_from,
                call,
            } => (progress.as_ref(), *delay, *reason, *look_from, call, false),
            Ending::Park { reason, call } => (None, Duration::ZERO, *reason, None, call, true),
            Ending::Finish { .. } | Ending::Dispute { .. } | Ending::Discard => continue,
        };
        waiting.push((*index, hold.outbox_id));
        rows.charge_ids.push(hold.charge.as_uuid());
        rows.outbox_ids.push(hold.outbox_id);
        rows.lease_tokens.push(hold.lease.as_uuid());
        rows.versions.push(hold.version);
        rows.changes.push(progress.is_some());
        // Of a charge that does not change, nothing below is looked at.
        rows.stages.push(
            progress
                .map_or(Stage::Pending, |p| p.state.stage())
                .as_str(),
        );
        rows.moneys
            .push(progress.map_or("not_moved", |p| p.state.money().as_str()));
        rows.next_actions
            .push(progress.and_then(|p| json_of_action(&p.state)));
        rows.attempts.push(progress.map_or(0, |p| p.attempts));
        rows.prepares.push(progress.map_or(0, |p| p.prepares));
        rows.delays.push(db::interval(delay));
        rows.parked.push(parked);
        rows.errors.push(Some(reason));
        rows.looks_from.push(look_from);
        rows.calls.push(
            call.as_ref()
                .map(|call| serde_json::to_string(call).expect("texts are always valid JSON")),
        );
    }
    if waiting.is_empty() {
        return Ok(());
    }
    let changed = db::completion::wait(connection, &rows).await?;
    for (index, outbox_id) in waiting {
        settled[index] = if changed.contains(&outbox_id) {
            Settled::Applied
        } else if repeated {
            // Given back by the run whose reply was lost, or held by another by now: either way it goes on.
            Settled::AlreadySettled
        } else {
            Settled::LeaseLost
        };
    }
    Ok(())
}

/// An object that is not the one we asked for.
struct Found<'a> {
    provider: &'a str,
    account: &'a str,
    alert: Alert,
    object: &'a Object,
}

async fn dispute(
    connection: &mut PgConnection,
    hold: Hold,
    found: Found<'_>,
) -> Result<db::completion::Disputed, DbError> {
    let object = found.object;
    let detail = serde_json::json!({
        "status": format!("{:?}", object.status),
        "amount": object.amount,
        "amount_received": object.amount_received,
        "currency": object.currency,
        "stamp": object.stamp,
    });
    let found = db::completion::Discrepancy {
        kind: found.alert.code(),
        provider: found.provider,
        account: found.account,
        provider_charge_id: object.id.as_str(),
        charge_id: hold.charge.as_uuid(),
        outbox_id: hold.outbox_id,
        lease_token: hold.lease.as_uuid(),
        detail,
    };
    db::completion::dispute(connection, &found).await
}

fn json_of_failure(state: &State) -> Option<String> {
    match state {
        State::Failed(failure) => {
            Some(serde_json::to_string(failure).expect("texts are always valid JSON"))
        }
        State::Pending
        | State::Processing { .. }
        | State::RequiresAction(_)
        | State::RequiresReconciliation
        | State::Succeeded
        | State::Canceled => None,
    }
}

fn json_of_action(state: &State) -> Option<String> {
    match state {
        State::RequiresAction(action) => Some(
            serde_json::to_string(action)
                .expect("a text and a time of this age are always valid JSON"),
        ),
        State::Pending
        | State::Processing { .. }
        | State::RequiresReconciliation
        | State::Succeeded
        | State::Failed(_)
        | State::Canceled => None,
    }
}

impl Hold {
    /// The hold after a transition of its own holder.
    #[must_use]
    pub fn at(self, progress: &Progress) -> Self {
        Self {
            version: progress.version,
            ..self
        }
    }
}
