//! How fast charges go all the way, against `pgbench` on the same Postgres with intake's three inserts in one
//! transaction: from the first POST to the last completion with every role in one process, and out of a queue that waits
//! already. Two provider calls a charge are part of both; the simulator is another process on the same machine.
//!
//! `cargo bench --bench pipeline` prints tables for people and, as its last line, JSON for machines. What is compared runs
//! in turns, each round on empty tables, and after each the books are held against the simulator's ledger.
//! `PAYONCE_BENCH_CHARGES` (20000), `PAYONCE_BENCH_JOBS` (15000), `PAYONCE_BENCH_SECONDS` of pgbench (3) and
//! `PAYONCE_BENCH_ROUNDS` (3) make it shorter or longer; `PAYONCE_BENCH_ONLY` names the parts to run: `pipeline`,
//! `drain`, `idle`.

#[expect(dead_code, reason = "each benchmark uses some of it")]
mod support;

use std::time::{Duration, Instant};

use payonce::clock::Clock;
use serde_json::{Value, json};
use time::OffsetDateTime;

use support::agreement;
use support::books::Books;
use support::cpu::{Cpu, Processes};
use support::load::{self, Amount, Target};
use support::plan::{self, Plan};
use support::report::{self, Medians, Sample};
use support::service::Service;
use support::simulator::Simulator;
use support::{idle, pgbench};

/// As many as `pgbench` is at its best with.
const CONNECTIONS: usize = 64;
const IDLE_CHARGES: usize = 100;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    if !plan::is_bench() {
        report::line(
            "nothing is measured without optimisation: run `cargo bench --bench pipeline`",
        );
        return Ok(());
    }
    let plan = Plan::of_environment(3, 3)?;
    let charges = usize::try_from(plan::number("PAYONCE_BENCH_CHARGES", 20_000)?.max(1))?;
    let jobs = usize::try_from(plan::number("PAYONCE_BENCH_JOBS", 15_000)?.max(1))?;
    let books = Books::start().await?;
    report::line(&books.description().await?);
    let mut summary = json!({});
    if plan.has("pipeline") {
        summary["pipeline"] = compare(&books, &plan, Way::Whole, charges).await?;
    }
    if plan.has("drain") {
        summary["drain"] = compare(&books, &plan, Way::Queue, jobs).await?;
    }
    if plan.has("idle") {
        summary["idle"] = idle::measure(&books, IDLE_CHARGES).await?;
    }
    books.stop().await?;
    report::line(&summary.to_string());
    Ok(())
}

#[derive(Clone, Copy)]
enum Way {
    /// From the first POST on.
    Whole,
    /// From a queue of accepted charges on.
    Queue,
}

/// `pgbench` and the service in turns.
async fn compare(books: &Books, plan: &Plan, way: Way, count: usize) -> anyhow::Result<Value> {
    let what = match way {
        Way::Whole => "from the first POST to the last completion",
        Way::Queue => "that wait already, to the last completion",
    };
    report::line(&format!(
        "\n{count} charges {what}; {} round(s) in turns with pgbench for {} s, {CONNECTIONS} connections",
        plan.rounds,
        plan.seconds.as_secs()
    ));
    report::head();
    let (mut theirs, mut ours, mut details) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..plan.rounds {
        books.empty().await?;
        let sample = pgbench::run(books, CONNECTIONS, plan.seconds).await?;
        report::row("pgbench", &sample);
        theirs.push(sample);

        books.empty().await?;
        let (sample, detail) = match way {
            Way::Whole => whole(books, count).await?,
            Way::Queue => queue(books, count).await?,
        };
        report::row("payonce", &sample);
        ours.push(sample);
        details.push(detail);
    }
    for detail in &details {
        report::line(detail);
    }
    let (theirs, ours) = (Medians::of(&theirs), Medians::of(&ours));
    let ratio = ours.rate / theirs.rate;
    report::line(&format!(
        "by the medians of the rounds payonce completes {ratio:.2} charges for each transaction of pgbench"
    ));
    Ok(json!({
        "charges": count,
        "pgbench": theirs.to_json(),
        "payonce": ours.to_json(),
        "rate_ratio": ratio,
    }))
}

/// All roles in one process. The latencies are those from acceptance to completion.
async fn whole(books: &Books, count: usize) -> anyhow::Result<(Sample, String)> {
    let simulator = Simulator::start().await?;
    let service = Service::start(books, "api,worker,reconciler", &simulator.settings()).await?;
    let watch = Watch::start(books, &service, &simulator).await?;
    let target = Target {
        address: service.api()?,
        token: &books.token,
    };
    let accepted = load::run(target, CONNECTIONS, Amount::Requests(count)).await?;
    let sample = watch.end(books, service, &simulator, count).await?;
    let detail = format!(
        "accepted {:.0} a second, POST to 202 p50 {:.2} ms p99 {:.2} ms",
        accepted.rate, accepted.p50_ms, accepted.p99_ms
    );
    Ok((sample, detail))
}

/// A process with the role api alone accepts; it is gone when the worker starts, and the time counts from where that one
/// says that it is at work.
async fn queue(books: &Books, count: usize) -> anyhow::Result<(Sample, String)> {
    let simulator = Simulator::start().await?;
    let api = Service::start(books, "api", &[]).await?;
    let target = Target {
        address: api.api()?,
        token: &books.token,
    };
    load::run(target, CONNECTIONS, Amount::Requests(count)).await?;
    api.stop().await?;

    let starting = Instant::now();
    let worker = Service::start(books, "worker", &simulator.settings()).await?;
    let started = starting.elapsed();
    let watch = Watch::start(books, &worker, &simulator).await?;
    let sample = watch.end(books, worker, &simulator, count).await?;
    let detail = format!(
        "the worker's process took {:.0} ms to start, not counted",
        started.as_secs_f64() * 1000.0
    );
    Ok((sample, detail))
}

/// A stretch of work, from its beginning on.
struct Watch {
    processes: Processes,
    began: OffsetDateTime,
    cpu: Cpu,
    commits: i64,
}

impl Watch {
    async fn start(
        books: &Books,
        service: &Service,
        simulator: &Simulator,
    ) -> anyhow::Result<Self> {
        let began = Clock::system().now();
        let processes = Processes {
            service: Some(service.id()),
            simulator: Some(simulator.id()),
            postmaster: books.postmaster(),
        };
        Ok(Self {
            processes,
            began,
            cpu: Cpu::now(processes),
            commits: books.commits().await?,
        })
    }

    /// Waits for the last completion, checks that all is well, and stops the service.
    async fn end(
        self,
        books: &Books,
        service: Service,
        simulator: &Simulator,
        count: usize,
    ) -> anyhow::Result<Sample> {
        agreement::no_job_left(books).await?;
        let cpu = Cpu::now(self.processes).since(self.cpu);
        let done = agreement::check(books, simulator, count).await?;
        // Sessions that end owe nothing of their counts.
        service.stop().await?;
        let commits = books.commits().await? - self.commits;
        let took = Duration::try_from(done.at - self.began)?;
        let batch = report::number(count) / report::number(usize::try_from(commits)?.max(1));
        Ok(Sample {
            cpu,
            batch,
            ..Sample::of(done.micros, took)
        })
    }
}
