//! The fake provider: an HTTP server that speaks the part of Stripe's API that payonce uses, keeps its rules, and goes
//! wrong on purpose. In `dev`, in the tests and in benchmarks it stands where Stripe would.
//!
//! It knows nothing of payonce but the clock. Its ledger (`GET /_sim/charges`) is what tests assert on: an object moves
//! money once at most, whatever is sent. Given a directory, what it answered survives a restart and a kill.

mod admission;
mod call;
mod cards;
mod controls;
mod currencies;
mod effect;
mod exchange;
mod faults;
mod form;
mod holds;
mod intents;
mod journal;
mod keys;
mod listing;
mod model;
mod params;
mod refunds;
mod refusals;
mod reply;
mod requests;
mod scripted;
mod search;
mod server;
mod state;
#[cfg(test)]
mod tests;
mod webhooks;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use self::faults::{Dice, Settings};
use self::journal::{Journal, JournalError};
use self::state::State;
use self::webhooks::Endpoint;
use crate::clock::Clock;

#[derive(Debug, thiserror::Error)]
pub enum SimulatorError {
    #[error("the simulator cannot listen on {addr}")]
    Listen {
        addr: SocketAddr,
        #[source]
        source: io::Error,
    },
    #[error("the simulator cannot read or write its state")]
    State(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl From<JournalError> for SimulatorError {
    fn from(error: JournalError) -> Self {
        Self::State(error.into())
    }
}

/// A simulator that is bound and not running yet: callers that connect wait until [`Simulator::run`].
#[derive(Debug)]
pub struct Simulator {
    listener: TcpListener,
    local_addr: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    clock: Clock,
    base_url: String,
    /// Ends what goes on in the background: effects that land late, requests that are held.
    stop: CancellationToken,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("base_url", &self.base_url)
            .finish_non_exhaustive()
    }
}

impl Simulator {
    /// Listens on `addr`. Without `state_dir` everything is forgotten at the end; with it, two must not share one.
    pub async fn bind(
        addr: SocketAddr,
        state_dir: Option<PathBuf>,
        clock: Clock,
    ) -> Result<Self, SimulatorError> {
        let listen = |source| SimulatorError::Listen { addr, source };
        let listener = TcpListener::bind(addr).await.map_err(listen)?;
        let local_addr = listener.local_addr().map_err(listen)?;
        let settings = Settings::default();
        let dice = Dice::new(&settings).map_err(|why| SimulatorError::State(why.into()))?;
        // Ids must differ from run to run even when the clock stands still, and need no more than that.
        let id_seed = RandomState::new().build_hasher().finish();
        let mut state = State::new(settings, dice, id_seed);
        if let Some(directory) = state_dir {
            let journal = Journal::open(&directory, &mut state)?;
            state.attach(journal);
        }
        let mut reachable = local_addr;
        if reachable.ip().is_unspecified() {
            reachable.set_ip(std::net::Ipv4Addr::LOCALHOST.into());
        }
        let shared = Shared {
            state: Mutex::new(state),
            clock,
            base_url: format!("http://{reachable}"),
            stop: CancellationToken::new(),
        };
        Ok(Self {
            listener,
            local_addr,
            shared: Arc::new(shared),
        })
    }

    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// For whoever must tell it something while it runs.
    pub fn remote(&self) -> Remote {
        Remote(Arc::clone(&self.shared))
    }

    /// Serves until `shutdown`, then closes every connection after a short grace.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), SimulatorError> {
        server::serve(self.listener, self.shared, shutdown).await;
        Ok(())
    }
}

/// Reaches a simulator from the process that runs it.
#[derive(Clone, Debug)]
pub struct Remote(Arc<Shared>);

impl Remote {
    /// From now on events are delivered there, signed with `secret`.
    pub fn deliver_to(&self, url: String, secret: String) {
        let endpoint = Endpoint::new(url, secret);
        self.0.lock().outgoing.set(endpoint);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic in another request's handler is no reason to stop answering this one's.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ms(&self, state: &mut State) -> i64 {
        let machine = self
            .clock
            .now()
            .unix_timestamp_nanos()
            .div_euclid(1_000_000);
        state.now_ms(i64::try_from(machine).unwrap_or(i64::MAX))
    }
}
