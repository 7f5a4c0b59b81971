//! What every test needs: a database of its own, a simulator of its own, and the service in this process or in others.

pub mod books;
pub mod bulk;
pub mod client;
pub mod cluster;
pub mod database_proxy;
pub mod ledger;
pub mod process;
pub mod provider_proxy;
pub mod scrape;
pub mod service;

pub use client::charge_body;
pub use service::TestService;

use std::time::Duration;

/// Longer than anything a healthy service needs, on a machine with everything else to do.
pub const PATIENCE: Duration = Duration::from_mins(1);

/// Asks again and again until `ask` has an answer. For what can only be seen by looking: a state in the database or at
/// the simulator.
pub async fn until<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(
            tokio::time::Instant::now() < deadline,
            "still not so: {what}"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
