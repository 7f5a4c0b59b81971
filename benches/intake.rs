//! How many requests a second intake accepts, and how fast, against `pgbench` on the same Postgres with the same three
//! inserts in one transaction; and how long an idle service takes from POST to `completed`.
//!
//! `cargo bench --bench intake` prints tables for people and, as its last line, JSON for machines. What is compared runs
//! in turns on the same machine, each round on empty tables, so a ratio means something where a rate does not.
//! `PAYONCE_BENCH_SECONDS` (10) and `PAYONCE_BENCH_ROUNDS` (3) make it shorter or longer; `PAYONCE_BENCH_ONLY` names the
//! parts to run: `many`, `one`, `idle`.

#[expect(dead_code, reason = "each benchmark uses some of it")]
mod support;

use std::time::Duration;

use serde_json::{Value, json};

use support::books::Books;
use support::cpu::{self, Cpu, Processes};
use support::load::{self, Amount, Target};
use support::plan::{self, Plan};
use support::report::{self, Medians, Sample};
use support::service::Service;
use support::{idle, pgbench};

/// Enough for full batches, few enough that `pgbench` is at its best too.
const MANY: usize = 64;
const IDLE_CHARGES: usize = 200;
/// Connections are made, statements prepared and plans settled after it.
const WARM_UP: Duration = Duration::from_secs(1);

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    if !plan::is_bench() {
        report::line("nothing is measured without optimisation: run `cargo bench --bench intake`");
        return Ok(());
    }
    let plan = Plan::of_environment(10, 3)?;
    let books = Books::start().await?;
    report::line(&books.description().await?);
    let mut summary = json!({});
    if plan.has("many") {
        summary["many"] = compare(&books, &plan, MANY).await?;
    }
    if plan.has("one") {
        summary["one"] = compare(&books, &plan, 1).await?;
    }
    if plan.has("idle") {
        summary["idle"] = idle::measure(&books, IDLE_CHARGES).await?;
    }
    books.stop().await?;
    report::line(&summary.to_string());
    Ok(())
}

/// `pgbench` and the service in turns, with as many connections to each.
async fn compare(books: &Books, plan: &Plan, connections: usize) -> anyhow::Result<Value> {
    report::line(&format!(
        "\n{connections} connection(s), {} round(s) of {} s in turns, each on empty tables",
        plan.rounds,
        plan.seconds.as_secs()
    ));
    report::head();
    let (mut theirs, mut ours, mut resident_kib) = (Vec::new(), Vec::new(), None);
    for _ in 0..plan.rounds {
        books.empty().await?;
        let sample = pgbench::run(books, connections, plan.seconds).await?;
        report::row("pgbench", &sample);
        theirs.push(sample);

        books.empty().await?;
        let (sample, peak) = serve_round(books, plan, connections).await?;
        report::row("payonce", &sample);
        ours.push(sample);
        resident_kib = resident_kib.max(peak);
    }
    let (theirs, ours) = (Medians::of(&theirs), Medians::of(&ours));
    let (rates, latencies) = (ours.rate / theirs.rate, ours.p50_ms / theirs.p50_ms);
    report::line(&format!(
        "by the medians of the rounds payonce has {rates:.2} times the rate and {latencies:.2} times the p50 of pgbench"
    ));
    if let Some(kib) = resident_kib {
        let megabytes = kib / 1024;
        report::line(&format!(
            "resident memory of `serve` at its peak: {megabytes} MB"
        ));
    }
    Ok(json!({
        "connections": connections,
        "pgbench": theirs.to_json(),
        "payonce": ours.to_json(),
        "rate_ratio": rates,
        "p50_ratio": latencies,
        "resident_peak_kib": resident_kib,
    }))
}

/// One round of the service, in a fresh process that is warmed up first, and its peak of resident memory in KiB.
async fn serve_round(
    books: &Books,
    plan: &Plan,
    connections: usize,
) -> anyhow::Result<(Sample, Option<u64>)> {
    let commits = books.commits().await?;
    let service = Service::start(books, "api", &[]).await?;
    let target = Target {
        address: service.api()?,
        token: &books.token,
    };
    let processes = Processes {
        service: Some(service.id()),
        simulator: None,
        postmaster: books.postmaster(),
    };
    let warm_up = load::run(target, connections, Amount::For(WARM_UP)).await?;
    let before = Cpu::now(processes);
    let mut sample = load::run(target, connections, Amount::For(plan.seconds)).await?;
    sample.cpu = Cpu::now(processes).since(before);
    let peak = cpu::peak_resident_kib(service.id());
    service.stop().await?;
    let commits = usize::try_from(books.commits().await? - commits)?.max(1);
    sample.batch = report::number(warm_up.count + sample.count) / report::number(commits);
    Ok((sample, peak))
}
