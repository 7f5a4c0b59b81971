//! What is there at the end: the books, the provider's ledger and its objects.

use std::collections::HashMap;

use anyhow::Context;
use payonce::domain::ids::ChargeId;
use serde_json::Value;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::provider::Provider;
use crate::refund_evidence::Refunds;

pub struct Evidence {
    pub charges: HashMap<String, Row>,
    pub discrepancies: Vec<Discrepancy>,
    /// Jobs without a charge.
    pub orphans: i64,
    /// Money that moved, by stamp.
    pub ledger: HashMap<String, Vec<Moved>>,
    pub objects: Vec<Object>,
    pub refunds: Refunds,
    /// What the provider delivered, by what was done about it.
    pub events: Vec<(String, i64)>,
}

#[derive(Debug, sqlx::FromRow)]
pub struct Row {
    id: Uuid,
    pub idempotency_key: String,
    pub amount: i64,
    pub currency: String,
    pub payment_method: String,
    pub return_url: Option<String>,
    pub reference: Option<String>,
    pub cart: Option<String>,
    pub stage: String,
    pub money: String,
    pub provider_charge_id: Option<String>,
    pub provider_account: Option<String>,
    pub request_status: Option<String>,
    pub jobs: i64,
    pub parked: Option<String>,
    pub amount_refunded: i64,
    pub amount_refunding: i64,
    /// Seconds from the acceptance to the end.
    pub took: Option<f64>,
}

#[derive(Debug)]
pub struct Moved {
    pub object: String,
    pub account: String,
    pub amount: i64,
    pub currency: String,
}

#[derive(Debug)]
pub struct Discrepancy {
    /// The charge's id; empty without one.
    pub charge: String,
    pub kind: String,
    /// The provider's id of what differs: an intent or a refund.
    pub object: String,
    pub resolved: bool,
}

pub struct Object {
    pub id: String,
    pub account: String,
    pub stamp: String,
    /// Somebody tried to charge it.
    pub executed: bool,
}

impl Evidence {
    pub async fn gather(
        connection: &mut PgConnection,
        provider: &Provider,
    ) -> anyhow::Result<Self> {
        let mut ledger: HashMap<String, Vec<Moved>> = HashMap::new();
        for moved in provider.ledger().await? {
            ledger.entry(stamp(&moved)).or_default().push(Moved {
                object: text(&moved, "id")?,
                account: text(&moved, "account")?,
                amount: moved["amount"].as_i64().context("an amount")?,
                currency: text(&moved, "currency")?,
            });
        }
        let mut objects = Vec::new();
        for object in provider.objects().await? {
            objects.push(Object {
                id: text(&object, "id")?,
                account: text(&object, "account")?,
                stamp: stamp(&object),
                executed: !object["latest_charge"].is_null()
                    || matches!(
                        object["status"].as_str(),
                        Some("requires_action" | "processing" | "succeeded")
                    ),
            });
        }
        let orphans = sqlx::query_scalar(
            "SELECT count(*) FROM outbox WHERE NOT EXISTS (SELECT FROM charges WHERE id = outbox.charge_id)",
        )
        .fetch_one(&mut *connection)
        .await?;
        let events = sqlx::query_as(
            "SELECT effect, count(*) FROM provider_events GROUP BY effect ORDER BY effect",
        )
        .fetch_all(&mut *connection)
        .await?;
        Ok(Self {
            events,
            charges: charges(connection).await?,
            discrepancies: discrepancies(connection).await?,
            orphans,
            ledger,
            refunds: Refunds::gather(connection, provider).await?,
            objects,
        })
    }
}

fn stamp(object: &Value) -> String {
    let stamp = object["metadata"]["payonce_charge_id"].as_str();
    stamp.unwrap_or_default().to_owned()
}

pub fn text(object: &Value, name: &str) -> anyhow::Result<String> {
    let text = object[name].as_str();
    Ok(text
        .with_context(|| format!("no {name} in {object}"))?
        .to_owned())
}

async fn charges(connection: &mut PgConnection) -> anyhow::Result<HashMap<String, Row>> {
    let rows: Vec<Row> = sqlx::query_as(
        "SELECT
             charges.id, charges.idempotency_key, amount, currency, payment_method, return_url, reference,
             metadata ->> 'cart' AS cart, stage, money, provider_charge_id, provider_account,
             idempotent_requests.status AS request_status,
             COALESCE(jobs.count, 0) AS jobs, jobs.parked, amount_refunded, amount_refunding,
             extract(epoch FROM finished_at - charges.created_at)::double precision AS took
         FROM charges
         LEFT JOIN idempotent_requests
             ON idempotent_requests.merchant_id = charges.merchant_id
             AND idempotent_requests.operation = 'charge'
             AND idempotent_requests.client_key = charges.idempotency_key
         LEFT JOIN (
             SELECT charge_id, count(*), max(last_error) FILTER (WHERE state = 'parked') AS parked
             FROM outbox
             WHERE kind = 'charge'
             GROUP BY charge_id
         ) AS jobs ON jobs.charge_id = charges.id",
    )
    .fetch_all(connection)
    .await?;
    let named = rows
        .into_iter()
        .map(|row| (ChargeId::from_uuid(row.id).to_string(), row));
    Ok(named.collect())
}

async fn discrepancies(connection: &mut PgConnection) -> anyhow::Result<Vec<Discrepancy>> {
    let rows: Vec<(Option<Uuid>, String, String, bool)> = sqlx::query_as(
        "SELECT charge_id, kind, provider_charge_id, resolved_at IS NOT NULL FROM discrepancies ORDER BY id",
    )
    .fetch_all(connection)
    .await?;
    let name = |id: Option<Uuid>| id.map(|id| ChargeId::from_uuid(id).to_string());
    Ok(rows
        .into_iter()
        .map(|(charge, kind, object, resolved)| Discrepancy {
            charge: name(charge).unwrap_or_default(),
            kind,
            object,
            resolved,
        })
        .collect())
}
