//! docs/cookbook.md: its commands, in the order in which they are read, and its loops against everything that could make
//! one pay twice or call paid what is not.

use serde_json::Value;

use super::cookbook_loops::attack;
use super::shell::{Shell, has};
use super::{Dev, sections};
use crate::support::client::Client;

/// The programs of the cookbook, and the words by which a block asks for each.
const PROGRAMS: [(&str, &str, &str); 3] = [
    ("python3 ", "python3", "python3"),
    ("http --ignore-stdin", "http", "httpie"),
    ("tsc ", "tsc", "TypeScript"),
];

#[tokio::test]
async fn the_cookbooks_commands_do_what_it_says_and_its_loops_never_pay_twice() {
    if !has("bash") || !has("curl") || !has("jq") {
        return;
    }
    let dev = Dev::start().await;
    let mut shell = Shell::new(&dev.folder, dev.addresses.clone());
    shell.keep_registries();
    let mut said = String::new();
    let mut left_out = Vec::new();
    for section in sections("docs/cookbook.md") {
        for block in section.blocks {
            let missing = PROGRAMS.iter().find(|(asks, program, _)| {
                block.contains(asks) && !block.starts_with("cat >") && !shell.has(program)
            });
            let installs = block.contains("npm install");
            match missing {
                Some((_, _, name)) if !installs => left_out.push(*name),
                _ if installs => match shell.try_run(&block).await {
                    Ok(_) => {}
                    Err(why) => assert!(std::env::var_os("CI").is_none(), "{why}"),
                },
                _ => said.push_str(&shell.run(&block).await),
            }
        }
    }
    left_out.dedup();
    super::shell::tell_left_out(&left_out);

    for told in [
        "HTTP/1.1 202",
        "preference-applied: wait=10",
        "\"stage\":\"canceled\"",
        "/v1/charges/{id}/timeline",
        "acceptance_unknown",
        "order-60 is paid",
        "charge-f9be41d4c0c2660fe6d8c51a566ed5a2",
    ] {
        assert!(
            said.to_lowercase().contains(told) || said.contains(told),
            "{told} in\n{said}"
        );
    }
    let derived = said.matches("charge-f9be41d4c0c2660fe6d8c51a566ed5a2");
    if left_out.is_empty() {
        assert_eq!(derived.count(), 4, "{said}");
        for told in ["order-61 is paid", "order-62 is paid"] {
            assert!(said.contains(told), "{told} in\n{said}");
        }
    }
    each_charge_is_as_its_line_says(&dev, left_out.is_empty()).await;

    let mut loops = vec!["sh pay.sh"];
    loops.extend(shell.has("python3").then_some("python3 pay.py"));
    loops.extend(shell.has("tsc").then_some("node pay.mjs"));
    attack(&shell, &dev, &loops).await;
    dev.stop().await;
}

/// One charge for each key of the document, and money for each that is not declined or canceled.
async fn each_charge_is_as_its_line_says(dev: &Dev, whole: bool) {
    let client = Client::new(dev.api(), "po_dev_key");
    let all = client.get("/v1/charges?limit=100").await.body;
    let all = all["data"].as_array().unwrap();
    let paid: Vec<&Value> = all.iter().filter(|each| each["money"] == "moved").collect();
    let unpaid: Vec<&str> = all
        .iter()
        .filter(|each| each["money"] != "moved")
        .map(|each| each["idempotency_key"].as_str().unwrap())
        .collect();
    assert_eq!(unpaid.len(), 2, "{unpaid:?}");
    assert!(unpaid.contains(&"order-52") && unpaid.iter().any(|key| key.starts_with("order-63-")));
    assert_eq!(dev.ledger.charges().await.len(), paid.len());
    let mut back: Vec<i64> = dev
        .ledger
        .refunds()
        .await
        .iter()
        .map(|refund| refund["amount"].as_i64().unwrap())
        .collect();
    back.sort_unstable();
    if whole {
        assert_eq!(paid.len(), 9, "{paid:?}");
        assert_eq!(back, [500, 500, 1499]);
    }
}

/// By curl and by httpie: what is missing here is missing to whoever copies from it.
#[test]
fn every_call_of_the_document_is_in_the_cookbook() {
    let document: Value = serde_json::from_str(payonce::http::openapi::COMMITTED).unwrap();
    let blocks: Vec<String> = sections("docs/cookbook.md")
        .into_iter()
        .flat_map(|section| section.blocks)
        .collect();
    for (path, item) in document["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys() {
            for program in ["curl", "http --ignore-stdin"] {
                let found = blocks
                    .iter()
                    .flat_map(|block| calls(block, program))
                    .any(|call| call == (method.clone(), path.clone()));
                assert!(found, "{program}: {method} {path}");
            }
        }
    }
}

/// The method and the templated path of each call that a block makes with a program.
fn calls(block: &str, program: &str) -> Vec<(String, String)> {
    let whole = block.replace("\\\n", " ");
    let lines = whole.lines().filter(|line| line.contains(program));
    lines
        .filter_map(|line| {
            let from = line.find("localhost:8080")? + "localhost:8080".len();
            let end = line[from..]
                .find(['"', '\'', ' ', '?'])
                .unwrap_or(line.len() - from);
            let path: Vec<&str> = line[from..from + end]
                .split('/')
                .map(|step| match step {
                    "$DELIVERY" => "{delivery_id}",
                    step if step.starts_with('$') => "{id}",
                    step => step,
                })
                .collect();
            let method = match ["PATCH", "DELETE"].iter().find(|one| line.contains(**one)) {
                Some(one) => one.to_ascii_lowercase(),
                None if line.contains("POST") || line.contains(" -d ") => "post".to_owned(),
                None => "get".to_owned(),
            };
            Some((method, path.join("/")))
        })
        .collect()
}
