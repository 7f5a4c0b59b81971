//! Everything the simulator remembers, behind one mutex that is never held across an await.
//!
//! A change is written to the journal before it is applied, and both happen before anyone is answered.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;

use rand::distr::Alphanumeric;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};

use super::faults::{Dice, Met, Settings};
use super::holds::Holds;
use super::intents::Change;
use super::journal::{EventRecord, IntentRecord, Journal, KeyRecord, Record};
use super::keys::{First, Keys};
use super::model::{Answer, Fixed, Moving, Snapshot};
use super::refunds::Refund;
use super::requests::Requests;
use super::scripted::Scripted;
use super::webhooks::Outgoing;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum EventKind {
    Created,
    RequiresAction,
    Processing,
    Succeeded,
    Failed,
    Canceled,
}

impl EventKind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Created => "payment_intent.created",
            Self::RequiresAction => "payment_intent.requires_action",
            Self::Processing => "payment_intent.processing",
            Self::Succeeded => "payment_intent.succeeded",
            Self::Failed => "payment_intent.payment_failed",
            Self::Canceled => "payment_intent.canceled",
        }
    }
}

#[derive(Debug)]
pub(super) struct Intent {
    /// The order over all accounts.
    pub(super) seq: u64,
    pub(super) snapshot: Snapshot,
    pub(super) created_ms: i64,
    pub(super) changed_ms: i64,
    /// How it was before the last change: what a lagging search still shows.
    pub(super) before: Option<Arc<Moving>>,
}

#[derive(Debug)]
pub(super) struct Event {
    pub(super) kind: EventKind,
    pub(super) at: i64,
    pub(super) intent: usize,
    pub(super) now: Arc<Moving>,
    pub(super) key: Option<Box<str>>,
    pub(super) request: Option<Box<str>>,
}

/// Whom a secret key stands for. The key itself is not kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Owner {
    pub(super) id: String,
    /// Enough of the key to recognise it by.
    pub(super) hint: String,
    pub(super) livemode: bool,
}

#[derive(Debug)]
pub(super) struct Account {
    pub(super) owner: Owner,
    /// Oldest first; `created` never decreases.
    pub(super) intents: Vec<Intent>,
    by_id: HashMap<Box<str>, usize>,
    /// Oldest first.
    pub(super) refunds: Vec<Refund>,
    pub(super) events: Vec<Event>,
    pub(super) keys: Keys,
    /// What the fault of its payment method has already met, once.
    pub(super) spent: HashSet<Box<str>>,
}

impl Account {
    fn new(owner: Owner) -> Self {
        Self {
            owner,
            intents: Vec::new(),
            by_id: HashMap::new(),
            refunds: Vec::new(),
            events: Vec::new(),
            keys: Keys::default(),
            spent: HashSet::new(),
        }
    }

    pub(super) fn index(&self, id: &str) -> Option<usize> {
        self.by_id.get(id).copied()
    }

    pub(super) fn snapshot(&self, id: &str) -> Option<&Snapshot> {
        self.index(id)
            .and_then(|index| self.intents.get(index))
            .map(|intent| &intent.snapshot)
    }

    pub(super) fn refund(&self, id: &str) -> Option<&Refund> {
        self.refunds.iter().find(|refund| *refund.id == *id)
    }

    fn put_refund(&mut self, refund: Refund) {
        match self.refunds.iter_mut().find(|known| known.id == refund.id) {
            Some(known) => *known = refund,
            None => self.refunds.push(refund),
        }
    }

    fn put(
        &mut self,
        seq: u64,
        fixed: Arc<Fixed>,
        now: Arc<Moving>,
        created_ms: i64,
        changed_ms: i64,
    ) -> usize {
        if let Some(index) = self.index(&fixed.id) {
            let intent = &mut self.intents[index];
            intent.before = Some(std::mem::replace(&mut intent.snapshot.now, now));
            intent.changed_ms = changed_ms;
            return index;
        }
        let index = self.intents.len();
        self.by_id.insert(fixed.id.clone(), index);
        self.intents.push(Intent {
            seq,
            snapshot: Snapshot { fixed, now },
            created_ms,
            changed_ms,
            before: None,
        });
        index
    }
}

/// The key that an effect is committed under.
pub(super) struct UnderKey<'a> {
    pub(super) key: &'a str,
    pub(super) ticket: u64,
    pub(super) first: First,
    pub(super) answer: Answer,
    /// The answer goes out later: until then the key is in use.
    pub(super) busy: bool,
}

pub(super) struct State {
    pub(super) accounts: HashMap<String, Account>,
    pub(super) settings: Settings,
    pub(super) dice: Dice,
    pub(super) met: Met,
    pub(super) holds: Holds,
    pub(super) script: Vec<Scripted>,
    pub(super) requests: Requests,
    pub(super) outgoing: Outgoing,
    /// How far the clock was moved.
    pub(super) offset_s: i64,
    /// Grows each time everything is forgotten.
    pub(super) epoch: u64,
    next_seq: u64,
    last_ms: i64,
    ids: StdRng,
    journal: Option<Journal>,
}

fn account_of<'a>(accounts: &'a mut HashMap<String, Account>, owner: &Owner) -> &'a mut Account {
    accounts
        .entry(owner.id.clone())
        .or_insert_with(|| Account::new(owner.clone()))
}

impl State {
    pub(super) fn new(settings: Settings, dice: Dice, id_seed: u64) -> Self {
        Self {
            accounts: HashMap::new(),
            settings,
            dice,
            met: Met::default(),
            holds: Holds::new(),
            script: Vec::new(),
            requests: Requests::default(),
            outgoing: Outgoing::new(),
            offset_s: 0,
            epoch: 0,
            next_seq: 0,
            last_ms: i64::MIN,
            ids: StdRng::seed_from_u64(id_seed),
            journal: None,
        }
    }

    pub(super) fn attach(&mut self, journal: Journal) {
        self.journal = Some(journal);
    }

    /// `length` random letters and digits behind `prefix`.
    pub(super) fn fresh_id(&mut self, prefix: &str, length: usize) -> String {
        let mut id = String::with_capacity(prefix.len() + length);
        id.push_str(prefix);
        id.extend(
            (&mut self.ids)
                .sample_iter(Alphanumeric)
                .take(length)
                .map(char::from),
        );
        id
    }

    /// The moved clock in milliseconds. It never goes back, so that the lists stay sorted.
    pub(super) fn now_ms(&mut self, machine_ms: i64) -> i64 {
        self.last_ms = self
            .last_ms
            .max(machine_ms.saturating_add(self.offset_s.saturating_mul(1000)));
        self.last_ms
    }

    pub(super) fn account_mut(&mut self, owner: &Owner) -> &mut Account {
        account_of(&mut self.accounts, owner)
    }

    /// Makes a change and what is kept under its key one step.
    pub(super) fn commit(
        &mut self,
        owner: &Owner,
        change: Option<Change>,
        under: Option<UnderKey<'_>>,
        request: Option<&str>,
        now_ms: i64,
    ) -> io::Result<()> {
        let seq = self.next_seq;
        let at = now_ms.div_euclid(1000);
        if let Some(journal) = &mut self.journal {
            let mut record = Record {
                owner: Some(owner.clone()),
                ..Record::default()
            };
            if let Some(change) = &change {
                record.intent = Some(IntentRecord::new(seq, &change.after, now_ms, now_ms));
                let key = under.as_ref().map(|under| under.key);
                record.events = change
                    .events
                    .iter()
                    .map(|&kind| EventRecord::new(kind, at, &change.after, key, request))
                    .collect();
            }
            record.key = under
                .as_ref()
                .map(|under| KeyRecord::new(under.key, at, &under.first, &under.answer));
            journal.append(&record)?;
        }
        self.next_seq += 1;
        let account = account_of(&mut self.accounts, owner);
        if let Some(Change { after, events }) = change {
            let intent = account.put(
                seq,
                Arc::clone(&after.fixed),
                Arc::clone(&after.now),
                now_ms,
                now_ms,
            );
            for kind in events {
                let key = under.as_ref().map(|under| under.key.into());
                let event = Event {
                    kind,
                    at,
                    intent,
                    now: Arc::clone(&after.now),
                    key,
                    request: request.map(Into::into),
                };
                self.outgoing
                    .tell(owner, account.events.len(), &event, &after);
                account.events.push(event);
            }
        }
        if let Some(under) = under {
            account
                .keys
                .keep(under.key, under.ticket, under.answer, under.busy);
        }
        Ok(())
    }

    /// Notes that the fault of a payment method has met `what`. False when it had before.
    pub(super) fn spend(&mut self, owner: &Owner, what: &str) -> io::Result<bool> {
        if self.account_mut(owner).spent.contains(what) {
            return Ok(false);
        }
        self.append(&Record {
            owner: Some(owner.clone()),
            spent: Some(what.into()),
            ..Record::default()
        })?;
        Ok(self.account_mut(owner).spent.insert(what.into()))
    }

    /// Makes or changes a refund, and keeps what is answered under its key, in one step.
    pub(super) fn commit_refund(
        &mut self,
        owner: &Owner,
        refund: Option<Refund>,
        under: Option<UnderKey<'_>>,
        now_ms: i64,
    ) -> io::Result<()> {
        let at = now_ms.div_euclid(1000);
        self.append(&Record {
            owner: Some(owner.clone()),
            refund: refund.as_ref().map(Cow::Borrowed),
            key: under
                .as_ref()
                .map(|under| KeyRecord::new(under.key, at, &under.first, &under.answer)),
            ..Record::default()
        })?;
        let account = account_of(&mut self.accounts, owner);
        if let Some(refund) = refund {
            let is_new = account.refund(&refund.id).is_none();
            self.outgoing.tell_refund(owner, &refund, is_new, at);
            account.put_refund(refund);
        }
        if let Some(under) = under {
            account
                .keys
                .keep(under.key, under.ticket, under.answer, under.busy);
        }
        Ok(())
    }

    /// Every refund with its account.
    pub(super) fn all_refunds(&self) -> Vec<(&Owner, &Refund)> {
        let mut all: Vec<_> = self
            .accounts
            .values()
            .flat_map(|account| {
                account
                    .refunds
                    .iter()
                    .map(|refund| (&account.owner, refund))
            })
            .collect();
        all.sort_by_key(|(_, refund)| refund.created);
        all
    }

    pub(super) fn find_refund(&self, id: &str) -> Option<(Owner, Refund)> {
        self.accounts
            .values()
            .find_map(|account| Some((account.owner.clone(), account.refund(id)?.clone())))
    }

    /// Of requests about refunds, or of all others.
    pub(super) fn forget_keys(&mut self, owner: &Owner, of_refunds: bool) -> io::Result<()> {
        self.append(&Record {
            owner: Some(owner.clone()),
            forget_keys: !of_refunds,
            forget_refund_keys: of_refunds,
            ..Record::default()
        })?;
        self.account_mut(owner).keys.forget(of_refunds);
        Ok(())
    }

    pub(super) fn move_clock(&mut self, seconds: i64) -> io::Result<()> {
        let offset_s = self.offset_s.saturating_add(seconds);
        self.append(&Record {
            offset_s: Some(offset_s),
            ..Record::default()
        })?;
        self.offset_s = offset_s;
        Ok(())
    }

    /// Forgets everything, settings and clock included.
    pub(super) fn reset(&mut self, settings: Settings, dice: Dice) -> io::Result<()> {
        if let Some(journal) = &mut self.journal {
            journal.clear()?;
        }
        self.epoch += 1;
        self.accounts.clear();
        self.settings = settings;
        self.dice = dice;
        self.met = Met::default();
        self.holds.release();
        self.script.clear();
        self.requests.clear();
        self.outgoing.clear();
        self.offset_s = 0;
        self.last_ms = i64::MIN;
        Ok(())
    }

    /// Every object with its account, in the order they were made.
    pub(super) fn all(&self) -> Vec<(&Owner, &Intent)> {
        let mut all: Vec<_> = self
            .accounts
            .values()
            .flat_map(|account| {
                account
                    .intents
                    .iter()
                    .map(|intent| (&account.owner, intent))
            })
            .collect();
        all.sort_unstable_by_key(|(_, intent)| intent.seq);
        all
    }

    pub(super) fn find(&self, id: &str) -> Option<(Owner, Snapshot)> {
        self.accounts
            .values()
            .find_map(|account| Some((account.owner.clone(), account.snapshot(id)?.clone())))
    }

    fn append(&mut self, record: &Record<'_>) -> io::Result<()> {
        self.journal
            .as_mut()
            .map_or(Ok(()), |journal| journal.append(record))
    }

    /// Applies one record of the journal. None when it refers to what is not there.
    pub(super) fn replay(&mut self, record: Record<'static>) -> Option<()> {
        if let Some(offset_s) = record.offset_s {
            self.offset_s = offset_s;
        }
        let Some(owner) = record.owner else {
            return Some(());
        };
        let next_seq = self
            .next_seq
            .max(record.intent.as_ref().map_or(0, |intent| intent.seq + 1));
        let mut last_ms = self.last_ms;
        let account = self.account_mut(&owner);
        if let Some(intent) = record.intent {
            last_ms = last_ms.max(intent.changed_ms);
            account.put(
                intent.seq,
                Arc::new(intent.fixed.into_owned()),
                Arc::new(intent.now.into_owned()),
                intent.created_ms,
                intent.changed_ms,
            );
        }
        if let Some(refund) = record.refund {
            account.put_refund(refund.into_owned());
        }
        for event in record.events {
            let intent = account.index(&event.intent)?;
            account.events.push(Event {
                kind: event.kind,
                at: event.at,
                intent,
                now: Arc::new(event.now.into_owned()),
                key: event.key.map(|key| key.into_owned().into()),
                request: event.request.map(|request| request.into_owned().into()),
            });
        }
        if let Some(what) = record.spent {
            account.spent.insert(what.into_owned().into());
        }
        if record.forget_keys {
            account.keys.forget(false);
        }
        if record.forget_refund_keys {
            account.keys.forget(true);
        }
        if let Some(key) = record.key {
            let (first, answer) = key.answer(account)?;
            account
                .keys
                .restore(key.key.into_owned().into(), first, key.at, answer);
        }
        self.next_seq = next_seq;
        self.last_ms = last_ms;
        Some(())
    }
}
