//! The service as its users meet it: real HTTP, real Postgres, the simulator behind it. The simulator's ledger is the only
//! witness of money.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that can't go on fails"
)]
#![expect(unreachable_pub, reason = "everything here is of one binary")]

mod support;

mod cancels;
mod dev;
mod main_path;
mod operator;
