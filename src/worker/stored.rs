//! The gate before execute: commits the object's id and that the money is unknown, many charges a statement.
//!
//! Nothing is executed that did not come through here, and nothing comes through to be executed while sending is paused. If the process dies after the commit and before execute was sent,
//! the next run reads the object by its stored id and finds it not executed.

use std::collections::HashSet;

use sqlx::PgConnection;

use crate::batch::Statement;
use crate::completion::Hold;
use crate::db::{self, DbError};
use crate::domain::charge::StoredObject;

/// An object that is about to be executed or, if a look found it, read.
#[derive(Clone, Debug)]
pub struct Start {
    pub hold: Hold,
    pub object: StoredObject,
    pub executes: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Started {
    /// Committed: execute may be sent.
    Yes,
    /// The lease is lost, the charge has changed or another object is stored: nothing may be sent.
    No,
    /// Sending is paused; nothing was stored.
    Paused,
}

#[derive(Clone, Copy, Debug)]
pub struct StoreObject;

impl Statement for StoreObject {
    type Item = Start;
    type Reply = Started;

    const NAME: &'static str = "start_execute";

    async fn run(
        &mut self,
        connection: &mut PgConnection,
        items: &[Start],
        repeated: bool,
    ) -> Result<Vec<Started>, DbError> {
        let charge = |index: &usize| items[*index].hold.charge;
        let mut order: Vec<usize> = (0..items.len()).collect();
        // One order of locks for all batches.
        order.sort_by_key(charge);
        // Of two jobs for one charge, one may start. The statement's answer names charges and could not tell them apart.
        order.dedup_by_key(|index| charge(index));
        let mut rows = db::attempt::Rows::default();
        for index in &order {
            let Start {
                hold,
                object,
                executes,
            } = &items[*index];
            rows.charge_ids.push(hold.charge.as_uuid());
            rows.outbox_ids.push(hold.outbox_id);
            rows.lease_tokens.push(hold.lease.as_uuid());
            rows.versions.push(hold.version);
            rows.provider_charge_ids.push(object.id.as_str());
            rows.provider_accounts.push(&object.account);
            rows.executes.push(*executes);
        }
        let before = if repeated {
            db::attempt::already_started(connection, &rows).await?
        } else {
            Vec::new()
        };
        let now = db::attempt::start_execute(connection, &rows).await?;
        let started: HashSet<_> = before.into_iter().chain(now.started).collect();
        let paused: HashSet<_> = now.paused.into_iter().collect();
        let mut answers = vec![Started::No; items.len()];
        for index in order {
            let id = charge(&index).as_uuid();
            if started.contains(&id) {
                answers[index] = Started::Yes;
            } else if paused.contains(&id) {
                answers[index] = Started::Paused;
            }
        }
        Ok(answers)
    }

    fn weight(_item: &Start) -> usize {
        // Bounded by the number of items alone: a row here is small and of one size.
        1
    }
}
