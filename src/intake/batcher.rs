//! One statement accepts a whole batch and finds, for every submission in it, what became of it.

use std::collections::HashMap;
use std::sync::Arc;

use metrics::Counter;
use sqlx::PgConnection;
use time::OffsetDateTime;
use tokio::sync::Notify;
use uuid::Uuid;

use crate::batch::Statement;
use crate::db::{self, DbError};
use crate::domain::charge::Charge;
use crate::domain::idempotency::{Fingerprint, IdempotencyKey};
use crate::domain::ids::{ChargeId, MerchantId};
use crate::domain::request::{ChargeRequest, Instruction};

/// A submission with all that its rows need.
#[derive(Debug)]
pub struct Entry {
    pub(super) charge_id: ChargeId,
    pub(super) merchant: MerchantId,
    pub(super) account: Option<Arc<str>>,
    pub(super) key: IdempotencyKey,
    pub(super) request: ChargeRequest,
    pub(super) fingerprint: Fingerprint,
    /// JSON.
    pub(super) metadata: String,
    /// JSON.
    pub(super) payload: String,
    /// Marks the rows that this submission makes, so that it knows them again after a lost reply.
    pub(super) intake_id: Uuid,
}

/// What became of a submission.
#[derive(Clone, Debug)]
pub enum Fate {
    Created {
        created_at: OffsetDateTime,
    },
    /// The charge is there already. `ours` if an earlier run of this very submission made it.
    Found {
        charge: Box<Charge>,
        ours: bool,
    },
}

impl Fate {
    /// Whether the submission itself made the charge.
    fn is_new(&self) -> bool {
        match self {
            Self::Created { .. } => true,
            Self::Found { ours, .. } => *ours,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Accept {
    pub(super) live: bool,
    pub(super) provider: &'static str,
    pub(super) accepted: Arc<Notify>,
    /// Counts the charges made, whether or not anybody still waits for the answer.
    pub(super) counted: Counter,
}

impl Statement for Accept {
    type Item = Arc<Entry>;
    type Reply = Fate;

    const NAME: &'static str = "intake";

    async fn run(
        &mut self,
        connection: &mut PgConnection,
        items: &[Arc<Entry>],
        _repeated: bool,
    ) -> Result<Vec<Fate>, DbError> {
        let mut fates = Fates::with_capacity(items.len());
        let mut missing = firsts(items);
        // A loser's winner may roll back before the loser can read it; then the key is free again.
        for _ in 0..4 {
            self.insert(connection, &missing, &mut fates).await?;
            missing.retain(|entry| !fates.contains_key(&entry.charge_id));
            if missing.is_empty() {
                let fates: Vec<Fate> = items
                    .iter()
                    .map(|entry| self.fate_of(entry, &fates))
                    .collect();
                let made = fates.iter().filter(|fate| fate.is_new()).count();
                self.counted.increment(made as u64);
                return Ok(fates);
            }
        }
        Err(DbError::WinnersVanish)
    }

    fn weight(item: &Arc<Entry>) -> usize {
        let draft = item.request.draft();
        let optional = [
            &draft.customer,
            &draft.return_url,
            &draft.reference,
            &draft.description,
        ];
        // The fixed columns and what Postgres adds to each of three rows.
        200 + item.metadata.len()
            + item.payload.len()
            + 2 * item.key.as_str().len()
            + draft.payment_method.len()
            + optional
                .iter()
                .map(|text| text.as_ref().map_or(0, String::len))
                .sum::<usize>()
    }
}

/// Of each key, the first submission in the batch, which speaks for the key, and what became of it.
type Fates<'a> = HashMap<ChargeId, (&'a Entry, Fate)>;

/// The first submission of each key, in the order in which all batches insert. One statement must not hold a key twice:
/// the second would be taken for a duplicate of a row that is not there yet.
fn firsts(items: &[Arc<Entry>]) -> Vec<&Arc<Entry>> {
    let mut firsts: Vec<&Arc<Entry>> = items.iter().collect();
    // Stable: of one key, the one that came first stays first.
    firsts.sort_by(|a, b| (a.merchant, &a.key).cmp(&(b.merchant, &b.key)));
    firsts.dedup_by(|later, earlier| later.charge_id == earlier.charge_id);
    firsts
}

impl Accept {
    async fn insert<'a>(
        &self,
        connection: &mut PgConnection,
        entries: &[&'a Arc<Entry>],
        fates: &mut Fates<'a>,
    ) -> Result<(), DbError> {
        let rows = rows(entries);
        let common = db::intake::Common {
            live: self.live,
            provider: self.provider,
            payload_version: Instruction::VERSION,
            payload_version_with_account: Instruction::VERSION_WITH_ACCOUNT,
        };
        let accepted = db::intake::insert_batch(connection, &rows, common).await?;
        if !accepted.is_empty() {
            self.accepted.notify_one();
        }
        let by_id: HashMap<ChargeId, &'a Entry> = entries
            .iter()
            .map(|&entry| (entry.charge_id, entry.as_ref()))
            .collect();
        for (id, created_at) in accepted {
            let id = ChargeId::from_uuid(id);
            fates.insert(id, (by_id[&id], Fate::Created { created_at }));
        }
        let losers: Vec<Uuid> = entries
            .iter()
            .filter(|entry| !fates.contains_key(&entry.charge_id))
            .map(|entry| entry.charge_id.as_uuid())
            .collect();
        if losers.is_empty() {
            return Ok(());
        }
        // In a statement of its own: in the one above, the winners' rows can't be seen. A row with our mark was made by
        // an earlier run of this very submission, whose reply was lost.
        for (charge, made_by) in db::charges::find_all(connection, &losers)
            .await
            .map_err(|error| DbError::AfterCommit(Box::new(error)))?
        {
            let id = charge.id;
            let entry = by_id[&id];
            let fate = Fate::Found {
                charge: Box::new(charge),
                ours: made_by == Some(entry.intake_id),
            };
            fates.insert(id, (entry, fate));
        }
        Ok(())
    }

    /// The fate of one submission; of several with one key, only the first can have made the charge.
    fn fate_of(&self, entry: &Entry, fates: &Fates<'_>) -> Fate {
        let (first, fate) = &fates[&entry.charge_id];
        match fate {
            fate if first.intake_id == entry.intake_id => fate.clone(),
            Fate::Created { created_at } => Fate::Found {
                charge: Box::new(first.to_charge(*created_at, self.live, self.provider)),
                ours: false,
            },
            Fate::Found { charge, ours: _ } => Fate::Found {
                charge: charge.clone(),
                ours: false,
            },
        }
    }
}

fn rows<'a>(entries: &[&'a Arc<Entry>]) -> db::intake::Rows<'a> {
    let mut rows = db::intake::Rows::default();
    for entry in entries {
        let draft = entry.request.draft();
        rows.charge_ids.push(entry.charge_id.as_uuid());
        rows.merchant_ids.push(entry.merchant.as_uuid());
        rows.intake_ids.push(entry.intake_id);
        rows.client_keys.push(entry.key.as_str());
        rows.fingerprints.push(&entry.fingerprint.hash);
        rows.fingerprint_versions.push(entry.fingerprint.version);
        rows.amounts.push(draft.amount);
        rows.currencies.push(&draft.currency);
        rows.payment_methods.push(&draft.payment_method);
        rows.customers.push(draft.customer.as_deref());
        rows.return_urls.push(draft.return_url.as_deref());
        rows.off_sessions.push(draft.off_session);
        rows.references.push(draft.reference.as_deref());
        rows.descriptions.push(draft.description.as_deref());
        rows.metadata.push(&entry.metadata);
        rows.payloads.push(&entry.payload);
        rows.accounts.push(entry.account.as_deref());
    }
    rows
}
