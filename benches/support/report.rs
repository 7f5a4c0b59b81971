//! What is told: a row a round, medians, percentiles.

use std::time::Duration;

use serde_json::{Value, json};

use super::cpu::Cpu;

/// What one round gave.
#[derive(Debug)]
pub(crate) struct Sample {
    pub(crate) count: usize,
    pub(crate) rate: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) cpu: Cpu,
    /// How many of them one commit stands for.
    pub(crate) batch: f64,
}

impl Sample {
    /// From the microseconds of each request, and how long all of them took.
    pub(crate) fn of(mut latencies: Vec<u32>, took: Duration) -> Self {
        latencies.sort_unstable();
        let ms = |share: f64| percentile(&latencies, share) / 1000.0;
        Self {
            count: latencies.len(),
            rate: number(latencies.len()) / took.as_secs_f64(),
            p50_ms: ms(0.5),
            p99_ms: ms(0.99),
            cpu: Cpu::default(),
            batch: 1.0,
        }
    }
}

/// The middle of several rounds, of which there is at least one, each figure by itself.
pub(crate) struct Medians {
    pub(crate) rate: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
}

impl Medians {
    pub(crate) fn of(samples: &[Sample]) -> Self {
        let middle = |figure: fn(&Sample) -> f64| {
            let mut figures: Vec<f64> = samples.iter().map(figure).collect();
            figures.sort_by(f64::total_cmp);
            let (low, high) = (figures.len().saturating_sub(1) / 2, figures.len() / 2);
            f64::midpoint(figures[low], figures[high])
        };
        Self {
            rate: middle(|sample| sample.rate),
            p50_ms: middle(|sample| sample.p50_ms),
            p99_ms: middle(|sample| sample.p99_ms),
        }
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({"per_second": self.rate, "p50_ms": self.p50_ms, "p99_ms": self.p99_ms})
    }
}

/// The value below which this share of the sorted values lies.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an index of a list that exists"
)]
pub(crate) fn percentile(sorted: &[u32], share: f64) -> f64 {
    let at = (number(sorted.len()) * share) as usize;
    sorted
        .get(at.min(sorted.len().saturating_sub(1)))
        .map_or(f64::NAN, |value| f64::from(*value))
}

#[expect(clippy::cast_precision_loss, reason = "counts of this size are exact")]
pub(crate) fn number(count: usize) -> f64 {
    count as f64
}

pub(crate) fn head() {
    line("                         ms                   µs of CPU for each                 those");
    line("          a second    p50    p99    client  service simulator postgres    all  a commit");
}

pub(crate) fn row(name: &str, sample: &Sample) {
    let each = |cpu: Duration| cpu.as_secs_f64() * 1e6 / number(sample.count.max(1));
    let Cpu {
        client,
        service,
        simulator,
        postgres,
    } = sample.cpu;
    line(&format!(
        "{name:8} {:9.0} {:7.2} {:7.2} {:7.0} {:8.0} {:9.0} {:8.0} {:6.0} {:9.1}",
        sample.rate,
        sample.p50_ms,
        sample.p99_ms,
        each(client),
        each(service),
        each(simulator),
        each(postgres),
        each(client + service + simulator + postgres),
        sample.batch,
    ));
}

#[expect(clippy::print_stdout, reason = "what a benchmark is run for")]
pub(crate) fn line(text: &str) {
    println!("{text}");
}
