//! The provider can't be reached, connections break, and its memory of our keys is over: what is not known is asked, and
//! nothing is sent again that may have been taken.

use std::time::Duration;

use futures_util::future::join_all;
use payonce::config::Roles;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::Instant;

use crate::support::database_proxy::{DatabaseProxy, Fault};
use crate::support::provider_proxy::{Closed, Interference, ProviderProxy};
use crate::support::scrape::Scrape;
use crate::support::service::{API, Running};
use crate::support::{TestService, charge_body, until};

const WHOLE: &str = "api,worker,reconciler";

/// How often it was asked whose the key is, and no connection could be made.
async fn unsent(running: &Running) -> u64 {
    let scrape = Scrape::of(running.admin.unwrap()).await;
    scrape.count("payonce_provider_calls_total{phase=\"account\",answer=\"not_sent\"}")
}

/// Connections are refused while a hundred charges wait; then the provider is there.
#[tokio::test]
async fn a_provider_that_is_down_fails_nothing_is_asked_seldom_and_gets_everything_afterwards() {
    let service = TestService::new().await;
    let down = Closed::reserve();
    let base_url = down.base_url();
    let settings = [("provider.stripe.base_url", base_url.as_str())];
    let running = service.run_with(Roles::ALL, &settings).await;
    let body = charge_body("pm_card_visa");
    let ids = join_all((0..100).map(async |number| {
        let key = format!("order-{number}");
        running.client.charge(&key, &body).await.id()
    }))
    .await;
    // Whose the key is was not told: that alone is asked, after 50, 100, 200, 400 and 500 ms, and no job is claimed.
    let (before, began) = (unsent(&running).await, Instant::now());
    until("it was asked", async || {
        let asked = unsent(&running).await - before;
        (asked >= 5 && began.elapsed().as_millis() > 1500).then_some(())
    })
    .await;
    let made = unsent(&running).await;
    assert!(made <= 130, "{made} calls");
    let claimed = "SELECT sum(attempt)::bigint FROM outbox";
    assert_eq!(service.count(claimed).await, 0);
    for id in &ids {
        let charge = running.client.show(id).await.body;
        assert_eq!(
            (&charge["status"], &charge["money"], &charge["attempts"]),
            (&json!("in_progress"), &json!("not_moved"), &json!(0))
        );
    }
    service.check_books().await;
    let proxy = down.open(service.ledger.address);
    for id in &ids {
        let charge = running.client.terminal(id).await;
        assert_eq!(
            (&charge["status"], &charge["attempts"]),
            (&json!("completed"), &json!(1))
        );
    }
    assert!(proxy.connections() > 0);
    running.stop().await;
    assert_eq!(service.ledger.charges().await.len(), 100);
    service.check_books().await;
}

/// The connection closes or is reset before or after the provider has answered, on prepare and on execute. Execute goes
/// over the connection that prepare left open.
#[tokio::test]
async fn a_connection_that_breaks_is_unclear_and_every_attempt_has_its_key() {
    for (suffix, what, executes, objects) in [
        ("/confirm", Interference::CutBefore, vec!["x2"], 1),
        ("/confirm", Interference::CutAfter, vec!["x1"], 1),
        ("/confirm", Interference::ResetBefore, vec!["x2"], 1),
        ("/confirm", Interference::ResetAfter, vec!["x1"], 1),
        ("/payment_intents", Interference::ResetBefore, vec!["x1"], 1),
        ("/payment_intents", Interference::ResetAfter, vec!["x1"], 1),
        ("/payment_intents", Interference::CutBefore, vec!["x1"], 1),
        ("/payment_intents", Interference::CutAfter, vec!["x1"], 1),
    ] {
        let service = TestService::new().await;
        let proxy = ProviderProxy::start(service.ledger.address);
        proxy.interfere(suffix, what);
        let base_url = proxy.base_url();
        let settings = [("provider.stripe.base_url", base_url.as_str())];
        let running = service.run_with(Roles::ALL, &settings).await;
        let body = charge_body("pm_card_visa");
        let id = running.client.charge("order-1", &body).await.id();
        let charge = running.client.terminal(&id).await;
        assert_eq!(charge["status"], "completed");
        let seen = service.ledger.executes().await;
        let keys: Vec<_> = seen.iter().map(|(number, _)| number.as_str()).collect();
        assert_eq!(keys, executes, "{suffix} {what:?}");
        assert_eq!(service.ledger.objects().await.len(), objects);
        let prepares = service.ledger.prepare_keys().await;
        assert!(prepares.iter().all(|key| *key == id), "{prepares:?}");
        running.stop().await;
        service.check_books().await;
    }
}

/// The network between one process and the provider swallows everything, then closes every connection, then is slow.
#[tokio::test]
async fn a_network_that_goes_silent_or_down_between_us_and_the_provider_delays_charges_and_no_more()
{
    let service = TestService::new().await;
    let proxy = ProviderProxy::start(service.ledger.address);
    let base_url = proxy.base_url();
    let settings = [
        ("provider.stripe.base_url", base_url.as_str()),
        ("provider.stripe.timeout", "300ms"),
        ("provider.stripe.connect_timeout", "100ms"),
    ];
    let running = service.run_with(Roles::ALL, &settings).await;
    service.key_checked().await;
    for silent in [true, false] {
        if silent {
            proxy.network.swallow();
        } else {
            proxy.network.refuse();
        }
        let key = format!("silent-{silent}");
        let body = charge_body("pm_card_visa");
        let id = running.client.charge(&key, &body).await.id();
        until("it was tried", async || {
            let job = service.jobs(&id).await.pop()?;
            (job.attempt >= 2).then_some(())
        })
        .await;
        let charge = running.client.show(&id).await.body;
        assert_eq!(
            (&charge["status"], &charge["money"]),
            (&json!("in_progress"), &json!("not_moved"))
        );
        proxy.network.delay_replies(Duration::from_millis(20));
        proxy.network.recover();
        let charge = running.client.terminal(&id).await;
        assert_eq!(
            (&charge["status"], &charge["attempts"]),
            (&json!("completed"), &json!(1))
        );
        let exchanges = proxy.exchanges();
        assert!(exchanges.is_sorted_by_key(|exchange| exchange.at));
        let answered: Vec<_> = exchanges
            .into_iter()
            .filter(|exchange| exchange.idempotency_key.starts_with(&id))
            .filter(|exchange| exchange.status == Some(200))
            .map(|exchange| exchange.target)
            .collect();
        let object = charge["provider_charge_id"].as_str().unwrap();
        let expected = [
            "POST /v1/payment_intents".to_owned(),
            format!("POST /v1/payment_intents/{object}/confirm"),
        ];
        assert!(answered.iter().map(|target| &**target).eq(expected));
    }
    running.stop().await;
    service.check_books().await;
}

/// Takes connections and speaks no TLS: hangs up, resets or answers in the clear.
async fn no_tls(number: usize) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            let mut hello = [0; 16];
            let _ = connection.read(&mut hello).await;
            match number {
                0 => {}
                1 => drop(connection.set_zero_linger()),
                _ => drop(
                    connection
                        .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                        .await,
                ),
            }
        }
    });
    format!("https://{address}")
}

/// No name, no handshake: nothing left this machine, and nothing was attempted.
#[tokio::test]
async fn a_charge_that_no_connection_could_be_made_for_was_not_attempted() {
    let service = TestService::new().await;
    let mut addresses = vec!["http://nowhere.invalid".to_owned()];
    for number in 0..3 {
        addresses.push(no_tls(number).await);
    }
    let body = charge_body("pm_card_visa");
    let mut ids = Vec::new();
    for (number, base_url) in addresses.iter().enumerate() {
        let settings = [("provider.stripe.base_url", base_url.as_str())];
        let running = service.run_with(Roles::ALL, &settings).await;
        let key = format!("order-{number}");
        let id = running.client.charge(&key, &body).await.id();
        until(&format!("{base_url} was tried"), async || {
            (unsent(&running).await >= 2).then_some(())
        })
        .await;
        let charge = running.client.show(&id).await.body;
        assert_eq!(
            (&charge["stage"], &charge["money"], &charge["attempts"]),
            (&json!("pending"), &json!("not_moved"), &json!(0))
        );
        running.stop().await;
        ids.push(id);
    }
    let running = service.run().await;
    for id in &ids {
        let charge = running.client.terminal(id).await;
        assert_eq!(
            (&charge["status"], &charge["attempts"]),
            (&json!("completed"), &json!(1))
        );
    }
    running.stop().await;
    assert_eq!(service.ledger.charges().await.len(), ids.len());
    service.check_books().await;
}

/// The provider goes away between the stored id and execute.
#[tokio::test]
async fn an_execute_that_found_no_connection_is_no_attempt_and_is_sent_under_the_same_key_later() {
    let service = TestService::new().await;
    let provider = ProviderProxy::start(service.ledger.address);
    let database = DatabaseProxy::start(&service.database_url).await;
    let base_url = provider.base_url();
    let settings = [
        ("provider.stripe.base_url", base_url.as_str()),
        ("database.url", database.url()),
    ];
    let mut stored = database.arm("'execute_started'", Fault::HoldAfter);
    let running = service.run_with(Roles::ALL, &settings).await;
    let body = charge_body("pm_card_visa");
    let id = running.client.charge("order-1", &body).await.id();
    stored.struck().await;
    drop(provider);
    until("nobody listens", async || {
        let address = base_url.trim_start_matches("http://");
        tokio::net::TcpStream::connect(address).await.err()
    })
    .await;
    stored.release();
    until("it was tried again", async || {
        (service.job(&id).await.attempt >= 2).then_some(())
    })
    .await;
    let charge = running.client.show(&id).await.body;
    assert_eq!(
        (&charge["status"], &charge["money"], &charge["attempts"]),
        (&json!("in_progress"), &json!("unknown"), &json!(0))
    );
    running.stop().await;
    let running = service.run().await;
    let charge = running.client.terminal(&id).await;
    assert_eq!(
        (&charge["status"], &charge["attempts"]),
        (&json!("completed"), &json!(1))
    );
    running.stop().await;
    assert_eq!(
        service.ledger.executes().await,
        [("x1".to_owned(), json!(200))]
    );
    service.check_books().await;
}

/// Twenty calls hang at once: no transaction is open, and the few connections for reads serve reads.
#[tokio::test]
async fn while_calls_to_the_provider_hang_no_transaction_is_open_and_clients_are_served() {
    let service = TestService::new().await;
    for _ in 0..20 {
        service.ledger.hold("execute", "before").await;
    }
    let settings = [
        ("database.pool_size", "2"),
        ("provider.stripe.timeout", "60s"),
        ("worker.lease", "5m"),
        ("reconciler.sweep_lease", "6m"),
    ];
    let running = service.run_with(Roles::ALL, &settings).await;
    let ids = join_all((0..20).map(async |number| {
        let key = format!("held-{number}");
        let body = charge_body("pm_card_visa");
        running.client.charge(&key, &body).await.id()
    }))
    .await;
    let hanging = async || {
        let executes = service.ledger.executes().await;
        executes
            .iter()
            .filter(|(_, status)| status.is_null())
            .count()
    };
    until("all of them hang", async || {
        (hanging().await == ids.len()).then_some(())
    })
    .await;
    let open = "SELECT count(*) FROM pg_stat_activity
                WHERE datname = current_database() AND application_name = 'payonce'
                    AND (state LIKE 'idle in transaction%' OR xact_start < clock_timestamp() - interval '500 milliseconds')";
    assert_eq!(service.count(open).await, 0);
    let body = charge_body("pm_card_visa");
    for number in 0..4 {
        let key = format!("quick-{number}");
        let (accepted, read) = tokio::join!(
            running.client.charge(&key, &body),
            running.client.show(&ids[0])
        );
        assert_eq!((accepted.status, read.status), (202, 200));
        let quick = running.client.terminal(&accepted.id()).await;
        assert_eq!(quick["status"], "completed");
    }
    assert_eq!(service.count(open).await, 0);
    assert_eq!(hanging().await, ids.len());
    service.ledger.release().await;
    for id in &ids {
        assert_eq!(running.client.terminal(id).await["status"], "completed");
    }
    running.stop().await;
    assert_eq!(service.ledger.charges().await.len(), 24);
    service.check_books().await;
}

fn is_look(request: &Value) -> bool {
    let path = request["path"].as_str().unwrap();
    path.starts_with("/v1/payment_intents?")
}

/// A process was killed with an object made and its id not stored, and nothing ran until the key was that old.
async fn prepared_and_not_stored_for(seconds: i32) -> TestService {
    let service = TestService::new().await;
    let process = service.spawn(WHOLE, &[]).await;
    let id = service
        .stopped_at(&process.client, "prepare", "after")
        .await;
    process.kill().await;
    service.ledger.release().await;
    service.provider_is_quiet().await;
    service.age_seconds(&id, seconds).await;
    service
        .ledger
        .advance(u64::try_from(seconds).unwrap())
        .await;
    service.leases_run_out().await;
    let searched_in_vain = json!({"search_lag_ms": 600_000});
    service.ledger.settings(searched_in_vain).await;

    let running = service.run().await;
    let charge = running.client.terminal(&id).await;
    assert_eq!(charge["status"], "completed");
    running.stop().await;
    assert_eq!(service.ledger.objects().await.len(), 1);
    assert_eq!(service.ledger.executes().await.len(), 1);
    service.check_books().await;
    service
}

/// The provider has forgotten the key, and a second object would be made under it; or it would forget it while a call of
/// five seconds is on its way.
#[tokio::test]
async fn a_job_older_than_the_key_window_looks_first_and_adopts_the_object_it_finds() {
    for seconds in [25 * 3600, 24 * 3600 - 2, 23 * 3600] {
        let service = prepared_and_not_stored_for(seconds).await;
        assert!(service.ledger.requests().await.iter().any(is_look));
        let keys = service.ledger.prepare_keys().await;
        assert_eq!(keys.len(), 1, "{seconds} s: {keys:?}");
    }
}

#[tokio::test]
async fn a_job_younger_than_the_key_window_prepares_again_under_its_key() {
    let service = prepared_and_not_stored_for(22 * 3600).await;
    assert!(!service.ledger.requests().await.iter().any(is_look));
    let keys = service.ledger.prepare_keys().await;
    assert_eq!(keys.len(), 2);
    assert_eq!(keys[0], keys[1]);
}

/// It looks through all pages, and prepares only after the last one.
#[tokio::test]
async fn a_job_older_than_the_key_window_prepares_once_a_whole_look_has_found_nothing() {
    let service = TestService::new().await;
    let running = service.run().await;
    let body = charge_body("pm_card_visa");
    let others = join_all((0..110).map(async |number| {
        let key = format!("other-{number}");
        running.client.charge(&key, &body).await.id()
    }));
    for id in others.await {
        running.client.terminal(&id).await;
    }
    running.stop().await;
    let api = service.run_with(API, &[]).await;
    let id = api.client.charge("order-1", &body).await.id();
    api.stop().await;
    service.age(&id, 25).await;

    let running = service.run().await;
    let charge = running.client.terminal(&id).await;
    assert_eq!(charge["status"], "completed");
    let requests = service.ledger.requests().await;
    let first = requests.iter().position(is_look).unwrap();
    let kinds: Vec<_> = requests[first..]
        .iter()
        // The sweep goes through the refunds, too.
        .filter(|request| !request["path"].as_str().unwrap().starts_with("/v1/refunds"))
        .map(|request| (request["method"].as_str().unwrap(), is_look(request)))
        .collect();
    assert_eq!(
        kinds,
        [
            ("GET", true),
            ("GET", true),
            ("POST", false),
            ("POST", false)
        ]
    );
    running.stop().await;
    service.check_books().await;
}

#[tokio::test]
async fn a_look_that_is_not_answered_has_found_nothing_out() {
    let service = TestService::new().await;
    let api = service.run_with(API, &[]).await;
    let body = charge_body("pm_card_visa");
    let id = api.client.charge("order-1", &body).await.id();
    api.stop().await;
    service.age(&id, 25).await;
    let running = service.run().await;
    for fault in [
        "html",
        "unavailable",
        "truncated",
        "rate_limited",
        "unsaved_400",
    ] {
        let mut wrong = json!({});
        wrong[format!("read.{fault}")] = json!(1.0);
        let before = service.job(&id).await.attempt;
        service.ledger.settings(json!({"rates": wrong})).await;
        until(&format!("it was tried with {fault}"), async || {
            (service.job(&id).await.attempt >= before + 3).then_some(())
        })
        .await;
        assert!(service.ledger.prepare_keys().await.is_empty());
        assert_ne!(service.job(&id).await.state, "parked");
    }
    service.ledger.settings(json!({})).await;
    let charge = running.client.terminal(&id).await;
    assert_eq!(charge["status"], "completed");
    running.stop().await;
    service.check_books().await;
}

/// A failover lost the rows of charges that had ended. Inside the provider's key window the client's retry comes out as
/// before: prepare replays the object, and execute finds what became of it.
#[tokio::test]
async fn a_charge_whose_rows_were_lost_comes_out_as_before_inside_the_key_window() {
    let service = TestService::new().await;
    let running = service.run().await;
    let methods = [
        "pm_card_visa",
        "pm_card_chargeDeclined",
        "pm_sim_charge_then_drop",
    ];
    let mut before = Vec::new();
    for method in methods {
        let id = running
            .client
            .charge(method, &charge_body(method))
            .await
            .id();
        before.push(running.client.terminal(&id).await);
    }
    sqlx::query("TRUNCATE charges, idempotent_requests, outbox, charge_events")
        .execute(&service.books)
        .await
        .unwrap();
    for (method, before) in methods.iter().zip(&before) {
        let again = running.client.charge(method, &charge_body(method)).await;
        assert_eq!(again.status, 202);
        let charge = running.client.terminal(&again.id()).await;
        for field in ["id", "status", "provider_charge_id", "failure"] {
            assert_eq!(charge[field], before[field], "{method} {field}");
        }
    }
    assert_eq!(service.ledger.charges().await.len(), 2);
    running.stop().await;
    service.check_books().await;
}

/// A release between two attempts says prepare in other words. The key belongs to the earlier request, and repeating the
/// later one under it would be refused for as long as the key lives.
#[tokio::test]
async fn a_prepare_whose_key_another_request_has_looks_and_adopts_what_that_made() {
    let service = TestService::new().await;
    let process = service.spawn(WHOLE, &[]).await;
    let id = service
        .stopped_at(&process.client, "prepare", "after")
        .await;
    process.kill().await;
    service.ledger.release().await;
    service.provider_is_quiet().await;
    service.leases_run_out().await;
    say_it_in_other_words(&service).await;

    let running = service.run().await;
    let charge = running.client.terminal(&id).await;
    assert_eq!(charge["status"], "completed");
    assert_eq!(service.ledger.objects().await.len(), 1);
    running.stop().await;
    service.check_books().await;
}

/// The earlier request made nothing: the provider keeps an error of its own under the key.
#[tokio::test]
async fn a_prepare_whose_key_another_request_has_takes_a_new_key_once_a_look_found_nothing() {
    let service = TestService::new().await;
    service
        .ledger
        .settings(json!({"rates": {"prepare.error_500_before_charge": 1.0}}))
        .await;
    let process = service.spawn(WHOLE, &[]).await;
    let id = service
        .stopped_at(&process.client, "prepare", "after")
        .await;
    process.kill().await;
    service.ledger.release().await;
    service.provider_is_quiet().await;
    service.ledger.settings(json!({})).await;
    service.leases_run_out().await;
    say_it_in_other_words(&service).await;

    let running = service.run().await;
    let charge = running.client.terminal(&id).await;
    assert_eq!(charge["status"], "completed");
    let keys = service.ledger.prepare_keys().await;
    assert_eq!(keys.last(), Some(&format!("{id}-p1")), "{keys:?}");
    running.stop().await;
    service.check_books().await;
}

async fn say_it_in_other_words(service: &TestService) {
    sqlx::query(r#"UPDATE outbox SET payload = payload || '{"description": "in other words"}'"#)
        .execute(&service.books)
        .await
        .unwrap();
}

/// The rows of a completed charge were lost, and hours later its key comes back with another amount: what was charged
/// under it is found, and nothing more is charged.
#[tokio::test]
async fn a_lost_key_that_comes_back_with_another_amount_is_a_discrepancy_and_charges_nothing() {
    let service = TestService::new().await;
    let running = service.run().await;
    let mut body = charge_body("pm_card_visa");
    let id = running.client.charge("order-1", &body).await.id();
    running.client.terminal(&id).await;
    running.stop().await;
    sqlx::query("TRUNCATE charges, idempotent_requests, outbox, charge_events")
        .execute(&service.books)
        .await
        .unwrap();
    body["amount"] = json!(2000);
    let api = service.run_with(API, &[]).await;
    let again = api.client.charge("order-1", &body).await;
    api.stop().await;
    assert_eq!((again.status, again.id()), (202, id.clone()));
    service.age(&id, -5).await;
    let running = service.run().await;
    assert_eq!(service.parked(&id).await, "amount_differs");
    running.stop().await;
    assert_eq!(service.ledger.charges().await.len(), 1);
    service.check_books().await;
}
