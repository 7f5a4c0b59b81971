//! Starts the admin listener, in a process of any role.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;

use super::observer::Observer;
use super::{App, AppError};
use crate::http::{self, Readiness, ServerLimits};
use crate::random::Random;

/// Until then, every value that a histogram was given is kept by itself: at 25 000 requests a second, about 2 MB.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);

/// One Prometheus, and a person or two.
const CONNECTIONS: usize = 16;

pub(super) async fn listen(
    key: &'static str,
    address: SocketAddr,
) -> Result<TcpListener, AppError> {
    TcpListener::bind(address)
        .await
        .map_err(|source| AppError::Listen {
            key,
            address,
            source,
        })
}

impl App {
    pub(super) fn start_admin(
        &mut self,
        listener: TcpListener,
        observer: Observer,
        readiness: Readiness,
        random: Random,
    ) {
        self.admin = listener.local_addr().ok();
        let observer = Arc::new(observer);
        let asked = Arc::clone(&observer);
        let scrape = move || {
            let asked = Arc::clone(&asked);
            async move { asked.scrape().await }
        };
        let router = http::admin_router(scrape, readiness, random);
        let limits = ServerLimits {
            connections: CONNECTIONS,
            ..ServerLimits::default()
        };
        let shutdown = self.shutdown.clone();
        self.tasks.spawn(async move {
            let serving = http::serve(listener, router, limits, shutdown);
            let upkeep = async {
                loop {
                    tokio::time::sleep(UPKEEP_INTERVAL).await;
                    observer.upkeep();
                }
            };
            tokio::select! {
                () = serving => {}
                () = upkeep => {}
            }
            "admin"
        });
    }
}
