//! Takes in what the provider tells, and lets somebody look, in one statement: an event that is stored has had its
//! effect, so a repeat has nothing to do, and one that is not stored is delivered again.

use std::time::Duration;

use sqlx::PgConnection;
use time::OffsetDateTime;

use super::sweeps::Account;
use super::{DbError, interval};
use crate::domain::ids::{ChargeId, ProviderChargeId, RefundId};
use crate::domain::provider_event::{ProviderEvent, Says};

/// What was done about an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The charge's or the refund's job runs now, or again as soon as its holder gives it back.
    Nudged,
    /// A sweep of the provider's objects compares this one with the books: they do not have its charge or its refund, store
    /// another object for it or say that it failed.
    SweepAsked,
    /// The charge or the refund is at an end that agrees, or all that is told is that an object was made, or that one of no charge's is over.
    NothingNew,
    /// Nothing of it has our stamp or is stored by us.
    NotOurs,
    /// Of live objects in test mode, or the other way round.
    OtherMode,
    /// Taken in before.
    Repeated,
}

impl Effect {
    pub const ALL: [Self; 6] = [
        Self::Nudged,
        Self::SweepAsked,
        Self::NothingNew,
        Self::NotOurs,
        Self::OtherMode,
        Self::Repeated,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Nudged => "nudged",
            Self::SweepAsked => "sweep_asked",
            Self::NothingNew => "nothing_new",
            Self::NotOurs => "not_ours",
            Self::OtherMode => "other_mode",
            Self::Repeated => "repeated",
        }
    }
}

/// An event that is stored now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakenIn {
    pub effect: Effect,
    /// The stamp names a charge that the books do not have.
    pub charge_missing: bool,
}

/// Stores an event of `account` and does what follows from it. `live` is our own mode.
pub async fn take_in(
    connection: &mut PgConnection,
    account: &Account,
    live: bool,
    event: &ProviderEvent,
) -> Result<TakenIn, DbError> {
    let about = event.about.as_ref();
    let object = about.and_then(|about| about.object.as_ref());
    let charge = about.and_then(|about| about.charge);
    let refund = about.and_then(|about| about.refund.as_ref());
    let row = sqlx::query_file!(
        "src/db/sql/take_in_event.sql",
        account.provider,
        event.id,
        object.map(ProviderChargeId::as_str),
        charge.map(ChargeId::as_uuid),
        account.name,
        event.kind,
        event.live != live,
        about.is_some_and(|about| about.says == Says::Moved),
        about.is_some_and(|about| about.says == Says::Made),
        event.created_at,
        about.map_or(event.created_at, |about| about.made_from),
        about.is_some_and(|about| about.says == Says::Over),
        refund.map(|refund| refund.id.as_str()),
        refund
            .and_then(|refund| refund.stamp)
            .map(RefundId::as_uuid),
        account.is_default,
    )
    .fetch_one(connection)
    .await?;
    let effect = Effect::ALL
        .into_iter()
        .find(|effect| effect.as_str() == row.effect)
        .filter(|_| row.new)
        .unwrap_or(Effect::Repeated);
    Ok(TakenIn {
        effect,
        charge_missing: row.missing && effect == Effect::SweepAsked,
    })
}

/// An event of a charge, for people.
#[derive(Clone, Debug)]
pub struct Told {
    pub event_id: String,
    pub kind: String,
    pub effect: String,
    pub received_at: OffsetDateTime,
}

/// The newest events of a charge that are still remembered, oldest first.
pub async fn of_charge(
    connection: &mut PgConnection,
    charge: ChargeId,
    limit: i64,
) -> Result<Vec<Told>, DbError> {
    let mut told = sqlx::query_as!(
        Told,
        r#"
        SELECT event_id, kind, effect, received_at
        FROM provider_events
        WHERE charge_id = $1
        ORDER BY received_at DESC
        LIMIT $2
        "#,
        charge.as_uuid(),
        limit,
    )
    .fetch_all(connection)
    .await?;
    told.reverse();
    Ok(told)
}

/// Forgets events that nobody delivers again, at most `limit` of them.
pub async fn purge(
    connection: &mut PgConnection,
    older_than: Duration,
    limit: i64,
) -> Result<u64, DbError> {
    let done = sqlx::query!(
        r#"
        DELETE FROM provider_events
        WHERE (provider, event_id) IN (
            SELECT provider, event_id
            FROM provider_events
            WHERE received_at < now() - $1::interval
            ORDER BY received_at
            LIMIT $2
        )
        "#,
        interval(older_than),
        limit,
    )
    .execute(connection)
    .await?;
    Ok(done.rows_affected())
}
