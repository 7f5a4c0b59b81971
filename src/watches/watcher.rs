//! Looks at what is waited for, for all who wait.

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Due, Watched, Watches};
use crate::batch::Chain;
use crate::db::session::Session;

/// The one task that looks at one kind of object.
pub struct Watcher<T: Watched> {
    watches: Watches<T>,
    session: Session,
}

impl<T: Watched> Watcher<T> {
    pub fn new(watches: Watches<T>, session: Session) -> Self {
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

    async fn due(&self) -> Vec<(T::Id, i32)> {
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

    async fn look(&mut self, due: &[(T::Id, i32)]) {
        let found = self
            .session
            .ask(1, async |connection| T::find_changed(connection, due).await)
            .await;
        match found {
            Ok(objects) => {
                for object in objects {
                    match object {
                        Ok(object) => self.watches.seen(&object),
                        Err(error) => {
                            tracing::warn!(of = T::NAME, error = %Chain(&error), "what clients wait for can't be read");
                        }
                    }
                }
            }
            // Who waits goes on waiting, and is answered with what was last known at the latest.
            Err(error) => {
                tracing::warn!(of = T::NAME, error = %Chain(&error), "what clients wait for could not be looked at");
                tokio::time::sleep(self.watches.0.poll).await;
            }
        }
    }
}
