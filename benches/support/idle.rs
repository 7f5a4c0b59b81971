//! An idle service with all its roles and the simulator behind it: how long from POST to `completed`, one at a time,
//! and how much of that is the provider's own.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::books::Books;
use super::http::{self, Connection};
use super::load;
use super::report;
use super::service::Service;
use super::simulator::{SECRET_KEY, Simulator};

/// Longer than a charge takes: in between nothing runs, and nobody asks.
const PAUSE: Duration = Duration::from_millis(60);

pub(crate) async fn measure(books: &Books, charges: usize) -> anyhow::Result<Value> {
    books.empty().await?;
    let simulator = Simulator::start().await?;
    let service = Service::start(books, "api,worker,reconciler", &simulator.settings()).await?;
    let own = provider_alone(simulator.address, charges).await?;
    let client = Client::open(&service, &books.token).await?;
    let (accepted, finished, waited) = client.measure(charges).await?;
    service.stop().await?;
    drop(simulator);

    report::line(&format!(
        "\nidle, {charges} charges one at a time         p50 ms    p99 ms"
    ));
    let row = |name: &str, mut micros: Vec<u32>| {
        micros.sort_unstable();
        let ms = |share| report::percentile(&micros, share) / 1000.0;
        report::line(&format!("{name:40}{:9.2} {:9.2}", ms(0.5), ms(0.99)));
        json!({"p50_ms": ms(0.5), "p99_ms": ms(0.99)})
    };
    Ok(json!({
        "provider": row("the provider's two calls by themselves", own),
        "accepted": row("POST to 202", accepted),
        "finished": row("created_at to finished_at", finished),
        "prefer_wait": row("POST with Prefer: wait=10 to its answer", waited),
    }))
}

/// What the adapter sends for one charge, without anything of ours around it.
async fn provider_alone(address: SocketAddr, charges: usize) -> anyhow::Result<Vec<u32>> {
    let mut connection = Connection::open(address).await?;
    let mut took = Vec::with_capacity(charges);
    for number in 0..charges {
        tokio::time::sleep(PAUSE).await;
        let headers = |suffix: &str| {
            format!(
                "Authorization: Bearer {SECRET_KEY}\r\nIdempotency-Key: alone-{number}{suffix}\r\n\
                 Content-Type: application/x-www-form-urlencoded\r\n"
            )
        };
        let form = "amount=1999&currency=usd&payment_method=pm_card_visa\
                    &automatic_payment_methods%5Benabled%5D=true\
                    &automatic_payment_methods%5Ballow_redirects%5D=never";
        let prepare = http::request("POST /v1/payment_intents", &headers(""), form);
        let begun = Instant::now();
        let object = connection.call(&prepare).await?.expect(200)?.json()?;
        let id = object["id"].as_str().context("an id")?;
        let confirm = http::request(
            &format!("POST /v1/payment_intents/{id}/confirm"),
            &headers("-x1"),
            "error_on_requires_action=true",
        );
        connection.call(&confirm).await?.expect(200)?;
        took.push(micros(begun.elapsed())?);
    }
    Ok(took)
}

struct Client {
    connection: Connection,
    authorization: String,
}

impl Client {
    async fn open(service: &Service, token: &str) -> anyhow::Result<Self> {
        Ok(Self {
            connection: Connection::open(service.api()?).await?,
            authorization: format!("Authorization: Bearer {token}\r\n"),
        })
    }

    /// Until it was accepted as a client sees it, until it was finished by the database's clock, and until the answer of
    /// those that asked the service to wait, in microseconds.
    async fn measure(mut self, charges: usize) -> anyhow::Result<(Vec<u32>, Vec<u32>, Vec<u32>)> {
        let (mut accepted, mut finished, mut waited) = (Vec::new(), Vec::new(), Vec::new());
        for number in 0..charges {
            tokio::time::sleep(PAUSE).await;
            let (charge, took) = self.post(&format!("idle-{number}"), "").await?;
            accepted.push(took);
            let id = charge["id"].as_str().context("an id")?;
            finished.push(self.finished(id).await?);
        }
        for number in 0..charges {
            tokio::time::sleep(PAUSE).await;
            let (charge, took) = self
                .post(&format!("wait-{number}"), "Prefer: wait=10\r\n")
                .await?;
            anyhow::ensure!(charge["status"] == "completed", "not completed: {charge}");
            waited.push(took);
        }
        Ok((accepted, finished, waited))
    }

    async fn post(&mut self, key: &str, more: &str) -> anyhow::Result<(Value, u32)> {
        let headers = format!(
            "{}Idempotency-Key: {key}\r\nContent-Type: application/json\r\n{more}",
            self.authorization
        );
        let request = http::request("POST /v1/charges", &headers, &load::body(key));
        let begun = Instant::now();
        let reply = self.connection.call(&request).await?;
        let took = micros(begun.elapsed())?;
        Ok((reply.expect(202)?.json()?, took))
    }

    /// From `created_at` to `finished_at`. Asks only after a pause, so that asking does not slow down what it asks about.
    async fn finished(&mut self, id: &str) -> anyhow::Result<u32> {
        let show = http::request(&format!("GET /v1/charges/{id}"), &self.authorization, "");
        loop {
            tokio::time::sleep(PAUSE).await;
            let charge = self.connection.call(&show).await?.expect(200)?.json()?;
            let at = |name: &str| {
                let text = charge[name].as_str()?;
                OffsetDateTime::parse(text, &Rfc3339).ok()
            };
            if let (Some(created), Some(finished)) = (at("created_at"), at("finished_at")) {
                anyhow::ensure!(charge["status"] == "completed", "not completed: {charge}");
                return micros((finished - created).try_into()?);
            }
        }
    }
}

fn micros(duration: Duration) -> anyhow::Result<u32> {
    Ok(u32::try_from(duration.as_micros())?)
}
