//! A TCP proxy in front of Postgres that reads along. It recognises a statement by its text, where it is executed, and
//! lets a fault strike exactly there: before the statement is forwarded or after it was committed.

use std::collections::HashMap;
use std::future::pending;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::network::{Network, swallow_all};

/// Text of the statement that accepts.
pub const INSERT_BATCH: &str = "INSERT INTO idempotent_requests";
/// Text of the statement that reads what others made.
pub const READ_WINNERS: &str = "LEFT JOIN idempotent_requests";

pub struct DatabaseProxy {
    url: String,
    pub network: Arc<Network>,
    shared: Arc<Shared>,
    _running: DropGuard,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The connection is cut in the statement's place.
    CutBefore,
    /// The statement is executed and committed; its reply is thrown away and the connection cut.
    CutAfter,
    /// The statement is kept back until it is released.
    HoldBefore,
    /// The statement is executed and committed; its reply is kept back until it is released.
    HoldAfter,
}

struct Shared {
    upstream: String,
    network: Arc<Network>,
    armed: Mutex<Vec<Arm>>,
    /// How often each statement was sent.
    executed: Mutex<HashMap<String, usize>>,
}

struct Arm {
    text: &'static str,
    fault: Fault,
    struck: oneshot::Sender<()>,
    go: Arc<Notify>,
}

/// A fault that waits for its statement, or has met it.
pub struct Armed {
    struck: Option<oneshot::Receiver<()>>,
    go: Arc<Notify>,
}

impl Armed {
    /// Returns when the fault has met its statement; after it, with [`Fault::CutAfter`] and [`Fault::HoldAfter`].
    pub async fn struck(&mut self) {
        if let Some(struck) = self.struck.take() {
            tokio::time::timeout(super::PATIENCE, struck)
                .await
                .expect("the statement comes")
                .unwrap();
        }
    }

    /// Lets go what is held.
    pub fn release(self) {
        self.go.notify_one();
    }
}

impl DatabaseProxy {
    pub async fn start(database_url: &str) -> Self {
        let (before, rest) = database_url.split_once('@').unwrap();
        let (upstream, after) = rest.split_once('/').unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let network = Arc::<Network>::default();
        let shared = Arc::new(Shared {
            upstream: upstream.to_owned(),
            network: network.clone(),
            armed: Mutex::default(),
            executed: Mutex::default(),
        });
        let stop = CancellationToken::new();
        tokio::spawn(stop.clone().run_until_cancelled_owned(accept(
            listener,
            shared.clone(),
            stop.clone(),
        )));
        Self {
            url: url_through(before, at, after),
            network,
            shared,
            _running: stop.drop_guard(),
        }
    }

    /// The database's address, through the proxy.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The next execution of a statement that contains `text` meets `fault`, once.
    pub fn arm(&self, text: &'static str, fault: Fault) -> Armed {
        let (struck, strikes) = oneshot::channel();
        let go = Arc::new(Notify::new());
        self.shared.armed.lock().unwrap().push(Arm {
            text,
            fault,
            struck,
            go: go.clone(),
        });
        Armed {
            struck: Some(strikes),
            go,
        }
    }

    /// How often statements that contain `text` were sent.
    pub fn executions(&self, text: &str) -> usize {
        let executed = self.shared.executed.lock().unwrap();
        let with_text = executed.iter().filter(|(sql, _)| sql.contains(text));
        with_text.map(|(_, count)| count).sum()
    }
}

fn url_through(before: &str, at: SocketAddr, after: &str) -> String {
    let separator = if after.contains('?') { '&' } else { '?' };
    // Without TLS there is something to read along.
    format!("{before}@{at}/{after}{separator}sslmode=disable")
}

async fn accept(listener: TcpListener, shared: Arc<Shared>, stop: CancellationToken) {
    loop {
        let (client, _) = listener.accept().await.unwrap();
        let link = link(client, shared.clone());
        tokio::spawn(stop.clone().run_until_cancelled_owned(link));
    }
}

async fn link(client: TcpStream, shared: Arc<Shared>) {
    if shared.network.refuses() {
        return;
    }
    // Postgres is down.
    let Ok(server) = TcpStream::connect(&shared.upstream).await else {
        return;
    };
    if client.set_nodelay(true).is_err() || server.set_nodelay(true).is_err() {
        return;
    }
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let strike = Strike::default();
    tokio::select! {
        () = requests(from_client, to_server, &shared, &strike) => {}
        () = replies(from_server, to_client, &shared, &strike) => {}
        () = shared.network.cut() => {}
    }
}

/// What the replies of this connection must do next.
#[derive(Default)]
struct Strike(Mutex<Option<Arm>>);

/// Ends when the client does, or at a cut.
async fn requests(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    shared: &Shared,
    strike: &Strike,
) {
    let mut statements = HashMap::new();
    let mut is_started = false;
    while let Some(message) = read_message(&mut from, is_started).await {
        is_started = true;
        if shared.network.swallows() {
            swallow_all(&mut from).await;
            return;
        }
        if let Some(arm) = met(&message, &mut statements, shared) {
            match arm.fault {
                Fault::CutBefore => {
                    let _ = arm.struck.send(());
                    return;
                }
                Fault::HoldBefore => {
                    let _ = arm.struck.send(());
                    arm.go.notified().await;
                }
                Fault::CutAfter | Fault::HoldAfter => *strike.0.lock().unwrap() = Some(arm),
            }
        }
        if to.write_all(&message).await.is_err() {
            return;
        }
    }
}

/// One message of a client, as it came; the first has no type.
async fn read_message(from: &mut OwnedReadHalf, is_started: bool) -> Option<Vec<u8>> {
    let head = if is_started { 5 } else { 4 };
    let mut message = vec![0; head];
    from.read_exact(&mut message).await.ok()?;
    let length = u32::from_be_bytes(message[head - 4..].try_into().unwrap()) as usize;
    message.resize(head - 4 + length, 0);
    from.read_exact(&mut message[head..]).await.ok()?;
    Some(message)
}

/// Learns prepared statements, and says which fault waits for the one that is executed.
fn met(message: &[u8], statements: &mut HashMap<Vec<u8>, String>, shared: &Shared) -> Option<Arm> {
    let mut texts = message.get(5..)?.split(|byte| *byte == 0);
    match message[0] {
        b'P' => {
            let name = texts.next()?.to_vec();
            let sql = String::from_utf8_lossy(texts.next()?).into_owned();
            statements.insert(name, sql);
            None
        }
        b'B' => {
            let sql = statements.get(texts.nth(1)?)?;
            shared.count(sql);
            let mut armed = shared.armed.lock().unwrap();
            let index = armed.iter().position(|arm| sql.contains(arm.text))?;
            Some(armed.remove(index))
        }
        _ => None,
    }
}

impl Shared {
    fn count(&self, sql: &str) {
        let mut executed = self.executed.lock().unwrap();
        match executed.get_mut(sql) {
            Some(count) => *count += 1,
            None => {
                executed.insert(sql.to_owned(), 1);
            }
        }
    }
}

/// Ends when the server does, or at a cut.
async fn replies(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    shared: &Shared,
    strike: &Strike,
) {
    let mut reply = Vec::with_capacity(16 * 1024);
    loop {
        match from.read_buf(&mut reply).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        if shared.network.swallows() {
            // The other half notices when the client gives up.
            pending::<()>().await;
        }
        let is_whole = is_ready(&reply);
        let arm = {
            let mut strike = strike.0.lock().unwrap();
            if strike.is_some() && !is_whole {
                continue;
            }
            strike.take()
        };
        if let Some(arm) = arm {
            let _ = arm.struck.send(());
            if arm.fault == Fault::CutAfter {
                return;
            }
            arm.go.notified().await;
        }
        shared.network.delay().await;
        if to.write_all(&reply).await.is_err() {
            return;
        }
        reply.clear();
    }
}

/// Whether a reply ends with `ReadyForQuery` outside a transaction, which Postgres sends after the commit alone.
fn is_ready(reply: &[u8]) -> bool {
    reply.ends_with(b"Z\0\0\0\x05I")
}
