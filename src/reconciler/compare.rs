//! Reads the charges of one page of objects, compares each, and writes down what was found.

use std::collections::HashMap;

use serde_json::json;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::db::sweep_pages::Stands;
use crate::db::sweeps::Account;
use crate::db::{self, DbError};
use crate::domain::charge::{Stage, Status};
use crate::domain::ids::{ChargeId, ProviderChargeId};
use crate::domain::money::{Currency, Money};
use crate::domain::outcome::{Asked, Object, ObjectStatus};
use crate::domain::request::ProviderRules;
use crate::domain::sweep::{self, Difference, Finding, Ours};

/// An object and what it means for the charge that its stamp names.
#[derive(Clone, Debug)]
pub(super) struct Compared {
    pub(super) charge: ChargeId,
    pub(super) object: Object,
    pub(super) finding: Finding,
}

/// Compares objects with their charges; those that agree are left out.
pub(super) async fn compare(
    connection: &mut PgConnection,
    rules: &ProviderRules,
    objects: Vec<(ChargeId, Object)>,
) -> Result<Vec<Compared>, DbError> {
    let ids: Vec<Uuid> = objects.iter().map(|(id, _)| id.as_uuid()).collect();
    let charges: HashMap<Uuid, Stands> = db::sweep_pages::by_ids(connection, &ids)
        .await?
        .into_iter()
        .map(|charge| (charge.id, charge))
        .collect();
    objects
        .into_iter()
        .map(|(charge, object)| {
            let ours = charges
                .get(&charge.as_uuid())
                .map(|stands| ours(charge, stands, rules))
                .transpose()?;
            let finding = sweep::compare(&object, ours.as_ref());
            Ok(Compared {
                charge,
                object,
                finding,
            })
        })
        .filter(|compared| {
            !matches!(
                compared,
                Ok(Compared {
                    finding: Finding::Agrees,
                    ..
                })
            )
        })
        .collect()
}

/// What it means that the provider has no object under the id that a charge stores.
pub(super) async fn missing(
    connection: &mut PgConnection,
    rules: &ProviderRules,
    charge: ChargeId,
    id: &ProviderChargeId,
) -> Result<Vec<Compared>, DbError> {
    let Some(stands) = db::sweep_pages::by_ids(connection, &[charge.as_uuid()])
        .await?
        .pop()
    else {
        return Ok(Vec::new());
    };
    let ours = ours(charge, &stands, rules)?;
    let finding = match ours.stage.status() {
        Status::Completed => Finding::Differs(Difference::OursOnly),
        // Its job reads the object, and parks with an alert.
        Status::InProgress => Finding::Nudge,
        Status::Failed => return Ok(Vec::new()),
    };
    let object = Object {
        id: id.clone(),
        status: ObjectStatus::Unknown,
        amount: 0,
        amount_received: 0,
        currency: String::new(),
        stamp: None,
        failure: None,
        next_url: None,
    };
    Ok(vec![Compared {
        charge,
        object,
        finding,
    }])
}

fn ours(charge: ChargeId, stands: &Stands, rules: &ProviderRules) -> Result<Ours, DbError> {
    let stage = Stage::parse(&stands.stage).ok_or(DbError::Unreadable {
        charge,
        column: "stage",
    })?;
    let units = Currency::parse(&stands.currency)
        .and_then(|currency| Money::new(stands.amount, currency))
        .and_then(|money| (rules.to_provider_units)(money).ok());
    Ok(Ours {
        stage,
        object: stands
            .provider_charge_id
            .as_deref()
            .and_then(ProviderChargeId::parse),
        asked: units.map(|amount| Asked {
            amount,
            currency: stands.currency.clone(),
            stamp: charge.to_string(),
        }),
    })
}

/// Writes strays, discrepancies and nudges. Returns how many discrepancies are new.
pub(super) async fn write(
    connection: &mut PgConnection,
    account: &Account,
    compared: &[Compared],
) -> Result<u64, DbError> {
    let mut strays = db::strays::Rows::default();
    let mut differing = db::discrepancies::Rows::default();
    let mut nudged = Vec::new();
    for Compared {
        charge,
        object,
        finding,
    } in compared
    {
        let difference = match finding {
            Finding::Agrees | Finding::Cancel => None,
            Finding::Nudge => {
                nudged.push(charge.as_uuid());
                None
            }
            Finding::Stray(difference) => {
                strays.provider_charge_ids.push(object.id.as_str());
                strays.charge_ids.push(charge.as_uuid());
                strays.statuses.push(object.status.as_str());
                strays.amounts.push(object.amount);
                strays.currencies.push(&object.currency);
                *difference
            }
            Finding::Differs(difference) => Some(*difference),
        };
        if let Some(difference) = difference {
            differing.kinds.push(difference.as_str());
            differing.provider_charge_ids.push(object.id.as_str());
            differing.charge_ids.push(charge.as_uuid());
            differing.details.push(json!({
                "status": object.status.as_str(),
                "amount": object.amount,
                "amount_received": object.amount_received,
                "currency": object.currency,
            }));
        }
    }
    if !strays.charge_ids.is_empty() {
        db::strays::record(connection, account, &strays).await?;
    }
    if !nudged.is_empty() {
        db::sweep_pages::nudge(connection, &nudged).await?;
    }
    if differing.kinds.is_empty() {
        return Ok(0);
    }
    db::discrepancies::record(connection, account, &differing).await
}
