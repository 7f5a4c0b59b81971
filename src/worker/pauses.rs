//! What this process knows of pauses: the claim loop looks once in a while, and says so when sending stops and goes on.
//!
//! The database refuses claims and executes by itself while there is a pause. This only lets a run under way end before
//! its next step, and tells whoever reads the log.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::clock;
use crate::db::pauses::Pause;

#[derive(Debug, Default)]
pub struct Pauses {
    /// As they were told of last.
    known: Mutex<Vec<Pause>>,
    any: AtomicBool,
}

impl Pauses {
    /// Whether sending was paused when this process looked last.
    pub fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// A claim took jobs: none was there at that moment, whatever the last look saw.
    pub(super) fn claimed(&self) {
        self.any.store(false, Ordering::Relaxed);
    }

    /// Takes in what holds sending now.
    pub fn look(&self, now: Vec<Pause>) {
        self.any.store(!now.is_empty(), Ordering::Relaxed);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        for pause in now.iter().filter(|pause| !known.contains(pause)) {
            tracing::warn!(
                code = "sending_paused",
                pause.kind,
                pause.reason,
                pause.since = %clock::shown(pause.since),
                "sending is paused: charges are accepted and wait"
            );
        }
        for pause in known.iter().filter(|pause| !now.contains(pause)) {
            tracing::info!(
                code = "sending_resumed",
                pause.kind,
                pause.reason,
                pause.since = %clock::shown(pause.since),
                still_paused = !now.is_empty(),
                "a pause has ended"
            );
        }
        *known = now;
    }
}
