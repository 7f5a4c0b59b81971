//! An operator who mends what must be parked, with the operator's own tools, and has the provider compared at the end.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use futures_util::future::try_join_all;
use payonce::domain::ids::{ChargeId, RefundId};
use sqlx::PgConnection;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::books::Books;
use crate::chronicle::Chronicle;
use crate::program;
use crate::provider::{DEFAULT, Provider, SIDE};

/// The fault that must park a job is `unsaved_400`: the provider calls a parameter of ours wrong. Once somebody has
/// looked at it, it goes on.
const MENDED: &str = "request_rejected";
/// A partial charge must park, and stays so: money moved, and not what was asked for.
const LEFT: &str = "amount_differs";

const ROUND: Duration = Duration::from_millis(700);
/// How long the merchant stays on one of the provider's accounts.
const STAY: Duration = Duration::from_secs(3);
/// Refunds are mended one by a command; so many commands at once.
const COMMANDS: usize = 4;

pub struct Staff {
    pub books: Arc<Books>,
    pub provider: Arc<Provider>,
    pub chronicle: Arc<Chronicle>,
}

impl Staff {
    /// Goes round until `stop`; a round that the database fails is left out.
    pub async fn run(&self, stop: CancellationToken) {
        while !stop.is_cancelled() {
            if self.round().await.is_err() {
                self.chronicle.count("operator's rounds without a database");
            }
            sleep(ROUND).await;
        }
    }

    /// Puts the merchant from one of the provider's accounts on the other and back, until `closed`.
    pub async fn move_about(&self, closed: CancellationToken) {
        let mut elsewhere = [SIDE.name, "--default"].into_iter().cycle();
        while let (Some(account), false) = (elsewhere.next(), closed.is_cancelled()) {
            let moved = program::configured(
                &["merchants", "set-account", "shop", account],
                &self.books.url,
            );
            let moved = async { anyhow::Ok(moved?.output().await?.status.success()) };
            match moved.await {
                Ok(true) => self.chronicle.count("moves of the merchant"),
                Ok(false) | Err(_) => self.chronicle.count("moves without a database"),
            }
            closed.run_until_cancelled(sleep(STAY)).await;
        }
    }

    async fn round(&self) -> anyhow::Result<()> {
        let mut connection = self.books.connect().await?;
        self.mend_charges(&mut connection).await?;
        self.mend_refunds(&mut connection).await
    }

    async fn mend_charges(&self, connection: &mut PgConnection) -> anyhow::Result<()> {
        let parked: Vec<(Uuid, Option<String>)> = sqlx::query_as(
            "SELECT charge_id, last_error FROM outbox
             WHERE state = 'parked' AND kind = 'charge' AND last_error IS DISTINCT FROM $1
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
            self.met("", &charge, reason);
            arguments.push(charge);
        }
        if arguments.len() > 4 {
            let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
            program::output(&arguments, &self.books.url).await?;
        }
        Ok(())
    }

    async fn mend_refunds(&self, connection: &mut PgConnection) -> anyhow::Result<()> {
        let parked: Vec<(Uuid, Option<String>)> = sqlx::query_as(
            "SELECT refund_id, last_error FROM outbox
             WHERE state = 'parked' AND kind = 'refund'
             ORDER BY id LIMIT 100",
        )
        .fetch_all(connection)
        .await?;
        let mut refunds = Vec::new();
        for (refund, reason) in parked {
            let refund = RefundId::from_uuid(refund).to_string();
            self.met("refund ", &refund, reason);
            refunds.push(refund);
        }
        for some in refunds.chunks(COMMANDS) {
            let retries = some.iter().map(async |refund| {
                let arguments = ["refunds", "retry", refund, "--reason", "chaos"];
                program::output(&arguments, &self.books.url).await
            });
            try_join_all(retries).await?;
        }
        Ok(())
    }

    fn met(&self, kind: &str, id: &str, reason: Option<String>) {
        let reason = reason.unwrap_or_default();
        self.chronicle.count(format!("parked {kind}{reason}"));
        if reason != MENDED {
            let what = format!("it is parked: {reason}");
            let promise = "only faults that must park do";
            self.chronicle.breach(promise, Some(id), what);
        }
    }

    /// Charges and refunds that are open and not to be left so, and refunds that are to be read again.
    pub async fn open(&self) -> anyhow::Result<i64> {
        let mut connection = self.books.connect().await?;
        Ok(sqlx::query_scalar(
            "SELECT
                 (
                     SELECT count(*) FROM charges LEFT JOIN outbox ON outbox.charge_id = charges.id AND outbox.kind = 'charge'
                     WHERE finished_at IS NULL
                         AND (outbox.state IS DISTINCT FROM 'parked' OR outbox.last_error IS DISTINCT FROM $1)
                 )
                 + (SELECT count(*) FROM refunds WHERE finished_at IS NULL OR recheck_at IS NOT NULL)
                 + (
                     SELECT count(*) FROM outbox JOIN refunds ON refunds.id = outbox.refund_id
                     WHERE finished_at IS NOT NULL AND recheck_at IS NULL
                 )
                 + (SELECT count(*) FROM sweeps WHERE finished_at IS NULL)",
        )
        .bind(LEFT)
        .fetch_one(&mut connection)
        .await?)
    }

    /// Deliveries that are still to be made there.
    pub async fn undelivered(&self, endpoint: &str) -> anyhow::Result<i64> {
        let mut connection = self.books.connect().await?;
        Ok(sqlx::query_scalar(
            "SELECT count(*) FROM webhook_deliveries WHERE endpoint_id = $1 AND state IN ('due', 'leased')",
        )
        .bind(endpoint.trim_start_matches("whe_").parse::<Uuid>()?)
        .fetch_one(&mut connection)
        .await?)
    }

    /// Compares all that the provider has with the books, as `payonce reconcile` does.
    pub async fn compare(&self) -> anyhow::Result<()> {
        let arguments = ["reconcile", "--since", "24h"];
        let base_url = format!("http://{}", self.provider.address);
        let ended = program::configured(&arguments, &self.books.url)?
            .env("PAYONCE__PROVIDER__STRIPE__BASE_URL", base_url)
            .output()
            .await
            .context("reconcile")?;
        let told = String::from_utf8_lossy(&ended.stderr);
        // It ends with 1 where discrepancies are open, which the checks judge.
        for account in [DEFAULT.name, SIDE.name] {
            let swept = format!("swept the account `{account}`");
            anyhow::ensure!(told.contains(&swept), "reconcile: {told}");
        }
        Ok(())
    }
}
