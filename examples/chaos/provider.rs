//! The simulated provider, a process of its own that nothing befalls but the faults it injects by itself.

use std::process::Stdio;
use std::time::Duration;

use anyhow::Context;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Child;

use crate::program;

/// Every fault the simulator has, and whether a run that relies on its keys can have it.
const FAULTS: [&str; 17] = [
    "charge_then_drop",
    "decline_then_drop",
    "drop_before_charge",
    "slow",
    "land_late",
    "error_500_after_charge",
    "error_500_before_charge",
    "unsaved_400",
    "key_in_use",
    "rate_limited",
    "unavailable",
    "unauthorized",
    "html",
    "truncated",
    "trickle",
    "unknown_status",
    FORGET_KEYS,
];
/// No refund can stand a forgotten key while a send of it is still under way: the key is what keeps it to one.
const FORGET_KEYS: &str = "forget_keys";
const OF_REFUNDS: [&str; 2] = ["refund", "read_refunds"];

/// One of the accounts that objects are in.
pub struct Account {
    /// In the services' configuration.
    pub name: &'static str,
    pub secret_key: &'static str,
    /// As the simulator shows it.
    pub shown: &'static str,
    /// What its deliveries are signed with.
    pub webhook_secret: &'static str,
    /// Where they are delivered.
    path: &'static str,
}

pub const DEFAULT: Account = Account {
    name: "default",
    secret_key: "sk_test_chaos",
    shown: "sk_test_…haos",
    webhook_secret: "whsec_chaos",
    path: "/webhooks/stripe",
};
pub const SIDE: Account = Account {
    name: "side",
    secret_key: "sk_test_side",
    shown: "sk_test_…side",
    webhook_secret: "whsec_side",
    path: "/webhooks/stripe/side",
};

/// The account of a charge that names this one, or none.
pub fn account(name: Option<&str>) -> &'static Account {
    if name == Some(SIDE.name) {
        &SIDE
    } else {
        &DEFAULT
    }
}

/// The share of calls that go wrong, by step.
const RATES: [(&str, f64); 7] = [
    ("account", 0.1),
    ("prepare", 0.2),
    ("execute", 0.2),
    ("read", 0.1),
    ("cancel", 0.1),
    ("refund", 0.3),
    ("read_refunds", 0.1),
];

pub struct Provider {
    pub address: std::net::SocketAddr,
    http: reqwest::Client,
    _child: Child,
}

impl Provider {
    pub async fn start(http: reqwest::Client) -> anyhow::Result<Self> {
        let mut command = program::payonce(&["simulator", "--port", "0"])?;
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()?;
        let stdout = child.stdout.take().context("its output")?;
        let told = BufReader::new(stdout).lines().next_line().await?;
        let told = told.context("the simulator ended before it listened")?;
        let address = told
            .split("http://")
            .nth(1)
            .and_then(|rest| rest.split(';').next())
            .with_context(|| format!("no address in {told:?}"))?;
        Ok(Self {
            address: address.parse()?,
            http,
            _child: child,
        })
    }

    /// A share of all calls goes wrong, in every way.
    pub async fn rage(&self, seed: u64, forgets_keys: bool) -> anyhow::Result<()> {
        let mut rates = json!({});
        for (phase, rate) in RATES {
            let forgets_keys = forgets_keys && !OF_REFUNDS.contains(&phase);
            for fault in FAULTS {
                if forgets_keys || fault != FORGET_KEYS {
                    rates[format!("{phase}.{fault}")] = json!(rate / 17.0);
                }
            }
        }
        self.set(json!({
            "seed": seed,
            "latency_ms": 1,
            // Longer than a call may take; longer than a lease.
            "slow_ms": 1500,
            "land_late_ms": 5000,
            "rates": rates,
        }))
        .await
    }

    pub async fn calm(&self) -> anyhow::Result<()> {
        self.set(json!({})).await
    }

    /// From now on it delivers its events there, late, some of them twice and some never. What waited is lost.
    pub async fn deliver_to(&self, api: std::net::SocketAddr, seed: u64) -> anyhow::Result<()> {
        for account in [DEFAULT, SIDE] {
            let endpoint = json!({
                "url": format!("http://{api}{}", account.path),
                "secret": account.webhook_secret,
                "account": account.shown,
                "seed": seed,
                "lost": 0.1,
                "twice": 0.2,
                "late_ms": 500,
            });
            self.put("/_sim/webhook", endpoint).await?;
        }
        Ok(())
    }

    async fn set(&self, settings: Value) -> anyhow::Result<()> {
        self.put("/_sim/settings", settings).await
    }

    async fn put(&self, path: &str, body: Value) -> anyhow::Result<()> {
        let request = self.http.put(self.at(path));
        let answer = request.body(body.to_string()).send().await?;
        anyhow::ensure!(
            answer.status().is_success(),
            "{path}: {}",
            answer.text().await?
        );
        Ok(())
    }

    /// Every charge that moved money.
    pub async fn ledger(&self) -> anyhow::Result<Vec<Value>> {
        self.get("/_sim/charges").await
    }

    /// Every refund.
    pub async fn refunds(&self) -> anyhow::Result<Vec<Value>> {
        self.get("/_sim/refunds").await
    }

    /// Refunds a charge as somebody does on the provider's own pages; whether it came to something shows in its list.
    pub async fn refund_outside(&self, account: &Account, object: &str, amount: i64) {
        let request = self.http.post(self.at("/v1/refunds"));
        let form = format!("payment_intent={object}&amount={amount}");
        let _ = request
            .bearer_auth(account.secret_key)
            .header("content-type", "application/x-www-form-urlencoded")
            .body(form)
            .send()
            .await;
    }

    /// Every object.
    pub async fn objects(&self) -> anyhow::Result<Vec<Value>> {
        self.get("/_sim/objects").await
    }

    /// How often each fault was met.
    pub async fn faults(&self) -> anyhow::Result<std::collections::BTreeMap<String, u64>> {
        self.get("/_sim/faults").await
    }

    /// The bank has decided.
    pub async fn settle(&self, object: &str, result: &str) -> anyhow::Result<()> {
        let path = format!("/_sim/settle/{object}?result={result}");
        self.http.post(self.at(&path)).send().await?;
        Ok(())
    }

    async fn get<T: serde::de::DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        let request = self.http.get(self.at(path)).timeout(Duration::from_mins(1));
        let bytes = request.send().await?.bytes().await?;
        Ok(serde_json::from_slice(&bytes)?)
    }

    fn at(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}
