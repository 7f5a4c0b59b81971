//! payonce takes in payment charges and hands each to the provider at most once.

pub mod app;
pub mod batch;
pub mod cli;
pub mod clock;
pub mod config;
pub mod db;
pub mod domain;
pub mod embedded_postgres;
pub mod intake;
pub mod provider;
pub mod random;
pub mod shutdown;
pub mod telemetry;
