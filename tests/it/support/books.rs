//! What tests read and change in the books by hand: jobs, leases, the passing of time.

use payonce::domain::ids::ChargeId;
use sqlx::{AssertSqlSafe, PgConnection, Row};
use uuid::Uuid;

use super::service::{TestService, TestSettings};
use super::until;

/// Leases that run out, and calls that time out, while a test watches.
pub const SHORT_LEASES: TestSettings<'static> = &[
    ("provider.stripe.timeout", "500ms"),
    ("worker.completion_timeout", "300ms"),
    ("worker.slack", "200ms"),
    ("worker.lease", "2500ms"),
];

/// The outbox row of a charge.
#[derive(Debug, sqlx::FromRow)]
pub struct Job {
    pub state: String,
    pub attempt: i32,
    pub last_error: Option<String>,
}

/// Runs statements on one connection and returns the first column of all that came back.
pub async fn run_sql(connection: &mut PgConnection, sql: String) -> Vec<String> {
    let rows = sqlx::raw_sql(AssertSqlSafe(sql))
        .fetch_all(connection)
        .await
        .unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

pub fn uuid_of(charge: &str) -> Uuid {
    charge.parse::<ChargeId>().unwrap().as_uuid()
}

impl TestService {
    /// Runs these statements in the database, one after the other.
    pub async fn run_sql(&self, statements: &[&'static str]) {
        for statement in statements {
            sqlx::raw_sql(*statement)
                .execute(&self.books)
                .await
                .unwrap();
        }
    }

    /// Lets the time of every lease be over, as if its holder had been gone for as long.
    pub async fn leases_run_out(&self) {
        sqlx::query(
            "UPDATE outbox SET lease_until = now() - interval '1 second' WHERE state = 'leased'",
        )
        .execute(&self.books)
        .await
        .unwrap();
    }

    pub async fn jobs(&self, charge: &str) -> Vec<Job> {
        sqlx::query_as(
            "SELECT state, attempt, last_error FROM outbox
             WHERE charge_id = $1 AND kind = 'charge' ORDER BY id",
        )
        .bind(uuid_of(charge))
        .fetch_all(&self.books)
        .await
        .unwrap()
    }

    /// The only job of a charge.
    pub async fn job(&self, charge: &str) -> Job {
        let mut jobs = self.jobs(charge).await;
        assert_eq!(jobs.len(), 1);
        jobs.remove(0)
    }

    /// Returns when the charge's job is parked, and why it is.
    pub async fn parked(&self, charge: &str) -> String {
        until(&format!("{charge} is parked"), async || {
            let job = self.jobs(charge).await.pop()?;
            (job.state == "parked").then_some(job.last_error?)
        })
        .await
    }

    /// No routine sweep is due within an hour, so that nobody but the charge's own job asks the provider. It answers no look.
    pub async fn routine_sweep_done(&self) {
        sqlx::query(
            "INSERT INTO sweeps (provider, provider_account, reason, from_at, began_at, finished_at)
             VALUES ('stripe', 'default', 'routine', now(), now(), now())",
        )
        .execute(&self.books)
        .await
        .unwrap();
    }

    /// An operator has mended what parked the jobs.
    pub async fn parked_go_on(&self) {
        sqlx::query("UPDATE outbox SET state = 'ready', run_at = now() WHERE state = 'parked'")
            .execute(&self.books)
            .await
            .unwrap();
    }

    /// Moves a charge's acceptance and last change into the past.
    pub async fn age(&self, charge: &str, hours: i32) {
        self.age_seconds(charge, hours * 3600).await;
    }

    pub async fn age_seconds(&self, charge: &str, seconds: i32) {
        sqlx::query(
            "UPDATE charges
             SET created_at = created_at - make_interval(secs => $2),
                 updated_at = updated_at - make_interval(secs => $2),
                 finished_at = finished_at - make_interval(secs => $2)
             WHERE id = $1",
        )
        .bind(uuid_of(charge))
        .bind(f64::from(seconds))
        .execute(&self.books)
        .await
        .unwrap();
    }

    /// The event kinds of a charge, oldest first.
    pub async fn history(&self, charge: &str) -> Vec<String> {
        sqlx::query_scalar("SELECT kind FROM charge_events WHERE charge_id = $1 ORDER BY id")
            .bind(uuid_of(charge))
            .fetch_all(&self.books)
            .await
            .unwrap()
    }

    /// Waits until the provider has answered or dropped every request.
    pub async fn provider_is_quiet(&self) {
        until("no request is under way at the provider", async || {
            let requests = self.ledger.all_requests().await;
            requests
                .iter()
                .all(|request| !request["status"].is_null())
                .then_some(())
        })
        .await;
    }
}

impl TestService {
    /// Returns when the refund's job is parked, and why it is.
    pub async fn refund_parked(&self, refund: &serde_json::Value) -> String {
        let id = refund_uuid(refund["id"].as_str().unwrap());
        until("the refund is parked", async || {
            sqlx::query_scalar::<_, Option<String>>(
                "SELECT last_error FROM outbox WHERE refund_id = $1 AND state = 'parked'",
            )
            .bind(id)
            .fetch_optional(&self.books)
            .await
            .unwrap()?
        })
        .await
    }

    /// Moves everything that a refund did into the past.
    pub async fn age_refund(&self, refund: &str, seconds: i32) {
        sqlx::query(
            "UPDATE refunds
             SET created_at = created_at - make_interval(secs => $2),
                 updated_at = updated_at - make_interval(secs => $2),
                 first_attempted_at = first_attempted_at - make_interval(secs => $2)
             WHERE id = $1",
        )
        .bind(refund_uuid(refund))
        .bind(f64::from(seconds))
        .execute(&self.books)
        .await
        .unwrap();
    }

    /// All rows of a completed refund are gone, and its charge knows nothing of it, as before it was accepted.
    pub async fn lose_refund(&self, refund: &serde_json::Value) {
        let id = refund_uuid(refund["id"].as_str().unwrap());
        for sql in [
            "UPDATE charges SET amount_refunded = amount_refunded - refunds.amount
             FROM refunds WHERE refunds.charge_id = charges.id AND refunds.id = $1",
            "DELETE FROM idempotent_requests WHERE refund_id = $1",
            "DELETE FROM refunds WHERE id = $1",
        ] {
            sqlx::query(sql)
                .bind(id)
                .execute(&self.books)
                .await
                .unwrap();
        }
    }

    /// Asks for a sweep of everything, as a person does.
    pub async fn want_sweep(&self) {
        sqlx::query(
            "INSERT INTO sweeps (provider, provider_account, reason, from_at)
             VALUES ('stripe', 'default', 'operator', now() - interval '1 day')",
        )
        .execute(&self.books)
        .await
        .unwrap();
    }

    /// Returns when a statement on this database waits for a lock.
    pub async fn waits_for_a_lock(&self) {
        until("a statement waits for a lock", async || {
            let waiting = self
                .count(
                    "SELECT count(*) FROM pg_stat_activity
                     WHERE datname = current_database() AND wait_event_type = 'Lock'",
                )
                .await;
            (waiting > 0).then_some(())
        })
        .await;
    }

    pub async fn pause(&self, kind: &str) {
        sqlx::query("INSERT INTO pauses (kind, reason) VALUES ($1, 'a test')")
            .bind(kind)
            .execute(&self.books)
            .await
            .unwrap();
    }

    pub async fn resume(&self) {
        sqlx::query("DELETE FROM pauses")
            .execute(&self.books)
            .await
            .unwrap();
    }
}

fn refund_uuid(refund: &str) -> Uuid {
    refund
        .parse::<payonce::domain::ids::RefundId>()
        .unwrap()
        .as_uuid()
}
