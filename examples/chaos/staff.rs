//! Who else is there: an operator who mends what must be parked, with the operator's own tool, and a bank that decides.

use std::sync::Arc;
use std::time::Duration;

use payonce::domain::ids::ChargeId;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use sqlx::PgConnection;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::books::Books;
use crate::chronicle::Chronicle;
use crate::program;
use crate::provider::Provider;
use crate::purchase::PROCESSING;

/// The fault that must park a job is `unsaved_400`: the provider calls a parameter of ours wrong. Once somebody has
/// looked at it, it goes on.
const MENDED: &str = "request_rejected";
/// A partial charge must park, and stays so: money moved, and not what was asked for.
const LEFT: &str = "amount_differs";

const ROUND: Duration = Duration::from_millis(700);

pub struct Staff {
    pub books: Arc<Books>,
    pub provider: Arc<Provider>,
    pub chronicle: Arc<Chronicle>,
    pub seed: u64,
}

impl Staff {
    /// Goes round until `stop`; a round that the database fails is left out.
    pub async fn run(&self, stop: CancellationToken) {
        let mut random = StdRng::seed_from_u64(self.seed);
        while !stop.is_cancelled() {
            if self.round(&mut random).await.is_err() {
                self.chronicle.count("operator's rounds without a database");
            }
            sleep(ROUND).await;
        }
    }

    async fn round(&self, random: &mut StdRng) -> anyhow::Result<()> {
        let mut connection = self.books.connect().await?;
        self.mend(&mut connection).await?;
        self.settle(&mut connection, random).await
    }

    async fn mend(&self, connection: &mut PgConnection) -> anyhow::Result<()> {
        let parked: Vec<(Uuid, Option<String>)> = sqlx::query_as(
            "SELECT charge_id, last_error FROM outbox
             WHERE state = 'parked' AND last_error IS DISTINCT FROM $1
             ORDER BY id LIMIT 100",
        )
        .bind(LEFT)
        .fetch_all(connection)
        .await?;
        let mut arguments = ["charges", "retry", "--reason", "chaos"]
            .map(str::to_owned)
            .to_vec();
        for (charge, reason) in parked {
            let charge = ChargeId::from_uuid(charge).to_string();
            let reason = reason.unwrap_or_default();
            self.chronicle.count(format!("parked {reason}"));
            if reason != MENDED {
                let what = format!("it is parked: {reason}");
                let promise = "only faults that must park do";
                self.chronicle.breach(promise, Some(&charge), what);
            }
            arguments.push(charge);
        }
        if arguments.len() > 4 {
            let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
            program::output(&arguments, &self.books.url).await?;
        }
        Ok(())
    }

    async fn settle(
        &self,
        connection: &mut PgConnection,
        random: &mut StdRng,
    ) -> anyhow::Result<()> {
        let processing: Vec<String> = sqlx::query_scalar(
            "SELECT charges.provider_charge_id FROM outbox JOIN charges ON charges.id = outbox.charge_id
             WHERE charges.payment_method = $1 AND charges.stage = 'processing'
                 AND charges.provider_charge_id IS NOT NULL",
        )
        .bind(PROCESSING)
        .fetch_all(connection)
        .await?;
        for object in processing {
            let success = random.random_bool(0.7);
            let result = if success { "succeeded" } else { "failed" };
            self.provider.settle(&object, result).await?;
        }
        Ok(())
    }

    /// Charges that are open and not to be left so.
    pub async fn open(&self) -> anyhow::Result<i64> {
        let mut connection = self.books.connect().await?;
        Ok(sqlx::query_scalar(
            "SELECT count(*) FROM charges LEFT JOIN outbox ON outbox.charge_id = charges.id
             WHERE finished_at IS NULL
                 AND (outbox.state IS DISTINCT FROM 'parked' OR outbox.last_error IS DISTINCT FROM $1)",
        )
        .bind(LEFT)
        .fetch_one(&mut connection)
        .await?)
    }
}
