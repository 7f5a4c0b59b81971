//! The commands of README.md and docs/operations.md, run as they are written there: every block marked `sh`, in its order,
//! in a real shell. Addresses are those of the test; `systemctl` is a stand-in that starts and stops `payonce serve`.

mod operations;
mod shell;

use std::path::Path;
use std::process::Stdio;

use payonce::random::Random;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use self::shell::{Shell, has};
use crate::support::ledger::Ledger;

/// The blocks of one section.
struct Section {
    heading: String,
    blocks: Vec<String>,
}

fn sections(document: &str) -> Vec<Section> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(document);
    let text = std::fs::read_to_string(path).unwrap();
    let mut sections: Vec<Section> = Vec::new();
    let mut block: Option<Vec<&str>> = None;
    let mut other = false;
    for line in text.lines() {
        match (&mut block, line) {
            (Some(lines), "```") => {
                let text = lines.join("\n");
                block = None;
                sections.last_mut().unwrap().blocks.push(text);
            }
            (Some(lines), line) => lines.push(line),
            (None, "```sh") if !other => block = Some(Vec::new()),
            (None, line) if line.starts_with("```") => other = !other,
            (None, line) if line.starts_with("## ") && !other => sections.push(Section {
                heading: line.trim_start_matches("## ").to_owned(),
                blocks: Vec::new(),
            }),
            (None, _) => {}
        }
    }
    sections.retain(|section| !section.blocks.is_empty());
    sections
}

#[tokio::test]
async fn the_readmes_commands_do_what_it_says() {
    if !has("bash") || !has("curl") {
        return;
    }
    let folder = std::env::temp_dir().join(format!("payonce-readme-{}", Random::from_os().uuid()));
    std::fs::create_dir_all(&folder).unwrap();
    let mut dev = Command::new(env!("CARGO_BIN_EXE_payonce"))
        .args(["dev", "--port", "0", "--data-dir"])
        .arg(&folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(dev.stdout.take().unwrap()).lines();
    let mut address_of = async |name: &str| loop {
        let line = lines.next_line().await.unwrap().unwrap();
        if let Some(rest) = line.strip_prefix(name) {
            let url = rest.split_whitespace().next().unwrap();
            break url.trim_start_matches("http://").to_owned();
        }
    };
    let addresses = vec![
        ("localhost:8080", address_of("API").await),
        ("localhost:12111", address_of("Simulator").await),
    ];
    let ledger = Ledger::at(addresses[1].1.parse().unwrap());
    let mut shell = Shell::new(&folder, addresses);
    let mut said = String::new();
    for section in sections("README.md") {
        for block in section.blocks {
            said.push_str(&shell.run(&block).await);
        }
    }
    for told in ["HTTP/1.1 202", "card_declined", "\"status\":\"completed\""] {
        assert!(said.contains(told), "{told} in\n{said}");
    }
    // Paid, and paid although the answer was lost; the declined one is not there.
    assert_eq!(ledger.charges().await.len(), 2);
    dev.kill().await.unwrap();
    let _ = std::fs::remove_dir_all(folder);
}

/// The anchor of a heading, as it is made on GitHub.
fn anchors(text: &str) -> Vec<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings
        .map(|line| {
            let heading = line.trim_start_matches('#').trim().to_lowercase();
            let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
            heading
                .chars()
                .filter(kept)
                .collect::<String>()
                .replace(' ', "-")
        })
        .collect()
}

#[test]
fn every_alert_is_in_the_operations_guide_and_every_link_leads_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let guide = std::fs::read_to_string(root.join("docs/operations.md")).unwrap();
    let rules = std::fs::read_to_string(root.join("docs/alerts.yml")).unwrap();
    for line in rules.lines() {
        if let Some(alert) = line.trim().strip_prefix("- alert: ") {
            assert!(guide.contains(&format!("[{alert}]")), "{alert}");
        }
    }
    for document in ["README.md", "docs/operations.md", "docs/monitoring.md"] {
        let path = root.join(document);
        let text = std::fs::read_to_string(&path).unwrap();
        let links = text.split("](").skip(1);
        for link in links.map(|rest| rest.split(')').next().unwrap()) {
            if link.starts_with("http") {
                continue;
            }
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => path.clone(),
                file => path.parent().unwrap().join(file),
            };
            assert!(target.exists(), "{document}: {link}");
            if !anchor.is_empty() {
                let there = anchors(&std::fs::read_to_string(target).unwrap());
                assert!(
                    there.iter().any(|there| there == anchor),
                    "{document}: {link}"
                );
            }
        }
    }
}
