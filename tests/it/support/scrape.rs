//! What Prometheus would be told, and what its rules would say to it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use payonce::random::Random;

use super::client::http;

/// One answer of `/metrics`: values by series, as they are written.
#[derive(Clone, Debug, Default)]
pub struct Scrape {
    pub text: String,
    series: BTreeMap<String, String>,
}

impl Scrape {
    pub async fn of(admin: SocketAddr) -> Self {
        let answer = http().get(format!("http://{admin}/metrics")).send().await;
        let answer = answer.unwrap();
        assert_eq!(answer.status(), 200);
        let kind = &answer.headers()["content-type"];
        assert_eq!(kind, "text/plain; version=0.0.4");
        Self::read(answer.text().await.unwrap())
    }

    fn read(text: String) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let series = lines.filter_map(|line| {
            let (series, value) = line.rsplit_once(' ')?;
            Some((series.to_owned(), value.to_owned()))
        });
        Self {
            series: series.collect(),
            text,
        }
    }

    /// The value of a series, written as `name{label="value"}`.
    pub fn value(&self, series: &str) -> f64 {
        self.told(series).parse().unwrap()
    }

    /// As [`Scrape::value`], of what is a whole number.
    pub fn count(&self, series: &str) -> u64 {
        self.told(series).parse().unwrap()
    }

    fn told(&self, series: &str) -> &str {
        match self.series.get(series) {
            Some(value) => value,
            None => panic!("no {series} in:\n{}", self.text),
        }
    }

    /// The names that rules can use: of a histogram, those of its parts.
    pub fn names(&self) -> BTreeSet<&str> {
        let name = |series: &'_ String| series.find('{').unwrap_or(series.len());
        self.series
            .keys()
            .map(|series| &series[..name(series)])
            .collect()
    }

    fn is_counter(&self, series: &str) -> bool {
        let name = series.split('{').next().unwrap();
        self.text.contains(&format!("# TYPE {name} counter\n"))
    }
}

/// What the rules of `docs/alerts.yml` say to a service that was as `before` for a while and has been as `after` since;
/// what was counted in between is counted every minute from then on.
pub struct Course<'a> {
    pub before: &'a Scrape,
    pub after: &'a Scrape,
}

impl Course<'_> {
    pub fn fires(&self, alert: &str) {
        self.expect(
            &format!(
                "count(count_over_time(ALERTS{{alertname=\"{alert}\",alertstate=\"firing\"}}[1h]))"
            ),
            "[{labels: \"{}\", value: 1}]",
        );
    }

    pub fn fires_nothing(&self) {
        self.expect("count_over_time(ALERTS{alertstate=\"firing\"}[1h])", "[]");
    }

    fn expect(&self, expression: &str, samples: &str) {
        let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/alerts.yml");
        let mut test = format!(
            "rule_files: ['{}']\ntests:\n- interval: 1m\n  input_series:\n",
            rules.display()
        );
        for (series, values) in self.series() {
            writeln!(test, "  - {{series: '{series}', values: '{values}'}}").unwrap();
        }
        write!(
            test,
            "  promql_expr_test:\n  - {{expr: '{expression}', eval_time: 34m, exp_samples: {samples}}}\n"
        )
        .unwrap();
        promtool("test", &test);
    }

    fn series(&self) -> BTreeMap<String, String> {
        let Self { before, after } = self;
        let all: BTreeSet<&String> = before.series.keys().chain(after.series.keys()).collect();
        let values = |scrape: &Scrape, series: &String| {
            let value: f64 = scrape.series.get(series)?.parse().unwrap();
            (!value.is_nan()).then_some(value)
        };
        let mut told = BTreeMap::new();
        for series in all
            .into_iter()
            .filter(|series| !series.contains("_bucket{"))
        {
            let values = match (values(before, series), values(after, series)) {
                (Some(was), Some(is)) if after.is_counter(series) => {
                    format!("{was}+0x3 {was}+{}x30", is - was)
                }
                (Some(was), Some(is)) => format!("{was}+0x3 {is}+0x30"),
                (Some(was), None) => format!("{was}+0x3 stale _x30"),
                (None, Some(is)) => format!("_x4 {is}+0x30"),
                (None, None) => continue,
            };
            told.insert(series.clone(), values);
        }
        let up = u8::from(!after.series.is_empty());
        told.insert("up{job=\"payonce\"}".to_owned(), format!("1+0x3 {up}+0x30"));
        told
    }
}

/// Fails on what is no expression of Prometheus.
pub fn check_expressions(expressions: impl Iterator<Item = String>) {
    let mut rules = "groups:\n- name: all\n  rules:\n".to_owned();
    for (n, expression) in expressions.enumerate() {
        writeln!(
            rules,
            "  - {{record: 'expression_{n}', expr: '{expression}'}}"
        )
        .unwrap();
    }
    promtool("check", &rules);
}

/// `promtool check rules` or `promtool test rules` on a file with this text.
#[expect(clippy::print_stdout, reason = "whoever reads the log must know")]
fn promtool(verb: &str, text: &str) {
    let Some(program) = installed() else {
        println!("left out: promtool is not installed, and the rules can't be asked");
        return;
    };
    let name = format!("payonce-rules-{}.yml", Random::from_os().uuid());
    let file = std::env::temp_dir().join(name);
    std::fs::write(&file, text).unwrap();
    let asked = Command::new(program)
        .args([verb, "rules"])
        .arg(&file)
        .output();
    let asked = asked.unwrap();
    std::fs::remove_file(file).unwrap();
    assert!(
        asked.status.success(),
        "{}{}\n{text}",
        String::from_utf8_lossy(&asked.stdout),
        String::from_utf8_lossy(&asked.stderr),
    );
}

/// From Debian's package `prometheus`, installed or unpacked under `target/` by `.ci/run`.
fn installed() -> Option<PathBuf> {
    let unpacked = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/promtool/usr/bin");
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain([unpacked])
        .map(|folder| folder.join("promtool"))
        .find(|program| program.is_file())
}
