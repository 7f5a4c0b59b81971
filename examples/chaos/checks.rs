//! The promises, checked on what is there at the end. The provider's ledger is the only witness of money.

use std::collections::HashSet;
use std::time::Duration;

use sqlx::PgConnection;
use tokio::time::sleep;

use crate::chronicle::Chronicle;
use crate::evidence::{Discrepancy, Evidence, Row};
use crate::provider;
use crate::purchase::{PARTIAL, in_provider_units};
use crate::told::Told;

pub fn all(evidence: &Evidence, told: &[Told], restored: bool, chronicle: &Chronicle) {
    money(evidence, chronicle);
    books(evidence, chronicle);
    discrepancies(evidence, restored, chronicle);
    accounts(evidence, chronicle);
    if !restored {
        executed(evidence, chronicle);
    }
    clients(evidence, told, chronicle);
}

/// At most one success for each stamp, each stamp known; where the charge says completed, with its amount and currency,
/// and none where it says failed.
fn money(evidence: &Evidence, chronicle: &Chronicle) {
    for (stamp, moved) in &evidence.ledger {
        if moved.len() > 1 {
            let what = format!("money moved {} times: {moved:?}", moved.len());
            chronicle.breach("money moves once at most", Some(stamp), what);
        }
        let Some(charge) = evidence.charges.get(stamp) else {
            let what = format!("nobody knows of {moved:?}");
            chronicle.breach("money moves for known charges alone", Some(stamp), what);
            continue;
        };
        if matches!(charge.stage.as_str(), "failed" | "canceled") {
            let what = format!("it is {} and {moved:?}", charge.stage);
            chronicle.breach("failed means that no money moved", Some(stamp), what);
        }
    }
    for (id, charge) in &evidence.charges {
        if charge.stage != "succeeded" {
            continue;
        }
        let asked = in_provider_units(charge.amount, &charge.currency);
        let is_there = evidence.ledger.get(id).into_iter().flatten().any(|moved| {
            moved.amount == asked
                && moved.currency == charge.currency
                && charge.provider_charge_id.as_deref() == Some(&moved.object)
        });
        if !is_there {
            let what = format!("{charge:?}, and {:?}", evidence.ledger.get(id));
            chronicle.breach("completed means that this money moved", Some(id), what);
        }
    }
}

/// Wherever its merchant was since: nothing of a charge is in another account than it was accepted for.
fn accounts(evidence: &Evidence, chronicle: &Chronicle) {
    let moved = evidence
        .ledger
        .iter()
        .flat_map(|(stamp, moved)| moved.iter().map(move |moved| (stamp, &moved.account)));
    let made = evidence
        .objects
        .iter()
        .map(|object| (&object.stamp, &object.account));
    for (stamp, account) in moved.chain(made) {
        let Some(charge) = evidence.charges.get(stamp) else {
            continue;
        };
        if provider::account(charge.provider_account.as_deref()).shown != account {
            let what = format!("{account} has something of {charge:?}");
            chronicle.breach("a charge is made in its own account", Some(stamp), what);
        }
    }
}

/// A charge is open exactly when it has one job, and its request says what it says. At the end only what must stay
/// parked is open.
fn books(evidence: &Evidence, chronicle: &Chronicle) {
    if evidence.orphans > 0 {
        let what = format!("{} jobs without a charge", evidence.orphans);
        chronicle.breach("an open charge has one job", None, what);
    }
    for (id, charge) in &evidence.charges {
        let (is_open, status) = match charge.stage.as_str() {
            "succeeded" => (false, "completed"),
            "failed" | "canceled" => (false, "failed"),
            _ => (true, "in_progress"),
        };
        if charge.jobs != i64::from(is_open) {
            let what = format!("{charge:?}");
            chronicle.breach("an open charge has one job", Some(id), what);
        }
        if charge.request_status.as_deref() != Some(status) {
            let what = format!("{charge:?}");
            chronicle.breach("a request says what its charge says", Some(id), what);
        }
        if is_open && !is_partial(evidence, id, charge) {
            let what = format!("{charge:?}");
            chronicle.breach("every accepted charge ends", Some(id), what);
        }
    }
}

/// Parked for good reason: the provider moved less than was asked for.
fn is_partial(evidence: &Evidence, id: &str, charge: &Row) -> bool {
    let asked = in_provider_units(charge.amount, &charge.currency);
    charge.payment_method == PARTIAL
        && charge.parked.as_deref() == Some("amount_differs")
        && evidence
            .ledger
            .get(id)
            .is_some_and(|moved| moved.len() == 1 && moved[0].amount != asked)
}

/// Whether the refund with this discrepancy's stamp is in the books.
fn is_known(evidence: &Evidence, discrepancy: &Discrepancy) -> bool {
    let refunds = &evidence.refunds;
    let stamp = refunds
        .given
        .values()
        .flatten()
        .find(|given| given.id == discrepancy.object)
        .and_then(|given| given.stamp.as_deref());
    stamp.is_some_and(|stamp| refunds.rows.contains_key(stamp))
}

fn discrepancies(evidence: &Evidence, restored: bool, chronicle: &Chronicle) {
    let mut found = HashSet::new();
    for discrepancy in &evidence.discrepancies {
        let Discrepancy { charge, kind, .. } = discrepancy;
        let real = match kind.as_str() {
            "amount_differs" => evidence
                .charges
                .get(charge)
                .is_some_and(|row| is_partial(evidence, charge, row)),
            // Lost with the books, and over once somebody asked for it again.
            "theirs_only" => restored && discrepancy.resolved,
            "refund_unknown" => restored && discrepancy.resolved == is_known(evidence, discrepancy),
            _ => false,
        };
        if !real {
            let what = format!("{discrepancy:?}, and the provider has none");
            chronicle.breach("discrepancies are real", Some(charge), what);
        }
        found.insert(charge);
    }
    for (id, charge) in &evidence.charges {
        if is_partial(evidence, id, charge) && !found.contains(id) {
            let what = format!("{charge:?}");
            chronicle.breach("what differs is written down", Some(id), what);
        }
    }
}

/// Only the object that is stored was ever executed.
fn executed(evidence: &Evidence, chronicle: &Chronicle) {
    for object in evidence.objects.iter().filter(|object| object.executed) {
        let stored = evidence
            .charges
            .get(&object.stamp)
            .and_then(|charge| charge.provider_charge_id.as_deref());
        if stored != Some(&object.id) {
            let what = format!("{} was executed, and {stored:?} is stored", object.id);
            chronicle.breach("only what is stored is executed", Some(&object.stamp), what);
        }
    }
}

/// What clients were told is what the books say, and there is nothing that nobody asked for.
fn clients(evidence: &Evidence, told: &[Told], chronicle: &Chronicle) {
    let mut asked = HashSet::new();
    for told in told {
        let Some(id) = &told.id else { continue };
        asked.insert(id.as_str());
        let Some(charge) = evidence.charges.get(id) else {
            let what = format!("{:?} was answered and is not there", told.purchase);
            chronicle.breach("no accepted request is lost", Some(id), what);
            continue;
        };
        let purchase = &told.purchase;
        let same = charge.idempotency_key == purchase.key
            && charge.amount == purchase.amount
            && charge.currency == purchase.currency
            && charge.payment_method == purchase.payment_method
            && charge.return_url.is_some() == purchase.return_url
            && charge.reference.as_deref() == Some(&purchase.reference)
            && charge.cart.as_deref() == Some(&purchase.reference);
        if !same {
            let what = format!("{purchase:?} was sent, and the books have {charge:?}");
            chronicle.breach("no accepted request is lost", Some(id), what);
        }
        let stands = format!("/{}/{}", charge.stage, charge.money);
        if !told.stands.ends_with(&stands) {
            let what = format!("last told {}, and the books have {charge:?}", told.stands);
            chronicle.breach("a client is told the truth", Some(id), what);
        }
    }
    for (id, charge) in &evidence.charges {
        if !asked.contains(id.as_str()) {
            let what = format!("{charge:?}");
            chronicle.breach("nothing is made that nobody asked for", Some(id), what);
        }
    }
}

/// No session is left in a transaction or in a statement.
pub async fn sessions(connection: &mut PgConnection, chronicle: &Chronicle) -> anyhow::Result<()> {
    let mut stuck: Vec<String> = Vec::new();
    // Whoever is at work for a moment is not at the next look.
    for _ in 0..20 {
        stuck = sqlx::query_scalar(
            "SELECT format('%s for %s: %s', state, now() - state_change, query) FROM pg_stat_activity
             WHERE application_name = 'payonce' AND datname = current_database()
                 AND (state LIKE 'idle in transaction%' OR (state = 'active' AND now() - query_start > interval '3 seconds'))",
        )
        .fetch_all(&mut *connection)
        .await?;
        if stuck.is_empty() {
            return Ok(());
        }
        sleep(Duration::from_millis(250)).await;
    }
    chronicle.breach("no session is stuck", None, format!("{stuck:?}"));
    Ok(())
}
