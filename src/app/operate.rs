//! An executor for one decision of an operator's, with the batchers it needs, gone when the decision is taken.

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{AppError, Parts, Sending, executors};
use crate::batch::{Batcher, Statement};
use crate::config::Config;
use crate::db::claimed::{Claimed, Ours};
use crate::domain::outcome::operator::Decision;
use crate::meters::Meters;
use crate::provider::stripe::Stripe;
use crate::random::Random;
use crate::watches::Waits;
use crate::worker::WorkerMeters;
use crate::worker::executor::Executor;
use crate::worker::resolve::Resolved;

pub struct Desk {
    /// The default account's first.
    executors: Vec<Executor<Stripe>>,
    batchers: JoinSet<()>,
}

impl Desk {
    /// Must be made before a job is held: what is wrong with the configuration shows here.
    pub fn open(config: &Config, random: &Random) -> Result<Self, AppError> {
        let database = config.database.url.as_ref().ok_or(AppError::NoDatabase)?;
        let unmeasured = WorkerMeters::new(&Meters::none());
        let sending: Vec<_> = config
            .provider
            .accounts()
            .map(Sending::of_command)
            .collect();
        let Parts {
            executors,
            storing,
            completing,
            settling,
            keeping,
        } = executors(
            config,
            database,
            random,
            &sending,
            &Waits::none(),
            &unmeasured,
        )?;
        let mut batchers = JoinSet::new();
        start(&mut batchers, storing);
        start(&mut batchers, completing);
        start(&mut batchers, settling);
        for batcher in keeping {
            start(&mut batchers, batcher);
        }
        Ok(Self {
            executors,
            batchers,
        })
    }

    /// What this process has, for holding a job.
    pub fn ours(&self) -> Ours<'_> {
        self.executors[0].ours()
    }

    /// Takes the decision for a held job and ends when everything is written.
    pub async fn resolve(
        self,
        claimed: Claimed,
        deadline: Instant,
        decision: Decision,
    ) -> Resolved {
        let Self {
            executors,
            mut batchers,
        } = self;
        // The default one's refuses what is of no account here.
        let executor = executors
            .iter()
            .find(|executor| executor.account() == claimed.account)
            .unwrap_or(&executors[0]);
        let resolved = executor.resolve(claimed, deadline, decision).await;
        // The queues into the batchers are gone with it.
        drop(executors);
        while batchers.join_next().await.is_some() {}
        resolved
    }
}

fn start<S: Statement + Sync + 'static>(batchers: &mut JoinSet<()>, batcher: Batcher<S>) {
    batchers.spawn(batcher.run());
}
