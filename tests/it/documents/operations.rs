//! docs/operations.md, in the order in which it is read, through the life of one service.

use payonce::embedded_postgres::{EmbeddedPostgres, Options};
use serde_json::{Value, json};
use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection, PgConnection};

use super::shell::{Shell, has, systemctl};
use super::{Section, sections};
use crate::support::client::Client;
use crate::support::ledger::Ledger;
use crate::support::{TestService, charge_body, free_port, until};

/// What the sections of the guide find: each is run after what happened before it in the life of a service.
struct Operated {
    shell: Shell,
    client: Client,
    ledger: Ledger,
    lost: Value,
}

impl Operated {
    async fn before(&mut self, heading: &str) {
        let body = charge_body("pm_card_visa");
        match heading {
            "Backup" => {
                let id = self.client.charge_until_accepted("kept", &body).await.id();
                self.client.terminal(&id).await;
            }
            // Charged after the backup: one that its client asks for again, and one that nobody does.
            "Restore" => {
                for key in ["lost", "forgotten"] {
                    let id = self.client.charge(key, &body).await.id();
                    self.lost = self.client.terminal(&id).await;
                }
            }
            "Stuck charges" => {
                let lost =
                    json!({"phase": "execute", "status": 503, "body": "{}", "effect": false});
                self.ledger.dictate(lost).await;
                let unknown = json!({"error": {
                    "type": "invalid_request_error", "code": "resource_missing", "param": "intent", "message": "none",
                }});
                let unknown = json!({"phase": "read", "status": 404, "body": unknown.to_string()});
                self.ledger.dictate(unknown).await;
                let mut body = charge_body("pm_card_authenticationRequired");
                body["return_url"] = json!("https://shop.example/back");
                let id = self.client.charge("stuck", &body).await.id();
                until("it is parked", async || {
                    let parked = self.shell.run("payonce charges list --parked").await;
                    parked.contains(&id).then_some(())
                })
                .await;
                self.shell.set("ID", id);
            }
            _ => {}
        }
    }

    async fn after(&mut self, heading: &str, said: &str) {
        let body = charge_body("pm_card_visa");
        match heading {
            "Restore" => {
                // The newest is the forgotten one.
                assert!(said.contains("theirs_only"), "{said}");
                assert!(said.contains(self.lost["id"].as_str().unwrap()), "{said}");
                let id = self.client.charge_until_accepted("lost", &body).await.id();
                assert_eq!(self.client.terminal(&id).await["status"], "completed");
                assert_eq!(self.ledger.times_charged(&id).await, 1);
                let kept = self.client.charge("kept", &body).await;
                assert_eq!((kept.status, kept.is_replay()), (200, true));
            }
            "Stuck charges" => {
                let id = self.shell.environment["ID"].clone();
                let charge = self.client.show(&id).await.body;
                assert_eq!(charge["failure"]["code"], "ended_by_operator", "{charge}");
            }
            "Discrepancies" => {
                let left = self.shell.run("payonce discrepancies list --json").await;
                let left: Value = serde_json::from_str(&left).unwrap();
                assert_eq!(left["data"], json!([]));
            }
            _ => {}
        }
    }
}

/// The embedded Postgres has a superuser `payonce`, which is what the guide calls a role of another kind.
async fn make_superuser(postgres: &EmbeddedPostgres) {
    let url = postgres.url("postgres");
    let mut connection = PgConnection::connect(&url).await.unwrap();
    let create = "CREATE ROLE postgres SUPERUSER LOGIN PASSWORD 'superuser'";
    sqlx::raw_sql(create)
        .execute(&mut connection)
        .await
        .unwrap();
    connection.close().await.unwrap();
    let options: PgConnectOptions = url.parse().unwrap();
    let options = options.username("postgres").password("superuser");
    let mut connection = PgConnection::connect_with(&options).await.unwrap();
    let rename = "ALTER ROLE payonce RENAME TO embedded";
    sqlx::raw_sql(rename)
        .execute(&mut connection)
        .await
        .unwrap();
    connection.close().await.unwrap();
}

#[tokio::test]
async fn the_operations_guides_commands_do_what_it_says() {
    if !has("bash") {
        return;
    }
    let postgres = EmbeddedPostgres::start(Options::throw_away())
        .await
        .unwrap();
    let ledger = Ledger::start().await;
    let address = format!("127.0.0.1:{}", postgres.port());
    let (http, admin) = (free_port(), free_port());
    let addresses = vec![
        ("db.example:5432", address.clone()),
        ("127.0.0.1:9091", format!("127.0.0.1:{}", free_port())),
    ];
    let mut shell = Shell::new(postgres.bin_dir(), addresses);
    make_superuser(&postgres).await;
    for (name, value) in [
        ("PGHOST", "127.0.0.1".to_owned()),
        ("PGPORT", postgres.port().to_string()),
        ("PGUSER", "postgres".to_owned()),
        ("PGPASSWORD", "superuser".to_owned()),
        ("PGDATABASE", "postgres".to_owned()),
    ] {
        shell.set(name, value);
    }
    let mut settings = vec![
        ("PAYONCE__HTTP__LISTEN", format!("127.0.0.1:{http}")),
        ("PAYONCE__ADMIN__LISTEN", format!("127.0.0.1:{admin}")),
        ("PAYONCE__PROVIDER__STRIPE__BASE_URL", ledger.base_url()),
    ];
    for (name, value) in &settings {
        shell.set(name, value.clone());
    }
    // The service runs under the lesser of the two roles.
    let database = format!("postgres://payonce_run:change-me-too@{address}/payonce");
    settings.push(("DATABASE_URL", database));
    let key = "sk_test_change_me".to_owned();
    settings.push(("PAYONCE__PROVIDER__STRIPE__SECRET_KEY", key));
    shell.program("systemctl", &systemctl(&shell.folder, &settings));
    let at = format!("127.0.0.1:{http}").parse().unwrap();
    let mut operated = Operated {
        shell,
        client: Client::new(at, ""),
        ledger,
        lost: Value::Null,
    };
    let sections = sections("docs/operations.md");
    for arranged in ["Backup", "Restore", "Discrepancies", "Stuck charges"] {
        let found = sections.iter().any(|section| section.heading == arranged);
        assert!(found, "the guide has no commands for {arranged}");
    }
    for Section { heading, blocks } in sections {
        operated.before(&heading).await;
        let mut said = String::new();
        for block in blocks {
            if block.contains("charges resolve") {
                let id = operated.shell.environment["ID"].clone();
                operated.client.at_stage(&id, "requires_action").await;
            }
            let told = operated.shell.run(&block).await;
            if block.contains("api-keys create") {
                operated.client.token = told.lines().last().unwrap().to_owned();
            }
            said.push_str(&told);
        }
        operated.after(&heading, &said).await;
    }
}

#[tokio::test]
async fn each_kind_of_discrepancy_is_explained_in_the_operations_guide() {
    let service = TestService::new().await;
    let rule: String = sqlx::query_scalar(
        "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = 'discrepancies_kind'",
    )
    .fetch_one(&service.books)
    .await
    .unwrap();
    let kinds: Vec<&str> = rule.split('\'').skip(1).step_by(2).collect();
    assert!(kinds.len() > 10, "{rule}");
    let guide = std::fs::read_to_string("docs/operations.md").unwrap();
    let rows: String = guide
        .lines()
        .filter_map(|line| line.strip_prefix('|')?.split('|').next())
        .collect();
    for kind in kinds {
        assert!(rows.contains(&format!("`{kind}`")), "{kind}");
    }
}
