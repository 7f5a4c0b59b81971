//! The promises about refunds, checked on what is there at the end, as [`crate::checks`] checks those about charges. The
//! provider's own list of refunds is the only witness of what went back.

use std::collections::{HashMap, HashSet};

use crate::chronicle::Chronicle;
use crate::evidence::Evidence;
use crate::purchase::in_provider_units;
use crate::refund_evidence::RefundRow;
use crate::refund_told::RefundTold;

pub fn all(
    evidence: &Evidence,
    told: &[RefundTold],
    took_back: &HashSet<String>,
    restored: bool,
    chronicle: &Chronicle,
) {
    given(evidence, restored, chronicle);
    charges(evidence, chronicle);
    outside(evidence, restored, chronicle);
    for (id, row) in &evidence.refunds.rows {
        ended(id, row, chronicle);
        agrees(evidence, id, row, took_back, chronicle);
        if !restored {
            has_its_share(evidence, id, row, chronicle);
        }
    }
    clients(evidence, told, restored, chronicle);
}

/// What went back for one refund went once, and for one that was accepted.
fn given(evidence: &Evidence, restored: bool, chronicle: &Chronicle) {
    let mut taking: HashMap<&str, Vec<&str>> = HashMap::new();
    for (object, all) in &evidence.refunds.given {
        for given in all {
            let Some(stamp) = given.stamp.as_deref() else {
                continue;
            };
            let row = evidence.refunds.rows.get(stamp);
            // Its rows were lost and its key was asked for no more: it counts as if it were made outside.
            let counts = evidence.refunds.outside.get(&given.id).copied();
            let is_lost = row.is_none() && counts.unwrap_or_default() == given.takes();
            let is_its = row.is_some_and(|row| row.provider_charge_id == *object);
            if !(is_its || restored && is_lost) {
                let what = format!("{given:?} of {object} is of {row:?}");
                chronicle.breach("money goes back for known refunds alone", Some(stamp), what);
            }
            if given.takes() {
                taking.entry(stamp).or_default().push(&given.id);
            }
        }
    }
    for (stamp, all) in taking {
        if all.len() > 1 {
            let what = format!("it went back {} times: {all:?}", all.len());
            chronicle.breach("money goes back once at most", Some(stamp), what);
        }
    }
}

/// No more goes back than the charge received, and the books say how much did.
fn charges(evidence: &Evidence, chronicle: &Chronicle) {
    let mut open: HashMap<String, i64> = HashMap::new();
    for row in evidence.refunds.rows.values() {
        if !is_terminal(row) {
            *open.entry(row.charge()).or_default() += row.amount;
        }
    }
    let received: HashMap<&str, i64> = evidence
        .ledger
        .values()
        .flatten()
        .map(|moved| (moved.object.as_str(), moved.amount))
        .collect();
    for (object, all) in &evidence.refunds.given {
        let went = went_back(evidence, object);
        let received = received.get(object.as_str()).copied().unwrap_or_default();
        if went > received {
            let what = format!("{object} received {received}, and {all:?} went back");
            chronicle.breach("no more goes back than was charged", None, what);
        }
    }
    for (id, charge) in &evidence.charges {
        let object = charge.provider_charge_id.as_deref().unwrap_or_default();
        let went = went_back(evidence, object);
        if in_provider_units(charge.amount_refunded, &charge.currency) != went {
            let all = evidence.refunds.given.get(object);
            let what = format!("{went} went back ({all:?}), and the books have {charge:?}");
            chronicle.breach("amount_refunded is what went back", Some(id), what);
        }
        let reserved = open.get(id).copied().unwrap_or_default();
        if charge.amount_refunding != reserved {
            let what = format!("{reserved} is in open refunds, and the books have {charge:?}");
            chronicle.breach("what is reserved is what is open", Some(id), what);
        }
    }
}

fn went_back(evidence: &Evidence, object: &str) -> i64 {
    let all = evidence.refunds.given.get(object).into_iter().flatten();
    all.filter(|given| given.takes())
        .map(|given| given.amount)
        .sum()
}

/// What was made outside is counted as it stands, and nothing else is.
fn outside(evidence: &Evidence, restored: bool, chronicle: &Chronicle) {
    let refunds = &evidence.refunds;
    let theirs: HashMap<&str, bool> = refunds
        .given
        .values()
        .flatten()
        .filter(|given| given.stamp.is_none())
        .map(|given| (given.id.as_str(), given.takes()))
        .collect();
    for (id, takes) in &theirs {
        // One that failed before anybody looked takes nothing and need not be known.
        if refunds.outside.get(*id).copied().unwrap_or_default() != *takes {
            let what = format!("{id} takes: {takes}, and the books say otherwise");
            chronicle.breach("what is refunded outside is counted", None, what);
        }
    }
    for id in refunds.outside.keys() {
        if !theirs.contains_key(id.as_str()) && !restored {
            let what = format!("{id} is ours, or nobody's");
            chronicle.breach("what is refunded outside is counted", None, what);
        }
    }
}

fn is_terminal(row: &RefundRow) -> bool {
    matches!(row.stage.as_str(), "succeeded" | "failed" | "canceled")
}

/// Nothing that can park a refund for good is in the run, so each has ended, without a job, and its request says so.
fn ended(id: &str, row: &RefundRow, chronicle: &Chronicle) {
    if !is_terminal(row) {
        let what = format!("{row:?}");
        chronicle.breach("every accepted refund ends", Some(id), what);
    }
    if row.jobs != i64::from(!is_terminal(row)) {
        let what = format!("{row:?}");
        chronicle.breach("an open refund has one job", Some(id), what);
    }
    let status = match row.stage.as_str() {
        "succeeded" => "completed",
        "failed" | "canceled" => "failed",
        _ => "in_progress",
    };
    if row.request_status.as_deref() != Some(status) {
        let what = format!("{row:?}");
        chronicle.breach("a request says what its refund says", Some(id), what);
    }
}

/// Completed means that this went back, failed that nothing did.
fn agrees(
    evidence: &Evidence,
    id: &str,
    row: &RefundRow,
    took_back: &HashSet<String>,
    chronicle: &Chronicle,
) {
    let given = evidence.refunds.with_stamp(id, row);
    match row.stage.as_str() {
        "succeeded" => {
            let is_there = given.iter().any(|given| {
                given.status == "succeeded"
                    && row.provider_refund_id.as_deref() == Some(&given.id)
                    && given.amount == in_provider_units(row.amount, &row.currency)
                    && given.currency == row.currency
            });
            if !is_there {
                let what = format!("{row:?}, and {given:?}");
                chronicle.breach("a completed refund went back as it says", Some(id), what);
            }
        }
        "failed" | "canceled" if given.iter().any(|given| given.takes()) => {
            let what = format!("{row:?}, and {given:?}");
            chronicle.breach("of a failed refund nothing went back", Some(id), what);
        }
        _ => {}
    }
    for given in given.iter().filter(|given| !given.takes()) {
        if !took_back.contains(&given.id) {
            let what = format!("{given:?}, and nobody made it fail");
            chronicle.breach("the run's own books are right", Some(id), what);
        }
    }
}

/// What was accepted had its share reserved; only somebody else can have taken it.
fn has_its_share(evidence: &Evidence, id: &str, row: &RefundRow, chronicle: &Chronicle) {
    if row.failure.as_deref() == Some("refund_exceeds_charge") {
        let all = evidence.refunds.given.get(&row.provider_charge_id);
        let all: Vec<_> = all.into_iter().flatten().collect();
        if all.iter().all(|given| given.stamp.is_some()) {
            let what =
                format!("{row:?} was refused for want of room, and all went back for us: {all:?}");
            chronicle.breach("an accepted refund has its share", Some(id), what);
        }
    }
}

/// Whether its charge has no room for it.
fn is_crowded_out(evidence: &Evidence, told: &RefundTold) -> bool {
    let asked = &told.refund;
    evidence.charges.get(&asked.of.charge).is_some_and(|row| {
        let left = row.amount - row.amount_refunded - row.amount_refunding;
        asked.amount.map_or(left == 0, |amount| amount > left)
    })
}

/// What clients were told is what the books say, and there is nothing that nobody asked for.
fn clients(evidence: &Evidence, told: &[RefundTold], restored: bool, chronicle: &Chronicle) {
    let keys: HashSet<&str> = told.iter().map(|told| told.refund.key.as_str()).collect();
    for told in told {
        let Some(id) = &told.id else { continue };
        let Some(row) = evidence.refunds.rows.get(id) else {
            // Books that were restored hear of refunds in another order, and what was asked for first has the room.
            if !(restored && is_crowded_out(evidence, told)) {
                let what = format!("{:?} was answered and is not there", told.refund);
                chronicle.breach("no accepted refund is lost", Some(id), what);
            }
            continue;
        };
        let asked = &told.refund;
        let same = row.idempotency_key == asked.key
            && row.charge() == asked.of.charge
            && row.asked_amount == asked.amount
            && row.currency == asked.of.currency
            && row.reason.as_deref() == asked.reason
            && row.mark.as_deref() == Some(&asked.mark);
        if !same {
            let what = format!("{asked:?} was sent, and the books have {row:?}");
            chronicle.breach("no accepted refund is lost", Some(id), what);
        }
        let stands = format!("/{}/{}", row.stage, row.money);
        if !told.stands.ends_with(&stands) {
            let what = format!("last told {}, and the books have {row:?}", told.stands);
            chronicle.breach("a client is told the truth", Some(id), what);
        }
    }
    for (id, row) in &evidence.refunds.rows {
        if !keys.contains(row.idempotency_key.as_str()) && !restored {
            let what = format!("{row:?}");
            chronicle.breach("nothing is made that nobody asked for", Some(id), what);
        }
    }
}
