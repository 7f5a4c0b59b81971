//! `payonce healthcheck`: for container engines, whose images hold no curl.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::output::Hinted;
use super::settings::Settings;

const REQUEST: &[u8] =
    b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nUser-Agent: payonce-healthcheck\r\nConnection: close\r\n\r\n";
/// A problem's head and body fit several times.
const LONGEST_ANSWER: u64 = 16 * 1024;
/// What the answer may take longer than the database it asks: `/readyz` gives up on that one by itself.
const MARGIN: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
pub(super) struct Healthcheck {
    #[command(flatten)]
    settings: Settings,
}

impl Healthcheck {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let config = self.settings.load()?;
        let limit = config.database.connect_timeout + MARGIN;
        let addresses = [Some(config.http.listen), config.admin.listen];
        ready(addresses.into_iter().flatten().map(reachable), limit).await
    }
}

/// Where a listener on every address is reached from its own host.
fn reachable(mut listen: SocketAddr) -> SocketAddr {
    if listen.ip().is_unspecified() {
        listen.set_ip(match listen {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    listen
}

/// Asks the first address where somebody listens: a process without the role api has an admin listener alone.
async fn ready(
    addresses: impl IntoIterator<Item = SocketAddr>,
    limit: Duration,
) -> anyhow::Result<()> {
    for address in addresses {
        let asked = tokio::time::timeout(limit, ask(address))
            .await
            .with_context(|| format!("{address} did not answer within {limit:?}"))?;
        let answer = match asked {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => continue,
            asked => asked.with_context(|| format!("{address} can't be asked"))?,
        };
        let status = answer.lines().next().unwrap_or_default();
        anyhow::ensure!(
            status.starts_with("HTTP/1.1 200 "),
            "{address} is not ready: {}",
            answer.lines().last().unwrap_or_default()
        );
        return Ok(());
    }
    Err(Hinted::new(
        "nobody listens at http.listen or admin.listen",
        "give this command the configuration of the process that it asks",
    )
    .into())
}

async fn ask(address: SocketAddr) -> std::io::Result<String> {
    let mut connection = TcpStream::connect(address).await?;
    connection.write_all(REQUEST).await?;
    let mut answer = Vec::new();
    connection
        .take(LONGEST_ANSWER)
        .read_to_end(&mut answer)
        .await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Reads one request and gives this answer to it.
    async fn answering(answer: &'static str) -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut connection, _) = listener.accept().await.unwrap();
            let mut request = vec![0; REQUEST.len()];
            connection.read_exact(&mut request).await.unwrap();
            assert_eq!(request, REQUEST);
            connection.write_all(answer.as_bytes()).await.unwrap();
        });
        address
    }

    async fn nobody() -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        listener.local_addr().unwrap()
    }

    #[tokio::test]
    async fn a_ready_process_is_told_from_one_that_is_not_and_from_none() {
        let yes = answering("HTTP/1.1 200 OK\r\n\r\n{}\n").await;
        ready([nobody().await, yes], SECOND).await.unwrap();

        let no = answering("HTTP/1.1 503 Service Unavailable\r\n\r\nwhy").await;
        let error = ready([no, yes], SECOND).await.unwrap_err();
        assert_eq!(error.to_string(), format!("{no} is not ready: why"));

        let error = ready([nobody().await], SECOND).await.unwrap_err();
        assert!(error.downcast_ref::<Hinted>().is_some());
    }

    #[tokio::test]
    async fn a_process_that_hangs_is_not_ready() {
        let mute = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = mute.local_addr().unwrap();
        let error = ready([address], Duration::from_millis(20))
            .await
            .unwrap_err();
        assert!(error.to_string().contains("did not answer within 20ms"));
    }

    #[test]
    fn a_listener_on_every_address_is_asked_on_the_loopback_interface() {
        let reached = |listen: &str| reachable(listen.parse().unwrap()).to_string();
        assert_eq!(reached("0.0.0.0:8080"), "127.0.0.1:8080");
        assert_eq!(reached("[::]:8080"), "[::1]:8080");
        assert_eq!(reached("10.0.0.7:8080"), "10.0.0.7:8080");
    }
}
