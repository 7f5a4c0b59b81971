//! payonce takes in payment charges and hands each to the provider at most once.

pub mod app;
pub mod batch;
pub mod budget;
pub mod cli;
pub mod clock;
pub mod completion;
pub mod config;
pub mod db;
pub mod domain;
pub mod embedded_postgres;
pub mod http;
pub mod identity;
pub mod intake;
pub mod meters;
pub mod provider;
pub mod random;
pub mod reconciler;
pub mod refund_completion;
pub mod shutdown;
pub mod simulator;
pub mod telemetry;
pub mod watches;
pub mod webhooks;
pub mod worker;
