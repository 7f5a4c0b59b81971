//! POST /webhooks/stripe and /webhooks/stripe/{account}: what the provider tells by itself.
//!
//! Answered 2xx only once the event is stored and somebody looks: both are one statement. If the process dies before it,
//! or the answer is lost, the provider delivers again, and a repeat changes nothing. An event that never comes costs
//! time and no truth: the job asks by itself later, and so does the sweep.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderName, header};
use metrics::Counter;
use tokio::sync::Notify;

use super::code::Code;
use super::problem::ApiError;
use super::{HttpState, answer, read_body};
use crate::db;
use crate::db::provider_events::{Effect, TakenIn};
use crate::db::sweeps::Account;
use crate::domain::provider_event::{EventRefused, OpenEvent, ProviderEvent};
use crate::meters::Meters;

const SIGNATURE: &str = "Stripe-Signature";

/// What deliveries are taken in with.
#[derive(Clone)]
pub struct EventParts {
    pub open: OpenEvent,
    /// The account whose endpoint this is.
    pub account: Account,
    pub most_bytes: usize,
    /// Rung when a job has news.
    pub wake: Arc<Notify>,
    pub meters: EventMeters,
}

/// The accounts whose deliveries are taken in.
#[derive(Clone)]
pub struct EventEndpoints {
    /// The account of the address that names none.
    pub default: String,
    pub by_account: BTreeMap<String, EventParts>,
}

#[derive(Clone)]
pub struct EventMeters {
    /// In the order of [`Effect::ALL`].
    taken_in: [Counter; Effect::ALL.len()],
    refused: Counter,
}

impl EventMeters {
    pub fn new(meters: &Meters) -> Self {
        let counter = |effect| {
            meters.counter(
                "payonce_provider_events_total",
                "Events that the provider delivered, by what was done about them.",
                &[("effect", effect)],
            )
        };
        Self {
            taken_in: Effect::ALL.map(|effect| counter(effect.as_str())),
            refused: counter("refused"),
        }
    }

    fn taken_in(&self, effect: Effect) {
        let of_effect = Effect::ALL.iter().zip(&self.taken_in);
        for (_, counter) in of_effect.filter(|(known, _)| **known == effect) {
            counter.increment(1);
        }
    }
}

type Taken = ([(HeaderName, &'static str); 1], &'static str);

/// To the default account.
pub(super) async fn deliver(
    State(state): State<HttpState>,
    request: Request,
) -> Result<Taken, ApiError> {
    take(&state, None, request).await
}

/// To the account of this name.
pub(super) async fn deliver_to(
    State(state): State<HttpState>,
    account: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Taken, ApiError> {
    // What can't be read names no account.
    let account = account.map_or_else(|_| String::new(), |Path(name)| name);
    take(&state, Some(&account), request).await
}

async fn take(
    state: &HttpState,
    account: Option<&str>,
    request: Request,
) -> Result<Taken, ApiError> {
    let (head, body) = request.into_parts();
    let parts = match endpoint(state, account) {
        Ok(parts) => parts,
        Err(refusal) => {
            read_body::discard(body).await;
            return Err(refusal);
        }
    };
    let limits = &state.parts().limits;
    let body = read_body::read(body, parts.most_bytes, limits.body_read).await?;
    let event = (parts.open)(signature(&head.headers), &body).map_err(|refused| {
        parts.meters.refused.increment(1);
        tracing::warn!(code = "webhook_refused", account = parts.account.name, reason = %refused, "a delivery of the provider's was refused");
        refusal(refused)
    })?;
    let (account, live) = (&parts.account, state.parts().live);
    let storing = state.parts().pool.ask(async |connection| {
        db::provider_events::take_in(connection, account, live, &event).await
    });
    let unknown = || answer::send_again("the event may have been stored");
    let taken = answer::stored(state, storing, unknown).await?;
    parts.meters.taken_in(taken.effect);
    tell(&event, &account.name, taken);
    if taken.effect == Effect::Nudged {
        parts.wake.notify_one();
    }
    Ok((
        [(header::CONTENT_TYPE, "application/json")],
        "{\"received\":true}\n",
    ))
}

/// The endpoint of the account of this name; of the default one without a name.
fn endpoint<'a>(state: &'a HttpState, account: Option<&str>) -> Result<&'a EventParts, ApiError> {
    let endpoints = &state.parts().events;
    let name = account.unwrap_or(&endpoints.default);
    endpoints.by_account.get(name).ok_or_else(|| {
        let detail = if account.is_none() || name == endpoints.default {
            "no deliveries are taken: provider.stripe.webhook_secrets is not set"
        } else {
            "no account with webhook_secrets has this name"
        };
        ApiError::new(Code::NotFound, detail)
    })
}

/// The value of exactly one header line.
fn signature(headers: &HeaderMap) -> Option<&str> {
    let mut lines = headers.get_all(SIGNATURE).iter();
    match (lines.next(), lines.next()) {
        (Some(line), None) => line.to_str().ok(),
        _ => None,
    }
}

fn refusal(refused: EventRefused) -> ApiError {
    match refused {
        EventRefused::SignatureUnreadable
        | EventRefused::SignatureWrong
        | EventRefused::OutOfTolerance => ApiError::header(
            Code::InvalidSignature,
            SIGNATURE,
            "signature",
            refused.to_string(),
        ),
        EventRefused::Unreadable => ApiError::new(Code::MalformedJson, refused.to_string()),
    }
}

fn tell(event: &ProviderEvent, account: &str, taken: TakenIn) {
    let (id, kind, effect) = (&event.id, &event.kind, taken.effect.as_str());
    let charge = event.about.as_ref().and_then(|about| about.charge);
    if let (true, Some(charge)) = (taken.charge_missing, charge) {
        tracing::error!(
            code = "charge_missing",
            account,
            charge.id = %charge,
            event.id = id,
            event.kind = kind,
            "the provider tells of a charge of ours that the books do not have: a sweep looks for it"
        );
    } else {
        tracing::debug!(
            account,
            event.id = id,
            event.kind = kind,
            effect,
            "an event of the provider's was taken in"
        );
    }
}
