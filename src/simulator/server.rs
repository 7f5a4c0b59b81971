//! Accepts connections and reads requests whole; a handler that decides to drop its connection fails its service, and
//! hyper then closes the connection without a reply.

use std::sync::Arc;
use std::time::Duration;

use axum::http::{Request, Response};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::reply::{Closed, Fate, Reply, ReplyBody};
use super::{Shared, controls, exchange, webhooks};

/// No request of Stripe's API comes near this.
const LARGEST_BODY: usize = 1 << 20;

/// How long requests under way may take once the simulator stops.
const GRACE: Duration = Duration::from_millis(200);

/// Long enough for file descriptors to come back when there are none left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

pub(super) async fn serve(listener: TcpListener, shared: Arc<Shared>, shutdown: CancellationToken) {
    let connections = TaskTracker::new();
    connections.spawn(webhooks::deliver(Arc::clone(&shared)));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = shutdown.cancelled() => break,
        };
        match accepted {
            Ok((stream, _)) => {
                connections.spawn(converse(stream, Arc::clone(&shared), shutdown.clone()));
            }
            Err(error) => {
                tracing::warn!(error = %error, "the simulator could not accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    shared.stop.cancel();
    connections.close();
    connections.wait().await;
}

async fn converse(stream: TcpStream, shared: Arc<Shared>, shutdown: CancellationToken) {
    // Without it an answer may wait for the caller's delayed ACK.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| handle(Arc::clone(&shared), request));
    let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    // How a connection ends is the caller's business, and often the simulator's intention.
    tokio::select! {
        _ = connection.as_mut() => {}
        () = shutdown.cancelled() => {
            connection.as_mut().graceful_shutdown();
            let _ = tokio::time::timeout(GRACE, connection).await;
        }
    }
}

async fn handle(
    shared: Arc<Shared>,
    request: Request<Incoming>,
) -> Result<Response<ReplyBody>, Closed> {
    let (parts, body) = request.into_parts();
    let fate = match Limited::new(body, LARGEST_BODY).collect().await {
        Err(_) => Fate::Answered(Reply::text(
            413,
            "The body is too large, or did not arrive.\n",
        )),
        Ok(body) => {
            let body = body.to_bytes();
            match controls::answer(&shared, &parts, &body).await {
                Some(reply) => Fate::Answered(reply),
                None => exchange::answer(&shared, &parts, &body).await,
            }
        }
    };
    fate.into_response()
}
