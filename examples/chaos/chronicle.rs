//! What happens in a run, told as it happens: faults, figures, and every promise that was broken.

use std::collections::BTreeMap;
use std::sync::Mutex;

use tokio::time::Instant;

/// Breaches that are told when they happen; the figures count all of them.
const MOST_TOLD: usize = 20;

pub struct Chronicle {
    began: Instant,
    figures: Mutex<BTreeMap<String, u64>>,
    breaches: Mutex<Vec<Breach>>,
}

/// A promise that was broken.
#[derive(Clone, Debug)]
pub struct Breach {
    pub promise: &'static str,
    /// The charge or the refund that it is about.
    pub subject: Option<String>,
    pub what: String,
}

impl Chronicle {
    pub fn new() -> Self {
        Self {
            began: Instant::now(),
            figures: Mutex::default(),
            breaches: Mutex::default(),
        }
    }

    pub fn tell(&self, text: &str) {
        line(&format!(
            "[{:7.2} s] {text}",
            self.began.elapsed().as_secs_f64()
        ));
    }

    pub fn count(&self, figure: impl Into<String>) {
        *self
            .figures
            .lock()
            .unwrap()
            .entry(figure.into())
            .or_default() += 1;
    }

    pub fn figures(&self) -> BTreeMap<String, u64> {
        self.figures.lock().unwrap().clone()
    }

    pub fn figure(&self, name: &str) -> u64 {
        let figures = self.figures.lock().unwrap();
        figures.get(name).copied().unwrap_or_default()
    }

    pub fn breach(&self, promise: &'static str, subject: Option<&str>, what: String) {
        let mut breaches = self.breaches.lock().unwrap();
        if breaches.len() < MOST_TOLD {
            self.tell(&format!(
                "BREACH {promise}: {} {what}",
                subject.unwrap_or_default()
            ));
        }
        breaches.push(Breach {
            promise,
            subject: subject.map(str::to_owned),
            what,
        });
    }

    pub fn breaches(&self) -> Vec<Breach> {
        self.breaches.lock().unwrap().clone()
    }
}

#[expect(clippy::print_stdout, reason = "what the run is for")]
pub fn line(text: &str) {
    println!("{text}");
}
