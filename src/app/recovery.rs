//! `serve --recovery`: after a restore or a failover that lost commits, the books are older than what they have sent.
//!
//! Sending is held for all processes before this one does anything else, and goes on when a sweep has seen every object
//! that the provider made since the books remember, in each account: what they do not know is written down as stray, and settled before
//! anything is sent for its charge. If the process dies, the hold stays, and whoever sweeps next finishes the recovery.

use std::time::Duration;

use time::OffsetDateTime;

use super::{AppError, account_of, session_maker};
use crate::clock;
use crate::config::{Config, DatabaseUrl};
use crate::db;
use crate::db::session::Durability;
use crate::db::sweeps::Account;
use crate::provider::stripe::currency::RULES;

/// Since when the provider may have what the books have not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// What the newest charge of the books says.
    Remembered,
    /// The time to which they were restored, or earlier.
    At(OffsetDateTime),
    /// So long ago, or less.
    Ago(Duration),
}

pub(super) async fn begin(
    config: &Config,
    database: &DatabaseUrl,
    since: Since,
) -> Result<(), AppError> {
    let mut session = session_maker(config, database, Durability::Durable)();
    let accounts: Vec<Account> = config.provider.accounts().map(account_of).collect();
    let key_window = config.provider.stripe.key_window;
    let (from, elsewhere) = session
        .ask(2, async |connection| {
            let from = match since {
                Since::At(at) => Some(at),
                Since::Ago(window) => Some(db::recovery::now(connection).await? - window),
                Since::Remembered => db::recovery::remembered(connection).await?,
            };
            // Clocks differ, and an object may have been made some time before anything was written about it.
            let Some(from) = from.map(|from| from - key_window) else {
                return Ok(None);
            };
            let names: Vec<&str> = accounts
                .iter()
                .map(|account| account.name.as_str())
                .collect();
            let elsewhere = db::recovery::begin(connection, RULES.provider, &names, from).await?;
            Ok(Some((from, elsewhere)))
        })
        .await
        .map_err(AppError::Recovery)?
        .ok_or(AppError::NothingRemembered)?;
    for account in elsewhere {
        tracing::error!(
            code = "account_not_configured",
            account,
            "sending is held until the objects of this account are compared too, which merchants are on and this process does not have: start one that has it"
        );
    }
    tracing::warn!(
        code = "recovery_began",
        from = %clock::shown(from),
        "sending is held until the provider's objects are compared with the books"
    );
    Ok(())
}
