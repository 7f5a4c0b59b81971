//! What is told at the end: figures, and of each breach all that helps to understand it.

use std::collections::BTreeMap;
use std::time::Duration;

use payonce::domain::ids::ChargeId;
use serde_json::Value;
use sqlx::PgConnection;
use time::OffsetDateTime;

use crate::chronicle::{Breach, Chronicle, line};
use crate::evidence::Evidence;
use crate::purchase::PROCESSING;
use crate::refund_evidence::RefundRow;
use crate::service::Service;
use crate::told::Told;

/// More of them have the same few causes.
const MOST_BREACHES: usize = 10;

pub fn figures(
    chronicle: &Chronicle,
    evidence: &Evidence,
    faults: &BTreeMap<String, u64>,
    told: &BTreeMap<String, usize>,
    calls: usize,
) {
    let stage = |stage: &str| {
        let charges = evidence.charges.values();
        charges.filter(|charge| charge.stage == stage).count()
    };
    line("");
    line(&format!(
        "charges accepted       {:8}",
        evidence.charges.len()
    ));
    line(&format!("  completed            {:8}", stage("succeeded")));
    line(&format!("  failed               {:8}", stage("failed")));
    line(&format!("  canceled             {:8}", stage("canceled")));
    let open = evidence.charges.values().filter(|charge| charge.jobs > 0);
    line(&format!("  left to an operator  {:8}", open.count()));
    refunds(evidence);
    line(&format!("provider calls         {calls:8}"));
    let met: u64 = faults.values().sum();
    line(&format!("  with a fault         {met:8}"));
    for (effect, count) in &evidence.events {
        line(&format!("events {effect:<15} {count:8}"));
    }
    for (kind, count) in told {
        line(&format!("told {kind:<18} {count:7}"));
    }
    certainty(evidence);
    line("");
    for (figure, count) in chronicle.figures() {
        line(&format!("{count:8}  {figure}"));
    }
    for (fault, count) in faults {
        line(&format!("{count:8}  provider {fault}"));
    }
}

fn refunds(evidence: &Evidence) {
    let rows = &evidence.refunds.rows;
    let stage = |stage: &str| rows.values().filter(|row| row.stage == stage).count();
    line(&format!("refunds accepted       {:8}", rows.len()));
    line(&format!("  completed            {:8}", stage("succeeded")));
    line(&format!("  failed               {:8}", stage("failed")));
    let again = rows.values().filter(|row| row.attempts > 1);
    line(&format!("  sent more than once  {:8}", again.count()));
    let anew = rows.values().filter(|row| row.key_number > 0);
    line(&format!("  under another key    {:8}", anew.count()));
    let outside = evidence.refunds.outside.len();
    line(&format!("refunds made outside   {outside:8}"));
    let mut failures: BTreeMap<&str, usize> = BTreeMap::new();
    for failure in rows.values().filter_map(|row| row.failure.as_deref()) {
        *failures.entry(failure).or_default() += 1;
    }
    for (failure, count) in failures {
        line(&format!("  {failure:<21}{count:7}"));
    }
    let took = rows.values().filter_map(|row| row.took);
    seconds("to a refund's end ", took.collect());
}

/// From the acceptance to the end, of charges that waited for nobody else.
fn certainty(evidence: &Evidence) {
    let charges = evidence.charges.values();
    let took = charges
        .filter(|charge| charge.payment_method != PROCESSING)
        .filter(|charge| !charge.payment_method.contains("Required") || charge.return_url.is_none())
        .filter_map(|charge| charge.took);
    seconds("to certainty      ", took.collect());
}

fn seconds(to_what: &str, mut took: Vec<f64>) {
    took.sort_by(f64::total_cmp);
    let at = |thousandth: usize| took.get(took.len() * thousandth / 1000).copied();
    line(&format!(
        "seconds {to_what} half {:.2}, 99 % {:.2}, worst {:.2}",
        at(500).unwrap_or_default(),
        at(990).unwrap_or_default(),
        took.last().copied().unwrap_or_default()
    ));
}

pub async fn breaches(
    connection: &mut PgConnection,
    breaches: &[Breach],
    evidence: &Evidence,
    services: &[Service],
    told: &[Told],
) -> anyhow::Result<()> {
    for breach in breaches.iter().take(MOST_BREACHES) {
        line("");
        line(&format!("BREACH: {}", breach.promise));
        line(&format!("  {}", breach.what));
        if let Some(id) = &breach.subject {
            let refund = evidence.refunds.rows.get(id);
            let charge = refund.map_or_else(|| id.clone(), RefundRow::charge);
            if let Some(refund) = refund {
                line(&format!("  the refund {id}: {refund:?}"));
                let given = evidence.refunds.given.get(&refund.provider_charge_id);
                line(&format!(
                    "  refunds of its charge at the provider: {given:?}"
                ));
            }
            line(&format!(
                "  the charge {charge}: {:?}",
                evidence.charges.get(&charge)
            ));
            let told = told.iter().find(|told| told.id.as_ref() == Some(id));
            if let Some(told) = told {
                line(&format!("  its client was last told {}", told.stands));
            }
            let mut story = history(connection, &charge).await?;
            story.extend(requests(services, evidence, id, &charge));
            story.sort();
            for (at, what) in story {
                line(&format!("  {} {what}", at.time()));
            }
        }
    }
    line("");
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for breach in breaches {
        *kinds.entry(breach.promise).or_default() += 1;
    }
    for (promise, count) in kinds {
        line(&format!("{count:8}  broken: {promise}"));
    }
    Ok(())
}

/// Time, version, kind, actor, reason, detail.
type Event = (
    OffsetDateTime,
    i32,
    String,
    String,
    Option<String>,
    Option<Value>,
);

/// What the books say that happened.
async fn history(
    connection: &mut PgConnection,
    id: &str,
) -> anyhow::Result<Vec<(OffsetDateTime, String)>> {
    let Ok(charge) = id.parse::<ChargeId>() else {
        return Ok(Vec::new());
    };
    let events: Vec<Event> = sqlx::query_as(
        "SELECT at, version, kind, actor, reason, detail FROM charge_events WHERE charge_id = $1
         UNION ALL
         SELECT created_at, 1, 'accepted', 'merchant', NULL, NULL FROM charges WHERE id = $1",
    )
    .bind(charge.as_uuid())
    .fetch_all(connection)
    .await?;
    let told = |(at, version, kind, actor, reason, detail): Event| {
        let (reason, detail) = (reason.unwrap_or_default(), detail.unwrap_or_default());
        (
            at,
            format!("books     version {version}: {kind} by {actor} {reason} {detail}"),
        )
    };
    Ok(events.into_iter().map(told).collect())
}

/// What went to the provider for it.
fn requests(
    services: &[Service],
    evidence: &Evidence,
    id: &str,
    charge: &str,
) -> Vec<(OffsetDateTime, String)> {
    let objects = evidence.objects.iter();
    let objects = objects.filter(|object| object.stamp == charge);
    let objects: Vec<&str> = objects.map(|object| object.id.as_str()).collect();
    let mut requests = Vec::new();
    for (number, service) in services.iter().enumerate() {
        for exchange in service.provider.exchanges() {
            let is_its = exchange.idempotency_key.starts_with(id)
                || exchange.idempotency_key.starts_with(charge)
                || objects
                    .iter()
                    .any(|object| exchange.target.contains(object));
            if is_its {
                let status = exchange
                    .status
                    .map_or("no whole answer".to_owned(), |status| status.to_string());
                let key = exchange.idempotency_key.strip_prefix(id).unwrap_or("");
                let what = format!("service {number} {} {key}: {status}", exchange.target);
                requests.push((exchange.at, what));
            }
        }
    }
    requests
}

pub fn verdict(chronicle: &Chronicle, seed: u64, took: Duration) -> bool {
    let breaches = chronicle.breaches().len();
    line("");
    line(&format!(
        "seed {seed}, {:.0} s: {}",
        took.as_secs_f64(),
        match breaches {
            0 => "every promise was kept".to_owned(),
            count => format!("{count} BREACHES"),
        }
    ));
    breaches == 0
}
