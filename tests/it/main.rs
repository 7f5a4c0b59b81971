//! The service as its users meet it: real HTTP, real Postgres, the simulator behind it. The simulator's ledger is the only
//! witness of money.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that can't go on fails"
)]
#![expect(
    unreachable_pub,
    reason = "one crate in many files: pub says what a file offers the others"
)]

mod support;

mod accounts;
mod budget;
mod cancels;
mod crashes;
mod database_faults;
mod dev;
mod documents;
mod edge;
mod fairness;
mod fencing;
mod intake;
mod job_plans;
mod jobs;
mod list_plans;
mod lists;
mod main_path;
mod metrics;
mod objects;
mod operator;
mod outages;
mod poolers;
mod provider_answers;
mod provider_events;
mod provider_faults;
mod provider_unreachable;
mod queue_plans;
mod reads;
mod reconciler;
mod refunds;
mod sweeps;
mod webhooks;
