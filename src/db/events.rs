//! What merchants were told, read back: an event of a charge or a refund is that object as it was then.
//!
//! Events are in the order of the transactions that wrote them, and only those are read that are older than every
//! transaction under way: none can appear before one that was read, however late it commits.

use std::collections::HashMap;

use serde_json::Value;
use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use super::{DbError, charges, interval, refunds};
use crate::domain::charge::{Charge, Progress};
use crate::domain::event::EventId;
use crate::domain::ids::{ChargeId, MerchantId};
use crate::domain::refund::{Refund, RefundProgress};

/// Where an event is among its merchant's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Position {
    /// The transaction.
    pub transaction: i64,
    pub id: i64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    pub position: Position,
    pub id: EventId,
    pub r#type: String,
    pub at: OffsetDateTime,
    pub subject: Subject,
}

/// What an event is of.
#[derive(Clone, Debug, PartialEq)]
pub enum Subject {
    /// As it was at the event.
    Charge(Box<Charge>),
    /// As it was at the event.
    Refund(Box<Refund>),
    /// Told as it was written.
    Other(Value),
}

/// What to list.
#[derive(Clone, Debug)]
pub struct Wanted<'a> {
    pub merchant: MerchantId,
    pub after: Position,
    /// All for none.
    pub types: &'a [&'a str],
    pub charge: Option<ChargeId>,
    pub limit: i64,
}

struct Row {
    position: i64,
    id: i64,
    r#type: String,
    charge_id: Option<Uuid>,
    object_id: Uuid,
    version: i32,
    snapshot: Value,
    at: OffsetDateTime,
}

/// A page of settled events, oldest first, and the place up to which it was looked.
#[derive(Clone, Debug)]
pub struct Page {
    pub events: Vec<Event>,
    pub end: Position,
}

/// The most events that are looked at for one page, when only some types are wanted.
const MOST_WALKED: i64 = 10_000;

pub async fn list(connection: &mut PgConnection, wanted: &Wanted<'_>) -> Result<Page, DbError> {
    let rows = match wanted.charge {
        Some(charge) => of_charge(connection, wanted, charge).await?,
        None => walk(connection, wanted).await?,
    };
    let end = rows.last().map_or(wanted.after, |row| row.end);
    let rows = rows.into_iter().filter_map(|row| row.found).collect();
    Ok(Page {
        events: with_subjects(connection, rows).await?,
        end,
    })
}

struct Walked {
    found: Option<Row>,
    end: Position,
}

/// The events of a charge are few.
async fn of_charge(
    connection: &mut PgConnection,
    wanted: &Wanted<'_>,
    charge: ChargeId,
) -> Result<Vec<Walked>, DbError> {
    let rows = sqlx::query_as!(
        Row,
        r#"
        SELECT position, id, type, charge_id, object_id, version, snapshot, at
        FROM events
        WHERE merchant_id = $1
            AND charge_id = $2
            AND (position, id) > ($3, $4)
            -- As in the walk.
            AND position < (pg_snapshot_xmin(pg_current_snapshot())::text)::bigint
            AND ($5::text[] = '{}' OR type = ANY($5))
        ORDER BY position, id
        LIMIT $6
        "#,
        wanted.merchant.as_uuid(),
        charge.as_uuid(),
        wanted.after.transaction,
        wanted.after.id,
        wanted.types as &[&str],
        wanted.limit,
    )
    .fetch_all(connection)
    .await?;
    Ok(rows.into_iter().map(Walked::from).collect())
}

async fn walk(connection: &mut PgConnection, wanted: &Wanted<'_>) -> Result<Vec<Walked>, DbError> {
    let most = if wanted.types.is_empty() {
        wanted.limit
    } else {
        MOST_WALKED
    };
    let rows = sqlx::query_file!(
        "src/db/sql/walk_events.sql",
        wanted.merchant.as_uuid(),
        wanted.after.transaction,
        wanted.after.id,
        most,
        wanted.types as &[&str],
        wanted.limit,
    )
    .fetch_all(connection)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| {
            let end = Position {
                transaction: row.end_position,
                id: row.end_id,
            };
            let found = (|| {
                Some(Row {
                    position: end.transaction,
                    id: end.id,
                    r#type: row.r#type?,
                    charge_id: row.charge_id,
                    object_id: row.object_id?,
                    version: row.version?,
                    snapshot: row.snapshot?,
                    at: row.at?,
                })
            })();
            Walked { found, end }
        })
        .collect())
}

impl From<Row> for Walked {
    fn from(row: Row) -> Self {
        let end = Position {
            transaction: row.position,
            id: row.id,
        };
        let found = Some(row);
        Self { found, end }
    }
}

/// The newest transaction of this database: a place beyond it was handed out by another one.
pub async fn newest_transaction(connection: &mut PgConnection) -> Result<i64, DbError> {
    let newest = sqlx::query_scalar!(
        r#"SELECT (pg_snapshot_xmax(pg_current_snapshot())::text)::bigint AS "newest!""#
    )
    .fetch_one(connection)
    .await?;
    Ok(newest)
}

/// The events at these places, each of its merchant, in no order. Those whose time is over are missing.
pub async fn find(
    connection: &mut PgConnection,
    merchants: &[Uuid],
    positions: &[Position],
) -> Result<Vec<Event>, DbError> {
    let (transactions, ids) = columns(positions);
    let rows = sqlx::query_as!(
        Row,
        r#"
        SELECT
            events.position, events.id, events.type, events.charge_id, events.object_id, events.version,
            events.snapshot, events.at
        FROM unnest($1::uuid[], $2::bigint[], $3::bigint[]) AS input (merchant_id, position, id)
        JOIN events USING (merchant_id, position, id)
        "#,
        merchants,
        &transactions,
        &ids,
    )
    .fetch_all(&mut *connection)
    .await?;
    with_subjects(connection, rows).await
}

/// Keeps what is sent of events, the first to come for ever. Returns what is kept.
pub async fn freeze(
    connection: &mut PgConnection,
    merchants: &[Uuid],
    positions: &[Position],
    bodies: &[String],
) -> Result<HashMap<Position, String>, DbError> {
    let (transactions, ids) = columns(positions);
    let rows = sqlx::query!(
        r#"
        WITH input AS MATERIALIZED (
            SELECT *
            FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::text[])
                AS input (merchant_id, position, id, body)
            -- One order of locks for all.
            ORDER BY merchant_id, position, id
        )
        UPDATE events
        SET body = COALESCE(events.body, input.body)
        FROM input
        WHERE events.merchant_id = input.merchant_id
            AND events.position = input.position
            AND events.id = input.id
        RETURNING events.position, events.id, events.body AS "body!"
        "#,
        merchants,
        &transactions,
        &ids,
        bodies,
    )
    .fetch_all(connection)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| {
            let position = Position {
                transaction: row.position,
                id: row.id,
            };
            (position, row.body)
        })
        .collect())
}

/// Forgets events that are older than the retention, the oldest of each merchant first. Returns how many, at most `limit`.
pub async fn purge(
    connection: &mut PgConnection,
    retention: std::time::Duration,
    limit: i64,
) -> Result<u64, DbError> {
    let done = sqlx::query!(
        r#"
        WITH old AS MATERIALIZED (
            SELECT merchants.id AS merchant_id, oldest.position, oldest.id
            FROM merchants
            CROSS JOIN LATERAL (
                SELECT at
                FROM events
                WHERE merchant_id = merchants.id
                ORDER BY position, id
                LIMIT 1
            ) AS first
            CROSS JOIN LATERAL (
                SELECT position, id, at
                FROM events
                WHERE merchant_id = merchants.id
                ORDER BY position, id
                LIMIT $2
            ) AS oldest
            -- A merchant whose oldest is young enough is not walked.
            WHERE first.at < now() - $1::interval
                AND oldest.at < now() - $1::interval
            LIMIT $2
        )
        DELETE FROM events
        USING old
        WHERE events.merchant_id = old.merchant_id
            AND events.position = old.position
            AND events.id = old.id
        "#,
        interval(retention),
        limit,
    )
    .execute(connection)
    .await?;
    Ok(done.rows_affected())
}

fn columns(positions: &[Position]) -> (Vec<i64>, Vec<i64>) {
    positions
        .iter()
        .map(|position| (position.transaction, position.id))
        .unzip()
}

/// Puts the charges and refunds to their events, each as it was then.
async fn with_subjects(
    connection: &mut PgConnection,
    rows: Vec<Row>,
) -> Result<Vec<Event>, DbError> {
    let charges = once(rows.iter().filter_map(Row::charge));
    let found = if charges.is_empty() {
        Vec::new()
    } else {
        charges::find_all(&mut *connection, &charges).await?
    };
    let charges: HashMap<Uuid, Charge> = found
        .into_iter()
        .map(|(charge, _)| (charge.id.as_uuid(), charge))
        .collect();
    let refunds = once(rows.iter().filter_map(Row::refund));
    let found = if refunds.is_empty() {
        Vec::new()
    } else {
        refunds::find_all(connection, &refunds).await?
    };
    let refunds: HashMap<Uuid, Refund> = found
        .into_iter()
        .map(|(refund, _)| (refund.id.as_uuid(), refund))
        .collect();
    rows.into_iter()
        .map(|row| {
            let charge = row.charge().and_then(|id| charges.get(&id)).cloned();
            let refund = row.refund().and_then(|id| refunds.get(&id)).cloned();
            let subject = match (charge, refund) {
                (Some(charge), _) => Subject::Charge(Box::new(row.charge_then(charge)?)),
                (None, Some(refund)) => Subject::Refund(Box::new(row.refund_then(refund)?)),
                (None, None) => Subject::Other(row.snapshot),
            };
            Ok(Event {
                position: Position {
                    transaction: row.position,
                    id: row.id,
                },
                id: EventId::derive(row.object_id, &row.r#type, row.version),
                r#type: row.r#type,
                at: row.at,
                subject,
            })
        })
        .collect()
}

fn once(ids: impl Iterator<Item = Uuid>) -> Vec<Uuid> {
    let mut ids: Vec<Uuid> = ids.collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

impl Row {
    /// The charge that this is an event of.
    fn charge(&self) -> Option<Uuid> {
        self.charge_id.filter(|id| *id == self.object_id)
    }

    /// The refund that this is an event of: what else belongs to a charge.
    fn refund(&self) -> Option<Uuid> {
        let of_charge = self.charge_id.is_some_and(|id| id != self.object_id);
        of_charge.then_some(self.object_id)
    }

    fn kept(&self, name: &str) -> Option<Value> {
        self.snapshot.get(name).cloned()
    }

    fn attempts(&self) -> Option<i32> {
        let attempts = self.snapshot.get("attempts")?.as_i64()?;
        attempts.try_into().ok()
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.snapshot.get(name).and_then(Value::as_str)
    }

    /// What never changes, with what the event kept of the rest.
    fn refund_then(&self, refund: Refund) -> Result<Refund, DbError> {
        let charge = refund.charge();
        let unreadable = || DbError::Unreadable {
            charge,
            column: "events.snapshot",
        };
        let stage = self.text("stage").ok_or_else(unreadable)?;
        let then = refunds::state(charge, stage, self.kept("failure"))?;
        let attempts = self.attempts().ok_or_else(unreadable)?;
        let object = refunds::object(charge, self.text("provider_refund_id"))?;
        let ended = refund.finished_at.unwrap_or(self.at);
        Ok(Refund {
            finished_at: then.is_terminal().then_some(ended),
            updated_at: self.at,
            progress: RefundProgress {
                version: self.version,
                state: then,
                attempts,
                object,
                ..refund.progress
            },
            ..refund
        })
    }

    /// What never changes, with what the event kept of the rest.
    fn charge_then(&self, charge: Charge) -> Result<Charge, DbError> {
        let unreadable = || DbError::Unreadable {
            charge: charge.id,
            column: "events.snapshot",
        };
        let (stage, moved) = (
            self.text("stage").ok_or_else(unreadable)?,
            self.text("money").ok_or_else(unreadable)?,
        );
        let then = charges::state(
            charge.id,
            stage,
            moved,
            self.kept("failure"),
            self.kept("next_action"),
        )?;
        // Left out for none.
        let refunded = self
            .kept("amount_refunded")
            .as_ref()
            .map_or(Some(0), Value::as_i64);
        let attempts = self.attempts().ok_or_else(unreadable)?;
        let account = charge.progress.object.map(|object| object.account);
        let object = charges::object(charge.id, self.text("provider_charge_id"), account)?;
        let ended = charge.finished_at.unwrap_or(self.at);
        Ok(Charge {
            amount_refunded: refunded.ok_or_else(unreadable)?,
            finished_at: then.is_terminal().then_some(ended),
            updated_at: self.at,
            progress: Progress {
                version: self.version,
                state: then,
                attempts,
                prepares: charge.progress.prepares,
                object,
            },
            ..charge
        })
    }
}
