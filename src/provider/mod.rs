//! The provider behind one trait: an object that moves no money is prepared, its id is stored, only then is it executed,
//! and whatever is unclear is read by its id.
//!
//! An adapter turns whatever comes back into an [`Answer`]; it decides nothing. It never retries by itself, never follows
//! a redirect, and reports as [`Answer::NotSent`] only what surely never left this machine.

pub mod stripe;

use std::future::Future;
use std::time::Duration;

use time::OffsetDateTime;

use crate::domain::ids::{
    ChargeId, ProviderAccountId, ProviderChargeId, ProviderRefundId, RefundId,
};
use crate::domain::outcome::{Answer, Object, Worded};
use crate::domain::refund::outcome::RefundObject;
use crate::domain::refund::request::RefundInstruction;
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

/// An answer, and the provider's own ids of the request for whoever asks them about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply<O = Object> {
    pub answer: Answer<O>,
    pub request_id: Option<String>,
    /// That of the request whose answer is repeated, where one is: it did what this one only asked for.
    pub original_request_id: Option<String>,
}

/// One page of the provider's list of objects, newest first.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    /// Those with a stamp of ours, whole, each with the charge that it names.
    pub objects: Vec<(ChargeId, Object)>,
    /// After which object the next page begins; none on the last.
    pub next: Option<ProviderChargeId>,
}

/// Whose refunds are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefundsOf<'a> {
    /// Of one charge's object.
    Charge(&'a ProviderChargeId),
    /// Of the whole account, made from then on.
    AccountSince(OffsetDateTime),
}

/// One page of the provider's list of refunds, newest first.
#[derive(Clone, Debug, PartialEq)]
pub struct RefundPage {
    /// Those of objects like ours, whoever made them.
    pub refunds: Vec<RefundObject>,
    /// After which refund the next page begins; none on the last.
    pub next: Option<ProviderRefundId>,
}

/// Whose account the credentials open.
#[derive(Clone, Debug, PartialEq)]
pub enum Whose {
    Account(ProviderAccountId),
    /// The provider takes the credentials, and they may not ask this.
    Untold,
    /// Nothing is known.
    Unanswered(Answer<ProviderAccountId>),
}

impl Worded for ProviderAccountId {
    fn word(&self) -> &'static str {
        "account"
    }
}

pub trait Provider: Send + Sync + 'static {
    fn profile(&self) -> &Profile;

    /// Asks whose account the credentials open.
    fn whose(&self) -> impl Future<Output = Whose> + Send;

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

    /// Makes a refund under `key`, stamped with the refund's id: moves money back. Each call with a key that the provider
    /// does not remember makes another one.
    fn refund(
        &self,
        refund: RefundId,
        key: &str,
        instruction: &RefundInstruction<'_>,
    ) -> impl Future<Output = Reply<RefundObject>> + Send;

    fn read_refund(
        &self,
        refund: &ProviderRefundId,
    ) -> impl Future<Output = Reply<RefundObject>> + Send;

    /// Lists refunds behind `after`. As with [`Provider::list`], only a walk to the last page has asked.
    fn list_refunds(
        &self,
        of: RefundsOf<'_>,
        after: Option<&ProviderRefundId>,
    ) -> impl Future<Output = Result<RefundPage, Box<Answer<RefundObject>>>> + Send;
}
