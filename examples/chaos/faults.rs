//! What goes wrong, when and where: drawn from the seed alone, so that a run has the same schedule each time.

use std::fmt;
use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

use crate::shared::database_proxy::{Fault as OnStatement, INSERT_BATCH, READ_WINNERS};
use crate::shared::provider_proxy::Interference;

#[derive(Clone, Copy, Debug)]
pub enum Fault {
    Postgres(OnPostgres),
    Service(usize, OnService),
}

#[derive(Clone, Copy, Debug)]
pub enum OnPostgres {
    /// In order, sessions ended.
    Restart,
    /// At once, and recovered.
    Crash,
    /// One backend by `kill -9`.
    KillBackend,
}

#[derive(Clone, Copy, Debug)]
pub enum OnService {
    Kill {
        down: Duration,
    },
    Stop {
        span: Duration,
        killed: bool,
    },
    Terminate {
        down: Duration,
    },
    Network(Side, Weather, Duration),
    /// The next statement with this text.
    Statement(&'static str, OnStatement, Duration),
    /// The next request to the provider with this end.
    Request(&'static str, Interference, Duration),
}

#[derive(Clone, Copy, Debug)]
pub enum Side {
    Database,
    Provider,
}

#[derive(Clone, Copy, Debug)]
pub enum Weather {
    /// Connections are cut and refused.
    Refused,
    /// Nothing goes through, and connections that met it stay so.
    Silent,
    Delayed(Duration),
}

/// Texts of the statements that matter: accepting, reading the winners, claiming, the gate before execute, the
/// completion, giving back, canceling; of refunds accepting, the gate before the send, giving back, ending, correcting and
/// counting what was made outside; of deliveries claiming, writing down what is sent and what came of it.
const STATEMENTS: [&str; 17] = [
    INSERT_BATCH,
    READ_WINNERS,
    "FOR UPDATE SKIP LOCKED",
    "'execute_started'",
    "finished_at = now()",
    "AND input.changes",
    "cancel_requested_at = now()",
    "'nothing was executed'",
    "'refund_accepted'",
    "'refund_started'",
    "'refund_' || changed.stage",
    "'refund_completed'",
    "'refund_corrected'",
    "'refunded_externally'",
    "AS busy (endpoint_id, number)",
    "SET body",
    "'delivered' THEN tries",
];
/// The last is a page of a list.
const REQUESTS: [&str; 5] = [
    "/payment_intents",
    "/confirm",
    "/cancel",
    "/refunds",
    "&limit=100",
];

/// Before the next fault, in milliseconds.
const PAUSES: std::ops::Range<u64> = 300..1600;

impl Fault {
    pub fn draw(random: &mut StdRng, services: usize) -> (Duration, Self) {
        let pause = Duration::from_millis(random.random_range(PAUSES));
        let fault = match random.random_range(0..100) {
            0..2 => Self::Postgres(OnPostgres::Restart),
            2..4 => Self::Postgres(OnPostgres::Crash),
            4..6 => Self::Postgres(OnPostgres::KillBackend),
            drawn => {
                let service = random.random_range(0..services);
                Self::Service(service, on_service(random, drawn))
            }
        };
        (pause, fault)
    }

    /// Its kind, for the figures.
    pub fn kind(&self) -> String {
        match self {
            Self::Postgres(fault) => format!("postgres {fault:?}"),
            Self::Service(_, fault) => match fault {
                OnService::Kill { .. } => "service kill -9".to_owned(),
                OnService::Stop { killed: false, .. } => "service SIGSTOP, SIGCONT".to_owned(),
                OnService::Stop { killed: true, .. } => "service SIGSTOP, kill -9".to_owned(),
                OnService::Terminate { .. } => "service SIGTERM".to_owned(),
                OnService::Network(side, Weather::Delayed(_), _) => {
                    format!("network {side:?} Delayed")
                }
                OnService::Network(side, weather, _) => format!("network {side:?} {weather:?}"),
                OnService::Statement(_, fault, _) => format!("statement {fault:?}"),
                OnService::Request(_, fault, _) => format!("request {fault:?}"),
            },
        }
    }
}

fn on_service(random: &mut StdRng, drawn: u32) -> OnService {
    let ms = |random: &mut StdRng, range| Duration::from_millis(random.random_range(range));
    match drawn {
        ..18 => OnService::Kill {
            down: ms(random, 0..800),
        },
        // Some longer than a lease.
        18..28 => {
            let long = random.random_bool(0.3);
            OnService::Stop {
                span: ms(random, if long { 4200..8000 } else { 100..1500 }),
                killed: random.random_bool(0.2),
            }
        }
        28..34 => OnService::Terminate {
            down: ms(random, 0..500),
        },
        34..56 => {
            let side = *[Side::Database, Side::Provider]
                .choose(random)
                .expect("there are two");
            let weather = match random.random_range(0..4) {
                // Mostly a cut: it is over before it is noticed elsewhere.
                0 | 1 => return OnService::Network(side, Weather::Refused, cut(random)),
                2 => Weather::Silent,
                _ => Weather::Delayed(ms(random, 5..400)),
            };
            OnService::Network(side, weather, ms(random, 200..3000))
        }
        56..80 => {
            let fault = [
                OnStatement::CutBefore,
                OnStatement::CutAfter,
                OnStatement::HoldBefore,
                OnStatement::HoldAfter,
            ];
            let text = STATEMENTS.choose(random).expect("there are some");
            let fault = fault.choose(random).expect("there are four");
            OnService::Statement(text, *fault, ms(random, 50..6000))
        }
        _ => {
            let faults = [
                Interference::CutBefore,
                Interference::CutAfter,
                Interference::HoldRequest,
                Interference::HoldReply,
            ];
            let end = REQUESTS.choose(random).expect("there are some");
            let fault = faults.choose(random).expect("there are four");
            // A request that was held goes on after its sender's lease, or the sender itself, is gone.
            OnService::Request(end, *fault, ms(random, 50..9000))
        }
    }
}

fn cut(random: &mut StdRng) -> Duration {
    let long = random.random_bool(0.3);
    Duration::from_millis(random.random_range(if long { 500..2500 } else { 20..120 }))
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Postgres(fault) => write!(f, "Postgres: {fault:?}"),
            Self::Service(service, fault) => write!(f, "service {service}: {fault:?}"),
        }
    }
}
