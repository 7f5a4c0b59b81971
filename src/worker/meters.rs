//! What is measured of the worker.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use metrics::{Counter, Histogram};

use super::executor::Ran;
use crate::batch::BatchMeters;
use crate::completion::Settled;
use crate::domain::outcome::{Answer, Phase};
use crate::domain::refund::outcome::{RefundObject, RefundPhase};
use crate::meters::Meters;

#[derive(Clone)]
pub struct WorkerMeters {
    pub(super) claims: Counter,
    pub(super) leases_expired: Counter,
    /// From the acceptance of a charge to its last transition, in seconds.
    pub(super) certainty: Histogram,
    pub completion: BatchMeters,
    calls: Arc<[CallMeters; 4]>,
    refund_calls: Arc<[CallMeters; 3]>,
    account_calls: Arc<CallMeters>,
    runs: Runs,
}

/// What can come back when it is asked whose account a key opens.
const ACCOUNT_WORDS: &[&str] = &[
    "account",
    "not_sent",
    "rate_limited",
    "denied",
    "forbidden",
    "rejected",
    "timeout",
    "connection_lost",
    "server_error",
    "unreadable_answer",
    "unknown_status",
    "redirect",
];

struct CallMeters {
    answers: BTreeMap<&'static str, Counter>,
    seconds: Histogram,
}

#[derive(Clone)]
struct Runs {
    applied: Counter,
    already_settled: Counter,
    lease_lost: Counter,
    disputed: Counter,
    unwritten: Counter,
}

impl WorkerMeters {
    pub fn new(meters: &Meters) -> Self {
        let run = |ended| {
            meters.counter(
                "payonce_worker_runs_total",
                "Runs of a job, by how they ended; unwritten: what the provider had said could not be written down.",
                &[("ended", ended)],
            )
        };
        Self {
            claims: meters.counter(
                "payonce_worker_claims_total",
                "Jobs that this process claimed.",
                &[],
            ),
            leases_expired: meters.counter(
                "payonce_leases_expired_total",
                "Leases that had run out and were taken back: their holders crashed, hung or lost the database.",
                &[],
            ),
            certainty: meters.histogram(
                "payonce_certainty_seconds",
                "From the acceptance of a charge to its last transition, by a worker.",
                &[],
            ),
            completion: BatchMeters {
                size: meters.histogram(
                    "payonce_completion_batch_size",
                    "Outcomes that one statement wrote.",
                    &[],
                ),
                wait: meters.histogram(
                    "payonce_completion_wait_seconds",
                    "How long an outcome waited for its batch to begin.",
                    &[],
                ),
            },
            calls: Arc::new(
                [Phase::Prepare, Phase::Execute, Phase::Read, Phase::Cancel]
                    .map(|phase| CallMeters::new(meters, phase.as_str(), Answer::WORDS)),
            ),
            refund_calls: Arc::new(RefundPhase::ALL.map(|phase| {
                CallMeters::new(meters, phase.as_str(), RefundObject::WORDS)
            })),
            account_calls: Arc::new(CallMeters::new(meters, "account", ACCOUNT_WORDS)),
            runs: Runs {
                applied: run("applied"),
                already_settled: run("already_settled"),
                lease_lost: run("lease_lost"),
                disputed: run("disputed"),
                unwritten: run("unwritten"),
            },
        }
    }

    pub(super) fn call(&self, phase: Phase, answer: &Answer, took: Duration) {
        let [prepare, execute, read, cancel] = &*self.calls;
        let call = match phase {
            Phase::Prepare => prepare,
            Phase::Execute => execute,
            Phase::Read => read,
            Phase::Cancel => cancel,
        };
        call.count(answer.word(), took);
    }

    pub(super) fn refund_call(&self, phase: RefundPhase, word: &'static str, took: Duration) {
        let [refund, read, list] = &*self.refund_calls;
        let call = match phase {
            RefundPhase::Refund => refund,
            RefundPhase::ReadRefund => read,
            RefundPhase::ListRefunds => list,
        };
        call.count(word, took);
    }

    /// Whose account the key opens was asked.
    pub(crate) fn account_call(&self, word: &'static str, took: Duration) {
        self.account_calls.count(word, took);
    }

    pub(super) fn ran(&self, ran: &Ran) {
        let counter = match ran {
            Ran::Settled(Settled::Applied) => &self.runs.applied,
            Ran::Settled(Settled::AlreadySettled) => &self.runs.already_settled,
            Ran::Settled(Settled::LeaseLost) => &self.runs.lease_lost,
            Ran::Settled(Settled::Disputed) => &self.runs.disputed,
            Ran::Unwritten(_) => &self.runs.unwritten,
        };
        counter.increment(1);
    }
}

impl CallMeters {
    fn count(&self, word: &'static str, took: Duration) {
        if let Some(counter) = self.answers.get(word) {
            counter.increment(1);
        }
        self.seconds.record(took);
    }

    fn new(meters: &Meters, phase: &'static str, words: &'static [&'static str]) -> Self {
        let answer = |answer| {
            let counter = meters.counter(
                "payonce_provider_calls_total",
                "Calls to the provider, by what was asked and what came back.",
                &[("phase", phase), ("answer", answer)],
            );
            (answer, counter)
        };
        Self {
            answers: words.iter().copied().map(answer).collect(),
            seconds: meters.histogram(
                "payonce_provider_call_seconds",
                "How long the provider took to answer, or to be given up on.",
                &[("phase", phase)],
            ),
        }
    }
}
