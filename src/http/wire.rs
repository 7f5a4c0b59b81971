//! A connection as hyper reads and writes it, with the limits that hyper has not.
//!
//! Reading: a head has its time from its first byte, and a connection between two requests another. Writing: a peer that
//! does not read its answer is dropped. And what hyper itself refuses, an empty answer, goes out as a problem. While
//! neither side waits, none of this costs more than a look at the clock.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::http::StatusCode;
use futures_util::FutureExt;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};

use super::code::Code;
use super::head_scan::HeadScan;
use super::problem::ApiError;
use super::request_id;
use super::server::{ServerLimits, ServerMeters};
use crate::random::Random;

/// How long, and for how many bytes, a peer that was refused is heard out before the connection closes: unread bytes
/// would reset it, and the answer would be lost on the way.
const HEARD_OUT: Duration = Duration::from_secs(1);
const HEARD_OUT_BYTES: usize = 1 << 20;

/// How often a connection is looked at whose end can't be waited for.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// What the two ends of a connection, its wire and its service, have in common. One task has both, so nobody ever waits
/// for the lock.
#[derive(Debug)]
pub(super) struct Exchange {
    stream: Mutex<TcpStream>,
    /// Requests that the service was called with, and those of them it has answered.
    called: AtomicU64,
    answered: AtomicU64,
    /// The request, counted from 1, whose head says two lengths.
    ambiguous: AtomicU64,
}

/// The peer of a request, among its extensions.
#[derive(Clone, Debug)]
pub(super) struct Peer(pub(super) Arc<Exchange>);

impl Peer {
    /// Comes back once the peer has hung up. One that has only closed its sending side looks just like it, and must be
    /// answered all the same: hyper is told nothing, and who waits here decides.
    pub(super) async fn hung_up(&self) {
        loop {
            let next = poll_fn(|cx| {
                let mut space = [0];
                self.0.stream().poll_peek(cx, &mut ReadBuf::new(&mut space))
            });
            match next.await {
                Ok(0) | Err(_) => return,
                // The next request has come, and the end behind it wakes nobody.
                Ok(_) if self.0.is_closed_behind() => return,
                Ok(_) => tokio::time::sleep(LOOK_AGAIN).await,
            }
        }
    }
}

impl Exchange {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self {
            stream: Mutex::new(stream),
            called: AtomicU64::default(),
            answered: AtomicU64::default(),
            ambiguous: AtomicU64::default(),
        }
    }

    fn stream(&self) -> MutexGuard<'_, TcpStream> {
        self.stream.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the end has come behind bytes that nobody has read.
    fn is_closed_behind(&self) -> bool {
        let ready = self.stream().ready(Interest::READABLE).now_or_never();
        matches!(ready, Some(Ok(ready)) if ready.is_read_closed())
    }

    /// The next request; whether its head says two lengths.
    pub(super) fn call(&self) -> bool {
        let number = self.called.fetch_add(1, Ordering::Relaxed) + 1;
        self.ambiguous.load(Ordering::Relaxed) == number
    }

    pub(super) fn answer(&self) {
        self.answered.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of the request that is read now, or none while one is served.
    fn reading(&self) -> Option<u64> {
        let called = self.called.load(Ordering::Relaxed);
        (self.answered.load(Ordering::Relaxed) == called).then_some(called + 1)
    }
}

/// How a connection is served.
#[derive(Clone)]
pub(super) struct WireSettings {
    pub(super) limits: ServerLimits,
    pub(super) meters: ServerMeters,
    pub(super) random: Random,
}

pub(super) struct Wire {
    exchange: Arc<Exchange>,
    settings: WireSettings,
    /// The request whose head is read or awaited.
    head: u64,
    /// Whether any of it has come.
    has_begun: bool,
    scan: HeadScan,
    read_by: Deadline,
    write_by: Deadline,
    refusal: Option<Refusal>,
    /// What is still heard of a peer that was refused.
    heard_out: usize,
    hear_until: Deadline,
}

/// What goes out in the place of an answer of hyper's own.
struct Refusal {
    bytes: Vec<u8>,
    written: usize,
}

impl Wire {
    pub(super) fn new(exchange: Arc<Exchange>, settings: WireSettings) -> Self {
        Self {
            exchange,
            settings,
            head: 0,
            has_begun: false,
            scan: HeadScan::default(),
            read_by: Deadline::default(),
            write_by: Deadline::default(),
            refusal: None,
            heard_out: 0,
            hear_until: Deadline::default(),
        }
    }

    /// Sees to it that what is read now has its time.
    fn await_head(&mut self) {
        match self.exchange.reading() {
            Some(head) if head != self.head => {
                self.head = head;
                self.has_begun = false;
                self.scan = HeadScan::default();
                self.read_by.set(self.settings.limits.idle);
            }
            Some(_) => {}
            // A body: whoever reads it gives it its time.
            None => self.read_by.clear(),
        }
    }

    fn took(&mut self, bytes: &[u8]) {
        if bytes.is_empty() || self.exchange.reading() != Some(self.head) {
            return;
        }
        if !self.has_begun {
            self.has_begun = true;
            self.read_by.set(self.settings.limits.head_read);
        }
        self.scan.feed(bytes);
        if self.scan.is_ambiguous() {
            self.exchange.ambiguous.store(self.head, Ordering::Relaxed);
        }
    }

    /// The time is over. An idle connection ends as if the peer had ended it.
    fn read_too_late(&mut self) -> io::Result<()> {
        if !self.has_begun {
            return Ok(());
        }
        self.settings.meters.head_timeout.increment(1);
        // Behind an answer that is not written yet it would be taken for a part of that.
        if !self.write_by.is_set() {
            let wait = self.settings.limits.head_read.as_secs_f32();
            let detail = format!("the head did not arrive within {wait} seconds");
            let bytes = self.problem(Code::RequestTimeout, detail);
            // It has room for it, or the peer does not read either.
            let _ = self.exchange.stream().try_write(&bytes);
        }
        Err(io::ErrorKind::TimedOut.into())
    }

    fn problem(&self, code: Code, detail: String) -> Vec<u8> {
        let id = request_id::made(&self.settings.random);
        ApiError::new(code, detail).on_the_wire(id.to_str().unwrap_or_default())
    }

    /// What to write in the place of an answer that is hyper's own: it has no request id.
    fn refusal(&self, answer: &[u8]) -> Option<Refusal> {
        let status = answer.strip_prefix(b"HTTP/1.1 ")?.get(..3)?;
        let is_own = answer.ends_with(b"\r\n\r\n")
            && self.exchange.reading().is_some()
            && !contains(answer, request_id::HEADER.as_str().as_bytes());
        if !status.starts_with(b"4") || !is_own {
            return None;
        }
        let status = StatusCode::from_bytes(status).ok()?;
        let limits = self.settings.limits;
        let (code, detail) = match status {
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => (
                Code::HeadersTooLarge,
                format!(
                    "the head is larger than {} bytes or has more than {} headers",
                    limits.head_bytes, limits.headers
                ),
            ),
            StatusCode::URI_TOO_LONG => (Code::UriTooLong, Code::UriTooLong.title().to_owned()),
            _ => (
                Code::MalformedRequest,
                "the request line or a header can't be read as HTTP/1.1".to_owned(),
            ),
        };
        self.settings.meters.malformed.increment(1);
        Some(Refusal {
            bytes: self.problem(code, detail),
            written: 0,
        })
    }

    fn write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut *self.exchange.stream()).poll_write(cx, bytes);
        if written.is_pending() {
            // From the first time that the peer has no room until all is written: one byte now and then is too slow too.
            if !self.write_by.is_set() {
                self.write_by.set(self.settings.limits.write);
            }
            if self.write_by.poll_over(cx) {
                self.settings.meters.write_timeout.increment(1);
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
        }
        written
    }

    fn hear_out(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut space = [0; 4096];
        while self.heard_out > 0 && !self.hear_until.poll_over(cx) {
            let mut buffer = ReadBuf::new(&mut space);
            let read = Pin::new(&mut *self.exchange.stream()).poll_read(cx, &mut buffer);
            match read {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    self.heard_out = self.heard_out.saturating_sub(buffer.filled().len());
                }
                Poll::Ready(_) => self.heard_out = 0,
            }
        }
        Poll::Ready(())
    }
}

fn contains(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|part| part == word)
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        this.await_head();
        let before = buffer.filled().len();
        let read = Pin::new(&mut *this.exchange.stream()).poll_read(cx, buffer);
        match read {
            Poll::Ready(read) => {
                this.took(&buffer.filled()[before..]);
                Poll::Ready(read)
            }
            Poll::Pending if this.read_by.poll_over(cx) => Poll::Ready(this.read_too_late()),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        if this.refusal.is_none() {
            this.refusal = this.refusal(bytes);
        }
        let Some(mut refusal) = this.refusal.take() else {
            return this.write(cx, bytes);
        };
        while refusal.written < refusal.bytes.len() {
            match this.write(cx, &refusal.bytes[refusal.written..]) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(written)) => refusal.written += written,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    this.refusal = Some(refusal);
                    return Poll::Pending;
                }
            }
        }
        this.heard_out = HEARD_OUT_BYTES;
        this.hear_until.set(HEARD_OUT);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // All that there was to write is written.
        self.write_by.clear();
        Pin::new(&mut *self.exchange.stream()).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = ready!(Pin::new(&mut *self.exchange.stream()).poll_shutdown(cx));
        ready!(self.hear_out(cx));
        Poll::Ready(shut)
    }
}

/// A time that is moved often and comes seldom: the timer is only told where it would come too early.
#[derive(Default)]
struct Deadline {
    at: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Deadline {
    fn set(&mut self, after: Duration) {
        self.at = Some(Instant::now() + after);
    }

    fn clear(&mut self) {
        self.at = None;
    }

    fn is_set(&self) -> bool {
        self.at.is_some()
    }

    /// Whether it has come; the task is woken when it does.
    fn poll_over(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(at) = self.at else { return false };
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(at)));
        if timer.deadline() > at {
            timer.as_mut().reset(at);
        }
        while timer.as_mut().poll(cx).is_ready() {
            if Instant::now() >= at {
                return true;
            }
            timer.as_mut().reset(at);
        }
        false
    }
}
