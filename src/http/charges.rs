//! POST /v1/charges and GET /v1/charges/{id}.
//!
//! A request is refused before it is read as far as possible: key of the API, key of the request, content type, size,
//! JSON, shape, rules. Nothing is stored until all of it is valid. A client that hangs up drops the handler here and
//! nothing else: what intake has is carried on.

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;

use super::auth::Principal;
use super::body::{self, Judged};
use super::charge_body::ChargeBody;
use super::code::Code;
use super::limits::HttpLimits;
use super::problem::{ApiError, Fault, Place};
use super::{HttpState, answer, headers, prefer, read_body};
use crate::db::{self};
use crate::domain::charge::Charge;
use crate::domain::idempotency::IdempotencyKey;
use crate::domain::ids::{ChargeId, MerchantId};
use crate::domain::request::{ChargeRequest, Draft, Violation};
use crate::intake::{self, IntakeError, Submission, Verdict};

pub(super) async fn create(
    State(state): State<HttpState>,
    request: Request,
) -> Result<Response, ApiError> {
    let (head, body) = request.into_parts();
    let taken = take_in(&state, &head.headers, body).await;
    let meters = &state.parts().meters;
    match &taken {
        // Counted by intake, also when nobody waits for the answer.
        Ok(accepted) if accepted.is_new => {}
        Ok(_) => meters.replayed(),
        Err(error) => meters.refused(error),
    }
    accepted_response(&state, &head, taken?).await
}

async fn take_in(state: &HttpState, headers: &HeaderMap, body: Body) -> Result<Accepted, ApiError> {
    let (principal, key) = match admit(state, headers).await {
        Ok(admitted) => admitted,
        Err(refusal) => {
            read_body::discard(body).await;
            return Err(refusal);
        }
    };
    let HttpLimits {
        body_bytes,
        body_read,
        ..
    } = state.parts().limits;
    let body = read_body::read(body, body_bytes, body_read).await?;
    match body::judge(body::parse(&body)?, &state.parts().rules)? {
        Judged::Good(request) => submit(state, principal, key, request).await,
        Judged::Refused(draft, violations) => {
            replay_or_refuse(state, principal.merchant, &key, &draft, violations).await
        }
    }
}

/// 202 for the request that made the charge, 200 for every other; the body is the charge as it stands.
pub(super) async fn accepted_response(
    state: &HttpState,
    head: &Parts,
    Accepted { charge, is_new }: Accepted,
) -> Result<Response, ApiError> {
    let status = if is_new {
        StatusCode::ACCEPTED
    } else {
        StatusCode::OK
    };
    let mut response = settled_response(state, head, status, charge).await?;
    if !is_new {
        answer::replayed(&mut response);
    }
    Ok(response)
}

pub(super) async fn show(
    State(state): State<HttpState>,
    id: Result<Path<String>, PathRejection>,
    head: Parts,
) -> Result<Response, ApiError> {
    let principal = state.auth().authenticate(&head.headers).await?;
    let id = path_id(id)?;
    let charge = read(&state, principal.merchant, id).await?;
    let charge = Box::new(charge.ok_or_else(absent)?);
    settled_response(&state, &head, StatusCode::OK, charge).await
}

pub(super) fn absent() -> ApiError {
    ApiError::new(Code::NotFound, "there is no such charge")
}

/// The charge that a path names; what is no id names none.
pub(super) fn path_id(id: Result<Path<String>, PathRejection>) -> Result<ChargeId, ApiError> {
    let id = id.ok().and_then(|Path(id)| id.parse().ok());
    id.ok_or_else(absent)
}

/// Who asks, under which key, and whether the body is of the type that is taken.
pub(super) async fn admit(
    state: &HttpState,
    headers: &HeaderMap,
) -> Result<(Principal, IdempotencyKey), ApiError> {
    let principal = state
        .auth()
        .writer(
            headers,
            "this API key may only read; a charge takes a key with the scope write",
        )
        .await?;
    let key = headers::idempotency_key(headers)?;
    headers::json_content(headers)?;
    Ok((principal, key))
}

/// A charge that stands for the request, and whether the request made it.
pub(super) struct Accepted {
    charge: Box<Charge>,
    is_new: bool,
}

async fn submit(
    state: &HttpState,
    Principal {
        merchant, account, ..
    }: Principal,
    key: IdempotencyKey,
    request: ChargeRequest,
) -> Result<Accepted, ApiError> {
    let charge = ChargeId::derive(merchant, &key);
    let parts = state.parts();
    let submission = Submission {
        merchant,
        account,
        key,
        request,
    };
    let verdict = parts.intake.submit(submission);
    let verdict = tokio::time::timeout(parts.limits.intake_wait, verdict)
        .await
        .unwrap_or(Err(IntakeError::AcceptanceUnknown(charge)));
    judge_verdict(verdict)
}

/// What a verdict of intake is to the client.
pub(super) fn judge_verdict(verdict: Result<Verdict, IntakeError>) -> Result<Accepted, ApiError> {
    match verdict {
        Ok(Verdict::Created(charge)) => Ok(Accepted {
            charge,
            is_new: true,
        }),
        Ok(Verdict::Duplicate(charge)) => Ok(Accepted {
            charge,
            is_new: false,
        }),
        Ok(Verdict::Reused {
            charge,
            differences,
        }) => Err(reused(charge, differences)),
        Err(error) => Err(intake_error(error)),
    }
}

fn intake_error(error: IntakeError) -> ApiError {
    match error {
        IntakeError::Overloaded => ApiError::new(
            Code::Overloaded,
            "the queue is full; nothing was stored, send the same request again",
        ),
        IntakeError::Unavailable => ApiError::unavailable(),
        IntakeError::AcceptanceUnknown(charge) => ApiError::new(
            Code::AcceptanceUnknown,
            "the request may have been accepted; send the same request again, with the same key",
        )
        .with_charge(charge),
        // Everything that Postgres could refuse was judged before: a fault of ours, logged where it was refused.
        IntakeError::Refused => ApiError::internal(),
    }
}

/// A request that was accepted once is replayed even if this release would refuse it. A key that is taken by another
/// request is not free, whatever is corrected.
async fn replay_or_refuse(
    state: &HttpState,
    merchant: MerchantId,
    key: &IdempotencyKey,
    draft: &Draft,
    violations: Vec<Violation>,
) -> Result<Accepted, ApiError> {
    let found = read(state, merchant, ChargeId::derive(merchant, key)).await?;
    let Some(charge) = found else {
        return Err(ApiError::invalid_request(violations));
    };
    judge_verdict(Ok(intake::judge(Box::new(charge), draft)))
}

fn reused(charge: ChargeId, differences: Vec<String>) -> ApiError {
    let faults = differences.into_iter().map(|pointer| Fault {
        place: Place::Pointer(body::safe(pointer)),
        rule: "differs",
        detail: "differs from the first request with this key".into(),
    });
    ApiError::new(
        Code::IdempotencyKeyReused,
        "an earlier request with this key asked for something else; charge_id names what it made",
    )
    .with_faults(faults.collect())
    .with_charge(charge)
}

pub(super) async fn read(
    state: &HttpState,
    merchant: MerchantId,
    id: ChargeId,
) -> Result<Option<Charge>, ApiError> {
    let pool = &state.parts().pool;
    let read = pool.ask(async |connection| db::charges::find(connection, merchant, id).await);
    answer::in_time(state, read).await
}

/// The charge, after the wait that the client asked for.
pub(super) async fn settled_response(
    state: &HttpState,
    head: &Parts,
    status: StatusCode,
    charge: Box<Charge>,
) -> Result<Response, ApiError> {
    let waits = &state.parts().waits;
    prefer::answer(state, head, &waits.charges, charge, |charge| {
        let address = format!("/v1/charges/{}", charge.id);
        answer::json_at(status, &address, &ChargeBody::from(charge))
    })
    .await
}
