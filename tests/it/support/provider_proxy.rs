//! A TCP proxy between one process and the provider that can hold or cut the next request of a kind, so that what one
//! worker sends is late while another's goes through. It remembers what went over it.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use payonce::clock::Clock;
use time::OffsetDateTime;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::network::{Network, swallow_all};
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
    /// The connection is reset and the provider never sees the request.
    ResetBefore,
    /// The connection is reset once the provider has answered.
    ResetAfter,
}

/// A request that came, and what became of it.
#[derive(Clone, Debug)]
pub struct Exchange {
    pub at: OffsetDateTime,
    /// `POST /v1/payment_intents`
    pub target: Box<str>,
    pub idempotency_key: Box<str>,
    /// None when it was not answered, or not whole.
    pub status: Option<u16>,
}

pub struct ProviderProxy {
    address: SocketAddr,
    pub network: Arc<Network>,
    shared: Arc<Shared>,
    _running: DropGuard,
}

struct Shared {
    provider: SocketAddr,
    network: Arc<Network>,
    exchanges: Mutex<Vec<Exchange>>,
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
        let network = Arc::<Network>::default();
        let shared = Arc::new(Shared {
            provider,
            network: network.clone(),
            exchanges: Mutex::default(),
            wanted: Mutex::default(),
            held: watch::Sender::new(0),
            released: watch::Sender::new(0),
            connections: watch::Sender::new(0),
        });
        let stop = CancellationToken::new();
        tokio::spawn(accept(listener, shared.clone(), stop.clone()));
        Self {
            address,
            network,
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

    /// What went over it, oldest first.
    pub fn exchanges(&self) -> Vec<Exchange> {
        self.shared.exchanges.lock().unwrap().clone()
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
                () = shared.network.cut() => {}
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
        let request = read_message(&mut client).await.ok()?;
        if shared.network.swallows() {
            swallow_all(&mut client).await;
            return None;
        }
        let number = shared.open(&request);
        let what = shared.take(&request);
        match what {
            Some(Interference::CutBefore) => return None,
            Some(Interference::ResetBefore) => return client.set_zero_linger().ok(),
            Some(Interference::HoldRequest) => shared.hold().await,
            Some(Interference::HoldReply | Interference::CutAfter | Interference::ResetAfter)
            | None => {}
        }
        provider.write_all(&request).await.ok()?;
        let reply = match read_message(&mut provider).await {
            Ok(reply) => reply,
            Err(torn) => {
                let _ = client.write_all(&torn).await;
                return None;
            }
        };
        match what {
            Some(Interference::CutAfter) => return None,
            Some(Interference::ResetAfter) => return client.set_zero_linger().ok(),
            Some(Interference::HoldReply) => shared.hold().await,
            Some(
                Interference::HoldRequest | Interference::CutBefore | Interference::ResetBefore,
            )
            | None => {}
        }
        if shared.network.swallows() {
            swallow_all(&mut client).await;
            return None;
        }
        shared.network.delay().await;
        client.write_all(&reply).await.ok()?;
        shared.close(number, &reply);
    }
}

impl Shared {
    /// Remembers a request and says its number.
    fn open(&self, request: &[u8]) -> usize {
        let head = head_of(request);
        let line = head.lines().next().unwrap_or_default();
        let key = head
            .lines()
            .find_map(|line| line.strip_prefix("idempotency-key:"));
        let mut exchanges = self.exchanges.lock().unwrap();
        exchanges.push(Exchange {
            at: Clock::system().now(),
            target: line.trim_end_matches(" HTTP/1.1").into(),
            idempotency_key: key.unwrap_or_default().trim().into(),
            status: None,
        });
        exchanges.len() - 1
    }

    fn close(&self, number: usize, reply: &[u8]) {
        let head = head_of(reply);
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok());
        self.exchanges.lock().unwrap()[number].status = status;
    }

    fn take(&self, request: &[u8]) -> Option<Interference> {
        let head = head_of(request);
        let path = head.split(' ').nth(1)?;
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

fn head_of(message: &[u8]) -> Cow<'_, str> {
    let end = message.windows(4).position(|four| four == b"\r\n\r\n");
    String::from_utf8_lossy(&message[..end.unwrap_or(message.len())])
}

/// A head and the body that its Content-Length announces; `Err` with what came of it before the end.
async fn read_message(stream: &mut TcpStream) -> Result<Vec<u8>, Vec<u8>> {
    let mut message = Vec::new();
    let mut whole = usize::MAX;
    while message.len() < whole {
        if !matches!(stream.read_buf(&mut message).await, Ok(1..)) {
            return Err(message);
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
    Ok(message)
}
