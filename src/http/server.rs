//! The accept loop: HTTP/1.1 on a bounded number of connections, for a bounded number of requests at once.
//!
//! An error of accept never ends the loop. What limits one connection is in [`Wire`]. On shutdown nobody new is let in,
//! requests under way are answered within the grace, and then every connection is closed; what intake had taken goes on
//! without its connection. HTTP/2 is not spoken: a proxy in front may, and this side needs no defence against its abuses.

use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{Version, header};
use axum::response::Response;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use metrics::{Counter, Gauge};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

use super::code::Code;
use super::problem::{ApiError, Unwritten};
use super::wire::{Exchange, Peer, Wire, WireSettings};
use crate::meters::Meters;
use crate::random::Random;

#[derive(Clone, Copy, Debug)]
pub struct ServerLimits {
    /// How many connections are served at once; more wait in the listener's backlog.
    pub connections: usize,
    /// How many requests are served at once; more are refused.
    pub requests: usize,
    /// How long a request's head may take to arrive, from its first byte.
    pub head_read: Duration,
    /// How long a connection may be without a request.
    pub idle: Duration,
    /// How long a peer may take to read an answer.
    pub write: Duration,
    /// The largest head, in bytes.
    pub head_bytes: usize,
    pub headers: usize,
    /// How long requests under way may take after shutdown has begun.
    pub grace: Duration,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            // Each takes a file descriptor and, when busy, some tens of KiB.
            connections: 8192,
            requests: 4096,
            head_read: Duration::from_secs(10),
            // Longer than the idle time of the usual client pools and load balancers (60 s), so that they close first.
            idle: Duration::from_secs(75),
            write: Duration::from_secs(30),
            head_bytes: 16 * 1024,
            headers: 100,
            grace: Duration::from_secs(20),
        }
    }
}

/// What is measured of connections.
#[derive(Clone)]
pub struct ServerMeters {
    open: Gauge,
    overloaded: Counter,
    pub(super) malformed: Counter,
    pub(super) head_timeout: Counter,
    pub(super) write_timeout: Counter,
}

impl ServerMeters {
    pub fn new(meters: &Meters, limits: ServerLimits) -> Self {
        let capacity = meters.gauge(
            "payonce_http_connections_capacity",
            "Connections that may be open; further ones wait to be accepted.",
            &[],
        );
        #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52")]
        capacity.set(limits.connections as f64);
        let refused = |reason| {
            meters.counter(
                "payonce_http_refused_total",
                "What was refused before any route saw it: overloaded (too many requests at once), malformed or too large a head, \
                 head_timeout, and write_timeout (an answer that nobody read).",
                &[("reason", reason)],
            )
        };
        Self {
            open: meters.gauge(
                "payonce_http_connections",
                "Connections that are open.",
                &[],
            ),
            overloaded: refused("overloaded"),
            malformed: refused("malformed"),
            head_timeout: refused("head_timeout"),
            write_timeout: refused("write_timeout"),
        }
    }
}

/// How connections are served.
#[derive(Clone)]
pub struct ServerSettings {
    pub limits: ServerLimits,
    pub meters: ServerMeters,
    pub random: Random,
}

/// The pause after an accept that failed for want of file descriptors or memory: time for some to be given back.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What all connections share.
#[derive(Clone)]
struct Server {
    http: http1::Builder,
    router: Router,
    places: Arc<Semaphore>,
    wire: WireSettings,
    shutdown: CancellationToken,
    closed: CancellationToken,
}

/// Serves until `shutdown`, and returns when the last connection is closed.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    settings: ServerSettings,
    shutdown: CancellationToken,
) {
    let ServerSettings {
        limits,
        meters,
        random,
    } = settings;
    let permits = Arc::new(Semaphore::new(limits.connections));
    let connections = TaskTracker::new();
    let server = Arc::new(Server {
        http: builder(limits),
        router,
        places: Arc::new(Semaphore::new(limits.requests)),
        wire: WireSettings {
            limits,
            meters,
            random,
        },
        shutdown,
        closed: CancellationToken::new(),
    });
    while let Some((stream, permit)) = next(&listener, &permits, &server.shutdown).await {
        let server = Arc::clone(&server);
        connections.spawn(async move {
            server.wire.meters.open.increment(1.0);
            server.serve_connection(stream).await;
            server.wire.meters.open.decrement(1.0);
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
        server.closed.cancel();
        connections.wait().await;
    }
}

fn builder(limits: ServerLimits) -> http1::Builder {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        // The wire's: hyper's counts a connection's idleness as part of the next head.
        .header_read_timeout(None)
        // A client that shuts its sending side down still gets its answer.
        .half_close(true)
        .max_headers(limits.headers)
        .max_buf_size(limits.head_bytes);
    http
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

impl Server {
    async fn serve_connection(&self, stream: TcpStream) {
        // Without it a small answer waits for the peer's delayed acknowledgement.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY was refused");
        }
        let exchange = Arc::new(Exchange::new(stream));
        let wire = Wire::new(Arc::clone(&exchange), self.wire.clone());
        let service = service_fn(|request| self.answer(request, &exchange));
        let mut connection = pin!(self.http.serve_connection(TokioIo::new(wire), service));
        let ended = tokio::select! {
            biased;
            ended = connection.as_mut() => Some(ended),
            () = self.shutdown.cancelled() => None,
        };
        let ended = if let Some(ended) = ended {
            ended
        } else {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                biased;
                ended = connection.as_mut() => ended,
                () = self.closed.cancelled() => return,
            }
        };
        if let Err(error) = ended {
            // A peer that hangs up or speaks no HTTP: its own business.
            tracing::debug!(%error, "a connection ended early");
        }
    }

    /// Hands a request to the router, if it is one and there is a place for it.
    fn answer(
        &self,
        request: hyper::Request<Incoming>,
        exchange: &Arc<Exchange>,
    ) -> impl Future<Output = Result<Response, Infallible>> + use<> {
        let is_ambiguous = exchange.call();
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(Peer(Arc::clone(exchange)));
        let mut place = None;
        if let Some(fault) = fault(&request, is_ambiguous) {
            refuse(&mut request, Code::MalformedRequest, fault);
        } else if !is_of_health(&request) {
            place = Arc::clone(&self.places).try_acquire_owned().ok();
            if place.is_none() {
                self.wire.meters.overloaded.increment(1);
                let detail =
                    "too many requests at once; nothing was stored, send the same request again";
                refuse(&mut request, Code::Overloaded, detail);
            }
        }
        let answer = self.router.clone().oneshot(request);
        let exchange = Arc::clone(exchange);
        async move {
            let answer = answer.await;
            exchange.answer();
            drop(place);
            answer
        }
    }
}

/// The edge answers it in the place of a route.
fn refuse(request: &mut Request, code: Code, detail: &'static str) {
    let error = ApiError::new(code, detail);
    request.extensions_mut().insert(Unwritten(Arc::new(error)));
}

/// What RFC 9112 does not let pass and hyper does.
fn fault(request: &Request, is_ambiguous: bool) -> Option<&'static str> {
    if is_ambiguous {
        return Some("send Content-Length or Transfer-Encoding, not both");
    }
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let has_one = hosts.next().is_some() && hosts.next().is_none();
    (request.version() == Version::HTTP_11 && !has_one).then_some("send exactly one Host header")
}

/// Whoever watches the process must hear from it, however much there is to do.
fn is_of_health(request: &Request) -> bool {
    matches!(request.uri().path(), "/healthz" | "/readyz")
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
            idle: Duration::from_millis(400),
            write: Duration::from_millis(200),
            requests: 1,
            grace: Duration::from_millis(200),
            ..ServerLimits::default()
        };
        let settings = ServerSettings {
            limits,
            meters: ServerMeters::new(&Meters::none(), limits),
            random: Random::from_seed(7),
        };
        let server = tokio::spawn(serve(listener, router, settings, shutdown.clone()));
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

    /// A problem, and the code in it.
    fn problem(answer: &str, status: &str) -> String {
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        assert!(head.contains("content-type: application/problem+json"));
        assert!(head.contains(&format!("content-length: {}", body.len())));
        assert!(head.contains("connection: close"), "{answer}");
        let problem: serde_json::Value = serde_json::from_str(body).unwrap();
        let id = problem["request_id"].as_str().unwrap();
        assert!(head.contains(&format!("x-request-id: {id}")));
        problem["code"].as_str().unwrap().to_owned()
    }

    #[tokio::test]
    async fn what_is_no_request_is_told_so_by_a_problem_before_the_connection_closes() {
        let limits = ServerLimits::default();
        let many = format!(
            "GET / HTTP/1.1\r\nhost: x\r\n{}\r\n",
            "x: 1\r\n".repeat(limits.headers)
        );
        let large = format!("GET / HTTP/1.1\r\nhost: x\r\nx: {}", "y".repeat(2 << 20));
        for (request, status, code) in [
            (many.as_str(), "431", "headers_too_large"),
            (&large, "431", "headers_too_large"),
            ("garbage\r\n\r\n", "400", "malformed_request"),
            (
                "GET / HTTP/1.1\r\nhost: x\r\nno name: 1\r\n\r\n",
                "400",
                "malformed_request",
            ),
            (
                "GET / HTTP/1.1\r\nhost: x\r\na: 1\r\n b\r\n\r\n",
                "400",
                "malformed_request",
            ),
            (
                "GET / HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nxx",
                "400",
                "malformed_request",
            ),
        ] {
            let (mut stream, ..) = start(Router::new()).await;
            // The service may have enough before it is all sent.
            let _ = stream.write_all(request.as_bytes()).await;
            let answer = read_all(stream).await;
            assert_eq!(problem(&answer, status), code, "{request:.60}");
        }
    }

    #[tokio::test]
    async fn a_head_that_says_two_lengths_or_not_one_host_is_refused_by_the_edge() {
        let chunked = "transfer-encoding: chunked\r\n";
        let length = "content-length: 3\r\n";
        let host = "host: x\r\n";
        for headers in [
            format!("{host}{length}{chunked}"),
            format!("{host}{chunked}{length}"),
            chunked.to_owned(),
            format!("{host}{host}"),
        ] {
            let routes = Router::new()
                .route("/", post(|| async { "routed" }))
                .layer(edge());
            let (mut stream, ..) = start(routes).await;
            let request = format!("POST / HTTP/1.1\r\n{headers}\r\n0\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            let answer = read_all(stream).await;
            assert_eq!(problem(&answer, "400"), "malformed_request", "{headers}");
        }
    }

    fn edge() -> crate::http::edge::EdgeLayer {
        crate::http::edge::EdgeLayer {
            random: Random::from_seed(7),
            meters: None,
        }
    }

    #[tokio::test]
    async fn a_head_that_does_not_end_is_a_408_and_a_connection_without_a_request_just_ends() {
        let (mut stream, ..) = start(Router::new()).await;
        stream.write_all(b"GET / HT").await.unwrap();
        let answer = read_all(stream).await;
        assert_eq!(problem(&answer, "408"), "request_timeout");
        let (stream, ..) = start(Router::new()).await;
        assert_eq!(read_all(stream).await, "");
        // After a request too.
        let routes = Router::new().route("/", get(|| async { "once" }));
        let (mut stream, ..) = start(routes).await;
        stream
            .write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            .await
            .unwrap();
        let answer = read_all(stream).await;
        assert!(answer.ends_with("once"), "{answer}");
    }

    #[tokio::test]
    async fn a_peer_that_does_not_read_is_dropped() {
        let routes = Router::new().route("/", get(|| async { "x".repeat(64 << 20) }));
        let (mut stream, ..) = start(routes).await;
        stream
            .write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            .await
            .unwrap();
        // Nothing more can be written once the service has dropped it.
        let dropped = async {
            loop {
                tokio::time::sleep(Duration::from_millis(20)).await;
                if stream.write_all(b"x").await.is_err() {
                    break;
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(30), dropped)
            .await
            .expect("it is dropped");
    }

    #[tokio::test]
    async fn more_requests_than_places_are_refused_and_health_is_answered() {
        let (begun, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (begins, goes) = (Arc::clone(&begun), Arc::clone(&go));
        let slow = get(move || async move {
            begins.notify_one();
            goes.notified().await;
            "done"
        });
        let routes = Router::new()
            .route("/slow", slow)
            .route("/healthz", get(|| async { "ok" }))
            .layer(edge());
        let (mut first, ..) = start(routes).await;
        let address = first.peer_addr().unwrap();
        let ask = |path: &str| {
            let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
            async move {
                let mut stream = TcpStream::connect(address).await.unwrap();
                stream.write_all(request.as_bytes()).await.unwrap();
                read_all(stream).await
            }
        };
        let request = b"GET /slow HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
        first.write_all(request).await.unwrap();
        begun.notified().await;
        let refused = ask("/slow").await;
        assert!(refused.contains("retry-after: 1"), "{refused}");
        assert_eq!(problem(&refused, "503"), "overloaded");
        assert!(ask("/healthz").await.ends_with("ok"));
        go.notify_one();
        assert!(read_all(first).await.ends_with("done"));
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
