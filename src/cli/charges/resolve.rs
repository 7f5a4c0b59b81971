//! `payonce charges resolve`.

use std::time::Duration;

use anyhow::bail;
use clap::{Args, ValueEnum};
use serde_json::json;
use sqlx::postgres::PgConnection;
use tokio::time::Instant;

use super::{find, reason, refusal};
use crate::app::operate::Desk;
use crate::cli::output::{self, Hinted, time};
use crate::cli::settings::{Settings, hinted};
use crate::cli::{accounts, confirm, database, reconcile};
use crate::config::{AccountSettings, Config, Roles};
use crate::db::claimed::{Claimed, Look};
use crate::db::operate::{self, HeldJob};
use crate::db::{outbox, recovery};
use crate::domain::api_key::Mode;
use crate::domain::charge::{Charge, State, Status};
use crate::domain::ids::{ChargeId, LeaseToken};
use crate::domain::outcome::operator::Decision;
use crate::domain::request::Instruction;
use crate::random::Random;
use crate::worker::resolve::{Refusal, RefusedBecause, Resolved};

/// A look, a cancel and the reads around it take longer than a job's calls, for which the worker's lease is made.
const LEASES: u32 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum As {
    Completed,
    Failed,
}

impl From<As> for Decision {
    fn from(wanted: As) -> Self {
        match wanted {
            As::Completed => Self::Completed,
            As::Failed => Self::Failed,
        }
    }
}

impl As {
    const fn as_str(self) -> &'static str {
        match self {
            As::Completed => "completed",
            As::Failed => "failed",
        }
    }

    const fn status(self) -> Status {
        match self {
            As::Completed => Status::Completed,
            As::Failed => Status::Failed,
        }
    }
}

#[derive(Debug, Args)]
#[command(after_help = "\
The provider is asked first, and its word stands:
  * It says succeeded, as asked for: the charge is completed, also against --as failed.
  * It says canceled: the charge has failed, also against --as completed.
  * The object can still move money: --as completed is refused; --as failed cancels the object at the provider and is
    written only when the provider says canceled. If the money moved meanwhile, the charge is completed.
  * No object is stored: the provider's objects since then are swept first. What has our stamp is dealt with, and if one of
    them goes on, it goes on with that. If there is none, --as failed is certain, for only a stored object is ever
    executed, and --as completed is refused. If the sweep does not come to its end, nothing is decided.
  * The object has another amount or currency: never completed; --as failed as above unless money moved, which must be
    given back at the provider. An object with another stamp is never touched.
  * The provider does not answer, or does not know the object: nothing is written, whatever is wanted.
So nothing is marked as paid that the provider does not confirm, and nothing as failed that could still be paid. A charge
whose job someone holds is left alone. What was asked for, and why, is kept in the charge's history in any case.
Needs the database and the provider's settings, as `serve` does. Exit code 0 if the charge ended as asked, else 1.")]
pub(in crate::cli) struct Resolve {
    /// The charge.
    id: ChargeId,
    /// What it is to become.
    #[arg(long = "as", value_enum, value_name = "STATUS")]
    wanted: As,
    /// Why; kept in the charge's history.
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    reason: String,
    /// Do not ask for a typed confirmation.
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    settings: Settings,
}

impl Resolve {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        const NEEDED: Roles = Roles {
            api: false,
            worker: true,
            reconciler: false,
        };
        let config = self.settings.load()?;
        config.check_for(NEEDED).map_err(|errors| hinted(&errors))?;
        let mut connection = database::connect(&config).await?;
        let charge = find(&mut connection, self.id).await?;
        if charge.progress.state.is_terminal() {
            return self.ended(&charge.progress.state, true);
        }
        let account = account_of(&config, &charge)?;
        accounts::check(&config, account).await?;
        if !self.yes {
            confirm::typed(&question(&charge, self.wanted), self.wanted.as_str())?;
        }
        let looked = if charge.progress.object.is_none() {
            look(&mut connection, &config, account, &charge).await?;
            true
        } else {
            false
        };
        let random = Random::from_os();
        let desk = Desk::open(&config, &random)?;
        let token = LeaseToken::from_uuid(random.uuid());
        let lease = config.worker.lease * LEASES;
        // Taken before the claim, so that a slow answer of the database makes the lease shorter and never longer.
        let deadline = Instant::now() + lease - config.worker.slack;
        let detail = json!({ "as": self.wanted.as_str() });
        let held = operate::hold(
            &mut connection,
            self.id,
            token,
            lease,
            (&self.reason, &detail),
            desk.ours(),
        )
        .await?;
        let Some(held) = held else {
            return Err(unheld(&mut connection, self.id).await?.into());
        };
        let was = held.was.clone();
        let resolved = match claimed(&mut connection, self.id, token, held, looked).await? {
            Some(claimed) => desk.resolve(claimed, deadline, self.wanted.into()).await,
            None => Resolved::Refused(Refusal {
                why: RefusedBecause::PayloadUnreadable,
                last_answer: "",
                request_id: None,
            }),
        };
        self.conclude(&mut connection, token, &was, resolved).await
    }

    /// Says what came of it, and gives the job back where nothing did.
    async fn conclude(
        &self,
        connection: &mut PgConnection,
        token: LeaseToken,
        was: &str,
        resolved: Resolved,
    ) -> anyhow::Result<()> {
        let (problem, detail) = match resolved {
            Resolved::Ended(state) => return self.ended(&state, false),
            Resolved::Refused(refusal) => (
                refusal::said(self.id, self.wanted.as_str(), &refusal),
                json!({
                    "why": refusal.why.as_str(),
                    "answer": refusal.last_answer,
                    "provider_request_id": refusal.request_id,
                }),
            ),
            Resolved::Changed => (
                Hinted::new(
                    format!("{} changed meanwhile; nothing was written", self.id),
                    "look at it with `payonce charges show`, then decide again",
                ),
                json!({ "why": "charge_changed" }),
            ),
            Resolved::Disputed => (
                Hinted::new(
                    format!(
                        "the provider and the books differ on {}; it is written down as a discrepancy",
                        self.id
                    ),
                    "look at it with `payonce charges show` and at the provider's own pages",
                ),
                json!({ "why": "disputed" }),
            ),
            Resolved::Unwritten(refusal) => (
                Hinted::new(
                    format!(
                        "the database did not take what came of {}: {refusal}",
                        self.id
                    ),
                    "look at it with `payonce charges show`: it may have been written; deciding again is safe",
                ),
                json!({ "why": "unwritten" }),
            ),
        };
        // If this fails, the lease runs out and a worker's run reads the object.
        operate::give_back(connection, self.id, token, was, &detail).await?;
        Err(problem.into())
    }

    fn ended(&self, state: &State, before: bool) -> anyhow::Result<()> {
        let (id, status) = (self.id, state.status());
        let when = if before { "had ended before" } else { "ended" };
        output::data(&format!("{id}  {status} ({})", state.stage()))?;
        if status == self.wanted.status() {
            output::message(format_args!("{id} {when} as {status}"));
            return Ok(());
        }
        let word = match status {
            Status::Completed => "succeeded",
            Status::Failed | Status::InProgress => "canceled",
        };
        if before {
            bail!("{id} had ended as {status} before, and what has ended stays as it is");
        }
        bail!(
            "{id} ended as {status}, not as {}: the provider says {word}",
            self.wanted.as_str()
        );
    }
}

/// No object is stored, but the books may be older than what they have sent, as after a restore: whatever the provider has
/// with this charge's stamp is known before anything is decided.
async fn look(
    connection: &mut PgConnection,
    config: &Config,
    account: AccountSettings<'_>,
    charge: &Charge,
) -> anyhow::Result<()> {
    let now = recovery::now(connection).await?;
    let age = Duration::try_from(now - charge.created_at).unwrap_or_default();
    let window = age + config.provider.stripe.key_window * 2;
    reconcile::sweep(config, account, window).await.map(|_| ())
}

/// Where the charge's object is or is to be made.
fn account_of<'a>(config: &'a Config, charge: &Charge) -> anyhow::Result<AccountSettings<'a>> {
    let live = config.provider.mode == Mode::Live;
    if charge.live != live {
        return Err(Hinted::new(
            format!("{} is of the other mode than provider.mode here", charge.id),
            "use the settings of the workers that run it",
        )
        .into());
    }
    let name = charge
        .account
        .as_deref()
        .unwrap_or(&config.provider.account);
    config
        .provider
        .accounts()
        .find(|account| account.name == name)
        .ok_or_else(|| {
            Hinted::new(
                format!(
                    "{} is held by the account `{name}`, which the configuration here does not have",
                    charge.id
                ),
                "use the settings of the workers that run it",
            )
            .into()
        })
}

fn question(charge: &Charge, wanted: As) -> String {
    let (request, progress) = (&charge.request, &charge.progress);
    let object = progress
        .object
        .as_ref()
        .map_or("no object stored", |object| object.id.as_str());
    let what = match wanted {
        As::Completed => "It becomes completed if the provider says that it succeeded.",
        As::Failed => {
            "Its object is canceled at the provider if it can still move money. This can't be undone."
        }
    };
    format!(
        "{}: {} {} in minor units, stage {}, money {}, {object}\n{what}",
        charge.id,
        request.amount,
        request.currency,
        progress.state.stage(),
        progress.state.money(),
    )
}

/// The held job as the executor takes it, with the charge as it stands now. `None` for a payload of another release.
async fn claimed(
    connection: &mut PgConnection,
    id: ChargeId,
    token: LeaseToken,
    held: HeldJob,
    looked: bool,
) -> anyhow::Result<Option<Claimed>> {
    if !Instruction::VERSIONS.contains(&held.payload_version) {
        return Ok(None);
    }
    let charge = find(connection, id).await?;
    Ok(Some(Claimed {
        outbox_id: held.outbox_id,
        lease: token,
        attempt: held.attempt,
        charge: id,
        payload: held.payload,
        progress: charge.progress,
        due_at: held.claimed_at,
        created_at: charge.created_at,
        cancel_requested: held.cancel_requested,
        claimed_at: held.claimed_at,
        look: if looked { Look::Answered } else { held.look },
        strays: held.strays,
        queue: held.account.clone(),
        account: held.account,
    }))
}

async fn unheld(connection: &mut PgConnection, id: ChargeId) -> anyhow::Result<Hinted> {
    let lease = outbox::find(connection, id)
        .await?
        .and_then(|job| job.lease_token.zip(job.lease_until));
    Ok(match lease {
        Some((token, until)) => Hinted::new(
            format!(
                "{id} runs at this moment, held by lease {token} until {}",
                time(until)
            ),
            "wait for the end of the run, then decide again if it is still needed",
        ),
        None => Hinted::new(
            format!("{id} has no job to hold"),
            "`payonce charges show` tells where it stands; an open charge without a job gets one from the reconciler",
        ),
    })
}
