//! Looks at charges for all who wait.

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Due, Watches};
use crate::batch::Chain;
use crate::db;
use crate::db::session::Session;
use crate::domain::ids::ChargeId;

/// The one task that looks.
pub struct Watcher {
    watches: Watches,
    session: Session,
}

impl Watcher {
    pub fn new(watches: Watches, session: Session) -> Self {
        Self { watches, session }
    }

    pub async fn run(mut self, shutdown: CancellationToken) {
        let looking = async {
            loop {
                let due = self.due().await;
                self.look(&due).await;
            }
        };
        shutdown.run_until_cancelled(looking).await;
    }

    async fn due(&self) -> Vec<(ChargeId, i32)> {
        loop {
            let rung = self.watches.0.due.notified();
            match self.watches.take_due(Instant::now()) {
                Due::Now(due) => return due,
                Due::At(at) => {
                    tokio::select! {
                        () = rung => {}
                        () = tokio::time::sleep_until(at) => {}
                    }
                }
                Due::Nothing => rung.await,
            }
        }
    }

    async fn look(&mut self, due: &[(ChargeId, i32)]) {
        let ids: Vec<_> = due.iter().map(|(id, _)| id.as_uuid()).collect();
        let versions: Vec<_> = due.iter().map(|(_, version)| *version).collect();
        let found = self
            .session
            .ask(1, async |connection| {
                db::charges::find_changed(connection, &ids, &versions).await
            })
            .await;
        match found {
            Ok(charges) => {
                for charge in charges {
                    match charge {
                        Ok(charge) => self.watches.seen(&charge),
                        Err(error) => {
                            tracing::warn!(error = %Chain(&error), "a charge that clients wait for can't be read");
                        }
                    }
                }
            }
            // Who waits goes on waiting, and is answered with what was last known at the latest.
            Err(error) => {
                tracing::warn!(error = %Chain(&error), "charges that clients wait for could not be looked at");
                tokio::time::sleep(self.watches.0.limits.poll).await;
            }
        }
    }
}
