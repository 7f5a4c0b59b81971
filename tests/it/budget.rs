//! The bound on calls to the provider: how many go out a second, and that no lease is taken for a job that would wait.

use payonce::config::Roles;
use time::{Duration, OffsetDateTime, format_description::well_known::Rfc3339};

use crate::support::service::API;
use crate::support::{TestService, charge_body, until};

/// When each call came in at the provider.
async fn arrivals(service: &TestService) -> Vec<OffsetDateTime> {
    let requests = service.ledger.requests().await;
    let times = requests
        .iter()
        .map(|request| request["at"].as_str().unwrap());
    times
        .map(|at| OffsetDateTime::parse(at, &Rfc3339).unwrap())
        .collect()
}

#[tokio::test]
async fn no_more_calls_go_out_a_second_than_the_budget_has_and_jobs_wait_without_a_lease() {
    let service = TestService::new().await;
    let api = service.run_with(API, &[]).await;
    let body = charge_body("pm_card_visa");
    let id = api.client.charge("order-1", &body).await.id();
    service.backlog(&id, 99).await;
    api.stop().await;
    let settings = [
        ("provider.stripe.calls_per_second", "40"),
        ("worker.permits", "32"),
    ];
    let running = service.run_with(Roles::ALL, &settings).await;
    let mut most_leased = 0;
    until("all are done", async || {
        let leased = service
            .count("SELECT count(*) FROM outbox WHERE state = 'leased'")
            .await;
        most_leased = leased.max(most_leased);
        (service.count("SELECT count(*) FROM outbox").await == 0).then_some(())
    })
    .await;
    running.stop().await;

    // Two calls each, and none for a job that was given back: its lease had time enough.
    let calls = arrivals(&service).await;
    assert_eq!(calls.len(), 200);
    for (at, call) in calls.iter().enumerate() {
        let second = calls[at..]
            .iter()
            .take_while(|later| **later < *call + Duration::seconds(1));
        // What was sent in time may come in bunches on a busy machine.
        let count = second.count();
        assert!(count <= 40 + 4 + 10, "{count} calls in a second");
    }
    let whole = *calls.last().unwrap() - calls[0];
    assert!(whole >= Duration::milliseconds(4800), "{whole}");
    // A burst of four and what is in the middle of its two calls.
    assert!(most_leased <= 12, "{most_leased} leased at once");
    service.check_books().await;
}
