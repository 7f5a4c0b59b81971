//! Whose account a secret key opens, and whether it is the one that its name stands for. The first key under a name pins
//! the name to the provider's account; a key that opens another one is never used: what moved with it would be money in
//! the wrong account, and nothing would say so.
//!
//! Unknown is not open: nothing is sent with a key that was not checked. If the process dies, the next one asks again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::batch::Chain;
use crate::db::DbError;
use crate::db::accounts::{self, Pinned};
use crate::db::session::Session;
use crate::domain::ids::ProviderAccountId;
use crate::domain::outcome::{Answer, Health};
use crate::provider::{Provider, Whose};
use crate::random::Random;
use crate::worker::WorkerMeters;
use crate::worker::breaker::Breaker;

/// How often the log says the same.
const AGAIN_AFTER: Duration = Duration::from_mins(1);
/// How often a pin is asked for that others make and take away meanwhile.
const PINS: usize = 3;

/// A configured account's key, as far as this process knows whose it is.
#[derive(Debug)]
pub struct Identity {
    provider: &'static str,
    name: String,
    standing: watch::Sender<Standing>,
    known: Mutex<Known>,
    /// One asks, and the others hear what was said.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    NotChecked,
    Open,
    AnotherAccount,
}

#[derive(Debug, Default)]
struct Known {
    /// What the provider said of the key; it never says anything else of it.
    whose: Option<Opens>,
    told_at: Option<Instant>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Opens {
    Account(ProviderAccountId),
    /// The key may not ask.
    Untold,
}

/// Why nothing is sent with a key.
#[derive(Debug, thiserror::Error)]
pub enum NotOpen {
    #[error(transparent)]
    AnotherAccount(#[from] AnotherAccount),
    #[error("the provider did not say whose account the key of the account `{name}` opens: {}", .answer.word())]
    Unanswered {
        name: String,
        answer: Box<Answer<ProviderAccountId>>,
    },
    #[error("the books did not say which of the provider's accounts the name stands for")]
    Database(#[from] DbError),
}

/// The key and the name are not of one account.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnotherAccount {
    #[error("the key of the account `{name}` opens {opens}, but `{name}` is pinned to {pinned}")]
    Key {
        name: String,
        opens: ProviderAccountId,
        pinned: String,
    },
    #[error(
        "the key of the account `{name}` opens {opens}, to which the account `{other}` is pinned"
    )]
    Name {
        name: String,
        opens: ProviderAccountId,
        other: String,
    },
}

impl Identity {
    pub fn new(provider: &'static str, name: String) -> Self {
        Self {
            provider,
            name,
            standing: watch::Sender::new(Standing::NotChecked),
            known: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
        }
    }

    /// Whether anything may be sent with the key.
    pub fn is_open(&self) -> bool {
        *self.standing.borrow() == Standing::Open
    }

    /// Asks the provider whose account the key opens, once, and the books which one its name stands for. While it is open,
    /// only the books are asked: somebody may have forgotten the name and given it to another account since.
    pub async fn check<P: Provider>(
        &self,
        provider: &P,
        session: &mut Session,
    ) -> Result<(), NotOpen> {
        let _turn = self.turn.lock().await;
        let known = self.known().whose.clone();
        let opens = match known {
            Some(opens) => opens,
            None => self.ask(provider).await?,
        };
        let opens = match opens {
            Opens::Untold => {
                self.open();
                return Ok(());
            }
            Opens::Account(opens) => opens,
        };
        if self.is_open() {
            let pins = session
                .ask(1, async |connection| {
                    accounts::list(connection, self.provider).await
                })
                .await?;
            return self.compare(&opens, &pins).map_err(NotOpen::from);
        }
        for _ in 0..PINS {
            let pinned = session
                .ask(1, async |connection| {
                    accounts::pin(connection, self.provider, &self.name, opens.as_str()).await
                })
                .await?;
            if let Some(pinned) = pinned {
                self.compare(&opens, &[pinned])?;
                self.open();
                return Ok(());
            }
        }
        Err(NotOpen::Database(DbError::AnswerTimeout))
    }

    async fn ask<P: Provider>(&self, provider: &P) -> Result<Opens, NotOpen> {
        let opens = match provider.whose().await {
            Whose::Account(opens) => Opens::Account(opens),
            Whose::Untold => {
                tracing::warn!(
                    code = "account_unverified",
                    account = self.name,
                    "the provider does not tell this key whose it is: whether it is of the account that the name stands for is not checked"
                );
                Opens::Untold
            }
            Whose::Unanswered(answer) => {
                return Err(NotOpen::Unanswered {
                    name: self.name.clone(),
                    answer: Box::new(answer),
                });
            }
        };
        self.known().whose = Some(opens.clone());
        Ok(opens)
    }

    /// Takes in what the books say now. A name that is not pinned any more closes nothing.
    pub fn look(&self, pins: &[Pinned]) {
        let opens = match &self.known().whose {
            Some(Opens::Account(opens)) => opens.clone(),
            Some(Opens::Untold) | None => return,
        };
        if self.is_open()
            && let Err(another) = self.compare(&opens, pins)
        {
            self.tell(&another);
        }
    }

    /// Closes if the name stands for another account, or the account is another name's.
    fn compare(&self, opens: &ProviderAccountId, pins: &[Pinned]) -> Result<(), AnotherAccount> {
        let own = pins.iter().find(|pin| pin.name == self.name);
        let of_other = pins
            .iter()
            .find(|pin| pin.name != self.name && pin.account_id == opens.as_str());
        let another = match (own, of_other) {
            (Some(pin), _) if pin.account_id == opens.as_str() => return Ok(()),
            (Some(pin), _) => AnotherAccount::Key {
                name: self.name.clone(),
                opens: opens.clone(),
                pinned: pin.account_id.clone(),
            },
            (None, Some(pin)) => AnotherAccount::Name {
                name: self.name.clone(),
                opens: opens.clone(),
                other: pin.name.clone(),
            },
            (None, None) => return Ok(()),
        };
        self.standing.send_replace(Standing::AnotherAccount);
        Err(another)
    }

    fn open(&self) {
        self.standing.send_replace(Standing::Open);
    }

    /// Alerts, once a minute however often it is seen.
    pub fn tell(&self, another: &AnotherAccount) {
        if !self.is_to_be_told() {
            return;
        }
        let (opens, pinned, other) = match another {
            AnotherAccount::Key { opens, pinned, .. } => (opens, Some(pinned), None),
            AnotherAccount::Name { opens, other, .. } => (opens, None, Some(other)),
        };
        tracing::error!(
            code = "account_mismatch",
            account = self.name,
            key.account_id = %opens,
            pinned.account_id = pinned,
            pinned.account = other,
            "{another}: nothing is sent with it, and all that is this account's waits"
        );
    }

    fn tell_unanswered(&self, answer: &Answer<ProviderAccountId>) {
        if !self.is_to_be_told() {
            return;
        }
        let (account, answer, health) = (&self.name, answer.word(), answer.health());
        match health {
            // No breaker opens on this, so nobody else tells.
            Health::Good => tracing::error!(
                code = "account_not_known",
                account,
                answer,
                "the provider does not say whose account the key opens: all that is this account's waits"
            ),
            Health::Ailing | Health::Throttled(_) | Health::Denied => tracing::warn!(
                code = "account_not_known",
                account,
                answer,
                "the provider has not said yet whose account the key opens: all that is this account's waits"
            ),
        }
    }

    fn is_to_be_told(&self) -> bool {
        let now = Instant::now();
        let mut known = self.known();
        let again = known
            .told_at
            .is_none_or(|at| now.saturating_duration_since(at) >= AGAIN_AFTER);
        if again {
            known.told_at = Some(now);
        }
        again
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Opens an account's lane in a worker, and again when it was closed.
pub struct Checker<P> {
    pub identity: Arc<Identity>,
    pub provider: Arc<P>,
    pub session: Session,
    /// Told what came of the call, as of a job's.
    pub breaker: Arc<Breaker>,
    pub meters: WorkerMeters,
    /// Rung when the lane opens.
    pub wake: Arc<Notify>,
    /// Between two checks at first, and at most.
    pub base: Duration,
    pub cap: Duration,
    pub random: Random,
}

impl<P: Provider> Checker<P> {
    pub async fn run(mut self, shutdown: CancellationToken) {
        let mut standing = self.identity.standing.subscribe();
        let checking = async {
            loop {
                self.check().await;
                // An account stays open as a rule: no connection is kept for that.
                self.session.discard();
                self.wake.notify_one();
                // An error would mean that the identity is gone, and it is ours.
                let _ = standing
                    .wait_for(|standing| *standing != Standing::Open)
                    .await;
            }
        };
        shutdown.run_until_cancelled(checking).await;
    }

    /// Checks until it is open.
    async fn check(&mut self) {
        let mut pause = self.base;
        loop {
            let not_open = match self.check_once().await {
                Ok(()) => return,
                Err(not_open) => not_open,
            };
            let mut at_least = Duration::ZERO;
            match not_open {
                NotOpen::AnotherAccount(another) => self.identity.tell(&another),
                NotOpen::Unanswered { answer, .. } => {
                    if let Health::Throttled(Some(wait)) = answer.health() {
                        at_least = wait.min(self.cap);
                    }
                    self.identity.tell_unanswered(&answer);
                }
                NotOpen::Database(error) => {
                    tracing::warn!(error = %Chain(&error), "asking which account a name stands for failed");
                }
            }
            let jittered = pause.mul_f64(0.75 + self.random.unit() / 4.0);
            tokio::time::sleep(jittered.max(at_least)).await;
            pause = (pause * 2).min(self.cap);
        }
    }

    async fn check_once(&mut self) -> Result<(), NotOpen> {
        let (asks, began) = (self.identity.known().whose.is_none(), Instant::now());
        let checked = self
            .identity
            .check(&*self.provider, &mut self.session)
            .await;
        if asks {
            let account = &self.provider.profile().account;
            let (health, word) = match &checked {
                Err(NotOpen::Unanswered { answer, .. }) => (Some(answer.health()), answer.word()),
                Ok(()) | Err(NotOpen::AnotherAccount(_)) => (Some(Health::Good), "account"),
                Err(NotOpen::Database(_)) => (None, ""),
            };
            if let Some(health) = health {
                self.meters.account_call(word, began.elapsed());
                self.breaker.learn(account, health, word);
            }
        }
        checked
    }
}

/// Checks a key for one command.
pub async fn check_once<P: Provider>(provider: &P, session: &mut Session) -> Result<(), NotOpen> {
    let profile = provider.profile();
    let identity = Identity::new(profile.provider, profile.account.clone());
    identity.check(provider, session).await
}
