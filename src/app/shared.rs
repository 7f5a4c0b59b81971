//! What the roles of a process share, and what is made of it.

use std::sync::Arc;

use tokio::sync::Notify;

use super::observer::{BooksAccess, Observer};
use super::{Setup, session_maker};
use crate::budget::Budget;
use crate::config::{AccountSettings, DatabaseUrl};
use crate::db;
use crate::db::pool::Pool;
use crate::db::session::Durability;
use crate::http::Readiness;
use crate::identity::Identity;
use crate::meters::Meters;
use crate::provider::stripe::currency::RULES;
use crate::watches::Waits;

/// What the roles share.
pub(super) struct Shared<'a> {
    pub(super) setup: &'a Setup<'a>,
    pub(super) database: &'a DatabaseUrl,
    /// For reads.
    pub(super) pool: Pool,
    /// Rung when this process accepted charges, or was told of news about one.
    pub(super) accepted: Arc<Notify>,
    /// Who waits for a charge in this process.
    pub(super) waits: Waits,
    pub(super) meters: Meters,
    /// One for each account, the default one's first.
    pub(super) sending: Vec<Sending>,
}

/// What all who send with an account's key share.
#[derive(Clone)]
pub(crate) struct Sending {
    /// For all calls: the provider bounds each account by itself.
    pub(crate) budget: Budget,
    /// What is known of the key is known to all.
    pub(crate) identity: Arc<Identity>,
}

impl Sending {
    pub(super) fn new(account: AccountSettings<'_>, budget: Budget) -> Self {
        let identity = Identity::new(RULES.provider, account.name.to_owned());
        Self {
            budget,
            identity: Arc::new(identity),
        }
    }

    /// For one command, which nothing bounds.
    pub(crate) fn of_command(account: AccountSettings<'_>) -> Self {
        Self::new(account, Budget::unbounded())
    }
}

impl Shared<'_> {
    pub(super) fn observer(&self) -> Observer {
        let config = self.setup.config;
        let access = BooksAccess {
            session: session_maker(config, self.database, Durability::Durable)(),
            interval: config.admin.books_interval,
            lease: config.worker.lease,
            accounts: config
                .provider
                .accounts()
                .map(|account| account.name.to_owned())
                .collect(),
        };
        Observer::new(self.meters.clone(), self.pool.clone(), access)
    }

    pub(super) fn readiness(&self) -> Readiness {
        Readiness {
            pool: self.pool.clone(),
            schema_version: db::migrations::newest(),
            wait: self.setup.config.database.connect_timeout,
        }
    }
}
