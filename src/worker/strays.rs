//! Deals with objects that carry a charge's stamp and are not the one it stores, before anything else is sent for it.
//!
//! Each is read by its id; all but the one that goes on are canceled at the provider, and only then one is adopted. What
//! is canceled stays canceled there, so a run that ends half-way is gone on with by the next. If the process dies before
//! what was learned is written, the next run reads the same.

use sqlx::PgConnection;
use tokio::time::Instant;

use super::executor::{Executor, Ran};
use super::run::Run;
use crate::batch::Statement;
use crate::budget::Priority;
use crate::db::{self, DbError};
use crate::domain::ids::ProviderChargeId;
use crate::domain::outcome::strays::{Among, among};
use crate::domain::outcome::{Alert, Answer, Certainty, Object, ObjectStatus, Phase};
use crate::domain::retry::Pace;
use crate::provider::{Provider, Reply};

/// What became of a charge's strays.
#[derive(Clone, Debug)]
pub struct Dealt {
    pub provider: &'static str,
    /// Each with its last status: canceled, or succeeded beside the one that goes on.
    pub objects: Vec<(ProviderChargeId, &'static str)>,
}

/// Writes down which strays are settled.
#[derive(Clone, Copy, Debug)]
pub struct SettleStrays;

impl Statement for SettleStrays {
    type Item = Dealt;
    type Reply = ();

    const NAME: &'static str = "settle_strays";

    async fn run(
        &mut self,
        connection: &mut PgConnection,
        items: &[Dealt],
        _repeated: bool,
    ) -> Result<Vec<()>, DbError> {
        for Dealt { provider, objects } in items {
            let (ids, statuses): (Vec<_>, Vec<_>) = objects
                .iter()
                .map(|(id, status)| (id.to_string(), (*status).to_owned()))
                .unzip();
            db::strays::settle(connection, provider, &ids, &statuses).await?;
        }
        Ok(vec![(); items.len()])
    }

    fn weight(_item: &Dealt) -> usize {
        // Bounded by the number of items alone: there are few objects of one charge.
        1
    }
}

impl<P: Provider> Executor<P> {
    /// Brings the strays down to none, or to the one that the charge is to go on with, which is returned and must be
    /// stored. `Err` ends the run.
    pub(super) async fn settle_strays(
        &self,
        run: &mut Run<'_>,
    ) -> Result<Option<ProviderChargeId>, Ran> {
        if run.strays.is_empty() {
            return Ok(None);
        }
        let mut objects = Vec::new();
        for id in std::mem::take(&mut run.strays) {
            objects.push(self.read_stray(run, &id).await?);
        }
        let adopted = loop {
            let stored = run.progress.object.as_ref().map(|object| &object.id);
            match among(&objects, stored, &run.asked) {
                Among::None => break None,
                Among::Adopt(id) => break Some(id),
                Among::Cancel(id) => {
                    let read = self.cancel_stray(run, &id).await?;
                    if let Some(object) = objects.iter_mut().find(|object| object.id == id) {
                        *object = read;
                    }
                }
                Among::Dispute(object) => {
                    return Err(self
                        .park(run, Alert::SecondObjectSucceeded, Some(object))
                        .await);
                }
            }
        };
        self.write_dealt(&objects, adopted.as_ref()).await?;
        Ok(adopted)
    }

    async fn write_dealt(
        &self,
        objects: &[Object],
        adopted: Option<&ProviderChargeId>,
    ) -> Result<(), Ran> {
        let settled = objects
            .iter()
            .filter(|object| Some(&object.id) != adopted)
            .map(|object| (object.id.clone(), object.status.as_str()))
            .collect::<Vec<_>>();
        if settled.is_empty() {
            return Ok(());
        }
        let dealt = Dealt {
            provider: self.provider.profile().provider,
            objects: settled,
        };
        self.strays.submit(dealt).await.map_err(Ran::Unwritten)
    }

    async fn read_stray(&self, run: &mut Run<'_>, id: &ProviderChargeId) -> Result<Object, Ran> {
        match self
            .ask_of(run, Phase::Read, self.provider.read(id))
            .await?
        {
            Answer::Object { object, .. } => Ok(object),
            answer => Err(self.ask_later(run, &answer).await),
        }
    }

    /// Cancels an object and shows it as it is then: the provider may refuse because it has succeeded.
    async fn cancel_stray(&self, run: &mut Run<'_>, id: &ProviderChargeId) -> Result<Object, Ran> {
        let answer = self
            .ask_of(run, Phase::Cancel, self.provider.cancel(id))
            .await?;
        let object = match answer {
            Answer::Object { object, .. } => object,
            _ => self.read_stray(run, id).await?,
        };
        match object.status {
            ObjectStatus::Canceled | ObjectStatus::Succeeded => Ok(object),
            ObjectStatus::RequiresConfirmation
            | ObjectStatus::RequiresPaymentMethod
            | ObjectStatus::RequiresAction
            | ObjectStatus::Processing
            | ObjectStatus::RequiresCapture
            | ObjectStatus::Unknown => {
                let answer = Answer::Object {
                    object,
                    replayed: false,
                };
                Err(self.ask_later(run, &answer).await)
            }
        }
    }

    /// One call, in its turn and while the lease has time left for it.
    async fn ask_of(
        &self,
        run: &mut Run<'_>,
        phase: Phase,
        call: impl Future<Output = Reply> + Send,
    ) -> Result<Answer, Ran> {
        self.budget.take(Priority::Charge).await;
        if !self.time_is_left(run) {
            return Err(self.later(run.hold, "lease_too_short").await);
        }
        let began = Instant::now();
        let reply = call.await;
        self.meters.call(phase, &reply.answer, began.elapsed());
        self.learn(run, phase, &reply);
        run.last_answer = reply.answer.word();
        run.last_phase = phase;
        run.request_id = reply.request_id;
        Ok(reply.answer)
    }

    /// Nothing is known of this charge that was not known before.
    async fn ask_later(&self, run: &Run<'_>, answer: &Answer) -> Ran {
        let pace = match answer {
            Answer::RateLimited {
                retry_after: Some(after),
            } => Pace::After(*after),
            Answer::Object { .. } => Pace::Slow,
            Answer::RateLimited { retry_after: None }
            | Answer::Refused { .. }
            | Answer::NotSent
            | Answer::Denied
            | Answer::Forbidden
            | Answer::NotFound
            | Answer::Rejected { .. }
            | Answer::Unclear { .. } => Pace::Backoff,
        };
        self.wait(run, Phase::Read, &Certainty::AsBefore, pace, false)
            .await
    }
}
