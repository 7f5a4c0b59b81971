//! A charge and the only ways it can change. A transition consumes the progress it starts from; what is terminal stays
//! as it is, and `failed` needs a proof that the provider can no longer move the money.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use super::idempotency::{Fingerprint, IdempotencyKey};
use super::ids::{ChargeId, MerchantId, ProviderChargeId};
use super::outcome::CanMoveNoMore;
use super::request::Draft;

/// Everything a client may see of one charge, and what it takes to compare a duplicate with it.
#[derive(Clone, Debug, PartialEq)]
pub struct Charge {
    pub id: ChargeId,
    pub merchant: MerchantId,
    pub idempotency_key: IdempotencyKey,
    pub fingerprint: Fingerprint,
    pub request: Draft,
    pub live: bool,
    pub provider: String,
    pub progress: Progress,
    pub created_at: OffsetDateTime,
    pub updated_at: OffsetDateTime,
    pub finished_at: Option<OffsetDateTime>,
    /// The client has asked for a cancel, and nobody waits for the customer any more.
    pub cancel_requested: bool,
    /// What went back, in minor units: completed refunds, and those made outside payonce.
    pub amount_refunded: i64,
    /// The account that it is made in, decided at acceptance; `None` for the default one of whoever runs it.
    pub account: Option<Arc<str>>,
}

/// Where a charge stands; the part that changes.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// Grows by one with every change.
    pub version: i32,
    pub state: State,
    /// How often execute, the step that moves money, was sent.
    pub attempts: i32,
    /// The number of the provider key that prepare uses.
    pub prepares: i32,
    /// The one object that is ever executed for this charge.
    pub object: Option<StoredObject>,
}

/// The provider's object and the account that holds it, pinned together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredObject {
    pub id: ProviderChargeId,
    pub account: String,
}

#[derive(Clone, Debug, PartialEq)]
pub enum State {
    Pending,
    /// A worker has begun. `sent` from the moment execute may have left: the money is unknown from then on.
    Processing {
        sent: bool,
    },
    RequiresAction(NextAction),
    RequiresReconciliation,
    Succeeded,
    Failed(Failure),
    Canceled,
}

/// What a client branches on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    InProgress,
    Completed,
    Failed,
}

/// What a client shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    Pending,
    Processing,
    RequiresAction,
    RequiresReconciliation,
    Succeeded,
    Failed,
    Canceled,
}

/// Did it move?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MoneyMoved {
    NotMoved,
    Unknown,
    Moved,
}

impl State {
    pub fn stage(&self) -> Stage {
        match self {
            Self::Pending => Stage::Pending,
            Self::Processing { .. } => Stage::Processing,
            Self::RequiresAction(_) => Stage::RequiresAction,
            Self::RequiresReconciliation => Stage::RequiresReconciliation,
            Self::Succeeded => Stage::Succeeded,
            Self::Failed(_) => Stage::Failed,
            Self::Canceled => Stage::Canceled,
        }
    }

    pub fn money(&self) -> MoneyMoved {
        match self {
            Self::Pending | Self::Processing { sent: false } | Self::Failed(_) | Self::Canceled => {
                MoneyMoved::NotMoved
            }
            Self::Processing { sent: true }
            | Self::RequiresAction(_)
            | Self::RequiresReconciliation => MoneyMoved::Unknown,
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

impl Stage {
    pub fn status(self) -> Status {
        match self {
            Self::Pending
            | Self::Processing
            | Self::RequiresAction
            | Self::RequiresReconciliation => Status::InProgress,
            Self::Succeeded => Status::Completed,
            Self::Failed | Self::Canceled => Status::Failed,
        }
    }
}

/// Why a charge failed, and what a new try would have to change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    pub code: String,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_code: Option<String>,
    pub advice: Advice,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Advice {
    TryAgainLater,
    UseAnotherPaymentMethod,
    DoNotTryAgain,
}

/// What the customer must do before the provider goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NextAction {
    pub url: String,
    /// After this the charge is canceled at the provider. Set by the database's clock when the action is first seen.
    #[serde(default, with = "time::serde::rfc3339::option")]
    pub expires_at: Option<OffsetDateTime>,
}

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("a charge at {from} can't {transition}")]
pub struct InvalidTransition {
    pub from: Stage,
    pub transition: &'static str,
}

impl Progress {
    pub fn new() -> Self {
        Self {
            version: 1,
            state: State::Pending,
            attempts: 0,
            prepares: 0,
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

    /// Execute is about to be sent for `object`.
    pub fn start_execute(self, object: StoredObject) -> Result<Self, InvalidTransition> {
        let stored = self.store(object, "start execute")?;
        Ok(Self {
            attempts: stored.attempts + 1,
            ..stored
        })
    }

    /// An object that a sweep found is stored to be read. Somebody who is forgotten may have executed it; this charge has
    /// sent nothing.
    pub fn adopt(self, object: StoredObject) -> Result<Self, InvalidTransition> {
        self.store(object, "adopt an object")
    }

    /// From here on the money is unknown. An object once stored is never exchanged for another.
    fn store(
        self,
        object: StoredObject,
        transition: &'static str,
    ) -> Result<Self, InvalidTransition> {
        self.open(transition)?;
        if self.object.as_ref().is_some_and(|stored| *stored != object) {
            return Err(InvalidTransition {
                from: self.state.stage(),
                transition: "exchange its object",
            });
        }
        Ok(Self {
            version: self.version + 1,
            state: State::Processing { sent: true },
            object: Some(object),
            ..self
        })
    }

    /// The state in which the charge waits for its next run. Unknown money is never taken back to not moved.
    pub fn wait(self, state: State) -> Result<Self, InvalidTransition> {
        self.open("wait")?;
        let takes_back =
            self.state.money() == MoneyMoved::Unknown && state.money() == MoneyMoved::NotMoved;
        if state.is_terminal() || takes_back {
            return Err(InvalidTransition {
                from: self.state.stage(),
                transition: "wait so",
            });
        }
        if self.state == state {
            return Ok(self);
        }
        Ok(Self {
            version: self.version + 1,
            state,
            ..self
        })
    }

    /// A success is a fact, whoever learned it.
    pub fn succeed(self, object: StoredObject) -> Result<Self, InvalidTransition> {
        self.open("succeed")?;
        Ok(Self {
            version: self.version + 1,
            state: State::Succeeded,
            object: Some(object),
            ..self
        })
    }

    pub fn fail(self, failure: Failure, _proof: CanMoveNoMore) -> Result<Self, InvalidTransition> {
        self.open("fail")?;
        Ok(Self {
            version: self.version + 1,
            state: State::Failed(failure),
            ..self
        })
    }

    pub fn cancel(self, _proof: CanMoveNoMore) -> Result<Self, InvalidTransition> {
        self.open("be canceled")?;
        Ok(Self {
            version: self.version + 1,
            state: State::Canceled,
            ..self
        })
    }
}

impl Default for Progress {
    fn default() -> Self {
        Self::new()
    }
}

macro_rules! closed_words {
    ($type:ty { $($variant:ident => $word:literal),+ $(,)? }) => {
        impl $type {
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }

            pub fn parse(word: &str) -> Option<Self> {
                match word { $($word => Some(Self::$variant),)+ _ => None }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

closed_words!(Status { InProgress => "in_progress", Completed => "completed", Failed => "failed" });
closed_words!(Stage {
    Pending => "pending",
    Processing => "processing",
    RequiresAction => "requires_action",
    RequiresReconciliation => "requires_reconciliation",
    Succeeded => "succeeded",
    Failed => "failed",
    Canceled => "canceled",
});
closed_words!(MoneyMoved { NotMoved => "not_moved", Unknown => "unknown", Moved => "moved" });

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn object(id: &str) -> StoredObject {
        StoredObject {
            id: ProviderChargeId::parse(id).unwrap(),
            account: "default".to_owned(),
        }
    }

    fn failure() -> Failure {
        Failure {
            code: "card_declined".to_owned(),
            message: "The card was declined.".to_owned(),
            provider_code: None,
            advice: Advice::UseAnotherPaymentMethod,
        }
    }

    fn act(progress: Progress, step: u8) -> Result<Progress, InvalidTransition> {
        let action = NextAction {
            url: "https://example.com/3ds".to_owned(),
            expires_at: None,
        };
        match step {
            0 => progress.start_execute(object("pi_1")),
            1 => progress.start_execute(object("pi_2")),
            2 => progress.wait(State::RequiresReconciliation),
            3 => progress.wait(State::RequiresAction(action)),
            4 => progress.wait(State::Processing { sent: false }),
            5 => progress.wait(State::Processing { sent: true }),
            6 => progress.succeed(object("pi_1")),
            7 => progress.fail(failure(), CanMoveNoMore::for_test()),
            8 => progress.cancel(CanMoveNoMore::for_test()),
            9 => progress.adopt(object("pi_1")),
            10 => progress.adopt(object("pi_2")),
            _ => progress.wait(State::Succeeded),
        }
    }

    proptest! {
        #[test]
        fn no_path_leaves_a_terminal_state_or_exchanges_the_object(steps in proptest::collection::vec(0_u8..12, 1..12)) {
            let mut progress = Progress::new();
            for step in steps {
                let before = progress.clone();
                match act(progress, step) {
                    Ok(after) => {
                        prop_assert!(!before.state.is_terminal());
                        prop_assert!(after.version == before.version + 1 || after == before);
                        // An attempt is an execute that is sent, and nothing else.
                        prop_assert_eq!(after.attempts - before.attempts, i32::from(step <= 1));
                        if before.state.money() == MoneyMoved::Unknown {
                            prop_assert!(after.state.is_terminal() || after.state.money() == MoneyMoved::Unknown);
                        }
                        if step != 6 && before.object.is_some() {
                            prop_assert_eq!(&after.object, &before.object);
                        }
                        progress = after;
                    }
                    Err(_) => progress = before,
                }
            }
        }
    }

    #[test]
    fn words_are_read_as_they_are_written() {
        for stage in Stage::ALL {
            assert_eq!(Stage::parse(stage.as_str()), Some(*stage));
        }
        assert_eq!(Status::parse("paid"), None);
        assert_eq!(MoneyMoved::parse("moved"), Some(MoneyMoved::Moved));
    }
}
