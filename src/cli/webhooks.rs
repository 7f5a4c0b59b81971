//! `payonce webhooks`.

use std::collections::HashMap;

use clap::Subcommand;
use uuid::Uuid;

use super::database;
use super::output::{self, Hinted, table, time};
use super::settings::Settings;
use crate::db::NEWEST;
use crate::db::merchants;
use crate::db::webhook_deliveries::{self as deliveries, Wanted};
use crate::db::webhook_endpoints as endpoints;
use crate::domain::event::{DeliveryId, EndpointId};
use crate::domain::ids::MerchantId;

/// The most that are shown, and the most that are sent again by one statement.
const LIMIT: i64 = 1000;

#[derive(Debug, Subcommand)]
pub(super) enum Webhooks {
    /// List all merchants' endpoints, oldest first.
    Endpoints {
        #[command(flatten)]
        settings: Settings,
    },
    /// List what was sent to an endpoint, newest first, at most 1000.
    Deliveries {
        /// The endpoint's id.
        #[arg(value_parser = endpoint)]
        endpoint: EndpointId,
        /// Those that were given up alone.
        #[arg(long)]
        failed: bool,
        #[command(flatten)]
        settings: Settings,
    },
    /// Send again, under the same id and with the same bytes: one delivery, or all that an endpoint has yet to take.
    Retry {
        /// The delivery's id.
        #[arg(value_parser = delivery, required_unless_present = "endpoint", conflicts_with = "endpoint")]
        delivery: Option<DeliveryId>,
        /// All of this endpoint's that were given up or wait for their next try.
        #[arg(long, value_name = "ID", value_parser = endpoint)]
        endpoint: Option<EndpointId>,
        #[command(flatten)]
        settings: Settings,
    },
}

fn endpoint(text: &str) -> Result<EndpointId, String> {
    EndpointId::parse(text).ok_or_else(|| "an endpoint's id is whe_ and 32 hex digits".to_owned())
}

fn delivery(text: &str) -> Result<DeliveryId, String> {
    DeliveryId::parse(text).ok_or_else(|| "a delivery's id is whd_ and 32 hex digits".to_owned())
}

impl Webhooks {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Endpoints { settings } => list_endpoints(&settings).await,
            Self::Deliveries {
                endpoint,
                failed,
                settings,
            } => list_deliveries(endpoint, failed, &settings).await,
            Self::Retry {
                delivery: Some(delivery),
                settings,
                ..
            } => retry(delivery, &settings).await,
            Self::Retry {
                endpoint: Some(endpoint),
                settings,
                ..
            } => retry_all(endpoint, &settings).await,
            Self::Retry { .. } => Ok(()),
        }
    }
}

async fn list_endpoints(settings: &Settings) -> anyhow::Result<()> {
    let mut connection = database::connect(&settings.load()?).await?;
    let found = endpoints::list(&mut connection, None).await?;
    if found.is_empty() {
        output::message("there is no webhook endpoint");
        return Ok(());
    }
    let names: HashMap<Uuid, String> = merchants::list(&mut connection)
        .await?
        .into_iter()
        .map(|merchant| (merchant.id, merchant.name))
        .collect();
    let rows: Vec<[String; 5]> = found
        .iter()
        .map(|endpoint| {
            let state = endpoint.disabled_reason.as_deref().map_or_else(
                || "enabled".to_owned(),
                |reason| format!("disabled: {reason}"),
            );
            [
                EndpointId::from_uuid(endpoint.id).to_string(),
                names
                    .get(&endpoint.merchant_id)
                    .cloned()
                    .unwrap_or_else(|| MerchantId::from_uuid(endpoint.merchant_id).to_string()),
                state,
                endpoint.failing_since.map_or_else(String::new, time),
                endpoint.url.clone(),
            ]
        })
        .collect();
    output::data(&table(
        ["id", "merchant", "state", "failing since", "url"],
        &rows,
    ))
}

async fn list_deliveries(
    endpoint: EndpointId,
    failed: bool,
    settings: &Settings,
) -> anyhow::Result<()> {
    let mut connection = database::connect(&settings.load()?).await?;
    let wanted = Wanted {
        endpoint,
        states: if failed { &["failed"] } else { &[] },
        one: None,
        below: NEWEST,
        limit: LIMIT,
    };
    let found = deliveries::list(&mut connection, wanted).await?;
    if found.is_empty() {
        output::message("there is no such delivery");
        return Ok(());
    }
    let rows: Vec<[String; 7]> = found
        .iter()
        .map(|delivery| {
            let last = match (delivery.last_status, &delivery.last_error) {
                (Some(status), _) => status.to_string(),
                (None, Some(error)) => error.clone(),
                (None, None) => String::new(),
            };
            [
                DeliveryId::from_uuid(delivery.id).to_string(),
                delivery
                    .event()
                    .map_or_else(String::new, |id| id.to_string()),
                delivery.event_type.clone().unwrap_or_default(),
                // As the API says it.
                match delivery.state.as_str() {
                    "due" | "leased" => "pending".to_owned(),
                    ended => ended.to_owned(),
                },
                delivery.attempt.to_string(),
                last,
                time(delivery.created_at),
            ]
        })
        .collect();
    output::data(&table(
        ["id", "event", "type", "state", "attempts", "last", "made"],
        &rows,
    ))
}

async fn retry(delivery: DeliveryId, settings: &Settings) -> anyhow::Result<()> {
    let mut connection = database::connect(&settings.load()?).await?;
    if deliveries::retry(&mut connection, None, delivery)
        .await?
        .is_none()
    {
        return Err(Hinted::new(
            format!("there is no delivery {delivery}, or it is being sent this moment"),
            "`payonce webhooks deliveries ENDPOINT` shows what there is",
        )
        .into());
    }
    output::message(format_args!("{delivery} is sent again"));
    Ok(())
}

async fn retry_all(endpoint: EndpointId, settings: &Settings) -> anyhow::Result<()> {
    let mut connection = database::connect(&settings.load()?).await?;
    let mut retried = 0;
    loop {
        let some = deliveries::retry_all(&mut connection, endpoint, LIMIT).await?;
        retried += some;
        if some < LIMIT.unsigned_abs() {
            break;
        }
    }
    let told = match retried {
        1 => "1 delivery is sent again".to_owned(),
        _ => format!("{retried} deliveries are sent again"),
    };
    output::message(told);
    Ok(())
}
