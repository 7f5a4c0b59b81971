//! What is measured of deliveries.

use metrics::Counter;

use super::outcome::Sent;
use crate::meters::Meters;

#[derive(Clone)]
pub struct DelivererMeters {
    delivered: Counter,
    refused: Counter,
    failed: Counter,
    gone: Counter,
    impossible: Counter,
    disabled: Counter,
}

impl DelivererMeters {
    pub fn new(meters: &Meters) -> Self {
        let deliveries = |result| {
            meters.counter(
                "payonce_webhook_deliveries_total",
                "Attempts to send an event to an endpoint: delivered (2xx), refused (another answer), failed (no answer), gone \
                 (410), impossible (the event can't be told any more).",
                &[("result", result)],
            )
        };
        Self {
            delivered: deliveries("delivered"),
            refused: deliveries("refused"),
            failed: deliveries("failed"),
            gone: deliveries("gone"),
            impossible: deliveries("impossible"),
            disabled: meters.counter(
                "payonce_webhook_endpoints_disabled_total",
                "Endpoints that were disabled because they were gone, or failed for too long.",
                &[],
            ),
        }
    }

    pub(super) fn count(&self, sent: &Sent) {
        match sent {
            Sent::Delivered(_) => &self.delivered,
            Sent::Refused(_) => &self.refused,
            Sent::Failed(_) => &self.failed,
            Sent::Gone => &self.gone,
            Sent::Impossible(_) => &self.impossible,
        }
        .increment(1);
    }

    pub(super) fn disabled(&self) {
        self.disabled.increment(1);
    }
}
