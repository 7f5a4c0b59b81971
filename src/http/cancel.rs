//! POST /v1/charges/{id}/cancel.
//!
//! Moves no money and needs no key: it is safe to repeat, and every answer shows the charge as it stands. Before anything
//! was executed it is certain at once; after that the provider decides, and the answer is 202 until it has.

use std::time::Duration;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use sqlx::PgConnection;

use super::code::Code;
use super::problem::ApiError;
use super::{HttpState, answer, charges, read_body};
use crate::db::{self, DbError};
use crate::domain::charge::{Charge, State as ChargeState};
use crate::domain::ids::{ChargeId, MerchantId};

pub(super) async fn cancel(
    State(state): State<HttpState>,
    id: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Response, ApiError> {
    let (head, body) = request.into_parts();
    // Nothing in a body counts, and nothing is expected in one.
    read_body::discard(body).await;
    let principal = state
        .auth()
        .writer(
            &head.headers,
            "this API key may only read; a cancel takes a key with the scope write",
        )
        .await?;
    let id = charges::path_id(id)?;
    let (pool, window) = (&state.parts().pool, state.parts().limits.key_window);
    let ask = pool.ask(async |connection| ask(connection, principal.merchant, id, window).await);
    let unknown = || answer::send_again("the cancel may have been taken").with_charge(id);
    let charge = answer::stored(&state, ask, unknown)
        .await?
        .ok_or_else(charges::absent)?;
    // After the commit: whoever waits for the charge looks again.
    state.parts().waits.charges.changed([id]);
    match &charge.progress.state {
        ChargeState::Canceled => {
            charges::settled_response(&state, &head, StatusCode::OK, Box::new(charge)).await
        }
        ChargeState::Succeeded | ChargeState::Failed(_) => Err(ApiError::new(
            Code::ChargeNotCancelable,
            "the charge is final; GET it to see what became of it",
        )
        .with_charge(id)),
        ChargeState::Pending
        | ChargeState::Processing { .. }
        | ChargeState::RequiresAction(_)
        | ChargeState::RequiresReconciliation => {
            charges::settled_response(&state, &head, StatusCode::ACCEPTED, Box::new(charge)).await
        }
    }
}

/// Cancels at once where that is certain, asks the worker otherwise, and reads the charge as it stands then.
async fn ask(
    connection: &mut PgConnection,
    merchant: MerchantId,
    id: ChargeId,
    key_window: Duration,
) -> Result<Option<Charge>, DbError> {
    if !db::cancel::before_execute(connection, merchant, id, key_window).await? {
        db::cancel::request(connection, merchant, id).await?;
    }
    let found = db::charges::find(connection, merchant, id).await;
    found.map_err(DbError::after_commit)
}
