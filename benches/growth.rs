//! What a year of charges costs: intake, reads by id (of the newest charges, and of any of all) and the worker's statements on books of several sizes, each beside
//! `pgbench` with intake's three inserts on tables of its own, which are emptied each time.
//!
//! `cargo bench --bench growth` prints a table for people and, as its last line, JSON for machines. The machine may be
//! faster in one minute than in the next, so what is compared is each figure's ratio to its own round's `pgbench`.
//! `PAYONCE_BENCH_SIZES` (0,1000000) says how many charges are there; ten millions take 20 GB and a while to make.
//! `PAYONCE_BENCH_SECONDS` (3) and `PAYONCE_BENCH_ROUNDS` (3) make it shorter or longer.

#[expect(dead_code, reason = "each benchmark uses some of it")]
mod support;

use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use serde_json::{Value, json};

use support::books::Books;
use support::load::{self, Amount, Target};
use support::plan::{self, Plan};
use support::service::Service;
use support::{history, pgbench, report, steps};

const CONNECTIONS: usize = 64;
/// What each round adds, and takes through the worker's statements.
const CHARGES: usize = 12_000;
const WARM_UP: usize = 2_000;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    if !plan::is_bench() {
        report::line("nothing is measured without optimisation: run `cargo bench --bench growth`");
        return Ok(());
    }
    let plan = Plan::of_environment(3, 3)?;
    let sizes = sizes()?;
    let books = Books::start().await?;
    report::line(&books.description().await?);
    books.empty().await?;
    books.make_tables_for_pgbench().await?;
    report::line(&format!(
        "\n{} round(s) at each size; ratios are to pgbench in the same round, medians over the rounds\n\n\
         charges             pgbench          intake           GET the newest     GET any of all             µs a charge\n\
         there              a second   a second  ratio    a second  ratio    a second  ratio   claim   store complete",
        plan.rounds
    ));
    let (mut there, mut all): (i64, Vec<(i64, Figures)>) = (0, Vec::new());
    for size in sizes {
        let begun = Instant::now();
        history::grow(&books, there, size).await?;
        there = size;
        let grew = begun.elapsed().as_secs();
        let mut rounds = Vec::new();
        for _ in 0..plan.rounds {
            rounds.push(round(&books, &plan, size).await?);
        }
        let figures = Figures::median(&rounds);
        figures.tell(size);
        report::line(&format!(
            "                    grown to in {grew} s, {} MB of tables and indexes",
            books.megabytes().await?
        ));
        all.push((size, figures));
    }
    let summary = compare(&all);
    books.stop().await?;
    report::line(&summary.to_string());
    Ok(())
}

fn sizes() -> anyhow::Result<Vec<i64>> {
    let text = std::env::var_os("PAYONCE_BENCH_SIZES").map_or_else(
        || "0,1000000".to_owned(),
        |text| text.to_string_lossy().into_owned(),
    );
    let mut sizes = text
        .split(',')
        .map(|size| size.trim().parse())
        .collect::<Result<Vec<i64>, _>>()
        .context("PAYONCE_BENCH_SIZES is no list of whole numbers")?;
    sizes.sort_unstable();
    Ok(sizes)
}

/// Per second, and microseconds a charge where there is one connection alone.
#[derive(Clone, Copy)]
struct Figures {
    pgbench: f64,
    intake: f64,
    newest: f64,
    any: f64,
    claim: f64,
    store: f64,
    complete: f64,
}

impl Figures {
    fn median(rounds: &[Self]) -> Self {
        let middle = |figure: fn(&Self) -> f64| {
            let mut figures: Vec<f64> = rounds.iter().map(figure).collect();
            figures.sort_by(f64::total_cmp);
            figures[figures.len() / 2]
        };
        // Of rates the ratio is what counts: its median stands for the round.
        let pgbench = middle(|round| round.pgbench);
        Self {
            pgbench,
            intake: middle(|round| round.intake / round.pgbench) * pgbench,
            newest: middle(|round| round.newest / round.pgbench) * pgbench,
            any: middle(|round| round.any / round.pgbench) * pgbench,
            claim: middle(|round| round.claim),
            store: middle(|round| round.store),
            complete: middle(|round| round.complete),
        }
    }

    fn tell(&self, size: i64) {
        report::line(&format!(
            "{size:<12} {:14.0} {:10.0} {:6.2} {:11.0} {:6.2} {:11.0} {:6.2} {:7.1} {:7.1} {:8.1}",
            self.pgbench,
            self.intake,
            self.intake / self.pgbench,
            self.newest,
            self.newest / self.pgbench,
            self.any,
            self.any / self.pgbench,
            self.claim,
            self.store,
            self.complete,
        ));
    }

    fn to_json(self) -> Value {
        json!({
            "pgbench_per_second": self.pgbench,
            "intake_ratio": self.intake / self.pgbench,
            "newest_ratio": self.newest / self.pgbench,
            "any_ratio": self.any / self.pgbench,
            // A transaction of pgbench is the unit here too: what so many microseconds are worth on this machine.
            "claim_ratio": 1e6 / self.claim / self.pgbench,
            "store_ratio": 1e6 / self.store / self.pgbench,
            "complete_ratio": 1e6 / self.complete / self.pgbench,
        })
    }
}

async fn round(books: &Books, plan: &Plan, size: i64) -> anyhow::Result<Figures> {
    books.empty_tables_for_pgbench().await?;
    let theirs = pgbench::run_in(books, "pgbench", CONNECTIONS, plan.seconds).await?;
    let service = Service::start(books, "api", &[]).await?;
    let target = Target {
        address: service.api()?,
        token: &books.token,
    };
    load::run(target, CONNECTIONS, Amount::Requests(WARM_UP)).await?;
    let taken = load::run(target, CONNECTIONS, Amount::Requests(CHARGES)).await?;
    let mut connection = books.connect().await?;
    let newest: Arc<[_]> = history::newest(&mut connection).await?.into();
    let any: Arc<[_]> = history::some(&mut connection, size).await?.into();
    let seconds = Amount::For(plan.seconds);
    let newest = load::reads(target, CONNECTIONS, seconds, newest).await?;
    let any = load::reads(target, CONNECTIONS, seconds, any).await?;
    service.stop().await?;
    let steps = steps::run(books).await?;
    Ok(Figures {
        pgbench: theirs.rate,
        intake: taken.rate,
        newest: newest.rate,
        any: any.rate,
        claim: steps.claim,
        store: steps.store,
        complete: steps.complete,
    })
}

/// Each size against the first.
fn compare(all: &[(i64, Figures)]) -> Value {
    let mut summary = json!({});
    let Some((first, base)) = all.first() else {
        return summary;
    };
    let base = base.to_json();
    for (size, figures) in all {
        let figures = figures.to_json();
        let to_first = |name: &str| {
            let ratio = figures[name].as_f64()? / base[name].as_f64()?;
            Some((ratio * 100.0).round() / 100.0)
        };
        let kept = json!({
            "intake": to_first("intake_ratio"),
            "newest": to_first("newest_ratio"),
            "any": to_first("any_ratio"),
            "claim": to_first("claim_ratio"),
            "store": to_first("store_ratio"),
            "complete": to_first("complete_ratio"),
        });
        report::line(&format!("at {size}, of what there was at {first}: {kept}"));
        summary[size.to_string()] = json!({"figures": figures, "kept": kept});
    }
    summary
}
