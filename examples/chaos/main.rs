//! The chaos run: real processes of the service under every fault at once, and real money nowhere.
//!
//! `cargo run --release --example chaos -- --seed 1 --minutes 3` starts Postgres, the simulated provider and two
//! `payonce serve`, each behind a proxy to either. While 32 clients buy and ask some of it back, the provider errs in
//! one call of five, banks take back what was completed, somebody refunds on the provider's own pages, the merchant is
//! put on another of the provider's accounts and back, processes are killed, stopped and ended, Postgres restarts and
//! crashes, networks are cut, silent and slow, and of the merchant's two endpoints one fails at times and one never
//! answers. Then the faults stop, everything must end, and every promise is checked: on the books, on what clients and
//! endpoints were told, and on the provider's ledger, the only witness of money. The seed decides what goes wrong and
//! what is asked for. Exits with 1 if a promise was broken, and keeps books and logs then.

#![expect(
    clippy::unwrap_used,
    reason = "the proxies are the tests', where what can't go on fails"
)]
#![expect(
    unreachable_pub,
    reason = "one crate in many files: pub says what a file offers the others"
)]

mod bank;
mod books;
mod checks;
mod chronicle;
mod client;
mod drain;
mod events;
mod evidence;
mod faults;
mod http;
mod log;
mod options;
mod program;
mod provider;
mod purchase;
mod receiver;
mod refund;
mod refund_checks;
mod refund_evidence;
mod refund_told;
mod report;
mod service;
mod settings;
mod shared;
mod staff;
mod strike;
mod told;
mod world;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let arguments = std::env::args_os().skip(1);
    if std::env::args_os()
        .nth(1)
        .is_some_and(|name| name == program::NAME)
    {
        return payonce::cli::run(payonce::cli::Cli::parse_from(arguments));
    }
    let options = options::Options::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    match runtime
        .map_err(anyhow::Error::from)
        .and_then(|runtime| runtime.block_on(world::run(&options)))
    {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            chronicle::line(&format!(
                "seed {}: the run can't go on: {error:?}",
                options.seed
            ));
            ExitCode::from(2)
        }
    }
}
