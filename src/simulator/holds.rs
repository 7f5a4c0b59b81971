//! Lets a test stop one request before or after its effect and go on when it wants to.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::faults::Phase;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum When {
    Before,
    After,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    pub(super) phase: Phase,
    pub(super) when: When,
}

#[derive(Debug)]
pub(super) struct Holds {
    wanted: Vec<Wanted>,
    held: watch::Sender<usize>,
    released: watch::Sender<u64>,
}

/// A request's order to stop.
#[derive(Debug)]
pub(super) struct Hold {
    pub(super) when: When,
    held: watch::Sender<usize>,
    released: watch::Receiver<u64>,
}

impl Holds {
    pub(super) fn new() -> Self {
        Self {
            wanted: Vec::new(),
            held: watch::Sender::new(0),
            released: watch::Sender::new(0),
        }
    }

    pub(super) fn want(&mut self, wanted: Wanted) {
        self.wanted.push(wanted);
    }

    pub(super) fn take(&mut self, phase: Phase) -> Option<Hold> {
        let at = self
            .wanted
            .iter()
            .position(|wanted| wanted.phase == phase)?;
        let when = self.wanted.remove(at).when;
        Some(Hold {
            when,
            held: self.held.clone(),
            released: self.released.subscribe(),
        })
    }

    /// Lets everyone go, and those who were still to be held pass.
    pub(super) fn release(&mut self) {
        self.wanted.clear();
        self.held.send_replace(0);
        self.released.send_modify(|count| *count += 1);
    }

    pub(super) fn watch(&self) -> watch::Receiver<usize> {
        self.held.subscribe()
    }
}

impl Hold {
    pub(super) async fn wait(mut self) {
        // Released between being ordered and getting here: pass without being counted.
        if matches!(self.released.has_changed(), Ok(false)) {
            self.held.send_modify(|count| *count += 1);
            // An error means that the simulator is gone, and nobody is left to be kept waiting.
            let _ = self.released.changed().await;
        }
    }
}

/// How many are held, once there is one or `patience` is over.
pub(super) async fn count(mut held: watch::Receiver<usize>, patience: Duration) -> usize {
    let waited = tokio::time::timeout(patience, held.wait_for(|count| *count > 0)).await;
    match waited {
        Ok(Ok(count)) => *count,
        _ => 0,
    }
}
