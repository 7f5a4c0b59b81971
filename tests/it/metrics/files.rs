//! The rules, their tests, the dashboard and the guide can't drift from what is measured.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use crate::support::TestService;
use crate::support::scrape::{Scrape, check_expressions};

fn text(name: &str) -> String {
    std::fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("docs")
            .join(name),
    )
    .unwrap()
}

/// Every name of ours in a text.
fn names(text: &str) -> BTreeSet<&str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|word| word.starts_with("payonce_"))
        .collect()
}

/// Names of metrics: those of a histogram's parts are the histogram's.
fn whole(scrape: &Scrape, names: &BTreeSet<&str>) -> BTreeSet<String> {
    let whole = |name: &&str| {
        let parts = ["_bucket", "_sum", "_count"];
        let part = parts.iter().find_map(|part| name.strip_suffix(part));
        let is_histogram = |name| scrape.text.contains(&format!("# TYPE {name} histogram\n"));
        part.filter(|name| is_histogram(*name))
            .unwrap_or(name)
            .to_owned()
    };
    names.iter().map(whole).collect()
}

fn dashboard() -> Value {
    serde_json::from_str(&text("dashboard.json")).unwrap()
}

/// What the panels ask.
fn expressions(dashboard: &Value) -> Vec<&str> {
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels
        .iter()
        .filter_map(|panel| panel["targets"].as_array());
    targets
        .flatten()
        .map(|target| target["expr"].as_str().unwrap())
        .collect()
}

fn alerts(rules: &str) -> Vec<&str> {
    let alerts = rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "));
    alerts.collect()
}

#[tokio::test]
async fn whatever_rules_and_dashboard_and_guide_name_is_measured_and_guide_and_dashboard_name_all()
{
    let service = TestService::new().await;
    let running = service.run().await;
    let scrape = running.scrape().await;
    let measured = scrape.names();
    for file in ["alerts.yml", "alerts.test.yml", "dashboard.json"] {
        let text = text(file);
        let unknown: Vec<_> = names(&text).difference(&measured).copied().collect();
        assert!(
            unknown.is_empty(),
            "{file} names what is not measured: {unknown:?}"
        );
    }
    let measured = whole(&scrape, &measured);
    let guide = text("monitoring.md");
    let told: BTreeSet<String> = names(&guide).into_iter().map(str::to_owned).collect();
    assert_eq!(told, measured);
    let expressions = expressions(&dashboard()).join("\n");
    let shown = whole(&scrape, &names(&expressions));
    let unseen: Vec<_> = measured.difference(&shown).collect();
    assert!(unseen.is_empty(), "dashboard.json shows no {unseen:?}");
    running.stop().await;
}

#[test]
fn every_alert_is_explained_and_tested() {
    let (rules, tests, guide, made) = (
        text("alerts.yml"),
        text("alerts.test.yml"),
        text("monitoring.md"),
        include_str!("alerts.rs"),
    );
    for alert in alerts(&rules) {
        assert!(tests.contains(&format!("alertname=\"{alert}\"")), "{alert}");
        assert!(guide.contains(&format!("### {alert}\n")), "{alert}");
        assert!(
            rules.contains(&format!("#{}\n", alert.to_lowercase())),
            "{alert}"
        );
        assert!(made.contains(&format!("\"{alert}\"")), "{alert}");
    }
    assert_eq!(guide.matches("\n### Payonce").count(), alerts(&rules).len());
}

#[test]
fn the_dashboard_is_json_with_a_title_for_each_panel() {
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().unwrap();
    assert!(panels.len() > 10);
    for panel in panels {
        assert!(
            panel["title"]
                .as_str()
                .is_some_and(|title| !title.is_empty())
        );
    }
    // Grafana puts these in; the rest is PromQL.
    let put_in = |expression: &str| {
        expression
            .replace("$job", "payonce")
            .replace("$__rate_interval", "5m")
    };
    check_expressions(expressions(&dashboard).into_iter().map(put_in));
}
