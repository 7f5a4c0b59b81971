//! Starts the admin listener, in a process of any role.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;

use super::observer::Observer;
use super::{App, AppError};
use crate::http::{self, Readiness, ServerLimits, ServerMeters, ServerSettings};
use crate::meters::Meters;
use crate::random::Random;

/// Until then, every value that a histogram was given is kept by itself: at 25 000 requests a second, about 2 MB.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);

/// That of `defaults.toml`.
const DEFAULT_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9090);

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

/// The admin listener. At the address that nobody chose, a second process of a host goes without one and says so: charges
/// matter more than their measures. An address that was chosen must be had.
pub(super) async fn listener(address: Option<SocketAddr>) -> Result<Option<TcpListener>, AppError> {
    let Some(address) = address else {
        return Ok(None);
    };
    match listen("admin.listen", address).await {
        Ok(listener) => Ok(Some(listener)),
        Err(AppError::Listen { source, .. })
            if address == DEFAULT_ADDRESS && source.kind() == std::io::ErrorKind::AddrInUse =>
        {
            tracing::error!(
                code = "admin_not_listening",
                admin.address = %address,
                "another process has the address: this one is not measured; give it an admin.listen of its own"
            );
            Ok(None)
        }
        Err(error) => Err(error),
    }
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
        let router = http::admin_router(scrape, readiness, random.clone());
        let limits = ServerLimits {
            connections: CONNECTIONS,
            ..ServerLimits::default()
        };
        let settings = ServerSettings {
            limits,
            meters: ServerMeters::new(&Meters::none(), limits),
            random,
        };
        let shutdown = self.shutdown.clone();
        self.tasks.spawn(async move {
            let serving = http::serve(listener, router, settings, shutdown);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Sources};

    #[test]
    fn the_default_address_is_that_of_the_defaults() {
        let config = Config::load(&Sources::default()).unwrap();
        assert_eq!(config.admin.listen, Some(DEFAULT_ADDRESS));
    }

    #[tokio::test]
    async fn an_address_that_was_chosen_must_be_had_and_the_default_need_not() {
        let chosen = TcpListener::bind("127.0.0.1:0").await.unwrap();
        assert!(listener(Some(chosen.local_addr().unwrap())).await.is_err());
        // Whoever has it, this test or another process.
        let _taken = TcpListener::bind(DEFAULT_ADDRESS).await;
        assert!(listener(Some(DEFAULT_ADDRESS)).await.unwrap().is_none());
        assert!(listener(None).await.unwrap().is_none());
    }
}
