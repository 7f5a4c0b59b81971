//! A refund of a charge, and the only ways it can change.
//!
//! It has no two phases: the call that makes the provider's refund moves the money. What keeps it to one is in
//! [`outcome`]. `failed` needs a proof that the provider never makes this refund; what has completed can still fail at
//! the bank, and then only [`RefundProgress::correct`] says so.

pub mod outcome;
pub mod request;

use time::OffsetDateTime;

use super::charge::{Failure, InvalidTransition, MoneyMoved, Stage, Status};
use super::idempotency::{Fingerprint, IdempotencyKey};
use super::ids::{ChargeId, MerchantId, ProviderRefundId, RefundId};
use outcome::NeverRefunds;
use request::RefundDraft;

/// Everything a client may see of one refund, and what it takes to compare a duplicate with it.
#[derive(Clone, Debug, PartialEq)]
pub struct Refund {
    pub id: RefundId,
    pub merchant: MerchantId,
    pub idempotency_key: IdempotencyKey,
    pub fingerprint: Fingerprint,
    pub request: RefundDraft,
    /// What goes back, in ISO 4217 minor units.
    pub amount: i64,
    pub currency: String,
    pub live: bool,
    pub provider: String,
    pub provider_account: String,
    pub provider_charge_id: String,
    pub progress: RefundProgress,
    pub created_at: OffsetDateTime,
    pub updated_at: OffsetDateTime,
    pub finished_at: Option<OffsetDateTime>,
}

impl Refund {
    pub fn charge(&self) -> ChargeId {
        self.request.charge
    }
}

/// Where a refund stands; the part that changes.
#[derive(Clone, Debug, PartialEq)]
pub struct RefundProgress {
    /// Grows by one with every change.
    pub version: i32,
    pub state: RefundState,
    /// How often it was sent under its current key and may have taken effect.
    pub attempts: i32,
    /// The number of the provider key.
    pub key_number: i32,
    /// When it was first sent under its current key.
    pub first_attempted_at: Option<OffsetDateTime>,
    /// The provider's refund, once it is known.
    pub object: Option<ProviderRefundId>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum RefundState {
    Pending,
    /// It may have been sent, or the provider works on it: the money is unknown from here on.
    Processing,
    /// The customer must act: the provider asks them where the money is to go.
    RequiresAction,
    RequiresReconciliation,
    Succeeded,
    Failed(Failure),
    Canceled,
}

impl RefundState {
    pub fn stage(&self) -> Stage {
        match self {
            Self::Pending => Stage::Pending,
            Self::Processing => Stage::Processing,
            Self::RequiresAction => Stage::RequiresAction,
            Self::RequiresReconciliation => Stage::RequiresReconciliation,
            Self::Succeeded => Stage::Succeeded,
            Self::Failed(_) => Stage::Failed,
            Self::Canceled => Stage::Canceled,
        }
    }

    pub fn money(&self) -> MoneyMoved {
        match self {
            Self::Pending | Self::Failed(_) | Self::Canceled => MoneyMoved::NotMoved,
            Self::Processing | Self::RequiresAction | Self::RequiresReconciliation => {
                MoneyMoved::Unknown
            }
            Self::Succeeded => MoneyMoved::Moved,
        }
    }

    pub fn status(&self) -> Status {
        self.stage().status()
    }

    pub fn is_terminal(&self) -> bool {
        self.status() != Status::InProgress
    }
}

impl RefundProgress {
    pub fn new() -> Self {
        Self {
            version: 1,
            state: RefundState::Pending,
            attempts: 0,
            key_number: 0,
            first_attempted_at: None,
            object: None,
        }
    }

    fn open(&self, transition: &'static str) -> Result<(), InvalidTransition> {
        if self.state.is_terminal() {
            return Err(InvalidTransition {
                from: self.state.stage(),
                transition,
            });
        }
        Ok(())
    }

    /// It is about to be sent. What the provider has made already is never asked for again.
    pub fn start(self, now: OffsetDateTime) -> Result<Self, InvalidTransition> {
        self.open("be sent")?;
        if self.object.is_some() {
            return Err(InvalidTransition {
                from: self.state.stage(),
                transition: "be sent again",
            });
        }
        Ok(Self {
            version: self.version + 1,
            state: RefundState::Processing,
            attempts: self.attempts + 1,
            first_attempted_at: self.first_attempted_at.or(Some(now)),
            ..self
        })
    }

    /// The last send surely did nothing. Without another one that may have, the key is as good as unused.
    pub fn unsent(self) -> Result<Self, InvalidTransition> {
        self.open("be unsent")?;
        let attempts = (self.attempts - 1).max(0);
        Ok(Self {
            version: self.version + 1,
            attempts,
            first_attempted_at: self.first_attempted_at.filter(|_| attempts > 0),
            ..self
        })
    }

    /// The last key has done nothing and never will.
    pub fn take_new_key(self) -> Result<Self, InvalidTransition> {
        self.open("take another key")?;
        Ok(Self {
            version: self.version + 1,
            attempts: 0,
            key_number: self.key_number + 1,
            first_attempted_at: None,
            ..self
        })
    }

    /// The state in which the refund waits for its next run, and the provider's refund where it is known now.
    pub fn wait(
        self,
        state: RefundState,
        object: Option<ProviderRefundId>,
    ) -> Result<Self, InvalidTransition> {
        self.open("wait")?;
        let exchanged = matches!((&self.object, &object), (Some(one), Some(other)) if one != other);
        let takes_back =
            self.state.money() == MoneyMoved::Unknown && state.money() == MoneyMoved::NotMoved;
        if state.is_terminal() || takes_back || exchanged {
            return Err(InvalidTransition {
                from: self.state.stage(),
                transition: "wait so",
            });
        }
        let object = self.object.clone().or(object);
        if self.state == state && self.object == object {
            return Ok(self);
        }
        Ok(Self {
            version: self.version + 1,
            state,
            object,
            ..self
        })
    }

    /// A success is a fact, whoever learned it.
    pub fn succeed(self, object: ProviderRefundId) -> Result<Self, InvalidTransition> {
        self.open("succeed")?;
        Ok(Self {
            version: self.version + 1,
            state: RefundState::Succeeded,
            object: Some(object),
            ..self
        })
    }

    pub fn fail(
        self,
        failure: Failure,
        object: Option<ProviderRefundId>,
        _proof: NeverRefunds,
    ) -> Result<Self, InvalidTransition> {
        self.open("fail")?;
        Ok(Self {
            version: self.version + 1,
            state: RefundState::Failed(failure),
            object: self.object.clone().or(object),
            ..self
        })
    }

    pub fn cancel(
        self,
        object: ProviderRefundId,
        _proof: NeverRefunds,
    ) -> Result<Self, InvalidTransition> {
        self.open("be canceled")?;
        Ok(Self {
            version: self.version + 1,
            state: RefundState::Canceled,
            object: Some(object),
            ..self
        })
    }

    /// The provider says otherwise than it did when the refund ended: a completed one failed at the bank, or one that was
    /// called failed has moved money after all.
    pub fn correct(
        self,
        state: RefundState,
        object: ProviderRefundId,
    ) -> Result<Self, InvalidTransition> {
        let crosses = state.is_terminal()
            && self.state.is_terminal()
            && (state == RefundState::Succeeded) != (self.state == RefundState::Succeeded);
        if !crosses {
            return Err(InvalidTransition {
                from: self.state.stage(),
                transition: "be corrected so",
            });
        }
        Ok(Self {
            version: self.version + 1,
            state,
            object: Some(object),
            ..self
        })
    }
}

impl Default for RefundProgress {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::charge::Advice;
    use proptest::prelude::*;

    fn object(id: &str) -> ProviderRefundId {
        ProviderRefundId::parse(id).unwrap()
    }

    fn failure() -> Failure {
        Failure {
            code: "refund_failed".to_owned(),
            message: "The refund failed.".to_owned(),
            provider_code: None,
            advice: Advice::TryAgainLater,
        }
    }

    fn act(progress: RefundProgress, step: u8) -> Result<RefundProgress, InvalidTransition> {
        let now = OffsetDateTime::UNIX_EPOCH;
        match step {
            0 => progress.start(now),
            1 => progress.unsent(),
            2 => progress.take_new_key(),
            3 => progress.wait(RefundState::RequiresReconciliation, None),
            4 => progress.wait(RefundState::Processing, Some(object("re_1"))),
            5 => progress.wait(RefundState::Pending, Some(object("re_2"))),
            6 => progress.succeed(object("re_1")),
            7 => progress.fail(failure(), None, NeverRefunds::for_test()),
            8 => progress.cancel(object("re_1"), NeverRefunds::for_test()),
            9 => progress.correct(RefundState::Failed(failure()), object("re_1")),
            _ => progress.correct(RefundState::Succeeded, object("re_1")),
        }
    }

    proptest! {
        #[test]
        fn what_has_ended_is_only_ever_corrected_and_what_is_made_is_never_sent(
            steps in proptest::collection::vec(0_u8..11, 1..14)
        ) {
            let mut progress = RefundProgress::new();
            for step in steps {
                let before = progress.clone();
                match act(progress, step) {
                    Ok(after) => {
                        prop_assert!(after.version == before.version + 1 || after == before);
                        prop_assert_eq!(before.state.is_terminal(), step >= 9);
                        if step == 0 {
                            prop_assert!(before.object.is_none() && after.first_attempted_at.is_some());
                        }
                        if after.attempts > 0 {
                            prop_assert!(after.first_attempted_at.is_some());
                        }
                        progress = after;
                    }
                    Err(_) => progress = before,
                }
            }
        }
    }
}
