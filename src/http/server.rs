//! The accept loop: HTTP/1.1 on a bounded number of connections, each bounded in its headers and in its idleness.
//!
//! An error of accept never ends the loop. On shutdown nobody new is let in, requests under way are answered within the
//! grace, and then every connection is closed; what intake had taken goes on without its connection.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

#[derive(Clone, Copy, Debug)]
pub struct ServerLimits {
    /// How many connections are served at once; more wait in the listener's backlog.
    pub connections: usize,
    /// How long a request's head may take to arrive, and a connection may be idle.
    pub head_read: Duration,
    /// How long requests under way may take after shutdown has begun.
    pub grace: Duration,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            // Each takes a file descriptor and, when busy, some tens of KiB.
            connections: 8192,
            // Longer than the idle time of the usual client pools and load balancers (60 s), so that they close first.
            head_read: Duration::from_secs(75),
            grace: Duration::from_secs(20),
        }
    }
}

/// The most bytes of a connection that wait to be read or written: headers beyond it are refused with 431.
const MOST_BUFFERED: usize = 64 * 1024;
const MOST_HEADERS: usize = 100;
/// The pause after an accept that failed for want of file descriptors or memory: time for some to be given back.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves until `shutdown`, and returns when the last connection is closed.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    limits: ServerLimits,
    shutdown: CancellationToken,
) {
    let permits = Arc::new(Semaphore::new(limits.connections));
    let connections = TaskTracker::new();
    let closed = CancellationToken::new();
    let server = builder(limits);
    while let Some((stream, permit)) = next(&listener, &permits, &shutdown).await {
        let (server, router) = (server.clone(), router.clone());
        let (shutdown, closed) = (shutdown.clone(), closed.clone());
        connections.spawn(async move {
            serve_connection(&server, stream, router, shutdown, closed).await;
            drop(permit);
        });
    }
    drop(listener);
    connections.close();
    if tokio::time::timeout(limits.grace, connections.wait())
        .await
        .is_err()
    {
        tracing::warn!(
            connections = connections.len(),
            "the grace is over: closing connections with requests under way"
        );
        closed.cancel();
        connections.wait().await;
    }
}

fn builder(limits: ServerLimits) -> http1::Builder {
    let mut server = http1::Builder::new();
    server
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_read)
        // A client that shuts its sending side down still gets its answer.
        .half_close(true)
        .pipeline_flush(true)
        .max_headers(MOST_HEADERS)
        .max_buf_size(MOST_BUFFERED);
    server
}

/// The next connection and its place, or none once `shutdown` has begun.
async fn next(
    listener: &TcpListener,
    permits: &Arc<Semaphore>,
    shutdown: &CancellationToken,
) -> Option<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let accepted = async {
        let permit = Arc::clone(permits).acquire_owned().await.ok()?;
        loop {
            match listener.accept().await {
                Ok((stream, _)) => return Some((stream, permit)),
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    tracing::error!(%error, "accept failed; trying again");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    };
    tokio::select! {
        biased;
        () = shutdown.cancelled() => None,
        accepted = accepted => accepted,
    }
}

/// The peer was gone before it was accepted: nothing is wrong with the listener.
fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
    )
}

async fn serve_connection(
    server: &http1::Builder,
    stream: TcpStream,
    router: Router,
    shutdown: CancellationToken,
    closed: CancellationToken,
) {
    // Without it a small answer waits for the peer's delayed acknowledgement.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY was refused");
    }
    let service = TowerToHyperService::new(router);
    let mut connection = pin!(server.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        biased;
        ended = connection.as_mut() => Some(ended),
        () = shutdown.cancelled() => None,
    };
    let ended = match ended {
        Some(ended) => ended,
        None => {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                biased;
                ended = connection.as_mut() => ended,
                () = closed.cancelled() => return,
            }
        }
    };
    if let Err(error) = ended {
        // A peer that hangs up or speaks no HTTP: its own business.
        tracing::debug!(%error, "a connection ended early");
    }
}
