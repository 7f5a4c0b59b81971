//! What is measured of requests that wait.

use metrics::{Counter, Gauge};

use crate::meters::Meters;

#[derive(Clone)]
pub struct WatchMeters {
    pub(super) waiting: Gauge,
    pub(super) settled: Counter,
    pub(super) over: Counter,
    pub(super) hung_up: Counter,
    pub(super) refused: Counter,
}

impl WatchMeters {
    pub fn new(meters: &Meters) -> Self {
        let ended = |ended| {
            meters.counter(
                "payonce_waits_total",
                "Waits that clients asked for, by how they ended: the charge or the refund settled, the time was over, the client \
                 hung up, or too many waited already and it was refused.",
                &[("ended", ended)],
            )
        };
        Self {
            waiting: meters.gauge(
                "payonce_waiting_requests",
                "Requests that wait for their charge or their refund.",
                &[],
            ),
            settled: ended("settled"),
            over: ended("over"),
            hung_up: ended("hung_up"),
            refused: ended("refused"),
        }
    }
}
