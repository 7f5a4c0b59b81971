//! How a process ends. SIGTERM or SIGINT asks it to; a second one ends it at once.
//!
//! The order, which the wiring keeps: stop accepting connections; let requests under way finish and drain intake; stop
//! claiming; let calls to the provider finish within the grace; flush completions; release leases that were not begun.
//! What the grace cuts short is safe all the same: its lease runs out, and the next worker reads before it sends.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// The signals that end the process. From the moment it is made they no longer kill it.
#[derive(Debug)]
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

/// One signal that asked the process to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    Interrupt,
    Terminate,
}

impl Asked {
    pub fn name(self) -> &'static str {
        match self {
            Self::Interrupt => "SIGINT",
            Self::Terminate => "SIGTERM",
        }
    }

    /// What a shell would show had the signal killed the process.
    pub fn exit_code(self) -> i32 {
        match self {
            Self::Interrupt => 130,
            Self::Terminate => 143,
        }
    }
}

impl Signals {
    /// Needs a tokio runtime.
    pub fn register() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// The next signal.
    pub async fn next(&mut self) -> Asked {
        tokio::select! {
            _ = self.interrupt.recv() => Asked::Interrupt,
            _ = self.terminate.recv() => Asked::Terminate,
        }
    }

    /// Cancels `shutdown` at the first signal and ends the process at the second. To be spawned; never returns.
    pub async fn watch(mut self, shutdown: CancellationToken) -> ! {
        let first = self.next().await;
        // First of all: nothing that goes wrong with a log may keep a process alive.
        shutdown.cancel();
        tracing::info!(
            signal = first.name(),
            "shutting down; a second signal ends it at once"
        );
        let second = self.next().await;
        tracing::warn!(signal = second.name(), "ended at once");
        std::process::exit(second.exit_code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_signal_cancels_the_token_and_does_not_kill_the_process() {
        let signals = Signals::register().unwrap();
        let shutdown = CancellationToken::new();
        let watching = tokio::spawn(signals.watch(shutdown.clone()));
        let sent = tokio::process::Command::new("kill")
            .args(["-TERM", &std::process::id().to_string()])
            .status()
            .await
            .unwrap();
        assert!(sent.success());
        shutdown.cancelled().await;
        watching.abort();
    }

    #[test]
    fn exit_codes_are_those_of_a_shell() {
        assert_eq!(Asked::Interrupt.exit_code(), 128 + 2);
        assert_eq!(Asked::Terminate.exit_code(), 128 + 15);
    }
}
