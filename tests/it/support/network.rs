//! How the network behind a proxy is: fair, down, silent or slow.

use std::future::pending;
use std::sync::Mutex;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::watch;

pub struct Network {
    weather: watch::Sender<Weather>,
    reply_delay: Mutex<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Weather {
    Fair,
    /// Connections are closed, and new ones as soon as they are made.
    Refusing,
    /// Nothing goes through and nothing is closed. A connection that met it stays silent until its client
    /// gives up.
    Silent,
}

impl Default for Network {
    fn default() -> Self {
        Self {
            weather: watch::Sender::new(Weather::Fair),
            reply_delay: Mutex::default(),
        }
    }
}

impl Network {
    /// The other side is down.
    pub fn refuse(&self) {
        self.weather.send_replace(Weather::Refusing);
    }

    /// Everything is swallowed.
    pub fn swallow(&self) {
        self.weather.send_replace(Weather::Silent);
    }

    pub fn recover(&self) {
        self.weather.send_replace(Weather::Fair);
    }

    pub fn delay_replies(&self, delay: Duration) {
        *self.reply_delay.lock().unwrap() = delay;
    }

    pub(super) fn refuses(&self) -> bool {
        *self.weather.borrow() == Weather::Refusing
    }

    /// Returns when connections must close.
    pub(super) async fn cut(&self) {
        let mut weather = self.weather.subscribe();
        let refusing = weather.wait_for(|weather| *weather == Weather::Refusing);
        if refusing.await.is_err() {
            pending::<()>().await;
        }
    }

    pub(super) fn swallows(&self) -> bool {
        *self.weather.borrow() == Weather::Silent
    }

    pub(super) async fn delay(&self) {
        let delay = *self.reply_delay.lock().unwrap();
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
    }
}

/// Swallows whatever still comes, until the sender gives up.
pub(super) async fn swallow_all(from: &mut (impl AsyncRead + Unpin)) {
    let mut swallowed = [0; 4096];
    while matches!(from.read(&mut swallowed).await, Ok(1..)) {}
}
