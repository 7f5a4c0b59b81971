//! One run of a charge's job, as far as it knows: what was claimed, and what the provider has said since. It dies with the
//! process, and the next run asks for itself.

use time::OffsetDateTime;
use tokio::time::Instant;

use crate::completion::{Hold, LastCall};
use crate::db::claimed::{Claimed, Look, Strays};
use crate::domain::charge::Progress;
use crate::domain::ids::ProviderChargeId;
use crate::domain::outcome::{Asked, Phase, Reason};
use crate::domain::request::Instruction;

/// What a run knows; grows as it goes.
pub(super) struct Run<'a> {
    pub(super) hold: Hold,
    pub(super) progress: Progress,
    pub(super) attempt: u32,
    pub(super) instruction: Instruction<'static>,
    pub(super) asked: Asked,
    pub(super) claimed_at: OffsetDateTime,
    pub(super) created_at: OffsetDateTime,
    pub(super) began: Instant,
    /// Until when calls may still begin: set before the claim, so that a lease can't be shorter than it seems.
    pub(super) deadline: Instant,
    pub(super) cancel_requested: bool,
    /// Why the object is being canceled.
    pub(super) canceling: Option<Reason>,
    pub(super) look: Look,
    /// Objects with our stamp that are not stored and not settled.
    pub(super) strays: Vec<ProviderChargeId>,
    pub(super) request_id: Option<String>,
    /// In a word; empty before the first call.
    pub(super) last_answer: &'static str,
    pub(super) last_phase: Phase,
    pub(super) log: &'a tracing::Span,
}

/// The next thing to ask.
pub(super) enum Call {
    /// Store an object that a sweep found, then read it.
    Adopt(ProviderChargeId),
    Prepare,
    Execute(ProviderChargeId),
    Read(ProviderChargeId),
    Cancel(ProviderChargeId),
}

impl Call {
    /// Whether it goes out to the provider.
    pub(super) fn asks(&self) -> bool {
        match self {
            Self::Prepare | Self::Execute(_) | Self::Read(_) | Self::Cancel(_) => true,
            Self::Adopt(_) => false,
        }
    }
}

impl<'a> Run<'a> {
    pub(super) fn open(
        claimed: Claimed,
        deadline: Instant,
        log: &'a tracing::Span,
    ) -> Result<Self, serde_json::Error> {
        let instruction: Instruction<'static> = serde_json::from_value(claimed.payload)?;
        Ok(Self {
            hold: Hold {
                charge: claimed.charge,
                outbox_id: claimed.outbox_id,
                lease: claimed.lease,
                version: claimed.progress.version,
            },
            progress: claimed.progress,
            attempt: u32::try_from(claimed.attempt).unwrap_or(1),
            asked: Asked {
                amount: instruction.amount,
                currency: instruction.currency.to_string(),
                stamp: claimed.charge.to_string(),
            },
            instruction,
            claimed_at: claimed.claimed_at,
            created_at: claimed.created_at,
            began: Instant::now(),
            deadline,
            cancel_requested: claimed.cancel_requested,
            canceling: None,
            look: claimed.look,
            strays: match claimed.strays {
                Strays::Here(strays) => strays,
                Strays::Elsewhere => Vec::new(),
            },
            request_id: None,
            last_answer: "",
            last_phase: Phase::Read,
            log,
        })
    }
}

impl Run<'_> {
    pub(super) fn last_call(&self) -> Option<LastCall> {
        (!self.last_answer.is_empty()).then(|| LastCall {
            phase: self.last_phase.as_str(),
            answer: self.last_answer,
            provider_request_id: self.request_id.clone(),
        })
    }
}
