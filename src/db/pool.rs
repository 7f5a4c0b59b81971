//! Connections for the statements of requests: at most so many, made when they are needed.
//!
//! sqlx's own pool asks each connection that it gets back whether it is well, and waits for the answer without a limit: a
//! network that swallows everything for a moment would take its connections for good. Here one that did not answer is
//! thrown away, and its place is free.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sqlx::PgConnection;
use tokio::sync::Semaphore;

use super::session::Session;
use super::{DbError, Fault};

/// A clone is the same pool.
#[derive(Clone)]
pub struct Pool(Arc<Shared>);

struct Shared {
    size: usize,
    places: Semaphore,
    /// How long to wait for a place.
    wait: Duration,
    idle: Mutex<Vec<Session>>,
    session: Box<dyn Fn() -> Session + Send + Sync>,
}

impl Pool {
    pub fn new(
        size: usize,
        wait: Duration,
        session: impl Fn() -> Session + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(Shared {
            size,
            places: Semaphore::new(size),
            wait,
            idle: Mutex::default(),
            session: Box::new(session),
        }))
    }

    /// Asks on a connection of the pool. If the caller goes away meanwhile, so does the connection.
    pub async fn ask<R>(
        &self,
        statements: impl AsyncFnOnce(&mut PgConnection) -> Result<R, DbError>,
    ) -> Result<R, DbError> {
        let shared = &*self.0;
        let place = tokio::time::timeout(shared.wait, shared.places.acquire()).await;
        let Ok(Ok(_place)) = place else {
            return Err(DbError::ConnectTimeout);
        };
        let idle = shared.idle().pop();
        let mut session = idle.unwrap_or_else(|| (shared.session)());
        let limit = session.answer_timeout();
        let connection = session.connection().await?;
        let answer = tokio::time::timeout(limit, statements(connection))
            .await
            .unwrap_or(Err(DbError::AnswerTimeout));
        match &answer {
            // What ended this connection has ended the others too, most often.
            Err(error) => match error.fault() {
                Fault::Unknown => shared.idle().clear(),
                // Read only, perhaps: a session stays so when the database no longer is.
                Fault::Refused => {}
                Fault::Conflict | Fault::Locked | Fault::Data => shared.idle().push(session),
            },
            Ok(_) => shared.idle().push(session),
        }
        answer
    }

    /// How many connections wait for somebody to ask, and how many are in use.
    pub fn look(&self) -> (usize, usize) {
        let used = self.0.size - self.0.places.available_permits();
        (self.0.idle().len(), used)
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool")
            .field("size", &self.0.size)
            .finish_non_exhaustive()
    }
}

impl Shared {
    fn idle(&self) -> MutexGuard<'_, Vec<Session>> {
        // Whole after a panic: each change is one call.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
