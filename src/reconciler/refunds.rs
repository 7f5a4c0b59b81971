//! The same for refunds: an open one without a job gets it back, request rows say what refunds say, and those that have
//! ended are read again in time, or when somebody has heard that the provider has news.

use serde_json::Value;
use sqlx::PgConnection;
use uuid::Uuid;

use super::{ReconcilerLimits, Swept};
use crate::db::{self, DbError, refund_reconcile};
use crate::domain::ids::{ProviderChargeId, RefundId};
use crate::domain::money::Currency;
use crate::domain::refund::Refund;
use crate::domain::refund::request::RefundInstruction;
use crate::domain::request::ProviderRules;

/// Walks one page. Returns what it came to and where the next one begins.
pub(super) async fn sweep(
    connection: &mut PgConnection,
    limits: ReconcilerLimits,
    rules: &ProviderRules,
    cursor: Uuid,
) -> Result<(Swept, Option<Uuid>), DbError> {
    let page = refund_reconcile::page(connection, cursor, limits.batch, limits.threshold).await?;
    let mut swept = Swept {
        at_the_end: page.next.is_none(),
        ..Swept::default()
    };
    for id in page.without_job {
        if make_job(connection, rules, RefundId::from_uuid(id)).await? {
            swept.jobs_made += 1;
        }
    }
    swept.requests_aligned =
        refund_reconcile::align_requests(connection, cursor, page.next).await?;
    swept.requests_purged =
        refund_reconcile::purge_requests(connection, cursor, page.next, limits.retention).await?;
    Ok((swept, page.next))
}

/// Gives jobs to the refunds that are to be read again by now.
pub(super) async fn recheck(
    connection: &mut PgConnection,
    limits: ReconcilerLimits,
    rules: &ProviderRules,
) -> Result<(), DbError> {
    for id in refund_reconcile::due(connection, limits.batch, limits.recheck_again).await? {
        make_job(connection, rules, RefundId::from_uuid(id)).await?;
    }
    Ok(())
}

/// The instruction is made again from the refund, which keeps every field of the request.
async fn make_job(
    connection: &mut PgConnection,
    rules: &ProviderRules,
    id: RefundId,
) -> Result<bool, DbError> {
    let refund = match db::refunds::find_all(connection, &[id.as_uuid()]).await {
        Ok(mut found) => found.pop(),
        // Of another release's making, or damaged: it must not keep the walk from the others.
        Err(DbError::Unreadable { charge, column }) => {
            tracing::error!(code = "job_not_makeable", refund.id = %id, charge.id = %charge, column, "a refund needs a job and can't be read");
            return Ok(false);
        }
        Err(error) => return Err(error),
    };
    let Some((refund, _)) = refund else {
        return Ok(false);
    };
    let Some(payload) = payload(&refund, rules) else {
        tracing::error!(code = "job_not_makeable", refund.id = %id, "a refund needs a job and can't be sent by today's rules");
        return Ok(false);
    };
    db::refunds::make_job(connection, id, RefundInstruction::VERSION, &payload).await
}

fn payload(refund: &Refund, rules: &ProviderRules) -> Option<Value> {
    let object = ProviderChargeId::parse(&refund.provider_charge_id)?;
    let currency = Currency::parse(&refund.currency)?;
    let instruction = refund
        .request
        .instruction(refund.amount, currency, &object, rules)?;
    serde_json::to_value(instruction).ok()
}
