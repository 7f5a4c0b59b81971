//! What can go wrong on purpose, and when: by rate and seed, or by the payment method of one charge.

use std::collections::BTreeMap;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};

/// The step a request belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Phase {
    /// Makes an object that moves no money.
    Prepare,
    /// Moves the money.
    Execute,
    Read,
    Cancel,
    /// Moves money back.
    Refund,
    /// Reads one refund or lists them.
    ReadRefunds,
    /// Asks whose the key is.
    Account,
}

impl Phase {
    fn name(self) -> &'static str {
        match self {
            Self::Prepare => "prepare",
            Self::Execute => "execute",
            Self::Read => "read",
            Self::Cancel => "cancel",
            Self::Refund => "refund",
            Self::ReadRefunds => "read_refunds",
            Self::Account => "account",
        }
    }

    pub(super) fn is_of_refunds(self) -> bool {
        match self {
            Self::Refund | Self::ReadRefunds => true,
            Self::Prepare | Self::Execute | Self::Read | Self::Cancel | Self::Account => false,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    ChargeThenDrop,
    DeclineThenDrop,
    DropBeforeCharge,
    Slow,
    LandLate,
    Error500AfterCharge,
    Error500BeforeCharge,
    Unsaved400,
    KeyInUse,
    RateLimited,
    Unavailable,
    Unauthorized,
    Html,
    Truncated,
    Trickle,
    UnknownStatus,
    /// Of requests about refunds where it meets one of those, else of all others.
    ForgetKeys,
}

/// Their names in settings and payment methods.
const NAMES: [(&str, Fault); 17] = [
    ("charge_then_drop", Fault::ChargeThenDrop),
    ("decline_then_drop", Fault::DeclineThenDrop),
    ("drop_before_charge", Fault::DropBeforeCharge),
    ("slow", Fault::Slow),
    ("land_late", Fault::LandLate),
    ("error_500_after_charge", Fault::Error500AfterCharge),
    ("error_500_before_charge", Fault::Error500BeforeCharge),
    ("unsaved_400", Fault::Unsaved400),
    ("key_in_use", Fault::KeyInUse),
    ("rate_limited", Fault::RateLimited),
    ("unavailable", Fault::Unavailable),
    ("unauthorized", Fault::Unauthorized),
    ("html", Fault::Html),
    ("truncated", Fault::Truncated),
    ("trickle", Fault::Trickle),
    ("unknown_status", Fault::UnknownStatus),
    ("forget_keys", Fault::ForgetKeys),
];

impl Fault {
    pub(super) fn parse(name: &str) -> Option<Self> {
        let named = NAMES.iter().find(|(known, _)| *known == name)?;
        Some(named.1)
    }

    fn name(self) -> &'static str {
        let named = NAMES.iter().find(|(_, fault)| *fault == self);
        named.map_or("", |(name, _)| name)
    }

    /// The fault that a payment method asks for, and whether it does so each time.
    pub(super) fn of_payment_method(token: &str) -> Option<(Self, bool)> {
        let name = token.strip_prefix("pm_sim_")?;
        match name.strip_suffix("_always") {
            Some(name) => Some((Self::parse(name)?, true)),
            None => Some((Self::parse(name)?, false)),
        }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Settings {
    pub(super) seed: u64,
    pub(super) latency_ms: u64,
    pub(super) search_lag_ms: u64,
    pub(super) key_window_s: u64,
    pub(super) slow_ms: u64,
    pub(super) land_late_ms: u64,
    pub(super) rates: BTreeMap<String, f64>,
    /// Secret keys that open nothing any more.
    pub(super) revoked: Vec<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            seed: 0,
            latency_ms: 0,
            search_lag_ms: 0,
            // Stripe keeps a key for at least 24 hours.
            key_window_s: 86_400,
            slow_ms: 3_000,
            land_late_ms: 2_000,
            rates: BTreeMap::new(),
            revoked: Vec::new(),
        }
    }
}

/// The rates, ready to be drawn from: a request meets one fault at most.
#[derive(Debug)]
pub(super) struct Dice {
    rng: StdRng,
    /// For each phase the faults with their cumulated rates.
    faults: [Vec<(f64, Fault)>; 7],
}

impl Dice {
    pub(super) fn new(settings: &Settings) -> Result<Self, String> {
        let mut faults: [Vec<(f64, Fault)>; 7] = Default::default();
        for (name, &rate) in &settings.rates {
            if !(0.0..=1.0).contains(&rate) {
                return Err(format!("rates.{name} is not between 0 and 1"));
            }
            let (phases, fault) = match name.split_once('.') {
                None => (&[Phase::Prepare, Phase::Execute][..], name.as_str()),
                Some(("prepare", fault)) => (&[Phase::Prepare][..], fault),
                Some(("execute", fault)) => (&[Phase::Execute][..], fault),
                Some(("read", fault)) => (&[Phase::Read][..], fault),
                Some(("cancel", fault)) => (&[Phase::Cancel][..], fault),
                Some(("refund", fault)) => (&[Phase::Refund][..], fault),
                Some(("account", fault)) => (&[Phase::Account][..], fault),
                Some(("read_refunds", fault)) => (&[Phase::ReadRefunds][..], fault),
                Some(_) => (&[][..], ""),
            };
            let fault =
                Fault::parse(fault).ok_or_else(|| format!("rates.{name} is not a fault"))?;
            for &phase in phases {
                let row = &mut faults[phase as usize];
                let sum = row.last().map_or(0.0, |&(sum, _)| sum) + rate;
                if sum > 1.000_001 {
                    return Err("the rates of one phase add up to more than 1".into());
                }
                row.push((sum, fault));
            }
        }
        Ok(Self {
            rng: StdRng::seed_from_u64(settings.seed),
            faults,
        })
    }

    pub(super) fn draw(&mut self, phase: Phase) -> Option<Fault> {
        let row = &self.faults[phase as usize];
        if row.is_empty() {
            return None;
        }
        let drawn: f64 = self.rng.random();
        row.iter()
            .find(|&&(sum, _)| drawn < sum)
            .map(|&(_, fault)| fault)
    }
}

/// How often each fault was met, as `execute.slow`.
#[derive(Debug, Default, Serialize)]
#[serde(transparent)]
pub(super) struct Met(BTreeMap<String, u64>);

impl Met {
    pub(super) fn count(&mut self, phase: Phase, fault: Fault) {
        let name = format!("{}.{}", phase.name(), fault.name());
        *self.0.entry(name).or_default() += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(json: &str) -> Settings {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn the_same_seed_draws_the_same_faults() {
        let settings = settings(r#"{"seed":7,"rates":{"slow":0.2,"execute.html":0.3}}"#);
        let draw = || {
            let mut dice = Dice::new(&settings).unwrap();
            (0..200)
                .map(|_| dice.draw(Phase::Execute))
                .collect::<Vec<_>>()
        };
        assert_eq!(draw(), draw());
        assert!(
            draw().contains(&Some(Fault::Html))
                && draw().contains(&Some(Fault::Slow))
                && draw().contains(&None)
        );
    }

    #[test]
    fn a_rate_of_one_phase_leaves_the_others_alone() {
        let mut dice = Dice::new(&settings(r#"{"rates":{"read.html":1}}"#)).unwrap();
        assert_eq!(dice.draw(Phase::Read), Some(Fault::Html));
        assert_eq!(dice.draw(Phase::Execute), None);
    }

    #[test]
    fn wrong_rates_are_refused() {
        for json in [
            r#"{"rates":{"slow":2}}"#,
            r#"{"rates":{"slwo":1}}"#,
            r#"{"rates":{"x.slow":1}}"#,
            r#"{"rates":{"slow":0.6,"html":0.6}}"#,
        ] {
            assert!(Dice::new(&settings(json)).is_err(), "{json}");
        }
        assert!(serde_json::from_str::<Settings>(r#"{"sed":1}"#).is_err());
    }

    #[test]
    fn every_fault_has_one_name() {
        for (name, fault) in NAMES {
            assert_eq!(Fault::parse(name), Some(fault));
            assert_eq!(fault.name(), name);
        }
    }

    #[test]
    fn a_payment_method_names_its_fault() {
        assert_eq!(
            Fault::of_payment_method("pm_sim_slow"),
            Some((Fault::Slow, false))
        );
        assert_eq!(
            Fault::of_payment_method("pm_sim_land_late_always"),
            Some((Fault::LandLate, true))
        );
        assert_eq!(Fault::of_payment_method("pm_sim_partial"), None);
    }
}
