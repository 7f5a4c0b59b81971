//! One keep-alive connection that costs little: a request is bytes that are there already, a reply is read by its
//! `content-length` and looked at no further.

use std::net::SocketAddr;

use anyhow::Context;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub(crate) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

pub(crate) struct Reply<'a> {
    pub(crate) status: u16,
    pub(crate) body: &'a [u8],
}

impl Reply<'_> {
    pub(crate) fn json(&self) -> anyhow::Result<serde_json::Value> {
        Ok(serde_json::from_slice(self.body)?)
    }

    pub(crate) fn expect(self, status: u16) -> anyhow::Result<Self> {
        anyhow::ensure!(
            self.status == status,
            "{} in place of {status}: {}",
            self.status,
            String::from_utf8_lossy(self.body)
        );
        Ok(self)
    }
}

/// A request with these headers, which end in a line break each, and this body.
pub(crate) fn request(line: &str, headers: &str, body: &str) -> Vec<u8> {
    format!(
        "{line} HTTP/1.1\r\nHost: localhost\r\n{headers}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address)
            .await
            .with_context(|| format!("nothing listens on {address}"))?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            buffer: vec![0; 16 * 1024],
        })
    }

    /// Sends one request and reads its reply.
    pub(crate) async fn call(&mut self, request: &[u8]) -> anyhow::Result<Reply<'_>> {
        self.stream.write_all(request).await?;
        let mut length = 0;
        loop {
            let read = self.stream.read(&mut self.buffer[length..]).await?;
            anyhow::ensure!(read > 0, "the connection was closed before the reply ended");
            length += read;
            if let Some((status, body, end)) = parse(&self.buffer[..length])? {
                anyhow::ensure!(length == end, "more came back than one reply");
                return Ok(Reply {
                    status,
                    body: &self.buffer[body..end],
                });
            }
            if length == self.buffer.len() {
                self.buffer.resize(length * 2, 0);
            }
        }
    }
}

/// The status, where the body begins and where it ends, once all of it is there.
fn parse(bytes: &[u8]) -> anyhow::Result<Option<(u16, usize, usize)>> {
    let Some(head) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else {
        return Ok(None);
    };
    let text = std::str::from_utf8(&bytes[..head])?;
    let status = text.get(9..12).context("no status line")?.parse()?;
    let length: usize = text
        .split("\r\n")
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .context("a reply without its length")?
        .1
        .trim()
        .parse()?;
    let (body, end) = (head + 4, head + 4 + length);
    Ok((bytes.len() >= end).then_some((status, body, end)))
}
