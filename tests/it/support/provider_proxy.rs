//! A TCP proxy between one process and the provider that can hold or cut the next request of a kind, so that what one
//! worker sends is late while another's goes through.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::until;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interference {
    /// The request is kept until it is released; it goes on then even if its sender is gone.
    HoldRequest,
    /// The provider has the request and its reply is kept until it is released.
    HoldReply,
    /// The connection closes and the provider never sees the request.
    CutBefore,
    /// The connection closes once the provider has answered.
    CutAfter,
}

pub struct ProviderProxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    _running: DropGuard,
}

struct Shared {
    provider: SocketAddr,
    /// Path suffixes, each for one request.
    wanted: Mutex<Vec<(&'static str, Interference)>>,
    held: watch::Sender<usize>,
    released: watch::Sender<u64>,
    connections: watch::Sender<usize>,
}

/// An address of the proxy's at which connections are refused.
pub struct Closed {
    socket: TcpSocket,
    address: SocketAddr,
}

impl Closed {
    /// Nobody else gets the port: it is bound, and nobody listens.
    pub fn reserve() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = socket.local_addr().unwrap();
        Self { socket, address }
    }

    pub fn base_url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn open(self, provider: SocketAddr) -> ProviderProxy {
        ProviderProxy::run(self.socket.listen(1024).unwrap(), provider)
    }
}

impl ProviderProxy {
    pub fn start(provider: SocketAddr) -> Self {
        Closed::reserve().open(provider)
    }

    fn run(listener: TcpListener, provider: SocketAddr) -> Self {
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            provider,
            wanted: Mutex::default(),
            held: watch::Sender::new(0),
            released: watch::Sender::new(0),
            connections: watch::Sender::new(0),
        });
        let stop = CancellationToken::new();
        tokio::spawn(accept(listener, shared.clone(), stop.clone()));
        Self {
            address,
            shared,
            _running: stop.drop_guard(),
        }
    }

    pub fn base_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The next request whose path ends in `suffix` meets `what`.
    pub fn interfere(&self, suffix: &'static str, what: Interference) {
        self.shared.wanted.lock().unwrap().push((suffix, what));
    }

    /// Returns when a request or a reply is held.
    pub async fn held(&self) {
        until("the proxy holds something", async || {
            (*self.shared.held.borrow() > 0).then_some(())
        })
        .await;
    }

    /// Lets go what is held.
    pub fn release(&self) {
        self.shared.held.send_replace(0);
        self.shared.released.send_modify(|count| *count += 1);
    }

    /// How many connections were made.
    pub fn connections(&self) -> usize {
        *self.shared.connections.borrow()
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>, stop: CancellationToken) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => return,
        };
        let Ok((client, _)) = accepted else { continue };
        shared.connections.send_modify(|count| *count += 1);
        let (shared, stop) = (shared.clone(), stop.clone());
        tokio::spawn(async move {
            tokio::select! {
                _ = converse(client, &shared) => {}
                () = stop.cancelled() => {}
            }
        });
    }
}

/// One request after the other, as HTTP/1.1 clients send them. `None` at the end of the conversation.
async fn converse(mut client: TcpStream, shared: &Shared) -> Option<()> {
    let mut provider = TcpStream::connect(shared.provider).await.ok()?;
    client.set_nodelay(true).ok()?;
    provider.set_nodelay(true).ok()?;
    loop {
        let request = read_message(&mut client).await?;
        let what = shared.take(&request);
        match what {
            Some(Interference::CutBefore) => return None,
            Some(Interference::HoldRequest) => shared.hold().await,
            Some(Interference::HoldReply | Interference::CutAfter) | None => {}
        }
        provider.write_all(&request).await.ok()?;
        let reply = read_message(&mut provider).await?;
        match what {
            Some(Interference::CutAfter) => return None,
            Some(Interference::HoldReply) => shared.hold().await,
            Some(Interference::HoldRequest | Interference::CutBefore) | None => {}
        }
        client.write_all(&reply).await.ok()?;
    }
}

impl Shared {
    fn take(&self, request: &[u8]) -> Option<Interference> {
        let line = request.split(|&byte| byte == b'\r').next()?;
        let path = std::str::from_utf8(line).ok()?.split(' ').nth(1)?;
        let mut wanted = self.wanted.lock().unwrap();
        let at = wanted
            .iter()
            .position(|(suffix, _)| path.ends_with(suffix))?;
        Some(wanted.remove(at).1)
    }

    async fn hold(&self) {
        let mut released = self.released.subscribe();
        self.held.send_modify(|count| *count += 1);
        // An error means that the proxy is gone, and nobody is left to be kept waiting.
        let _ = released.changed().await;
    }
}

/// A head and the body that its Content-Length announces.
async fn read_message(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut message = Vec::new();
    let mut whole = usize::MAX;
    while message.len() < whole {
        if stream.read_buf(&mut message).await.ok()? == 0 {
            return None;
        }
        if whole == usize::MAX
            && let Some(end) = message.windows(4).position(|four| four == b"\r\n\r\n")
        {
            let head = String::from_utf8_lossy(&message[..end]).to_ascii_lowercase();
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length:"))
                .map_or(0, |length| length.trim().parse().unwrap());
            whole = end + 4 + length;
        }
    }
    Some(message)
}
