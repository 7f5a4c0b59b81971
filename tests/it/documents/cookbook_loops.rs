//! The cookbook's loops behind a network and proxies that do their worst. Each loop meets the same.

use std::collections::HashSet;
use std::process::Stdio;

use tokio::process::Command;

use super::Dev;
use super::front::{Fate, Front, Sent};
use super::shell::Shell;
use crate::support::client::Client;

const PAID: i32 = 0;
const NOT_PAID: i32 = 10;
const NOT_KNOWN: i32 = 3;

/// What is not a verdict of payonce, however much it looks like one.
const FOREIGN: [Fate; 12] = [
    Fate::Answer(
        "503 x\r\nRetry-After: 1\r\ncontent-type: text/html",
        "<html>",
    ),
    Fate::Answer(
        "429 x\r\nRetry-After: Mon, 30 Nov 2026 00:00:00 GMT\r\ncontent-type: text/plain",
        "slow down",
    ),
    Fate::Answer(
        "409 x\r\nRetry-After: 08\r\ncontent-type: application/json",
        r#"{"error":"conflict"}"#,
    ),
    Fate::Answer("404 x", ""),
    Fate::Answer("307 x\r\nLocation: http://127.0.0.1:1/v1/charges", ""),
    Fate::Answer("302 x\r\nLocation: http://127.0.0.1:1/v1/charges", ""),
    Fate::Answer(
        "200 x\r\ncontent-type: text/html",
        "<html>status completed, money moved</html>",
    ),
    Fate::Answer("200 x\r\ncontent-type: application/json", "completed"),
    Fate::Answer("200 x\r\ncontent-type: application/json", "[]"),
    Fate::Answer(
        "200 x\r\ncontent-type: application/json",
        r#"{"idempotency_key":"another","status":"completed","money":"moved"}"#,
    ),
    Fate::Answer(
        "200 x\r\ncontent-type: application/json",
        r#"{"idempotency_key":"another","status":"failed","money":"not_moved"}"#,
    ),
    Fate::Answer(
        "503 x\r\ncontent-type: application/problem+json",
        r#"{"title":"of a gateway"}"#,
    ),
];

const UNKNOWN: Fate = Fate::Answer(
    "503 x\r\nRetry-After: 1\r\ncontent-type: application/problem+json",
    r#"{"code":"acceptance_unknown","retry":"same_request","charge_id":"chg_0"}"#,
);
const LIMITED: Fate = Fate::Answer(
    "429 x\r\nRetry-After: 1\r\ncontent-type: application/problem+json",
    r#"{"code":"rate_limited","retry":"same_request"}"#,
);
const REVOKED: Fate = Fate::Answer(
    "401 x\r\ncontent-type: application/problem+json",
    r#"{"code":"unauthenticated","retry":"after_fix"}"#,
);

/// A loop's run: how it ended, and what it wrote.
struct Ended {
    code: i32,
    out: String,
}

struct Buyer<'a> {
    shell: &'a Shell,
    program: &'static str,
    url: String,
}

impl Buyer<'_> {
    async fn buy(&self, purchase: &str, amount: &str, method: &str, patience: &str) -> Ended {
        let child = self.begin(purchase, amount, method, patience);
        let ended = child.wait_with_output().await.unwrap();
        Ended {
            code: ended.status.code().unwrap(),
            out: String::from_utf8(ended.stdout).unwrap(),
        }
    }

    fn begin(
        &self,
        purchase: &str,
        amount: &str,
        method: &str,
        patience: &str,
    ) -> tokio::process::Child {
        let mut words = self.program.split(' ');
        Command::new(words.next().unwrap())
            .args(words)
            .args([purchase, amount, "usd", method])
            .env_clear()
            .envs(&self.shell.environment)
            .env("PAYONCE_URL", &self.url)
            .env("PAYONCE_PATIENCE", patience)
            .current_dir(&self.shell.folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap()
    }
}

pub(super) async fn attack(shell: &Shell, dev: &Dev, loops: &[&'static str]) {
    let before = dev.ledger.charges().await.len();
    let attacks = loops.iter().map(|program| attack_one(shell, dev, program));
    let paid: usize = futures_util::future::join_all(attacks)
        .await
        .into_iter()
        .sum();
    assert_eq!(dev.ledger.charges().await.len() - before, paid);
}

/// Returns how many purchases were paid.
async fn attack_one(shell: &Shell, dev: &Dev, program: &'static str) -> usize {
    let attacked = Attacked {
        shell,
        dev,
        program,
        name: program.rsplit('.').next().unwrap(),
    };
    tokio::join!(
        attacked.everything_is_lost_once(),
        attacked.nothing_is_a_verdict(),
        attacked.a_refusal_follows_a_lost_answer(),
        attacked.it_is_killed_and_begun_again(),
        attacked.two_begin_at_once(),
        attacked.it_is_declined(),
    );
    attacked.one_charge_for_each_name().await;
    5
}

struct Attacked<'a> {
    shell: &'a Shell,
    dev: &'a Dev,
    program: &'static str,
    name: &'static str,
}

impl Attacked<'_> {
    async fn at(&self, fates: &[Fate], at_last: Fate) -> (Front, Buyer<'_>) {
        let front = Front::of(self.dev.api(), fates, at_last).await;
        let url = format!("http://{}", front.address);
        let (shell, program) = (self.shell, self.program);
        (
            front,
            Buyer {
                shell,
                program,
                url,
            },
        )
    }

    fn purchase(&self, what: &str) -> String {
        format!("{}-{what}", self.name)
    }

    /// In every way, and it is paid once all the same.
    async fn everything_is_lost_once(&self) {
        let mut fates = vec![
            Fate::LoseRequest,
            Fate::LoseAnswer,
            Fate::CutAnswer,
            UNKNOWN,
            LIMITED,
        ];
        fates.extend(&FOREIGN[..3]);
        let (front, buyer) = self.at(&fates, Fate::Pass).await;
        let ended = buyer
            .buy(&self.purchase("lossy"), "1999", "pm_card_visa", "600")
            .await;
        assert_eq!((ended.code, front.left()), (PAID, 0), "{}", self.program);
        assert!(ended.out.contains("\"completed\"") && front.sent().len() > fates.len());
        one_request(&front.sent());
    }

    /// What is no verdict is none, and 202 is not paid, for as long as anybody waits.
    async fn nothing_is_a_verdict(&self) {
        for fate in FOREIGN {
            let (front, buyer) = self.at(&[], fate).await;
            let ended = buyer
                .buy(&self.purchase("foreign"), "1999", "pm_card_visa", "1")
                .await;
            let told = (ended.code, ended.out.as_str());
            assert_eq!(told, (NOT_KNOWN, ""), "{} {fate:?}", self.program);
            one_request(&front.sent());
        }
        let (_, buyer) = self.at(&[], Fate::Pass).await;
        let never = "pm_sim_drop_before_charge_always";
        let open = buyer.buy(&self.purchase("open"), "1999", never, "3").await;
        assert_eq!(
            (open.code, open.out.as_str()),
            (NOT_KNOWN, ""),
            "{}",
            self.program
        );
    }

    /// The refusal ends the loop and not the key: the same line finds what was accepted.
    async fn a_refusal_follows_a_lost_answer(&self) {
        let purchase = self.purchase("revoked");
        let (front, buyer) = self.at(&[Fate::LoseAnswer, REVOKED], Fate::Pass).await;
        let refused = buyer.buy(&purchase, "1999", "pm_card_visa", "600").await;
        assert_eq!(
            (refused.code, front.sent().len()),
            (NOT_KNOWN, 2),
            "{}",
            self.program
        );
        let other = buyer.buy(&purchase, "2999", "pm_card_visa", "600").await;
        assert_eq!(
            (other.code, front.sent().len()),
            (NOT_KNOWN, 2),
            "another body is not sent"
        );
        let again = buyer.buy(&purchase, "1999", "pm_card_visa", "600").await;
        assert_eq!(again.code, PAID, "{}", self.program);
        one_request(&front.sent());
    }

    /// Killed after it sent, with its answer lost, and begun again by two at once.
    async fn it_is_killed_and_begun_again(&self) {
        let purchase = self.purchase("killed");
        let (front, buyer) = self.at(&[Fate::LoseAnswer], Fate::Pass).await;
        let mut killed = buyer.begin(&purchase, "1999", "pm_card_visa", "600");
        crate::support::until("it has sent", async || {
            (!front.sent().is_empty()).then_some(())
        })
        .await;
        killed.kill().await.unwrap();
        self.two(&buyer, &purchase).await;
        one_request(&front.sent());
    }

    async fn two_begin_at_once(&self) {
        let (front, buyer) = self.at(&[], Fate::Pass).await;
        self.two(&buyer, &self.purchase("twice")).await;
        one_request(&front.sent());
    }

    async fn two(&self, buyer: &Buyer<'_>, purchase: &str) {
        let (one, other) = tokio::join!(
            buyer.buy(purchase, "1999", "pm_card_visa", "600"),
            buyer.buy(purchase, "1999", "pm_card_visa", "600"),
        );
        assert_eq!((one.code, other.code), (PAID, PAID), "{}", self.program);
    }

    /// A decline is not paid, and the next try is another purchase.
    async fn it_is_declined(&self) {
        let (front, buyer) = self.at(&[], Fate::Pass).await;
        let purchase = self.purchase("declined");
        let declined = buyer
            .buy(&purchase, "1999", "pm_card_chargeDeclined", "600")
            .await;
        assert_eq!(declined.code, NOT_PAID, "{}", self.program);
        let next = buyer
            .buy(&format!("{purchase}.try-2"), "1999", "pm_card_visa", "600")
            .await;
        assert_eq!(next.code, PAID, "{}", self.program);
        let sent = front.sent().len();
        for bad in ["", "../order", "a/b", ".hidden", "a b"] {
            let refused = buyer.buy(bad, "1", "pm_card_visa", "1").await;
            assert_eq!(refused.code, NOT_KNOWN, "{bad}");
        }
        let fraction = buyer
            .buy(&self.purchase("fraction"), "19.99", "pm_card_visa", "1")
            .await;
        assert!(![PAID, NOT_PAID].contains(&fraction.code));
        assert_eq!(front.sent().len(), sent);
    }

    /// However it was begun.
    async fn one_charge_for_each_name(&self) {
        let client = Client::new(self.dev.api(), "po_dev_key");
        let all = client.get("/v1/charges?limit=100").await.body;
        let keys: Vec<&str> = all["data"]
            .as_array()
            .unwrap()
            .iter()
            .map(|each| each["idempotency_key"].as_str().unwrap())
            .collect();
        for purchase in ["lossy", "revoked", "killed", "twice"] {
            let prefix = format!("{}-", self.purchase(purchase));
            let of_it = keys.iter().filter(|key| key.starts_with(&prefix)).count();
            assert_eq!(of_it, 1, "{} {purchase}", self.program);
        }
    }
}

/// All that was sent is one request, under one key.
fn one_request(sent: &[Sent]) {
    let distinct: HashSet<&Sent> = sent.iter().collect();
    assert_eq!(distinct.len(), 1, "{distinct:?}");
    assert!(!sent[0].key.is_empty());
}
