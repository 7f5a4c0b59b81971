//! How charges are taken in: each point of the design's intake, in front of a database that does what databases do.

mod batches;
mod blocked;
mod bodies;
mod clients;
mod keys;
mod lost_replies;
mod outages;
mod races;
mod raw_requests;
mod replays;

use std::sync::Arc;

use payonce::config::Roles;
use payonce::db::session::{Durability, Session};
use payonce::domain::idempotency::{Fingerprint, IdempotencyKey};
use payonce::domain::ids::ChargeId;
use payonce::domain::request::{ChargeRequest, Draft};
use payonce::intake::{Intake, IntakeError, IntakeMeters, IntakeSettings, Submission, Verdict};
use payonce::meters::Meters;
use payonce::provider::stripe::currency::RULES;
use payonce::random::Random;
use serde_json::Value;
use sqlx::{Postgres, Transaction};
use tokio::sync::Notify;

use crate::support::TestService;
use crate::support::client::Answer;

const API: Roles = Roles {
    api: true,
    worker: false,
    reconciler: false,
};
const WORKER: Roles = Roles {
    api: false,
    worker: true,
    reconciler: false,
};

impl TestService {
    /// Lets a worker do what is left, and checks that each charge in the books moved money once.
    async fn finish(&self) {
        let worker = self.run_with(WORKER, &[]).await;
        self.drained().await;
        worker.stop().await;
        self.check_books().await;
        let charges = self.count("SELECT count(*) FROM charges").await;
        assert_eq!(self.ledger.charges().await.len(), usize(charges));
    }

    /// How many requests, charges and jobs there are; the three always agree before a worker runs.
    async fn stored(&self) -> i64 {
        let charges = self.count("SELECT count(*) FROM charges").await;
        let requests = self.count("SELECT count(*) FROM idempotent_requests").await;
        let jobs = self.count("SELECT count(*) FROM outbox").await;
        assert_eq!((requests, jobs), (charges, charges));
        charges
    }

    /// Somebody else's insert of a key, with its charge and its job, that is not committed yet.
    async fn rival(&self, key: &str, amount: i64) -> Transaction<'static, Postgres> {
        let draft = draft(amount);
        let charge = self.charge_id(key).as_uuid();
        let mut rival = self.books.begin().await.unwrap();
        sqlx::query(
            "INSERT INTO idempotent_requests (merchant_id, operation, client_key, charge_id, intake_id)
             VALUES ($1, 'charge', $2, $3, gen_random_uuid())",
        )
        .bind(self.merchant.as_uuid())
        .bind(key)
        .bind(charge)
        .execute(&mut *rival)
        .await
        .unwrap();
        let fingerprint = Fingerprint::of(&draft);
        sqlx::query(
            "INSERT INTO charges (
                 id, merchant_id, idempotency_key, fingerprint, fingerprint_version, amount, currency, payment_method,
                 off_session, metadata, live, provider
             )
             VALUES ($1, $2, $3, $4, $5, $6, 'usd', 'pm_card_visa', false, '{}', false, 'stripe')",
        )
        .bind(charge)
        .bind(self.merchant.as_uuid())
        .bind(key)
        .bind(fingerprint.hash.as_slice())
        .bind(fingerprint.version)
        .bind(amount)
        .execute(&mut *rival)
        .await
        .unwrap();
        let instruction = ChargeRequest::judge(draft, &RULES).unwrap();
        sqlx::query(
            "INSERT INTO outbox (kind, charge_id, payload_version, payload)
             VALUES ('charge', $1, 1, $2::jsonb)",
        )
        .bind(charge)
        .bind(serde_json::to_string(&instruction.instruction()).unwrap())
        .execute(&mut *rival)
        .await
        .unwrap();
        rival
    }

    fn charge_id(&self, key: &str) -> ChargeId {
        let key = IdempotencyKey::parse(key.as_bytes()).unwrap();
        ChargeId::derive(self.merchant, &key)
    }

    /// From now on the database refuses rows as `statement` says, in a trigger before the insert of a charge.
    async fn obstruct(&self, statements: &[&'static str]) {
        for statement in statements {
            sqlx::query(*statement).execute(&self.books).await.unwrap();
        }
        sqlx::query(
            "CREATE TRIGGER obstruct BEFORE INSERT ON charges FOR EACH ROW EXECUTE FUNCTION obstruct()",
        )
        .execute(&self.books)
        .await
        .unwrap();
    }

    /// Intake itself with one batcher, for what must come in one batch.
    fn intake(&self, database_url: &str) -> Intake {
        let config = self.config(&[]);
        let settings = IntakeSettings {
            live: false,
            provider: RULES.provider,
            batchers: 1,
            limits: config.intake.batch_limits(),
        };
        let options = database_url.parse().unwrap();
        let session = || {
            Session::new(
                &options,
                config.database.session_limits(),
                Durability::Durable,
            )
        };
        let accepted = Arc::new(Notify::new());
        let meters = IntakeMeters::new(&Meters::none());
        let (intake, batchers) =
            Intake::new(settings, session, &accepted, &Random::from_os(), &meters);
        for batcher in batchers {
            tokio::spawn(batcher.run());
        }
        intake
    }

    /// Hands everything in before the batcher can run, so that it comes in one batch.
    async fn in_one_batch(
        &self,
        intake: &Intake,
        batch: &[(&str, Draft)],
    ) -> Vec<Result<Verdict, IntakeError>> {
        let submissions = batch.iter().map(|(key, draft)| {
            intake.submit(Submission {
                merchant: self.merchant,
                account: None,
                key: IdempotencyKey::parse(key.as_bytes()).unwrap(),
                request: ChargeRequest::judge(draft.clone(), &RULES).unwrap(),
            })
        });
        futures_util::future::join_all(submissions).await
    }
}

/// What [`crate::support::charge_body`] means, with another amount.
fn draft(amount: i64) -> Draft {
    Draft {
        amount,
        currency: "usd".to_owned(),
        payment_method: "pm_card_visa".to_owned(),
        ..Draft::default()
    }
}

fn body(amount: i64) -> Value {
    let mut body = crate::support::charge_body("pm_card_visa");
    body["amount"] = amount.into();
    body
}

fn usize(count: i64) -> usize {
    count.try_into().unwrap()
}

/// One of them made the charge and the others are replays of it; returns its id.
fn one_made_it(answers: &[Answer]) -> String {
    let made: Vec<&Answer> = answers.iter().filter(|a| a.status == 202).collect();
    assert_eq!(made.len(), 1, "{answers:?}");
    for answer in answers {
        assert!(matches!(answer.status, 200 | 202), "{answer:?}");
        assert_eq!(answer.is_replay(), answer.status == 200, "{answer:?}");
        assert_eq!(answer.id(), made[0].id());
    }
    made[0].id()
}

/// A problem that asks for the same request again, and says when.
pub(crate) fn asks_to_retry(answer: &Answer, code: &str) {
    assert_eq!((answer.status, answer.code()), (503, code), "{answer:?}");
    assert_eq!(answer.body["retry"], "same_request");
    let seconds = answer.headers["retry-after"].to_str().unwrap();
    assert!(seconds.parse::<u32>().is_ok_and(|seconds| seconds >= 1));
}
