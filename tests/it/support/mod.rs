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
pub mod receiver;
pub mod scrape;
pub mod service;
pub mod statements;
mod until;

pub use client::charge_body;
pub use service::TestService;
pub use until::{PATIENCE, until};

/// A port that nobody has, below those that systems give to outgoing connections: one of those, asking for its own port,
/// would meet itself.
pub fn free_port() -> u16 {
    let random = payonce::random::Random::from_os();
    std::iter::repeat_with(|| 20_000 + u16::from_be_bytes(random.bytes()) % 12_000)
        .find(|port| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .unwrap()
}
