//! payonce takes in payment charges and hands each to the provider at most once.

pub mod clock;
pub mod db;
pub mod domain;
pub mod http;
pub mod intake;
pub mod provider;
