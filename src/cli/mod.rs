//! The command line: data to stdout, messages to stderr, a hint after an error.
//!
//! Exit codes: 0 done, 1 failed, 2 not understood, 130 and 143 ended by a second signal.

mod accounts;
mod api_keys;
mod charges;
mod config;
mod confirm;
mod database;
mod dev;
mod discrepancies;
mod generated;
mod healthcheck;
mod idempotency_key;
mod job_story;
mod merchants;
mod migrate;
mod openapi;
mod output;
mod pause;
mod reconcile;
mod refunds;
mod serve;
mod settings;
mod simulator;
#[cfg(test)]
mod tests;
mod webhooks;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

pub use self::dev::DevOptions;
pub use self::serve::{Role, ServeOptions};
pub use self::simulator::SimulatorOptions;

/// Takes payment charges in and hands each to the provider at most once.
#[derive(Debug, Parser)]
#[command(name = "payonce", version, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run everything in one process, on a private Postgres and a simulated provider.
    Dev(DevOptions),
    /// Run a production process.
    Serve(serve::Serve),
    /// Ask the process on this host whether it is ready: exit code 0 if it is, 1 if not.
    Healthcheck(healthcheck::Healthcheck),
    /// Bring the database to this release's schema; safe to run from several processes at once.
    Migrate(migrate::Migrate),
    /// Print the `OpenAPI` document.
    Openapi(openapi::Openapi),
    /// Look at the configuration.
    #[command(subcommand)]
    Config(config::Config),
    /// Look at the accounts at the provider.
    #[command(subcommand)]
    Accounts(accounts::Accounts),
    /// Make, disable and list merchants.
    #[command(subcommand)]
    Merchants(merchants::Merchants),
    /// Make, revoke and list API keys.
    #[command(subcommand)]
    ApiKeys(api_keys::ApiKeys),
    /// Look at charges, and help those that are stuck.
    #[command(subcommand)]
    Charges(charges::Charges),
    /// Look at refunds, and help those that are stuck.
    #[command(subcommand)]
    Refunds(refunds::Refunds),
    /// Compare the provider's objects with the books, and the books with them.
    Reconcile(reconcile::Reconcile),
    /// Look at what differs between the provider and the books, and say that it is dealt with.
    #[command(subcommand)]
    Discrepancies(discrepancies::Discrepancies),
    /// Look at what is sent to merchants, and send it again.
    #[command(subcommand)]
    Webhooks(webhooks::Webhooks),
    /// Hold sending to the provider, for all processes; charges are accepted and wait.
    Pause(pause::PauseSending),
    /// Let sending go on after `pause`.
    Resume(pause::ResumeSending),
    /// Work with the keys that clients send.
    #[command(subcommand)]
    IdempotencyKey(idempotency_key::IdempotencyKeys),
    /// Print a shell's completions.
    Completions(generated::Completions),
    /// Print a manual page.
    Man(generated::Man),
    /// Run the simulated provider alone.
    Simulator(SimulatorOptions),
}

/// Runs the command, and tells what went wrong if it fails.
pub fn run(cli: Cli) -> ExitCode {
    let done = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(anyhow::Error::from)
        .and_then(|runtime| runtime.block_on(Box::pin(cli.command.run())));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::failure(&error);
            ExitCode::FAILURE
        }
    }
}

impl Command {
    async fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Dev(options) => dev::run(options).await,
            Self::Serve(command) => command.run().await,
            Self::Healthcheck(command) => command.run().await,
            Self::Migrate(command) => command.run().await,
            Self::Openapi(command) => command.run(),
            Self::Config(command) => command.run(),
            Self::Accounts(command) => command.run().await,
            Self::Merchants(command) => Box::pin(command.run()).await,
            Self::ApiKeys(command) => command.run().await,
            Self::Charges(command) => command.run().await,
            Self::Refunds(command) => command.run().await,
            Self::Reconcile(command) => command.run().await,
            Self::Discrepancies(command) => command.run().await,
            Self::Webhooks(command) => command.run().await,
            Self::Pause(command) => command.run().await,
            Self::Resume(command) => command.run().await,
            Self::IdempotencyKey(command) => command.run(),
            Self::Completions(command) => command.run(),
            Self::Man(command) => command.run(),
            Self::Simulator(options) => simulator::run(options).await,
        }
    }
}
