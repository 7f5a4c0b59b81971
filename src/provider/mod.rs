//! The provider behind one trait: an object that moves no money is prepared, its id is stored, only then is it executed,
//! and whatever is unclear is read by its id.
//!
//! An adapter turns whatever comes back into an [`Answer`]; it decides nothing. It never retries by itself, never follows
//! a redirect, and reports as [`Answer::NotSent`] only what surely never left this machine.

pub mod stripe;

use std::future::Future;
use std::time::Duration;

use time::OffsetDateTime;

use crate::domain::ids::{ChargeId, ProviderChargeId};
use crate::domain::outcome::{Answer, Object};
use crate::domain::request::Instruction;

/// What payonce must know of a configured account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// `stripe`.
    pub provider: &'static str,
    /// The configured account's name; pinned on a charge together with its object's id.
    pub account: String,
    pub live: bool,
    /// How long the provider remembers an idempotency key.
    pub key_window: Duration,
    /// The most one call takes, whatever the other side does.
    pub call_timeout: Duration,
}

/// An answer, and the provider's own id of the request for whoever asks them about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    pub answer: Answer,
    pub request_id: Option<String>,
}

/// One page of the provider's list of objects, newest first.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    /// Those with a stamp of ours, whole, each with the charge that it names.
    pub objects: Vec<(ChargeId, Object)>,
    /// After which object the next page begins; none on the last.
    pub next: Option<ProviderChargeId>,
}

pub trait Provider: Send + Sync + 'static {
    fn profile(&self) -> &Profile;

    /// Makes the object that moves no money, under `key`, stamped with the charge's id.
    fn prepare(
        &self,
        charge: ChargeId,
        key: &str,
        instruction: &Instruction<'_>,
    ) -> impl Future<Output = Reply> + Send;

    /// Executes the object: the one call that moves money. It can succeed once, whatever repeats.
    fn execute(
        &self,
        object: &ProviderChargeId,
        key: &str,
        instruction: &Instruction<'_>,
    ) -> impl Future<Output = Reply> + Send;

    fn read(&self, object: &ProviderChargeId) -> impl Future<Output = Reply> + Send;

    /// Makes the object unable to move money; refused by the provider if it already has.
    fn cancel(&self, object: &ProviderChargeId) -> impl Future<Output = Reply> + Send;

    /// Lists the objects that were made from `since` on, behind `after`. An answer in the place of a page says nothing of
    /// any object: only a walk whose every page answered, to the last, has asked.
    fn list(
        &self,
        since: OffsetDateTime,
        after: Option<&ProviderChargeId>,
    ) -> impl Future<Output = Result<Page, Box<Answer>>> + Send;
}
