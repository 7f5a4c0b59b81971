//! The edge of the API: waits, limits, and peers that are slow, broken or hostile. Whatever they send, nobody gets a 5xx
//! for it, nothing hangs, and the others are served.

mod hostile;
mod keys;
mod limits;
mod waits;

use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::PATIENCE;
use crate::support::client::Client;

/// An answer as it came off the wire.
#[derive(Debug)]
struct Raw {
    status: u16,
    head: String,
    body: Value,
}

/// Sends bytes and reads until the service closes, which it does within a minute.
async fn exchange(client: &Client, bytes: &[u8]) -> String {
    let mut connection = client.connect().await;
    // The service may have enough before it is all sent.
    let _ = connection.write_all(bytes).await;
    read_all(connection).await
}

async fn read_all(mut connection: TcpStream) -> String {
    let mut answer = Vec::new();
    let read = connection.read_to_end(&mut answer);
    let read = tokio::time::timeout(PATIENCE, read).await;
    // A reset after the answer is an end too.
    let _ = read.expect("nobody hangs");
    String::from_utf8_lossy(&answer).into_owned()
}

/// The answers in what came: each is JSON with its length.
fn answers(mut text: &str) -> Vec<Raw> {
    let mut all = Vec::new();
    while let Some((head, rest)) = text.split_once("\r\n\r\n") {
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
            .map_or(0, |length| length.parse().unwrap());
        let (body, next) = rest.split_at(length);
        all.push(Raw {
            status,
            head: head.to_owned(),
            body: serde_json::from_str(body).unwrap_or(Value::Null),
        });
        text = next;
    }
    all
}

fn only(text: &str) -> Raw {
    let mut all = answers(text);
    assert_eq!(all.len(), 1, "{text}");
    all.pop().unwrap()
}

/// Long enough for whatever should not happen to have happened.
const A_WHILE: Duration = Duration::from_millis(300);
