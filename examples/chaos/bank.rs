//! Who moves money without being asked by payonce: a bank that decides, decides otherwise later, and somebody who refunds
//! charges on the provider's own pages.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use sqlx::PgConnection;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::books::Books;
use crate::chronicle::Chronicle;
use crate::provider::{self, Provider};
use crate::purchase::{PROCESSING, in_provider_units, step_of};

const ROUND: Duration = Duration::from_millis(500);

pub struct Bank {
    pub books: Arc<Books>,
    pub provider: Arc<Provider>,
    pub chronicle: Arc<Chronicle>,
    pub seed: u64,
    /// Refunds that were completed and failed then, by the provider's ids.
    pub took_back: Mutex<HashSet<String>>,
}

impl Bank {
    /// Goes round until `stop`; after `closed` it only settles. A round that the database fails is left out.
    pub async fn run(&self, closed: CancellationToken, stop: CancellationToken) {
        let mut random = StdRng::seed_from_u64(self.seed);
        while !stop.is_cancelled() {
            if self
                .round(&mut random, closed.is_cancelled())
                .await
                .is_err()
            {
                self.chronicle.count("bank's rounds without a database");
            }
            sleep(ROUND).await;
        }
    }

    async fn round(&self, random: &mut StdRng, is_closed: bool) -> anyhow::Result<()> {
        let mut connection = self.books.connect().await?;
        self.settle(&mut connection, random).await?;
        if !is_closed {
            self.take_back(&mut connection, random).await?;
            self.refund_outside(&mut connection, random).await?;
        }
        Ok(())
    }

    /// Charges and refunds that wait for the bank.
    async fn settle(
        &self,
        connection: &mut PgConnection,
        random: &mut StdRng,
    ) -> anyhow::Result<()> {
        let waiting: Vec<String> = sqlx::query_scalar(
            "SELECT charges.provider_charge_id FROM outbox JOIN charges ON charges.id = outbox.charge_id
             WHERE outbox.kind = 'charge' AND charges.payment_method = $1 AND charges.stage = 'processing'
                 AND charges.provider_charge_id IS NOT NULL
             UNION ALL
             SELECT provider_refund_id FROM refunds
             WHERE finished_at IS NULL AND provider_refund_id IS NOT NULL",
        )
        .bind(PROCESSING)
        .fetch_all(connection)
        .await?;
        for object in waiting {
            let success = random.random_bool(0.7);
            let result = if success { "succeeded" } else { "failed" };
            // One that has succeeded and is not known to have must not fail by this.
            if object.starts_with("re_") && !success {
                self.took_back.lock().unwrap().insert(object.clone());
            }
            self.provider.settle(&object, result).await?;
        }
        Ok(())
    }

    /// A refund that was completed comes back: the customer's account is closed.
    async fn take_back(
        &self,
        connection: &mut PgConnection,
        random: &mut StdRng,
    ) -> anyhow::Result<()> {
        if !random.random_bool(0.5) {
            return Ok(());
        }
        let completed: Vec<String> = sqlx::query_scalar(
            "SELECT provider_refund_id FROM refunds WHERE stage = 'succeeded'
             UNION ALL
             SELECT provider_refund_id FROM external_refunds WHERE counted",
        )
        .fetch_all(connection)
        .await?;
        if let Some(refund) = completed.choose(random) {
            self.took_back.lock().unwrap().insert(refund.clone());
            self.chronicle
                .count("refunds that failed at the bank later");
            self.provider.settle(refund, "failed").await?;
        }
        Ok(())
    }

    /// Somebody gives a customer money back without payonce.
    async fn refund_outside(
        &self,
        connection: &mut PgConnection,
        random: &mut StdRng,
    ) -> anyhow::Result<()> {
        if !random.random_bool(0.6) {
            return Ok(());
        }
        let completed: Vec<(String, i64, String, Option<String>)> = sqlx::query_as(
            "SELECT provider_charge_id, amount, currency, provider_account FROM charges
             WHERE stage = 'succeeded' ORDER BY finished_at DESC LIMIT 50",
        )
        .fetch_all(connection)
        .await?;
        if let Some((object, amount, currency, account)) = completed.choose(random) {
            let step = step_of(currency);
            let share = amount * random.random_range(5..=100) / 100;
            let amount = (share / step).max(1) * step;
            self.chronicle.count("refunds asked for outside payonce");
            let amount = in_provider_units(amount, currency);
            let account = provider::account(account.as_deref());
            self.provider.refund_outside(account, object, amount).await;
        }
        Ok(())
    }
}
