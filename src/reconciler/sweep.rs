//! The two-way sweep: walks the provider's objects of a time window against our charges, then our charges of the window
//! against what the walk has met. Input: sweeps that were asked for, by time, by jobs that look for their object, by a
//! recovery, by a person. Output: strays for their jobs to settle, discrepancies for people, objects canceled that could
//! still move money for a charge that is final without them.
//!
//! A sweep ends no charge. It is finished only when every page answered, to the last: until then it has asked nothing,
//! and nobody goes on. One sweeper an account holds it by a lease. If the process dies, the lease runs out and the next
//! sweeper begins anew; everything that was written is written once, by the object's id.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use metrics::Counter;
use tokio_util::sync::CancellationToken;

use crate::batch::Chain;
use crate::budget::Budget;
use crate::clock;
use crate::db::session::Session;
use crate::db::sweeps::{Account, Taken};
use crate::db::{self, DbError};
use crate::domain::ids::LeaseToken;
use crate::domain::request::ProviderRules;
use crate::identity::{AnotherAccount, Identity, NotOpen};
use crate::meters::Meters;
use crate::provider::Provider;
use crate::random::Random;

#[derive(Clone, Copy, Debug)]
pub struct SweepLimits {
    /// How often somebody looks whether a sweep is wanted.
    pub poll: Duration,
    /// How often the newest objects are swept without being asked, and how far back.
    pub every: Duration,
    pub window: Duration,
    /// Between two calls to the provider: keeps a sweep from taking the provider's quota from charges.
    pub pause: Duration,
    /// The most pages of a walk.
    pub pages: usize,
    /// How long a sweep is held from one page to the next.
    pub lease: Duration,
    /// How long the provider is relied on to remember a key.
    pub key_window: Duration,
}

/// What is measured of sweeps.
#[derive(Clone)]
pub struct SweepMeters {
    finished: Counter,
    failed: Counter,
    pub(super) objects: Counter,
}

impl SweepMeters {
    pub fn new(meters: &Meters) -> Self {
        let sweeps = |result| {
            meters.counter(
                "payonce_sweeps_total",
                "Walks of the provider's objects against the books: finished, or given up and begun anew.",
                &[("result", result)],
            )
        };
        Self {
            finished: sweeps("finished"),
            failed: sweeps("failed"),
            objects: meters.counter(
                "payonce_sweep_objects_total",
                "Objects with a stamp of ours that sweeps have compared with the books.",
                &[],
            ),
        }
    }
}

pub struct Sweeper<P> {
    pub(super) provider: Arc<P>,
    identity: Arc<Identity>,
    pub(super) account: Account,
    pub(super) session: Session,
    pub(super) parts: SweepParts,
}

/// What a sweeper works with besides the provider and the books.
pub struct SweepParts {
    pub limits: SweepLimits,
    pub rules: ProviderRules,
    pub budget: Budget,
    pub random: Random,
    pub meters: SweepMeters,
}

/// Why a sweep did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    #[error("the books did not answer")]
    Database(#[from] DbError),
    /// The books would be compared with another account's objects, and all of them differ.
    #[error(transparent)]
    AnotherAccount(#[from] AnotherAccount),
    /// It answered, and will answer so until somebody mends it.
    #[error("the provider refused us: {0}")]
    Refused(&'static str),
    /// No answer, or none that says anything.
    #[error("the provider gave no answer that helps: {0}")]
    Provider(&'static str),
    #[error("the account has more objects than reconciler.sweep_pages reaches")]
    TooLong,
    #[error("another sweeper has taken it over")]
    LeaseLost,
    #[error("the process shuts down")]
    ShuttingDown,
}

/// What one sweep came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Objects with a stamp of ours.
    pub objects: u64,
    /// Discrepancies that nobody had found before.
    pub discrepancies: u64,
    /// Objects that were canceled, because their charge is final without them.
    pub canceled: u64,
}

/// One sweep under way.
pub(super) struct Walk {
    pub(super) taken: Taken,
    pub(super) token: LeaseToken,
    pub(super) swept: Swept,
    /// Hashes of the ids that the walk has met: a few bytes each, for millions of them.
    pub(super) met: HashSet<u64>,
}

impl<P: Provider> Sweeper<P> {
    pub fn new(
        provider: Arc<P>,
        identity: Arc<Identity>,
        account: Account,
        session: Session,
        parts: SweepParts,
    ) -> Self {
        Self {
            provider,
            identity,
            account,
            session,
            parts,
        }
    }

    /// Sweeps what is wanted until `shutdown`.
    pub async fn run(mut self, shutdown: CancellationToken) {
        loop {
            let pause = self
                .parts
                .limits
                .poll
                .mul_f64(0.75 + self.parts.random.unit() / 2.0);
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
            let asked = tokio::select! {
                () = shutdown.cancelled() => return,
                asked = self.ask() => asked,
            };
            if let Err(error) = asked {
                tracing::warn!(error = %Chain(&error), "asking for sweeps failed");
                continue;
            }
            match self.sweep(&shutdown).await {
                Ok(_) | Err(SweepError::ShuttingDown) => {}
                Err(error @ SweepError::TooLong) => {
                    tracing::error!(code = "sweep_too_long", account = self.account.name, %error, "a sweep did not come to its end; whoever waits for it goes on waiting");
                }
                Err(
                    error @ (SweepError::Database(_)
                    | SweepError::AnotherAccount(_)
                    | SweepError::Refused(_)
                    | SweepError::Provider(_)
                    | SweepError::LeaseLost),
                ) => {
                    tracing::warn!(code = "sweep_failed", account = self.account.name, error = %Chain(&error), "a sweep did not come to its end; it begins anew");
                }
            }
        }
    }

    /// Asks for the sweeps that are due and for those that jobs wait for.
    async fn ask(&mut self) -> Result<(), DbError> {
        let (account, limits) = (&self.account, self.parts.limits);
        self.session
            .ask(3, async |connection| {
                db::sweeps::ask_routine(connection, account, limits.every, limits.window).await?;
                db::sweeps::ask_for_looks(connection, account, limits.key_window).await?;
                let old = limits.window + limits.key_window + limits.every;
                db::sweeps::purge(connection, old * 10).await
            })
            .await?;
        Ok(())
    }

    /// Takes everything that was asked for and walks it. `None` when nothing was, or somebody else has it.
    pub async fn sweep(
        &mut self,
        shutdown: &CancellationToken,
    ) -> Result<Option<Swept>, SweepError> {
        let fence = LeaseToken::from_uuid(self.parts.random.uuid());
        let (account, lease) = (&self.account, self.parts.limits.lease);
        let wanted = self
            .session
            .ask(1, async |connection| {
                db::sweeps::take(connection, account, fence, lease).await
            })
            .await?;
        let Some(taken) = wanted else { return Ok(None) };
        let mut walk = Walk {
            taken,
            token: fence,
            swept: Swept::default(),
            met: HashSet::new(),
        };
        let walked = tokio::select! {
            () = shutdown.cancelled() => Err(SweepError::ShuttingDown),
            walked = self.walk(&mut walk) => walked,
        };
        if matches!(walked, Err(SweepError::ShuttingDown)) {
            // Whatever the connection was asked for, its answer is still to come.
            self.session.discard();
        }
        if let Err(error) = walked {
            self.parts.meters.failed.increment(1);
            let text = error.to_string();
            let ids = &walk.taken.ids;
            let given_back = self
                .session
                .ask(1, async |connection| {
                    db::sweeps::give_back(connection, ids, fence, &text).await
                })
                .await;
            if let Err(error) = given_back {
                tracing::warn!(error = %Chain(&error), "giving a sweep back failed; its lease runs out");
            }
            return Err(error);
        }
        self.parts.meters.finished.increment(1);
        tracing::info!(
            account = self.account.name,
            from = %clock::shown(walk.taken.from),
            objects = walk.swept.objects,
            discrepancies = walk.swept.discrepancies,
            canceled = walk.swept.canceled,
            "a sweep came to its end"
        );
        Ok(Some(walk.swept))
    }

    /// Whether the key is of the account that the books are compared with.
    async fn check(&mut self) -> Result<(), SweepError> {
        self.identity
            .check(&*self.provider, &mut self.session)
            .await
            .map_err(|not_open| match not_open {
                NotOpen::AnotherAccount(another) => {
                    self.identity.tell(&another);
                    SweepError::AnotherAccount(another)
                }
                NotOpen::Unanswered { answer, .. } => SweepError::Provider(answer.word()),
                NotOpen::Database(error) => SweepError::Database(error),
            })
    }

    async fn walk(&mut self, walk: &mut Walk) -> Result<(), SweepError> {
        self.check().await?;
        self.theirs(walk).await?;
        self.ours(walk).await?;
        self.refunds(walk).await?;
        let (account, token) = (&self.account, walk.token);
        let ids = &walk.taken.ids;
        let objects = i64::try_from(walk.swept.objects).unwrap_or(i64::MAX);
        let finished = self
            .session
            .ask(2, async |connection| {
                db::strays::settle_stored(connection, account).await?;
                db::sweeps::finish(connection, ids, token, objects).await
            })
            .await?;
        if finished {
            Ok(())
        } else {
            Err(SweepError::LeaseLost)
        }
    }

    /// Asks for a sweep by a person's wish. Returns its id.
    pub async fn want(&mut self, window: Duration) -> Result<i64, DbError> {
        let account = &self.account;
        self.session
            .ask(1, async |connection| {
                db::sweeps::ask(connection, account, window).await
            })
            .await
    }

    /// Where a sweep that was asked for stands.
    pub async fn standing(&mut self, id: i64) -> Result<Option<db::sweeps::Standing>, DbError> {
        self.session
            .ask(1, async |connection| db::sweeps::find(connection, id).await)
            .await
    }
}
