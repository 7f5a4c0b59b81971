//! One walk: the provider's objects page after page, then our charges of the window that it did not meet.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::compare::{self, Compared, compare};
use super::sweep::{SweepError, Sweeper, Walk};
use crate::budget::Priority;
use crate::db::{self, DbError};
use crate::domain::ids::{ChargeId, ProviderChargeId};
use crate::domain::outcome::{Answer, Object, ObjectStatus, Worded};
use crate::domain::sweep::{Difference, Finding};
use crate::provider::{Page, Provider};

/// How often one call is tried before the sweep is given up.
const TRIES: u32 = 5;
/// Charges are read back in spans of their time, so that one statement has about this many.
const CHARGES: usize = 1000;
const SHORTEST_SPAN: Duration = Duration::from_millis(10);
const LONGEST_SPAN: Duration = Duration::from_hours(1);
/// An object can seem older than the charge it was made for, by as much as clocks differ.
const SKEW: Duration = Duration::from_hours(1);

impl<P: Provider> Sweeper<P> {
    /// The provider's objects against our charges, page after page, newest first.
    pub(super) async fn theirs(&mut self, walk: &mut Walk) -> Result<(), SweepError> {
        let mut after: Option<ProviderChargeId> = None;
        for _ in 0..self.parts.limits.pages {
            let (provider, from) = (Arc::clone(&self.provider), walk.taken.from);
            let page = || {
                let (provider, after) = (Arc::clone(&provider), after.clone());
                async move {
                    let page = provider.list(from, after.as_ref()).await;
                    page.map_err(|answer| *answer)
                }
            };
            let Page { objects, next } = self.persist(walk, page).await?;
            for (_, object) in &objects {
                walk.met.insert(hash(&object.id));
            }
            walk.swept.objects += objects.len() as u64;
            self.parts.meters.objects.increment(objects.len() as u64);
            self.compare(walk, objects).await?;
            match next {
                None => return Ok(()),
                next => after = next,
            }
        }
        Err(SweepError::TooLong)
    }

    /// Our charges of the window that store an object which the walk has not met: each is read by its id.
    pub(super) async fn ours(&mut self, walk: &mut Walk) -> Result<(), SweepError> {
        let mut from = walk.taken.from + SKEW;
        let mut span = Duration::from_mins(1);
        let mut renewed = Instant::now();
        while from < walk.taken.began_at {
            if renewed.elapsed() > self.parts.limits.lease / 4 {
                self.renew(walk).await?;
                renewed = Instant::now();
            }
            // What came after the walk began was maybe made behind its back: the last span ends before that.
            let left = Duration::try_from(walk.taken.began_at - from).unwrap_or_default();
            span = span.min(left);
            let account = self.account.name.as_str();
            let charges = self
                .session
                .ask(1, async |connection| {
                    db::sweep_pages::with_object(connection, account, from, span).await
                })
                .await?;
            from += span;
            if charges.len() > CHARGES {
                span = (span / 2).max(SHORTEST_SPAN);
            } else if charges.len() < CHARGES / 4 {
                span = (span * 2).min(LONGEST_SPAN);
            }
            for (charge, object) in charges {
                let Some(id) = ProviderChargeId::parse(&object) else {
                    continue;
                };
                if !walk.met.contains(&hash(&id)) {
                    self.read_back(walk, ChargeId::from_uuid(charge), &id)
                        .await?;
                }
            }
        }
        Ok(())
    }

    async fn read_back(
        &mut self,
        walk: &mut Walk,
        charge: ChargeId,
        id: &ProviderChargeId,
    ) -> Result<(), SweepError> {
        match self.read(walk, id).await? {
            Some(object) => self.compare(walk, vec![(charge, object)]).await,
            None => self.missing(walk, charge, id).await,
        }
    }

    /// The object as it is now; `None` if the provider has none under this id.
    async fn read(
        &mut self,
        walk: &mut Walk,
        id: &ProviderChargeId,
    ) -> Result<Option<Object>, SweepError> {
        let provider = Arc::clone(&self.provider);
        let read = || {
            let (provider, id) = (Arc::clone(&provider), id.clone());
            async move {
                match provider.read(&id).await.answer {
                    Answer::Object { object, .. } => Ok(Some(object)),
                    Answer::NotFound => Ok(None),
                    answer => Err(answer),
                }
            }
        };
        self.persist(walk, read).await
    }

    /// The provider has no object under the id that a charge stores. While the charge is open its own job finds out.
    async fn missing(
        &mut self,
        walk: &mut Walk,
        charge: ChargeId,
        id: &ProviderChargeId,
    ) -> Result<(), SweepError> {
        let rules = self.parts.rules;
        let compared = self
            .session
            .ask(1, async |connection| {
                compare::missing(connection, &rules, charge, id).await
            })
            .await?;
        self.write(walk, compared).await
    }

    /// Compares objects with their charges and does what follows.
    async fn compare(
        &mut self,
        walk: &mut Walk,
        objects: Vec<(ChargeId, Object)>,
    ) -> Result<(), SweepError> {
        let mut compared = self.judge(objects).await?;
        // The books were read after the object: it may have moved on meanwhile.
        let stale: Vec<_> = compared
            .extract_if(.., |compared| {
                compared.finding == Finding::Differs(Difference::OursOnly)
            })
            .collect();
        for Compared { charge, object, .. } in stale {
            match self.read(walk, &object.id).await? {
                Some(object) => compared.extend(self.judge(vec![(charge, object)]).await?),
                None => self.missing(walk, charge, &object.id).await?,
            }
        }
        let cancel: Vec<_> = compared
            .extract_if(.., |compared| compared.finding == Finding::Cancel)
            .collect();
        self.write(walk, compared).await?;
        for Compared { charge, object, .. } in cancel {
            self.cancel(walk, charge, &object.id).await?;
        }
        Ok(())
    }

    /// Cancels an object of a charge that is final without it. The provider may refuse because it has succeeded: what it
    /// is then is compared once more.
    async fn cancel(
        &mut self,
        walk: &mut Walk,
        charge: ChargeId,
        id: &ProviderChargeId,
    ) -> Result<(), SweepError> {
        let provider = Arc::clone(&self.provider);
        let cancel = || {
            let (provider, id) = (Arc::clone(&provider), id.clone());
            // Any other answer is no reason to cancel again, but to look.
            async move {
                Ok::<_, Answer>(match provider.cancel(&id).await.answer {
                    Answer::Object { object, .. } => Some(object),
                    _ => None,
                })
            }
        };
        let object = match self.persist(walk, cancel).await? {
            Some(object) => Some(object),
            None => self.read(walk, id).await?,
        };
        let Some(object) = object else { return Ok(()) };
        if object.status == ObjectStatus::Canceled {
            walk.swept.canceled += 1;
            tracing::warn!(
                code = "stray_object_canceled",
                account = self.account.name,
                charge.id = %charge,
                object.id = %id,
                "an object could still move money for a charge that is final without it"
            );
            let (provider, ids) = (self.account.provider, [id.to_string()]);
            self.session
                .ask(1, async |connection| {
                    db::strays::settle(connection, provider, &ids, &["canceled".to_owned()]).await
                })
                .await?;
            return Ok(());
        }
        let compared = self.judge(vec![(charge, object)]).await?;
        self.write(walk, compared).await
    }

    async fn judge(&mut self, objects: Vec<(ChargeId, Object)>) -> Result<Vec<Compared>, DbError> {
        let rules = self.parts.rules;
        self.session
            .ask(1, async |connection| {
                compare(connection, &rules, objects).await
            })
            .await
    }

    async fn write(&mut self, walk: &mut Walk, compared: Vec<Compared>) -> Result<(), SweepError> {
        if compared.is_empty() {
            return Ok(());
        }
        let account = &self.account;
        let new = self
            .session
            .ask(3, async |connection| {
                compare::write(connection, account, &compared).await
            })
            .await?;
        walk.swept.discrepancies += new;
        if new > 0 {
            tracing::error!(
                code = "discrepancy",
                account = self.account.name,
                count = new,
                "the provider and the books differ: payonce discrepancies list"
            );
        }
        Ok(())
    }

    /// Calls the provider until it answers as asked, a few times, at the sweep's own pace, and holds on to the sweep.
    pub(super) async fn persist<R, O, F>(
        &mut self,
        walk: &Walk,
        call: impl Fn() -> F + Send,
    ) -> Result<R, SweepError>
    where
        O: Worded,
        F: Future<Output = Result<R, Answer<O>>> + Send,
    {
        let mut pause = self.parts.limits.pause;
        let mut last = SweepError::Provider("");
        for _ in 0..TRIES {
            tokio::time::sleep(pause).await;
            self.parts.budget.take(Priority::Sweep).await;
            self.renew(walk).await?;
            match call().await {
                Ok(answer) => return Ok(answer),
                Err(answer) => last = unanswered(&answer),
            }
            pause = (pause.max(Duration::from_millis(100)) * 2).min(self.parts.limits.lease / 4);
        }
        Err(last)
    }

    async fn renew(&mut self, walk: &Walk) -> Result<(), SweepError> {
        let (ids, token, lease) = (&walk.taken.ids, walk.token, self.parts.limits.lease);
        let objects = i64::try_from(walk.swept.objects).unwrap_or(i64::MAX);
        let held = self
            .session
            .ask(1, async |connection| {
                db::sweeps::renew(connection, ids, token, lease, objects).await
            })
            .await?;
        if held {
            Ok(())
        } else {
            Err(SweepError::LeaseLost)
        }
    }
}

/// What an answer that is none of those hoped for says.
fn unanswered<O: Worded>(answer: &Answer<O>) -> SweepError {
    let word = answer.word();
    match answer {
        Answer::Denied
        | Answer::Forbidden
        | Answer::Rejected { .. }
        | Answer::Refused { .. }
        | Answer::NotFound => SweepError::Refused(word),
        Answer::Object { .. }
        | Answer::NotSent
        | Answer::RateLimited { .. }
        | Answer::Unclear { .. } => SweepError::Provider(word),
    }
}

fn hash(id: &ProviderChargeId) -> u64 {
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    hasher.finish()
}
