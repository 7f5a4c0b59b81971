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
    let ended = if let Some(ended) = ended {
        ended
    } else {
        connection.as_mut().graceful_shutdown();
        tokio::select! {
            biased;
            ended = connection.as_mut() => ended,
            () = closed.cancelled() => return,
        }
    };
    if let Err(error) = ended {
        // A peer that hangs up or speaks no HTTP: its own business.
        tracing::debug!(%error, "a connection ended early");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::routing::{get, post};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::sync::Notify;

    /// A server whose `/slow` answers once the notification has come.
    async fn start(router: Router) -> (TcpStream, CancellationToken, tokio::task::JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap());
        let shutdown = CancellationToken::new();
        let limits = ServerLimits {
            head_read: Duration::from_millis(200),
            grace: Duration::from_millis(200),
            ..ServerLimits::default()
        };
        let server = tokio::spawn(serve(listener, router, limits, shutdown.clone()));
        (stream.await.unwrap(), shutdown, server)
    }

    async fn read_all(mut stream: TcpStream) -> String {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn a_client_that_closes_its_sending_side_is_answered() {
        let slow = get(|| async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            "done"
        });
        let (mut stream, ..) = start(Router::new().route("/slow", slow)).await;
        let request = b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\n";
        stream.write_all(request).await.unwrap();
        stream.shutdown().await.unwrap();
        assert!(read_all(stream).await.ends_with("done"));
    }

    #[tokio::test]
    async fn a_head_that_is_too_large_or_no_http_is_answered_before_the_connection_closes() {
        let headers = "x: 1\r\n".repeat(MOST_HEADERS + 1);
        let large = format!("GET / HTTP/1.1\r\nhost: x\r\n{headers}\r\n");
        for (request, status) in [(large.as_str(), "431"), ("garbage\r\n\r\n", "400")] {
            let (mut stream, ..) = start(Router::new()).await;
            stream.write_all(request.as_bytes()).await.unwrap();
            let answer = read_all(stream).await;
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {status}")),
                "{answer}"
            );
        }
    }

    #[tokio::test]
    async fn a_head_that_does_not_end_closes_the_connection() {
        let (mut stream, ..) = start(Router::new()).await;
        stream.write_all(b"GET / HT").await.unwrap();
        assert_eq!(read_all(stream).await, "");
    }

    #[tokio::test]
    async fn a_request_under_way_at_shutdown_is_answered_and_the_server_ends() {
        let (begun, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (begins, goes) = (Arc::clone(&begun), Arc::clone(&go));
        let slow = post(move || async move {
            begins.notify_one();
            goes.notified().await;
            "done"
        });
        let (mut stream, shutdown, server) = start(Router::new().route("/slow", slow)).await;
        let request = b"POST /slow HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n";
        stream.write_all(request).await.unwrap();
        begun.notified().await;
        shutdown.cancel();
        go.notify_one();
        assert!(read_all(stream).await.ends_with("done"));
        server.await.unwrap();
    }

    #[tokio::test]
    async fn a_request_that_outlasts_the_grace_is_cut_off() {
        let begun = Arc::new(Notify::new());
        let begins = Arc::clone(&begun);
        let never = get(move || async move {
            begins.notify_one();
            std::future::pending::<()>().await;
        });
        let (mut stream, shutdown, server) = start(Router::new().route("/never", never)).await;
        let request = b"GET /never HTTP/1.1\r\nhost: x\r\n\r\n";
        stream.write_all(request).await.unwrap();
        begun.notified().await;
        shutdown.cancel();
        server.await.unwrap();
        assert_eq!(read_all(stream).await, "");
    }
}
