//! What stands between a client and payonce and does to its requests what networks and proxies do, one after the other.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::{CancellationToken, DropGuard};

/// What happens to one request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fate {
    /// Goes to payonce, and its answer comes back.
    Pass,
    /// Goes to payonce, and its answer is lost.
    LoseAnswer,
    /// Never arrives.
    LoseRequest,
    /// Goes to payonce, and its answer breaks off in the middle.
    CutAnswer,
    /// Is answered in payonce's place: status line and headers, and a body.
    Answer(&'static str, &'static str),
}

/// A request as a client sent it: its key, and its body.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Sent {
    pub(super) key: String,
    pub(super) body: String,
}

pub(super) struct Front {
    pub(super) address: SocketAddr,
    shared: Arc<Shared>,
    _running: DropGuard,
}

struct Shared {
    payonce: SocketAddr,
    /// One for each request; what comes after them passes, unless it is told otherwise.
    fates: Mutex<VecDeque<Fate>>,
    at_last: Fate,
    sent: Mutex<Vec<Sent>>,
}

impl Front {
    pub(super) async fn of(payonce: SocketAddr, fates: &[Fate], at_last: Fate) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            payonce,
            fates: Mutex::new(fates.iter().copied().collect()),
            at_last,
            sent: Mutex::default(),
        });
        let stop = CancellationToken::new();
        let (stopped, each) = (stop.clone(), Arc::clone(&shared));
        tokio::spawn(stopped.run_until_cancelled_owned(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(stream, Arc::clone(&each)));
            }
        }));
        Self {
            address,
            shared,
            _running: stop.drop_guard(),
        }
    }

    pub(super) fn sent(&self) -> Vec<Sent> {
        self.shared.sent.lock().unwrap().clone()
    }

    /// How many of the requests have not met their fate yet.
    pub(super) fn left(&self) -> usize {
        self.shared.fates.lock().unwrap().len()
    }
}

/// One request of a connection, which is closed after it.
async fn serve(mut stream: TcpStream, shared: Arc<Shared>) {
    let Some((head, body)) = read_message(&mut stream).await else {
        return;
    };
    let key = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("idempotency-key")
            .then(|| value.trim().to_owned())
    });
    shared.sent.lock().unwrap().push(Sent {
        key: key.unwrap_or_default(),
        body: body.clone(),
    });
    let next = shared.fates.lock().unwrap().pop_front();
    let answer = match next.unwrap_or(shared.at_last) {
        Fate::LoseRequest => return,
        Fate::Answer(head, body) => {
            let length = body.len();
            format!(
                "HTTP/1.1 {head}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
            )
        }
        fate @ (Fate::Pass | Fate::LoseAnswer | Fate::CutAnswer) => {
            let mut answer = pass(&shared, &head, &body).await;
            match fate {
                Fate::LoseAnswer => return,
                Fate::CutAnswer => answer.truncate(answer.len() - 40),
                Fate::Pass | Fate::LoseRequest | Fate::Answer(..) => {}
            }
            answer
        }
    };
    // A client that is gone is one of the things that are tested.
    let _ = stream.write_all(answer.as_bytes()).await;
    let _ = stream.shutdown().await;
}

async fn pass(shared: &Shared, head: &str, body: &str) -> String {
    let mut payonce = TcpStream::connect(shared.payonce).await.unwrap();
    let lines: Vec<&str> = head
        .lines()
        .filter(|line| !line.to_ascii_lowercase().starts_with("connection:"))
        .collect();
    let request = format!("{}\r\nconnection: close\r\n\r\n{body}", lines.join("\r\n"));
    payonce.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    payonce.read_to_string(&mut answer).await.unwrap();
    answer
}

/// Head and body of a message that says its length.
async fn read_message(stream: &mut TcpStream) -> Option<(String, String)> {
    let mut read = Vec::new();
    loop {
        let mut buffer = [0; 4096];
        let length = stream.read(&mut buffer).await.ok().filter(|n| *n > 0)?;
        read.extend(&buffer[..length]);
        let text = String::from_utf8(read.clone()).ok()?;
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length")
                .then(|| value.trim().parse::<usize>().ok())?
        });
        if body.len() >= length.unwrap_or(0) {
            return Some((head.to_owned(), body.to_owned()));
        }
    }
}
