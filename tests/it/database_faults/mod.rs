//! Postgres fails while charges flow, at each statement of a charge's way and in each manner that databases fail: clients
//! are told what to do, nothing that was accepted is lost, money moves once, and it all comes back by itself.

mod conflicts;
mod failover;
mod limits;
mod lost_replies;
mod refusals;
mod restarts;
mod writes;

use futures_util::future::join_all;
use tokio::time::{Duration, Instant};

use crate::support::service::Running;
use crate::support::{TestService, charge_body};

/// The statement that takes jobs.
const CLAIM: &str = "WITH oldest AS MATERIALIZED";
/// The statement that stores an object's id, before it is executed.
const STORE: &str = "started AS (";
/// The statement that ends a charge.
const FINISH: &str = "finished AS (";

impl TestService {
    /// New charges are accepted at the first try and end soon, as if nothing had been.
    async fn is_at_full_speed(&self, running: &Running) {
        let begun = Instant::now();
        let body = charge_body("pm_card_visa");
        let ended = join_all((0..100).map(async |number| {
            let key = format!("after-{number}");
            let accepted = running.client.charge(&key, &body).await;
            assert_eq!(accepted.status, 202, "{accepted:?}");
            running.client.terminal(&accepted.id()).await
        }))
        .await;
        assert!(ended.iter().all(|charge| charge["status"] == "completed"));
        // Less than any lease, on a machine with everything else to do.
        assert!(
            begun.elapsed() < Duration::from_secs(10),
            "{:?}",
            begun.elapsed()
        );
    }
}
