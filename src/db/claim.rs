//! Leases on outbox rows: taken, taken back, given back.

use std::collections::BTreeMap;
use std::time::Duration;

use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use super::refund_steps::RefundHold;
use super::{DbError, charges, interval, refunds};
use crate::domain::charge::Progress;
use crate::domain::ids::{ChargeId, LeaseToken, ProviderChargeId, RefundId};
use crate::domain::refund::RefundProgress;

/// A leased outbox row with the charge it is for, as both stood at the claim.
#[derive(Debug)]
pub struct Claimed {
    pub outbox_id: i64,
    pub lease: LeaseToken,
    /// How often the row was claimed, this time included.
    pub attempt: i32,
    pub charge: ChargeId,
    /// The instruction as it was frozen at intake.
    pub payload: serde_json::Value,
    pub progress: Progress,
    /// Where the object is or is to be made.
    pub account: String,
    /// The account in whose claims its row stands: the one that the row names, or the default one.
    pub queue: String,
    /// Since when it could have been claimed.
    pub due_at: OffsetDateTime,
    pub created_at: OffsetDateTime,
    /// The client asked for a cancel.
    pub cancel_requested: bool,
    /// The database's clock at the claim.
    pub claimed_at: OffsetDateTime,
    pub look: Look,
    /// Objects with the charge's stamp that are not its own and not settled.
    pub strays: Strays,
}

/// A leased outbox row of a refund, as both stood at the claim.
#[derive(Debug)]
pub struct ClaimedRefund {
    pub hold: RefundHold,
    /// How often the row was claimed, this time included.
    pub attempt: i32,
    /// The instruction as it was frozen at acceptance.
    pub payload: serde_json::Value,
    pub progress: RefundProgress,
    /// The account that holds the charge's object.
    pub account: String,
    /// The account in whose claims its row stands.
    pub queue: String,
    pub due_at: OffsetDateTime,
    /// The database's clock at the claim.
    pub claimed_at: OffsetDateTime,
}

/// What was claimed.
#[derive(Debug)]
pub enum Job {
    Charge(Box<Claimed>),
    Refund(Box<ClaimedRefund>),
}

impl Job {
    /// How long it could have been claimed before it was.
    pub fn waited(&self) -> time::Duration {
        match self {
            Self::Charge(job) => job.claimed_at - job.due_at,
            Self::Refund(job) => job.claimed_at - job.due_at,
        }
    }

    /// The account that it is run in, and in no other.
    pub fn account(&self) -> &str {
        match self {
            Self::Charge(job) => &job.account,
            Self::Refund(job) => &job.account,
        }
    }

    /// Its outbox row, and who holds it.
    pub fn row(&self) -> (i64, LeaseToken) {
        match self {
            Self::Charge(job) => (job.outbox_id, job.lease),
            Self::Refund(job) => (job.hold.outbox_id, job.hold.lease),
        }
    }

    /// The account in whose claims it stands. Another than its own, where its row names none and its charge does.
    pub fn queue(&self) -> &str {
        match self {
            Self::Charge(job) => &job.queue,
            Self::Refund(job) => &job.queue,
        }
    }
}

/// Where a job's look for its object stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// None was asked for, or so long ago that the provider may have forgotten a key that was used since.
    NotAsked,
    /// It waits for a sweep.
    Asked,
    /// A sweep that began after it has seen every object with the charge's stamp; what it found is among the strays.
    Answered,
}

impl Look {
    /// `swept_at`: when the newest sweep began that walked as far back as was asked for and came to its end.
    pub(super) fn judge(
        asked_at: Option<OffsetDateTime>,
        swept_at: Option<OffsetDateTime>,
        now: OffsetDateTime,
        key_window: Duration,
    ) -> Self {
        let relied_from = now - key_window;
        let answers = |began_at| began_at > relied_from && asked_at.is_none_or(|at| began_at > at);
        if swept_at.is_some_and(answers) {
            Self::Answered
        } else if asked_at.is_some_and(|at| at > relied_from) {
            Self::Asked
        } else {
            Self::NotAsked
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Strays {
    /// In the account that the charge is run in.
    Here(Vec<ProviderChargeId>),
    /// One of them is in another account.
    Elsewhere,
}

/// A row that was leased and can't be read.
#[derive(Debug)]
pub struct Unclaimable {
    pub outbox_id: i64,
    pub lease: LeaseToken,
    /// The account in whose claims it stands.
    pub queue: String,
    pub error: DbError,
}

impl Strays {
    /// `accounts`: that of each object, by the object's id; `None` if there is none. `own`: that of the charge.
    pub(super) fn read(
        charge: ChargeId,
        accounts: Option<serde_json::Value>,
        own: &str,
    ) -> Result<Self, DbError> {
        let unreadable = || DbError::Unreadable {
            charge,
            column: "strays",
        };
        let accounts: BTreeMap<String, String> = accounts
            .map_or_else(|| Ok(BTreeMap::new()), serde_json::from_value)
            .map_err(|_| unreadable())?;
        if accounts.values().any(|account| account != own) {
            return Ok(Self::Elsewhere);
        }
        let parsed: Option<Vec<_>> = accounts
            .keys()
            .map(|id| ProviderChargeId::parse(id))
            .collect();
        parsed.map(Self::Here).ok_or_else(unreadable)
    }
}

/// What the claiming process has, to judge looks and strays by.
#[derive(Clone, Copy, Debug)]
pub struct Ours<'a> {
    /// The default account, for what names none.
    pub account: &'a str,
    /// How long the provider is relied on to remember a key.
    pub key_window: Duration,
}

/// What every claim is told.
#[derive(Clone, Copy, Debug)]
pub struct Terms<'a> {
    /// At most as many rows, of the default account; with `shares`, of the account that they are of.
    pub limit: i64,
    /// Of the default account, only what became due within this time; `None` for all that is due.
    pub due_within: Option<Duration>,
    /// Other accounts, each with the most rows of it. Nothing is claimed of those that are not here.
    pub accounts: Most<'a>,
    pub token: LeaseToken,
    pub lease: Duration,
    /// The payload versions that this release knows, of charges and of refunds; rows of others are left to the release
    /// that knows them.
    pub payload_versions: &'a [i16],
    pub refund_payload_versions: &'a [i16],
    pub ours: Ours<'a>,
    /// `None` for the oldest of all.
    pub shares: Option<Shares<'a>>,
}

/// Accounts by name, and the most rows of each in the same order.
#[derive(Clone, Copy, Debug, Default)]
pub struct Most<'a> {
    pub names: &'a [&'a str],
    pub most: &'a [i64],
}

/// Of these merchants and this account alone, in their order, and at most so many rows of each.
#[derive(Clone, Copy, Debug)]
pub struct Shares<'a> {
    pub account: &'a str,
    pub merchants: &'a [Uuid],
    pub each: i64,
}

/// Leases rows that are due; none while sending is paused. What another worker locks at this moment is skipped.
pub async fn claim(
    connection: &mut PgConnection,
    terms: Terms<'_>,
) -> Result<Vec<Result<Job, Unclaimable>>, DbError> {
    let rows = sqlx::query_file_as!(
        Row,
        "src/db/sql/claim.sql",
        terms.limit,
        terms.token.as_uuid(),
        interval(terms.lease),
        terms.payload_versions,
        terms.ours.account,
        terms.shares.map(|shares| shares.merchants) as Option<&[Uuid]>,
        terms.shares.map(|shares| shares.each),
        terms.refund_payload_versions,
        terms.accounts.names as &[&str],
        terms.accounts.most,
        terms
            .shares
            .map_or(terms.ours.account, |shares| shares.account),
        terms.due_within.map(interval),
    )
    .fetch_all(connection)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| row.job(terms.token, terms.ours))
        .collect())
}

/// A merchant with jobs that are ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    pub merchant: Uuid,
    /// Whether one of them is due; the others are later.
    pub due: bool,
}

/// The next `limit` merchants after `cursor` that have jobs, in the order of their ids; due are those of merchants that are
/// on `account` or have their oldest there. Each costs two look-ups in the index, however many jobs it has.
pub async fn merchants_waiting(
    connection: &mut PgConnection,
    cursor: Uuid,
    limit: i32,
    (account, ours): (&str, Ours<'_>),
) -> Result<Vec<Waiting>, DbError> {
    let waiting = sqlx::query_file_as!(
        Waiting,
        "src/db/sql/merchants_waiting.sql",
        cursor,
        limit,
        ours.account,
        account,
    )
    .fetch_all(connection)
    .await?;
    Ok(waiting)
}

/// An account that has jobs ready and that this process does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unserved {
    pub account: String,
    /// Its oldest job.
    pub outbox_id: i64,
    /// Since when that could have been claimed, if it could.
    pub due_at: OffsetDateTime,
    /// The database's clock.
    pub now: OffsetDateTime,
}

/// The accounts of ready jobs that are not among `known`; none while sending is paused, when nobody takes any. Each account costs a look-up in the index, however many jobs it
/// has.
pub async fn unserved(
    connection: &mut PgConnection,
    known: &[String],
) -> Result<Vec<Unserved>, DbError> {
    let unserved = sqlx::query_as!(
        Unserved,
        r#"
        WITH RECURSIVE visited AS (
            (
                SELECT provider_account, run_at, id
                FROM outbox
                WHERE state NOT IN ('leased', 'parked')
                    AND provider_account IS NOT NULL
                ORDER BY provider_account, run_at, id
                LIMIT 1
            )
            UNION ALL
            SELECT next.provider_account, next.run_at, next.id
            FROM visited
            CROSS JOIN LATERAL (
                SELECT provider_account, run_at, id
                FROM outbox
                WHERE state NOT IN ('leased', 'parked')
                    AND provider_account > visited.provider_account
                ORDER BY provider_account, run_at, id
                LIMIT 1
            ) AS next
        )
        SELECT provider_account AS "account!", id AS "outbox_id!", run_at AS "due_at!", now() AS "now!"
        FROM visited
        WHERE provider_account <> ALL($1)
            AND NOT EXISTS (SELECT FROM pauses)
        "#,
        known,
    )
    .fetch_all(connection)
    .await?;
    Ok(unserved)
}

struct Row {
    outbox_id: i64,
    attempt: i32,
    payload: serde_json::Value,
    run_at: OffsetDateTime,
    queue: String,
    charge_id: Uuid,
    stage: String,
    money: String,
    version: i32,
    attempts: i32,
    prepares: i32,
    provider_account: Option<String>,
    provider_charge_id: Option<String>,
    failure: Option<serde_json::Value>,
    next_action: Option<serde_json::Value>,
    created_at: OffsetDateTime,
    cancel_requested: bool,
    claimed_at: OffsetDateTime,
    look_asked_at: Option<OffsetDateTime>,
    swept_at: Option<OffsetDateTime>,
    strays: Option<serde_json::Value>,
    refund_id: Option<Uuid>,
    refund_stage: Option<String>,
    refund_version: Option<i32>,
    refund_attempts: Option<i32>,
    refund_key_number: Option<i32>,
    refund_first_attempted_at: Option<OffsetDateTime>,
    provider_refund_id: Option<String>,
    refund_account: Option<String>,
    refund_failure: Option<serde_json::Value>,
}

impl Row {
    fn job(self, lease: LeaseToken, ours: Ours<'_>) -> Result<Job, Unclaimable> {
        let Some(refund) = self.refund_id else {
            return Ok(Job::Charge(Box::new(self.claimed(lease, ours)?)));
        };
        let (outbox_id, queue) = (self.outbox_id, self.queue.clone());
        self.refund(RefundId::from_uuid(refund), lease)
            .map(|job| Job::Refund(Box::new(job)))
            .map_err(|error| Unclaimable {
                outbox_id,
                lease,
                queue,
                error,
            })
    }

    fn refund(self, refund: RefundId, lease: LeaseToken) -> Result<ClaimedRefund, DbError> {
        let charge = ChargeId::from_uuid(self.charge_id);
        let unreadable = |column| DbError::Unreadable { charge, column };
        let version = self
            .refund_version
            .ok_or_else(|| unreadable("refund.version"))?;
        let stage = self
            .refund_stage
            .ok_or_else(|| unreadable("refund.stage"))?;
        Ok(ClaimedRefund {
            hold: RefundHold {
                refund,
                charge,
                outbox_id: self.outbox_id,
                lease,
                version,
            },
            attempt: self.attempt,
            payload: self.payload,
            progress: RefundProgress {
                version,
                state: refunds::state(charge, &stage, self.refund_failure)?,
                attempts: self.refund_attempts.unwrap_or_default(),
                key_number: self.refund_key_number.unwrap_or_default(),
                first_attempted_at: self.refund_first_attempted_at,
                object: refunds::object(charge, self.provider_refund_id.as_deref())?,
            },
            account: self
                .refund_account
                .ok_or_else(|| unreadable("refund.provider_account"))?,
            queue: self.queue,
            due_at: self.run_at,
            claimed_at: self.claimed_at,
        })
    }

    fn claimed(self, lease: LeaseToken, ours: Ours<'_>) -> Result<Claimed, Unclaimable> {
        let charge = ChargeId::from_uuid(self.charge_id);
        let unclaimable = |error| Unclaimable {
            outbox_id: self.outbox_id,
            lease,
            queue: self.queue.clone(),
            error,
        };
        let account = self
            .provider_account
            .clone()
            .unwrap_or_else(|| ours.account.to_owned());
        Ok(Claimed {
            outbox_id: self.outbox_id,
            lease,
            attempt: self.attempt,
            charge,
            payload: self.payload,
            progress: Progress {
                version: self.version,
                state: charges::state(
                    charge,
                    &self.stage,
                    &self.money,
                    self.failure,
                    self.next_action,
                )
                .map_err(unclaimable)?,
                attempts: self.attempts,
                prepares: self.prepares,
                object: charges::object(
                    charge,
                    self.provider_charge_id.as_deref(),
                    self.provider_account,
                )
                .map_err(unclaimable)?,
            },
            due_at: self.run_at,
            created_at: self.created_at,
            cancel_requested: self.cancel_requested,
            claimed_at: self.claimed_at,
            look: Look::judge(
                self.look_asked_at,
                self.swept_at,
                self.claimed_at,
                ours.key_window,
            ),
            strays: Strays::read(charge, self.strays, &account).map_err(unclaimable)?,
            account,
            queue: self.queue,
        })
    }
}

/// Makes rows ready again whose lease ran out: their holder crashed, hung or lost its connection. Returns how many.
pub async fn take_back_expired(connection: &mut PgConnection, limit: i64) -> Result<u64, DbError> {
    let done = sqlx::query!(
        r#"
        WITH expired AS MATERIALIZED (
            SELECT id
            FROM outbox
            WHERE state = 'leased'
                AND lease_until < now()
            ORDER BY lease_until
            LIMIT $1
            FOR UPDATE SKIP LOCKED
        )
        UPDATE outbox
        SET state = 'ready',
            lease_token = NULL,
            lease_until = NULL,
            run_at = now(),
            last_error = 'lease_expired'
        FROM expired
        WHERE outbox.id = expired.id
        "#,
        limit,
    )
    .execute(connection)
    .await?;
    Ok(done.rows_affected())
}

/// Makes every leased row ready again. Only for who knows that no holder is alive: `dev` at its start, whose data
/// directory is its own. A holder that lives all the same is fenced by its token, like any whose lease ran out.
pub async fn take_back_all(connection: &mut PgConnection) -> Result<u64, DbError> {
    let done = sqlx::query!(
        r#"
        UPDATE outbox
        SET state = 'ready',
            lease_token = NULL,
            lease_until = NULL,
            run_at = now(),
            last_error = 'holder_gone'
        WHERE state = 'leased'
        "#,
    )
    .execute(connection)
    .await?;
    Ok(done.rows_affected())
}

/// Gives a job back to who has its charge's account, by its name: a charge keeps the account that it was begun in, and its
/// row may name none.
pub async fn leave(
    connection: &mut PgConnection,
    outbox_id: i64,
    token: LeaseToken,
) -> Result<u64, DbError> {
    let done = sqlx::query!(
        r#"
        UPDATE outbox
        SET provider_account = COALESCE(
                (SELECT refunds.provider_account FROM refunds WHERE refunds.id = outbox.refund_id),
                charges.provider_account
            ),
            state = 'ready',
            lease_token = NULL,
            lease_until = NULL,
            run_at = now(),
            last_error = 'account_not_configured'
        FROM charges
        WHERE outbox.id = $1
            AND outbox.lease_token = $2
            AND charges.id = outbox.charge_id
        "#,
        outbox_id,
        token.as_uuid(),
    )
    .execute(connection)
    .await?;
    Ok(done.rows_affected())
}

/// Parks a row that its holder can't even read, for an operator.
pub async fn park(
    connection: &mut PgConnection,
    outbox_id: i64,
    token: LeaseToken,
    error: &str,
) -> Result<u64, DbError> {
    let done = sqlx::query!(
        r#"
        UPDATE outbox
        SET state = 'parked',
            lease_token = NULL,
            lease_until = NULL,
            last_error = $3
        WHERE id = $1
            AND state = 'leased'
            AND lease_token = $2
        "#,
        outbox_id,
        token.as_uuid(),
        error,
    )
    .execute(connection)
    .await?;
    Ok(done.rows_affected())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_is_answered_by_a_sweep_that_began_after_it_and_within_the_key_window() {
        let at = |hours: i64| OffsetDateTime::UNIX_EPOCH + time::Duration::hours(1000 + hours);
        let window = Duration::from_hours(23);
        for (asked, swept, look) in [
            (None, None, Look::NotAsked),
            (Some(-1), None, Look::Asked),
            (Some(-1), Some(-2), Look::Asked),
            (Some(-2), Some(-1), Look::Answered),
            // The provider may have forgotten a key that was used since.
            (Some(-30), Some(-24), Look::NotAsked),
            (Some(-30), Some(-22), Look::Answered),
            (Some(-24), None, Look::NotAsked),
        ] {
            let judged = Look::judge(asked.map(at), swept.map(at), at(0), window);
            assert_eq!(judged, look, "asked {asked:?}, swept {swept:?}");
        }
    }
}
