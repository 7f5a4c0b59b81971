//! `payonce pause` and `payonce resume`: hold sending to the provider, for all processes, and let it go on.

use clap::Args;
use serde_json::json;
use sqlx::PgConnection;

use super::output::{self, time};
use super::{charges::reason, database, settings::Settings};
use crate::db::pauses::{self, Held, Kind, Pause};

#[derive(Debug, Args)]
#[command(after_help = "\
Charges are still accepted, read and canceled; what is accepted waits. From the moment this returns no process takes up a
job, and one that is at a worker executes nothing new: it ends by itself, at the latest with its lease. A pause is kept in
the database, over restarts, until `payonce resume`. Doing it twice changes nothing.")]
pub(super) struct PauseSending {
    /// Why; told by --status, in the log and by `resume`.
    #[arg(long, value_name = "TEXT", value_parser = reason, required_unless_present = "status")]
    reason: Option<String>,
    /// Tell whether sending is paused, and change nothing.
    #[arg(long, conflicts_with = "reason")]
    status: bool,
    /// The status as JSON.
    #[arg(long, requires = "status", conflicts_with = "reason")]
    json: bool,
    #[command(flatten)]
    settings: Settings,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Ends an operator's pause. Sending goes on within a moment, oldest first, unless a recovery holds it too. Doing it twice
changes nothing.")]
pub(super) struct ResumeSending {
    #[command(flatten)]
    settings: Settings,
}

impl PauseSending {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let mut connection = database::connect(&self.settings.load()?).await?;
        if let Some(reason) = &self.reason
            && !pauses::insert(&mut connection, Kind::Operator, reason).await?
        {
            output::message("sending was paused already; nothing was changed");
        }
        let (pauses, held) = look(&mut connection).await?;
        if self.json {
            return output::data(&as_json(&pauses, held));
        }
        if pauses.is_empty() {
            return output::data("sending is not paused");
        }
        for pause in &pauses {
            output::data(&told(pause))?;
        }
        output::message(still_held(held));
        Ok(())
    }
}

impl ResumeSending {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let mut connection = database::connect(&self.settings.load()?).await?;
        match pauses::delete(&mut connection, Kind::Operator).await? {
            Some(was) => output::data(&format!(
                "ended the pause since {}: {}",
                time(was.since),
                was.reason
            ))?,
            None => output::data("no operator had paused sending")?,
        }
        let (pauses, _) = look(&mut connection).await?;
        for pause in &pauses {
            output::message(format_args!("still: {}", told(pause)));
        }
        if pauses.is_empty() {
            output::message("sending goes on");
        }
        Ok(())
    }
}

async fn look(connection: &mut PgConnection) -> anyhow::Result<(Vec<Pause>, Held)> {
    let pauses = pauses::list(connection).await?;
    Ok((pauses, pauses::held(connection).await?))
}

fn told(pause: &Pause) -> String {
    format!(
        "sending is paused since {} ({}): {}",
        time(pause.since),
        pause.kind,
        pause.reason
    )
}

fn still_held(Held { count, until }: Held) -> String {
    match until {
        None => "no job is at a worker".to_owned(),
        Some(until) => format!(
            "{} at a worker still; the last lease ends at {}",
            if count == 1 {
                "1 job is".to_owned()
            } else {
                format!("{count} jobs are")
            },
            time(until)
        ),
    }
}

fn as_json(pauses: &[Pause], held: Held) -> String {
    let told: Vec<_> = pauses
        .iter()
        .map(
            |pause| json!({"kind": pause.kind, "reason": pause.reason, "since": time(pause.since)}),
        )
        .collect();
    let jobs = json!({"held": held.count, "held_until": held.until.map(time)});
    json!({"paused": !pauses.is_empty(), "pauses": told, "jobs": jobs}).to_string()
}
