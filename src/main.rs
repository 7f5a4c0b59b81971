//! The command `payonce`.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    payonce::cli::run(payonce::cli::Cli::parse())
}
