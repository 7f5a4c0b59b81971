//! What every test needs: a database of its own, a simulator of its own, and the service in this process or in others.

pub mod books;
pub mod bulk;
pub mod client;
pub mod cluster;
pub mod database_proxy;
pub mod ledger;
pub mod network;
pub mod pgbouncer;
pub mod process;
pub mod provider_proxy;
pub mod scrape;
pub mod service;
mod until;

pub use client::charge_body;
pub use service::TestService;
pub use until::{PATIENCE, until};
