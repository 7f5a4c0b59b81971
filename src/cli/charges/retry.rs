//! `payonce charges retry`.

use std::collections::HashMap;

use clap::Args;
use sqlx::PgConnection;
use uuid::Uuid;

use super::reason;
use crate::cli::output::{self, Hinted, time};
use crate::cli::{database, settings::Settings};
use crate::db::operate::{self, Retried};
use crate::db::{charges, outbox};
use crate::domain::charge::Charge;
use crate::domain::ids::ChargeId;

/// How many parked jobs one statement takes: few enough to hold nobody up.
const BATCH: i64 = 500;

#[derive(Debug, Args)]
#[command(after_help = "\
A parked job runs again at once, and one that waits for its next run does not wait any longer. The run reads the
provider's object first, as any run does: a retry charges nobody twice. A job that someone holds is left alone, and says
until when. The exit code is 1 if nothing could be done for one of them.")]
pub(in crate::cli) struct Retry {
    /// The charges.
    #[arg(value_name = "ID", required_unless_present = "all_parked")]
    ids: Vec<ChargeId>,
    /// Every charge whose job is parked now.
    #[arg(long, conflicts_with = "ids")]
    all_parked: bool,
    /// Why; kept in the charge's history.
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    reason: String,
    #[command(flatten)]
    settings: Settings,
}

impl Retry {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let mut connection = database::connect(&self.settings.load()?).await?;
        if self.all_parked {
            all_parked(&mut connection, &self.reason).await
        } else {
            some(&mut connection, &self.ids, &self.reason).await
        }
    }
}

async fn all_parked(connection: &mut PgConnection, reason: &str) -> anyhow::Result<()> {
    let (mut cursor, mut count) = (0, 0);
    loop {
        let retried = operate::retry_parked(connection, cursor, BATCH, reason).await?;
        let Some(last) = retried.last() else { break };
        cursor = last.outbox_id;
        count += retried.len();
        for job in &retried {
            output::data(&done(job))?;
        }
    }
    output::message(match count {
        0 => "no job is parked".to_owned(),
        count => format!("let {count} parked jobs run now"),
    });
    Ok(())
}

async fn some(connection: &mut PgConnection, ids: &[ChargeId], reason: &str) -> anyhow::Result<()> {
    let mut ids = ids.to_vec();
    ids.sort_unstable();
    ids.dedup();
    let uuids: Vec<Uuid> = ids.iter().map(|id| id.as_uuid()).collect();
    let retried: HashMap<Uuid, Retried> = operate::retry(connection, &uuids, reason)
        .await?
        .into_iter()
        .map(|job| (job.charge_id, job))
        .collect();
    let mut left = 0;
    for id in &ids {
        if let Some(job) = retried.get(&id.as_uuid()) {
            output::data(&done(job))?;
        } else {
            left += 1;
            output::data(&format!(
                "{id}  nothing done: {}",
                why_not(connection, *id).await?
            ))?;
        }
    }
    if left > 0 {
        return Err(Hinted::new(
            format!("nothing could be done for {left} of {}", ids.len()),
            "`payonce charges show ID` tells what each waits for",
        )
        .into());
    }
    Ok(())
}

fn done(job: &Retried) -> String {
    let id = ChargeId::from_uuid(job.charge_id);
    let error = job
        .last_error
        .as_ref()
        .map(|error| format!(" ({error})"))
        .unwrap_or_default();
    if job.was == "parked" {
        format!("{id}  runs now; it was parked{error}")
    } else {
        format!("{id}  runs now; it was waiting for its next run{error}")
    }
}

async fn why_not(connection: &mut PgConnection, id: ChargeId) -> anyhow::Result<String> {
    let charge = charges::find_all(connection, &[id.as_uuid()]).await?.pop();
    let Some((Charge { progress, .. }, _)) = charge else {
        return Ok("there is no such charge".to_owned());
    };
    if progress.state.is_terminal() {
        return Ok(format!("it has ended, {}", progress.state.stage()));
    }
    Ok(match outbox::find(connection, id).await? {
        None => "it has no job; the reconciler gives it one".to_owned(),
        Some(job) => match (job.lease_until, job.lease_token) {
            (Some(until), Some(token)) => {
                format!(
                    "it runs at this moment, held by lease {token} until {}",
                    time(until)
                )
            }
            // Between the two statements somebody gave it back.
            _ => "it was held a moment ago; try again".to_owned(),
        },
    })
}
