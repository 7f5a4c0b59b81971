//! Accounts that the books need and this process does not have.

use super::shared::Shared;
use super::{App, session_maker};
use crate::batch::Chain;
use crate::config::Provider;
use crate::db::account_standing::{self, AccountStanding};
use crate::db::session::Durability;

impl App {
    /// Says once which accounts this process leaves to others: nobody may have them, and what is open there waits then.
    pub(super) fn tell_of_missing_accounts(&mut self, shared: &Shared<'_>) {
        let config = shared.setup.config;
        let provider = config.provider.clone();
        let mut session = session_maker(config, shared.database, Durability::Durable)();
        let shutdown = self.shutdown.clone();
        self.tasks.spawn(async move {
            let look = session.ask(1, async |connection| {
                account_standing::all(connection, &provider.account).await
            });
            match shutdown.run_until_cancelled(look).await {
                Some(Ok(standing)) => tell(&missing(standing, &provider)),
                Some(Err(error)) => {
                    tracing::warn!(error = %Chain(&error), "the books could not be asked for the accounts that they need");
                }
                None => {}
            }
            // Its connection is not held for it.
            drop(session);
            shutdown.cancelled().await;
            "accounts"
        });
    }
}

fn tell(missing: &[AccountStanding]) {
    for account in missing {
        tracing::warn!(
            code = "account_not_configured",
            account = account.name,
            merchants = account.merchants,
            open_charges = account.open_charges,
            open_refunds = account.open_refunds,
            "the books need an account that this process does not have: what is open there waits for a worker that has it"
        );
    }
}

/// Those that have a merchant or something open, and are not configured here.
pub(crate) fn missing(standing: Vec<AccountStanding>, provider: &Provider) -> Vec<AccountStanding> {
    standing
        .into_iter()
        .filter(|account| account.is_needed() && !provider.has_account(&account.name))
        .collect()
}
