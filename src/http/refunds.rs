//! POST /v1/charges/{id}/refunds and GET /v1/refunds/{id}.
//!
//! By the rules of POST /v1/charges: nothing is stored until all of the request is valid, and a request that was accepted
//! once is answered with its refund for ever. A client that hangs up drops the handler here and nothing else.

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;

use super::body;
use super::code::Code;
use super::limits::MOST_BODY_BYTES;
use super::problem::{ApiError, Fault, Place};
use super::refund_body::RefundBody;
use super::{HttpState, answer, charges, prefer, read_body};
use crate::batch::Refusal;
use crate::db;
use crate::domain::charge::{Charge, Stage};
use crate::domain::idempotency::IdempotencyKey;
use crate::domain::ids::{ChargeId, MerchantId, RefundId};
use crate::domain::money::Currency;
use crate::domain::refund::Refund;
use crate::domain::refund::request::RefundDraft;
use crate::domain::request::Violation;
use crate::intake::refunds::{self, RefundSubmission, RefundVerdict};

pub(super) async fn create(
    State(state): State<HttpState>,
    id: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Response, ApiError> {
    let (head, body) = request.into_parts();
    let (principal, key) = match charges::admit(&state, &head.headers).await {
        Ok(admitted) => admitted,
        Err(refusal) => {
            read_body::discard(body).await;
            return Err(refusal);
        }
    };
    let body = read_body::read(body, MOST_BODY_BYTES, state.parts().limits.body_read).await?;
    let verdict = take_in(&state, (principal.merchant, key), id, &body).await?;
    accepted_response(&state, &head, verdict).await
}

async fn take_in(
    state: &HttpState,
    (merchant, key): (MerchantId, IdempotencyKey),
    charge: Result<Path<String>, PathRejection>,
    body: &[u8],
) -> Result<RefundVerdict, ApiError> {
    let parsed = body::parse_refund(body)?;
    let faults = parsed.faults;
    let draft = RefundDraft {
        charge: charges::path_id(charge)?,
        amount: parsed.amount,
        reason: parsed.reason,
        metadata: parsed.metadata,
    };
    let id = RefundId::derive(merchant, &key);
    let read = state.parts().pool.ask(async |connection| {
        let refund = db::refunds::find(connection, merchant, id).await?;
        let charge = db::charges::find(connection, merchant, draft.charge).await?;
        Ok((refund, charge))
    });
    let (refund, charge) = answer::in_time(state, read).await?;
    let shape_is_right = faults.is_empty();
    if let Some(refund) = refund
        && shape_is_right
    {
        return Ok(refunds::judge(Box::new(refund), &draft));
    }
    let charge = charge.ok_or_else(charges::absent)?;
    let currency = Currency::parse(&charge.request.currency).ok_or_else(ApiError::internal)?;
    judge(&draft, faults, currency, state)?;
    let stands = charge.progress.state.stage();
    let refundable = match &charge.progress.object {
        Some(object) if stands == Stage::Succeeded => object.id.clone(),
        Some(_) | None => {
            return Ok(RefundVerdict::NotRefundable {
                charge: charge.id,
                stage: stands,
            });
        }
    };
    let submission = RefundSubmission {
        merchant,
        key,
        unrefunded: unrefunded(&charge),
        draft,
        currency,
        object: refundable,
    };
    let wait = state.parts().limits.intake_wait;
    tokio::time::timeout(wait, state.parts().refunds.submit(submission))
        .await
        .unwrap_or(Err(Refusal::GaveUp { maybe_done: true }))
        .map_err(|refusal| refused(refusal, id))
}

/// Where to begin when all that is left is asked for; refunds in progress are not counted here.
fn unrefunded(charge: &Charge) -> i64 {
    charge.request.amount.saturating_sub(charge.amount_refunded)
}

/// Names what could not be read and every rule that is broken, at once.
fn judge(
    draft: &RefundDraft,
    faults: Vec<Violation>,
    currency: Currency,
    state: &HttpState,
) -> Result<(), ApiError> {
    let violations = draft.judge(currency, &state.parts().rules);
    let all = body::join(faults, violations);
    if all.is_empty() {
        Ok(())
    } else {
        Err(ApiError::invalid_request(all))
    }
}

fn refused(refusal: Refusal, id: RefundId) -> ApiError {
    match refusal {
        Refusal::Full => ApiError::new(
            Code::Overloaded,
            "the queue is full; nothing was stored, send the same request again",
        ),
        Refusal::Closed | Refusal::GaveUp { maybe_done: false } => ApiError::unavailable(),
        Refusal::GaveUp { maybe_done: true } => ApiError::new(
            Code::AcceptanceUnknown,
            format!(
                "refund {id} may have been accepted; send the same request again, with the same key"
            ),
        ),
        // Everything that Postgres could refuse was judged before: a fault of ours, logged where it was refused.
        Refusal::Data => ApiError::internal(),
    }
}

/// 202 for the request that made the refund, 200 for every other; the body is the refund as it stands.
async fn accepted_response(
    state: &HttpState,
    head: &Parts,
    verdict: RefundVerdict,
) -> Result<Response, ApiError> {
    let (refund, status) = match verdict {
        RefundVerdict::Created(refund) => (refund, StatusCode::ACCEPTED),
        RefundVerdict::Duplicate(refund) => (refund, StatusCode::OK),
        RefundVerdict::Reused {
            refund,
            differences,
        } => return Err(reused(&refund, differences)),
        RefundVerdict::NotRefundable { charge, stage } => {
            return Err(not_refundable(charge, stage));
        }
        RefundVerdict::Exceeds {
            charge,
            unrefunded,
            asked,
        } => return Err(exceeds(charge, unrefunded, asked)),
        RefundVerdict::NoCharge => return Err(charges::absent()),
    };
    let mut response = settled_response(state, head, status, refund).await?;
    if status == StatusCode::OK {
        answer::replayed(&mut response);
    }
    Ok(response)
}

fn not_refundable(charge: ChargeId, stage: Stage) -> ApiError {
    let refused = |detail| ApiError::new(Code::ChargeNotRefundable, detail).with_charge(charge);
    match stage {
        Stage::Failed | Stage::Canceled => refused(
            "the charge has failed: no money moved, and nothing goes back; nothing was stored",
        )
        .for_good(),
        Stage::Pending
        | Stage::Processing
        | Stage::RequiresAction
        | Stage::RequiresReconciliation
        | Stage::Succeeded => refused(
            "the charge is in progress, and nothing was stored; once it has completed, send the same request again",
        ),
    }
}

fn exceeds(charge: ChargeId, unrefunded: i64, asked: Option<i64>) -> ApiError {
    if asked.is_none() {
        let detail = "nothing is left of the charge: all of it is refunded, or reserved by refunds in progress";
        return ApiError::new(Code::RefundExceedsCharge, detail).with_charge(charge);
    }
    let detail =
        format!("{unrefunded} minor units of the charge are neither refunded nor reserved");
    let fault = Fault {
        place: Place::Pointer("#/amount".to_owned()),
        rule: "range",
        detail: format!("must be at most {unrefunded}").into(),
    };
    ApiError::new(Code::RefundExceedsCharge, detail)
        .with_faults(vec![fault])
        .with_charge(charge)
}

fn reused(refund: &Refund, differences: Vec<String>) -> ApiError {
    let faults = differences.into_iter().map(|pointer| Fault {
        place: if pointer == "#/charge_id" {
            Place::Parameter("id".into())
        } else {
            Place::Pointer(body::safe(pointer))
        },
        rule: "differs",
        detail: "differs from the first request with this key".into(),
    });
    ApiError::new(
        Code::IdempotencyKeyReused,
        format!(
            "an earlier refund with this key, {}, asked for something else; charge_id names the charge it is of",
            refund.id
        ),
    )
    .with_faults(faults.collect())
    .with_charge(refund.charge())
}

pub(super) async fn show(
    State(state): State<HttpState>,
    id: Result<Path<String>, PathRejection>,
    head: Parts,
) -> Result<Response, ApiError> {
    let merchant = state.auth().authenticate(&head.headers).await?.merchant;
    let id = id.ok().and_then(|Path(id)| id.parse().ok());
    let id = id.ok_or_else(absent)?;
    let refund = read(&state, merchant, id).await?.ok_or_else(absent)?;
    settled_response(&state, &head, StatusCode::OK, Box::new(refund)).await
}

fn absent() -> ApiError {
    ApiError::new(Code::NotFound, "there is no such refund")
}

pub(super) async fn read(
    state: &HttpState,
    merchant: MerchantId,
    id: RefundId,
) -> Result<Option<Refund>, ApiError> {
    let pool = &state.parts().pool;
    let read = pool.ask(async |connection| db::refunds::find(connection, merchant, id).await);
    answer::in_time(state, read).await
}

/// The refund, after the wait that the client asked for.
async fn settled_response(
    state: &HttpState,
    head: &Parts,
    status: StatusCode,
    refund: Box<Refund>,
) -> Result<Response, ApiError> {
    let waits = &state.parts().waits;
    prefer::answer(state, head, &waits.refunds, refund, |refund| {
        let address = format!("/v1/refunds/{}", refund.id);
        answer::json_at(status, &address, &RefundBody::from(refund))
    })
    .await
}
