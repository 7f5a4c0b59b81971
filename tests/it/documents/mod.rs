//! The commands of README.md, docs/operations.md and docs/cookbook.md, run as they are written there: every block marked
//! `sh`, in its order, in a real shell. Addresses are those of the test; `systemctl` is a stand-in that starts and stops
//! `payonce serve`. A block with a file's name behind its language is written to that file.

mod cookbook;
mod cookbook_loops;
mod front;
mod operations;
mod shell;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use payonce::random::Random;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use self::shell::{Shell, has};
use crate::support::ledger::Ledger;

/// The blocks of one section.
struct Section {
    heading: String,
    blocks: Vec<String>,
}

/// The blocks marked `sh`, and those with a file's name behind their language: each becomes the command that writes the file.
fn sections(document: &str) -> Vec<Section> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(document);
    let text = std::fs::read_to_string(path).unwrap();
    let mut sections: Vec<Section> = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(heading) = line.strip_prefix("## ") {
            sections.push(Section {
                heading: heading.to_owned(),
                blocks: Vec::new(),
            });
        }
        let Some(info) = line.strip_prefix("```") else {
            continue;
        };
        let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        let block = block.join("\n");
        let command = match info.split_once(' ') {
            Some((_, file)) => format!("cat >{file} <<'END OF FILE'\n{block}\nEND OF FILE"),
            None if info == "sh" => block,
            None => continue,
        };
        sections.last_mut().unwrap().blocks.push(command);
    }
    sections.retain(|section| !section.blocks.is_empty());
    sections
}

/// `payonce dev` in a folder of its own.
struct Dev {
    process: Child,
    folder: PathBuf,
    /// What documents call its two addresses.
    addresses: Vec<(&'static str, String)>,
    ledger: Ledger,
}

impl Dev {
    async fn start() -> Self {
        let name = format!("payonce-documents-{}", Random::from_os().uuid());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let mut process = Command::new(env!("CARGO_BIN_EXE_payonce"))
            .args(["dev", "--port", "0", "--data-dir"])
            .arg(&folder)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
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
        Self {
            process,
            folder,
            addresses,
            ledger,
        }
    }

    fn api(&self) -> SocketAddr {
        self.addresses[0].1.parse().unwrap()
    }

    async fn stop(mut self) {
        self.process.kill().await.unwrap();
        let _ = std::fs::remove_dir_all(self.folder);
    }
}

#[tokio::test]
async fn the_readmes_commands_do_what_it_says() {
    if !has("bash") || !has("curl") || !has("jq") {
        return;
    }
    let dev = Dev::start().await;
    let mut shell = Shell::new(&dev.folder, dev.addresses.clone());
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
    assert_eq!(dev.ledger.charges().await.len(), 2);
    dev.stop().await;
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
    for document in [
        "README.md",
        "docs/cookbook.md",
        "docs/monitoring.md",
        "docs/operations.md",
        "docs/sdks.md",
    ] {
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
