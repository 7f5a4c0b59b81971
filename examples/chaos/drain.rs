//! The faults have stopped: everything that was accepted must end, be compared with the provider, and be told.

use std::time::Duration;

use anyhow::Context;
use futures_util::future::try_join_all;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::client::Client;
use crate::options::Options;
use crate::world::World;

/// How long everything that is open may take to end: the customers' time, the longest lease, a backlog.
const DRAIN_LIMIT: Duration = Duration::from_mins(2);
/// How long clients may take to get the answers they wait for.
const ANSWER_LIMIT: Duration = Duration::from_mins(1);
const PAUSE: Duration = Duration::from_millis(200);

impl World {
    pub async fn drain(
        &self,
        options: &Options,
        clients: Vec<JoinHandle<Client>>,
    ) -> anyhow::Result<Vec<Client>> {
        self.chronicle.tell("the faults have stopped");
        self.closed.cancel();
        self.endpoints.good.calm();
        let joined = timeout(ANSWER_LIMIT, try_join_all(clients)).await;
        let mut clients = joined.context("clients wait for an answer for ever")??;
        let mut accepted = u64::MAX;
        // What was accepted after the copy was made is not in it, and a refund has to wait for its charge and for its share.
        while options.restore && accepted != self.accepted() {
            accepted = self.accepted();
            clients = ask_again(clients).await?;
            self.end("open charges and refunds", async || self.staff.open().await)
                .await?;
        }
        self.end("open charges and refunds", async || self.staff.open().await)
            .await?;
        // Of what happens at the provider alone, no event may have come.
        let compared = timeout(ANSWER_LIMIT, async {
            // A database that has just recovered may be slow to take a connection.
            while let Err(error) = self.staff.compare().await {
                self.chronicle.tell(&format!("{error:#}"));
                sleep(PAUSE).await;
            }
        });
        compared.await.context("the provider is not compared")?;
        self.chronicle.tell("all was compared with the provider");
        self.end("open charges and refunds", async || self.staff.open().await)
            .await?;
        let good = &self.endpoints.good_id;
        self.end("events to be delivered", async || {
            self.staff.undelivered(good).await
        })
        .await?;
        Ok(clients)
    }

    fn accepted(&self) -> u64 {
        self.chronicle.figure("accepted") + self.chronicle.figure("refunds accepted")
    }

    /// Until nothing is left, or for as long as it may take.
    async fn end(
        &self,
        what: &str,
        count: impl AsyncFn() -> anyhow::Result<i64>,
    ) -> anyhow::Result<()> {
        let began = Instant::now();
        let mut left = count().await?;
        while left > 0 && began.elapsed() < DRAIN_LIMIT {
            sleep(PAUSE).await;
            for service in self.services.iter() {
                // What a fault was still waiting for may have come only now.
                service.calm();
            }
            left = count().await?;
        }
        let took = began.elapsed().as_secs_f64();
        self.chronicle
            .tell(&format!("{left} {what} after {took:.1} s"));
        Ok(())
    }
}

pub async fn ask_again(clients: Vec<Client>) -> anyhow::Result<Vec<Client>> {
    let asking = clients
        .into_iter()
        .map(|client| tokio::spawn(client.ask_again()));
    let answered = timeout(ANSWER_LIMIT * 10, try_join_all(asking)).await;
    Ok(answered.context("asking again takes too long")??)
}
