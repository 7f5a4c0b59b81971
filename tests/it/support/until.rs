//! Waiting for what can only be seen by looking.

use std::time::Duration;

/// Longer than anything a healthy service needs, on a machine with everything else to do.
pub const PATIENCE: Duration = Duration::from_mins(1);

/// Asks again and again until `ask` has an answer: a state in the database or at the simulator.
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
