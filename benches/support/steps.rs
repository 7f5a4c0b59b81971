//! The worker's statements one after the other, as it sends them and with nothing around them: claim, store, complete.

use std::time::{Duration, Instant};

use anyhow::Context;
use payonce::batch::Statement;
use payonce::completion::{Ending, Hold, Settle, Settled, Settlement};
use payonce::db::claim;
use payonce::db::claimed::{self, Claimed};
use payonce::db::session::{Durability, Session, SessionLimits};
use payonce::domain::charge::StoredObject;
use payonce::domain::ids::{LeaseToken, ProviderChargeId};
use payonce::domain::request::Instruction;
use payonce::random::Random;
use payonce::worker::stored::{Start, Started, StoreObject};

use super::books::Books;

/// As many as a busy worker's statements have.
const BATCH: i64 = 64;
const LEASE: Duration = Duration::from_mins(2);

/// What one charge cost, in microseconds, by the medians over the batches.
pub(crate) struct Steps {
    pub(crate) claim: f64,
    pub(crate) store: f64,
    pub(crate) complete: f64,
}

/// Takes every job that is due through its statements.
pub(crate) async fn run(books: &Books) -> anyhow::Result<Steps> {
    let random = Random::from_os();
    let limits = SessionLimits {
        statement_timeout: Duration::from_mins(1),
        lock_timeout: Duration::from_secs(1),
        connect_timeout: Duration::from_secs(3),
    };
    let options = books.url().parse()?;
    let mut claims = Session::new(&options, limits, Durability::Lease);
    let mut writes = Session::new(&options, limits, Durability::Durable);
    let (mut claiming, mut storing, mut completing) = (Vec::new(), Vec::new(), Vec::new());
    loop {
        let begun = Instant::now();
        let token = LeaseToken::from_uuid(random.uuid());
        let connection = claims.connection().await?;
        let terms = claim::Terms {
            limit: BATCH,
            due_within: None,
            accounts: claim::Most::default(),
            token,
            lease: LEASE,
            payload_versions: &[Instruction::VERSION],
            refund_payload_versions: &[],
            ours: claimed::Ours {
                account: "default",
                key_window: Duration::from_hours(23),
            },
            shares: None,
        };
        let claimed = claim::claim(connection, terms).await?;
        let took = begun.elapsed();
        let jobs: Vec<Claimed> = claimed
            .into_iter()
            .filter_map(|job| match job {
                Ok(claimed::Job::Charge(job)) => Some(Ok(*job)),
                Ok(claimed::Job::Refund(_)) => None,
                Err(unclaimable) => Some(Err(unclaimable.error)),
            })
            .collect::<Result<_, _>>()?;
        if jobs.is_empty() {
            break;
        }
        let count = u32::try_from(jobs.len())?;
        let [store, complete] = charge(&mut writes, jobs, &random).await?;
        for (times, took) in [
            (&mut claiming, took),
            (&mut storing, store),
            (&mut completing, complete),
        ] {
            times.push(took.as_secs_f64() * 1e6 / f64::from(count));
        }
    }
    Ok(Steps {
        claim: median(claiming)?,
        store: median(storing)?,
        complete: median(completing)?,
    })
}

/// How long it took to store the objects of these jobs, and to complete their charges.
async fn charge(
    writes: &mut Session,
    jobs: Vec<Claimed>,
    random: &Random,
) -> anyhow::Result<[Duration; 2]> {
    let (mut starts, mut settlements) = (Vec::new(), Vec::new());
    for job in jobs {
        let id = format!("pi_3{}", &random.uuid().simple().to_string()[..23]);
        let object = StoredObject {
            id: ProviderChargeId::parse(&id).context("an id like Stripe's")?,
            account: "default".to_owned(),
        };
        let hold = Hold {
            charge: job.charge,
            outbox_id: job.outbox_id,
            lease: job.lease,
            version: job.progress.version,
        };
        starts.push(Start {
            hold,
            object: object.clone(),
            executes: true,
        });
        let started = job.progress.start_execute(object.clone())?;
        let hold = hold.at(&started);
        let detail = serde_json::json!({"attempts": 1, "provider_charge_id": id, "provider_request_id": "req_1"});
        let progress = started.succeed(object)?;
        settlements.push(Settlement {
            hold,
            ending: Ending::Finish { progress, detail },
        });
    }
    let connection = writes.connection().await?;
    let begun = Instant::now();
    let started = StoreObject.run(connection, &starts, false).await?;
    let stored = begun.elapsed();
    let settled = Settle::new(&payonce::watches::Waits::none().charges)
        .run(connection, &settlements, false)
        .await?;
    let completed = begun.elapsed().saturating_sub(stored);
    anyhow::ensure!(
        started.iter().all(|one| *one == Started::Yes)
            && settled.iter().all(|one| *one == Settled::Applied),
        "a charge was not taken through its steps"
    );
    Ok([stored, completed])
}

fn median(mut times: Vec<f64>) -> anyhow::Result<f64> {
    times.sort_by(f64::total_cmp);
    times
        .get(times.len() / 2)
        .copied()
        .context("there was no job")
}
