//! What the roles are put together from, made as the configuration says; nothing here is started.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::AppError;
use super::shared::{Sending, Shared};
use crate::batch::{self, BatchMeters, Batcher};
use crate::clock::Clock;
use crate::completion::{Completion, Settle};
use crate::config::{AccountSettings, Config, DatabaseUrl, Roles, Section};
use crate::db::pool::Pool;
use crate::db::session::{Durability, Session};
use crate::db::sweeps::Account;
use crate::http::{EventEndpoints, EventMeters, EventParts};
use crate::identity;
use crate::meters::Meters;
use crate::provider::stripe::currency::RULES;
use crate::provider::stripe::signature::WebhookSecret;
use crate::provider::stripe::webhooks::{self, WebhookSettings};
use crate::provider::stripe::{SecretKey, Stripe, StripeSettings};
use crate::random::Random;
use crate::reconciler::sweep::{SweepMeters, SweepParts, Sweeper};
use crate::refund_completion::{KeepRefund, RefundWrites};
use crate::watches::{Waits, WatchLimits, WatchMeters};
use crate::worker::WorkerMeters;
use crate::worker::breaker::{Breaker, BreakerLimits};
use crate::worker::executor::{Executor, ExecutorLimits};
use crate::worker::pauses::Pauses;
use crate::worker::stored::StoreObject;
use crate::worker::strays::SettleStrays;

/// What runs jobs, and the batchers that must run for it.
pub(super) struct Parts {
    /// One for each account, the default one's first.
    pub(super) executors: Vec<Executor<Stripe>>,
    pub(super) storing: Batcher<StoreObject>,
    pub(super) completing: Batcher<Settle>,
    pub(super) settling: Batcher<SettleStrays>,
    pub(super) keeping: Vec<Batcher<KeepRefund>>,
}

/// `sending`: that of each account, the default one's first.
pub(super) fn executors(
    config: &Config,
    database: &DatabaseUrl,
    random: &Random,
    sending: &[Sending],
    waits: &Waits,
    meters: &WorkerMeters,
) -> Result<Parts, AppError> {
    let durable = session_maker(config, database, Durability::Durable);
    let limits = config.worker.batch_limits();
    let unmeasured = BatchMeters::none();
    let (store, storing) = batch::batcher(&StoreObject, &durable, limits, random, &unmeasured);
    let (completion, completing) =
        Completion::new(&durable, limits, random, &meters.completion, &waits.charges);
    let (strays, settling) = batch::batcher(&SettleStrays, &durable, limits, random, &unmeasured);
    let keep = KeepRefund {
        provider: RULES.provider,
        rules: RULES,
        recheck_after: config.reconciler.refund_recheck_after,
        recheck_for: config.reconciler.refund_recheck_for,
        watches: waits.refunds.clone(),
    };
    let (refunds, keeping) = RefundWrites::new(
        &keep,
        config.worker.refund_batchers,
        &durable,
        limits,
        random,
    );
    let pauses = Arc::new(Pauses::default());
    let executor = |(account, its): (AccountSettings<'_>, &Sending)| {
        Ok::<_, AppError>(Executor {
            provider: Arc::new(stripe(config, account)?),
            identity: Arc::clone(&its.identity),
            store: store.clone(),
            completion: completion.clone(),
            strays: strays.clone(),
            refunds: refunds.clone(),
            breaker: Arc::new(Breaker::new(BreakerLimits {
                threshold: config.worker.breaker_threshold,
                base: config.worker.breaker_base,
                cap: config.worker.breaker_cap,
            })),
            refunds_forbidden: AtomicBool::new(false),
            budget: its.budget.clone(),
            pauses: Arc::clone(&pauses),
            limits: ExecutorLimits {
                retry: config.worker.retry_policy(),
                action_expiry: config.worker.action_expiry,
                key_window_margin: config.provider.stripe.key_window_margin,
                completion_timeout: config.worker.completion_timeout,
            },
            random: random.clone(),
            meters: meters.clone(),
        })
    };
    let executors = config.provider.accounts().zip(sending).map(executor);
    Ok(Parts {
        executors: executors.collect::<Result<_, _>>()?,
        storing,
        completing,
        settling,
        keeping,
    })
}

/// What each account's deliveries are taken in with, by its name; of those that have a secret.
pub(super) fn events(shared: &Shared<'_>) -> Result<EventEndpoints, AppError> {
    let config = shared.setup.config;
    let meters = EventMeters::new(&shared.meters);
    let endpoint = |account: AccountSettings<'_>| {
        let secrets = account
            .webhook_secrets
            .iter()
            .map(|secret| WebhookSecret::parse(secret.reveal()))
            .collect::<Result<_, _>>()?;
        let settings = WebhookSettings {
            secrets,
            tolerance: config.provider.stripe.webhook_tolerance,
        };
        Ok::<_, AppError>(EventParts {
            open: webhooks::open_with(settings, Clock::system()),
            account: account_of(account),
            most_bytes: config.provider.stripe.webhook_body_bytes,
            wake: shared.accepted.clone(),
            meters: meters.clone(),
        })
    };
    let with_secrets = config
        .provider
        .accounts()
        .filter(|account| !account.webhook_secrets.is_empty());
    Ok(EventEndpoints {
        default: config.provider.account.clone(),
        by_account: with_secrets
            .map(|account| Ok((account.name.to_owned(), endpoint(account)?)))
            .collect::<Result<_, AppError>>()?,
    })
}

/// An account as sweeps and events name it.
pub(crate) fn account_of(account: AccountSettings<'_>) -> Account {
    Account {
        provider: RULES.provider,
        name: account.name.to_owned(),
        is_default: matches!(account.section, Section::Default),
    }
}

/// A sweeper of one account.
pub(crate) fn sweeper(
    config: &Config,
    account: AccountSettings<'_>,
    database: &DatabaseUrl,
    random: &Random,
    Sending { budget, identity }: Sending,
    meters: SweepMeters,
) -> Result<Sweeper<Stripe>, AppError> {
    let session = session_maker(config, database, Durability::Durable)();
    let provider = Arc::new(stripe(config, account)?);
    let limits = config
        .reconciler
        .sweep_limits(config.provider.stripe.relied_on_key_window());
    let parts = SweepParts {
        limits,
        rules: RULES,
        budget,
        random: random.clone(),
        meters,
    };
    let account = account_of(account);
    Ok(Sweeper::new(provider, identity, account, session, parts))
}

/// Checks an account's key for one command.
pub(crate) async fn check_account(
    config: &Config,
    account: AccountSettings<'_>,
    database: &DatabaseUrl,
) -> Result<(), AppError> {
    let provider = stripe(config, account)?;
    let mut session = session_maker(config, database, Durability::Durable)();
    Ok(identity::check_once(&provider, &mut session).await?)
}

/// Who waits in this process; where nobody can, nothing is measured of it.
pub(super) fn waits(config: &Config, roles: Roles, meters: &Meters) -> Waits {
    let limits = WatchLimits {
        watches: config.http.max_waiting,
        poll: config.http.wait_poll_interval,
    };
    let none = Meters::none();
    let meters = WatchMeters::new(if roles.api { meters } else { &none });
    Waits::new(limits, &meters)
}

/// The pool for requests that read or cancel.
pub(super) fn reads(config: &Config, database: &DatabaseUrl) -> Pool {
    let session = session_maker(config, database, Durability::Durable);
    let size = usize::try_from(config.database.pool_size).unwrap_or(usize::MAX);
    Pool::new(size, config.database.connect_timeout, session)
}

pub(super) fn session_maker(
    config: &Config,
    database: &DatabaseUrl,
    durability: Durability,
) -> impl Fn() -> Session + Send + Sync + use<> {
    let (options, limits) = (database.options().clone(), config.database.session_limits());
    move || Session::new(&options, limits, durability)
}

fn stripe(config: &Config, account: AccountSettings<'_>) -> Result<Stripe, AppError> {
    let settings = &config.provider.stripe;
    let section = account.section;
    let secret = account
        .secret_key
        .ok_or_else(|| AppError::NoSecretKey(section.to_string()))?;
    Ok(Stripe::new(StripeSettings {
        account: account.name.to_owned(),
        base_url: settings.base_url.clone(),
        secret_key: SecretKey::parse(secret.reveal())
            .map_err(|_| AppError::SecretKey(section.to_string()))?,
        api_version: settings.api_version.clone(),
        timeout: settings.timeout,
        connect_timeout: settings.connect_timeout.min(settings.timeout / 2),
        pool_idle: settings.pool_idle,
        key_window: settings.key_window,
    })?)
}
