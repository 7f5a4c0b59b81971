//! What is measured of intake itself. What clients are told is counted where they are told it, in `http`.

use metrics::Counter;

use crate::batch::BatchMeters;
use crate::meters::Meters;

/// Requests for a charge by what became of them; shared with `http`, which counts every other `result`.
pub const REQUESTS: &str = "payonce_intake_requests_total";
pub const REQUESTS_HELP: &str = "Requests for a charge, by what became of them: accepted (this request made the charge), replayed, \
     reused (the key belongs to another request) or refused; code is the problem's.";

#[derive(Clone)]
pub struct IntakeMeters {
    pub(super) accepted: Counter,
    pub(super) batch: BatchMeters,
}

impl IntakeMeters {
    pub fn new(meters: &Meters) -> Self {
        let accepted = &[("result", "accepted"), ("code", "")];
        Self {
            accepted: meters.counter(REQUESTS, REQUESTS_HELP, accepted),
            batch: BatchMeters {
                size: meters.histogram(
                    "payonce_intake_batch_size",
                    "Requests that one statement took in.",
                    &[],
                ),
                wait: meters.histogram(
                    "payonce_intake_wait_seconds",
                    "How long a request waited for its batch to begin.",
                    &[],
                ),
            },
        }
    }
}
