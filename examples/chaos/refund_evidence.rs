//! What is there of refunds at the end: in the books and at the provider.

use std::collections::HashMap;

use anyhow::Context;
use payonce::domain::ids::{ChargeId, RefundId};
use serde_json::Value;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::evidence::text;
use crate::provider::Provider;

pub struct Refunds {
    pub rows: HashMap<String, RefundRow>,
    /// All that the provider has, by the charge's object.
    pub given: HashMap<String, Vec<Given>>,
    /// Refunds that the books count as made outside, and whether as taken from the charge.
    pub outside: HashMap<String, bool>,
}

#[derive(Debug, sqlx::FromRow)]
pub struct RefundRow {
    id: Uuid,
    charge_id: Uuid,
    pub idempotency_key: String,
    pub asked_amount: Option<i64>,
    pub amount: i64,
    pub currency: String,
    pub reason: Option<String>,
    pub mark: Option<String>,
    pub stage: String,
    pub money: String,
    pub attempts: i32,
    pub key_number: i32,
    pub provider_charge_id: String,
    pub provider_refund_id: Option<String>,
    pub failure: Option<String>,
    pub request_status: Option<String>,
    pub jobs: i64,
    /// Seconds from the acceptance to the end.
    pub took: Option<f64>,
}

impl RefundRow {
    pub fn charge(&self) -> String {
        ChargeId::from_uuid(self.charge_id).to_string()
    }
}

/// A refund of the provider's.
#[derive(Debug)]
pub struct Given {
    pub id: String,
    pub stamp: Option<String>,
    /// In the provider's units.
    pub amount: i64,
    pub currency: String,
    pub status: String,
}

impl Given {
    /// Whether it takes from what the charge received.
    pub fn takes(&self) -> bool {
        !matches!(self.status.as_str(), "failed" | "canceled")
    }
}

impl Refunds {
    pub async fn gather(
        connection: &mut PgConnection,
        provider: &Provider,
    ) -> anyhow::Result<Self> {
        let mut given: HashMap<String, Vec<Given>> = HashMap::new();
        for refund in provider.refunds().await? {
            let object = text(&refund, "payment_intent")?;
            given.entry(object).or_default().push(read(&refund)?);
        }
        let outside: Vec<(String, bool)> =
            sqlx::query_as("SELECT provider_refund_id, counted FROM external_refunds")
                .fetch_all(&mut *connection)
                .await?;
        Ok(Self {
            rows: rows(connection).await?,
            given,
            outside: outside.into_iter().collect(),
        })
    }

    /// What the provider has of one refund of ours.
    pub fn with_stamp<'a>(&'a self, id: &'a str, row: &RefundRow) -> Vec<&'a Given> {
        let of_charge = self.given.get(&row.provider_charge_id);
        let of_charge = of_charge.into_iter().flatten();
        of_charge
            .filter(|given| given.stamp.as_deref() == Some(id))
            .collect()
    }
}

fn read(refund: &Value) -> anyhow::Result<Given> {
    let stamp = refund["metadata"]["payonce_refund_id"].as_str();
    Ok(Given {
        id: text(refund, "id")?,
        stamp: stamp.map(str::to_owned),
        amount: refund["amount"].as_i64().context("an amount")?,
        currency: text(refund, "currency")?,
        status: text(refund, "status")?,
    })
}

async fn rows(connection: &mut PgConnection) -> anyhow::Result<HashMap<String, RefundRow>> {
    let rows: Vec<RefundRow> = sqlx::query_as(
        "SELECT
             refunds.id, refunds.charge_id, refunds.idempotency_key, asked_amount, amount, currency, reason,
             metadata ->> 'return' AS mark, stage, money, attempts, key_number, provider_charge_id,
             provider_refund_id, failure ->> 'code' AS failure, idempotent_requests.status AS request_status,
             COALESCE(jobs.count, 0) AS jobs,
             extract(epoch FROM finished_at - refunds.created_at)::double precision AS took
         FROM refunds
         LEFT JOIN idempotent_requests
             ON idempotent_requests.merchant_id = refunds.merchant_id
             AND idempotent_requests.operation = 'refund'
             AND idempotent_requests.client_key = refunds.idempotency_key
         LEFT JOIN (
             SELECT refund_id, count(*)
             FROM outbox
             WHERE kind = 'refund'
             GROUP BY refund_id
         ) AS jobs ON jobs.refund_id = refunds.id",
    )
    .fetch_all(connection)
    .await?;
    let named = rows
        .into_iter()
        .map(|row| (RefundId::from_uuid(row.id).to_string(), row));
    Ok(named.collect())
}
