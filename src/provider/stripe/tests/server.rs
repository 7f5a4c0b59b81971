//! A server that keeps what it is sent and answers as it is told.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::settings;
use crate::provider::stripe::Stripe;

/// What the server does with a request it has read.
#[derive(Clone)]
pub(super) enum Act {
    /// Answers and keeps the connection.
    Reply(String),
    /// Sends this much and closes.
    Break(String),
    /// Sends the head and then a byte now and then, for ever.
    Trickle(String),
    /// Keeps silent.
    Hang,
}

/// A server that does the acts one after the other, the last again and again.
pub(super) struct Server {
    pub(super) base_url: String,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Server {
    pub(super) async fn start(acts: Vec<Act>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base_url = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let record = Arc::clone(&seen);
        tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(socket, acts.clone(), Arc::clone(&record)));
            }
        });
        Self { base_url, seen }
    }

    pub(super) fn stripe(&self) -> Stripe {
        Stripe::new(settings(&self.base_url)).unwrap()
    }

    pub(super) fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }
}

async fn serve(mut socket: TcpStream, acts: Vec<Act>, seen: Arc<Mutex<Vec<String>>>) {
    while let Some(request) = read_request(&mut socket).await {
        let turn = {
            let mut seen = seen.lock().unwrap();
            seen.push(request);
            seen.len() - 1
        };
        match &acts[turn.min(acts.len() - 1)] {
            Act::Reply(bytes) => socket.write_all(bytes.as_bytes()).await.unwrap(),
            Act::Break(bytes) => {
                socket.write_all(bytes.as_bytes()).await.unwrap();
                return;
            }
            Act::Trickle(head) => {
                socket.write_all(head.as_bytes()).await.unwrap();
                while socket.write_all(b" ").await.is_ok() {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                return;
            }
            Act::Hang => std::future::pending().await,
        }
    }
}

async fn read_request(socket: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    loop {
        let mut chunk = [0; 4096];
        let read = socket
            .read(&mut chunk)
            .await
            .ok()
            .filter(|read| *read > 0)?;
        bytes.extend_from_slice(&chunk[..read]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "))
                .map_or(0, |length| length.parse().unwrap());
            if body.len() >= length {
                return Some(text);
            }
        }
    }
}
