//! The connection to Postgres fails around a statement: whether it was committed is found out, and nothing is stored
//! twice.

use futures_util::future::join_all;
use payonce::intake::Verdict;

use super::{API, WORKER, asks_to_retry, body, draft};
use crate::support::database_proxy::{DatabaseProxy, Fault, INSERT_BATCH, READ_WINNERS};
use crate::support::service::{Running, TestSettings};
use crate::support::{TestService, until};

/// A silent connection is given up long before the batch is.
const QUICK: TestSettings<'_> = &[
    ("database.statement_timeout", "500ms"),
    ("database.connect_timeout", "500ms"),
    ("intake.give_up_after", "8s"),
    ("intake.batchers", "1"),
];

async fn api_behind(
    service: &TestService,
    proxy: &DatabaseProxy,
    settings: TestSettings<'_>,
) -> Running {
    let mut all = vec![("database.url", proxy.url())];
    all.extend(settings);
    service.run_with(API, &all).await
}

#[tokio::test]
async fn a_request_whose_connection_is_cut_before_or_after_the_commit_is_accepted_once() {
    let service = TestService::new().await;
    let proxy = DatabaseProxy::start(&service.database_url).await;
    let api = api_behind(&service, &proxy, &[]).await;
    for (key, fault) in [("before", Fault::CutBefore), ("after", Fault::CutAfter)] {
        let mut cut = proxy.arm(INSERT_BATCH, fault);
        let answer = api.client.charge(key, &body(1000)).await;
        cut.struck().await;
        assert_eq!((answer.status, answer.is_replay()), (202, false), "{key}");
        let again = api.client.charge(key, &body(1000)).await;
        assert_eq!((again.status, again.is_replay()), (200, true), "{key}");
        assert_eq!(again.id(), answer.id());
    }
    assert_eq!(service.stored().await, 2);
    api.stop().await;
    service.finish().await;
}

/// The second run finds its own row, and loses that reply too.
#[tokio::test]
async fn a_request_that_loses_both_replies_still_knows_its_own_row() {
    let service = TestService::new().await;
    let proxy = DatabaseProxy::start(&service.database_url).await;
    let api = api_behind(&service, &proxy, &[]).await;
    let mut cuts = [
        proxy.arm(INSERT_BATCH, Fault::CutAfter),
        proxy.arm(READ_WINNERS, Fault::CutAfter),
        proxy.arm(READ_WINNERS, Fault::CutBefore),
    ];
    let answer = api.client.charge("k1", &body(1000)).await;
    for cut in &mut cuts {
        cut.struck().await;
    }
    assert_eq!((answer.status, answer.is_replay()), (202, false));
    assert_eq!(service.stored().await, 1);
    api.stop().await;
    service.finish().await;
}

#[tokio::test]
async fn a_duplicate_whose_read_loses_its_reply_is_answered_as_a_duplicate() {
    let service = TestService::new().await;
    let proxy = DatabaseProxy::start(&service.database_url).await;
    let api = api_behind(&service, &proxy, &[]).await;
    let first = api.client.charge("k1", &body(1000)).await;
    for (amount, status) in [(1000, 200), (2000, 422)] {
        let mut cut = proxy.arm(READ_WINNERS, Fault::CutAfter);
        let answer = api.client.charge("k1", &body(amount)).await;
        cut.struck().await;
        assert_eq!(answer.status, status, "{answer:?}");
    }
    assert_eq!(first.status, 202);
    assert_eq!(service.stored().await, 1);
    api.stop().await;
    service.finish().await;
}

/// What the first statement of a batch committed is not forgotten when the second fails; nor does a duplicate within
/// the batch become the maker.
#[tokio::test]
async fn who_made_a_charge_is_known_after_the_losers_read_lost_its_reply() {
    let service = TestService::new().await;
    let proxy = DatabaseProxy::start(&service.database_url).await;
    let intake = service.intake(proxy.url());
    service.in_one_batch(&intake, &[("old", draft(1000))]).await;
    let mut cut = proxy.arm(READ_WINNERS, Fault::CutAfter);
    let batch = [
        ("new", draft(1000)),
        ("old", draft(1000)),
        ("new", draft(1000)),
        ("new", draft(7)),
    ];
    let verdicts = service.in_one_batch(&intake, &batch).await;
    cut.struck().await;
    assert!(
        matches!(
            &verdicts[..],
            [
                Ok(Verdict::Created(_)),
                Ok(Verdict::Duplicate(_)),
                Ok(Verdict::Duplicate(_)),
                Ok(Verdict::Reused { .. })
            ]
        ),
        "{verdicts:?}"
    );
    assert_eq!(service.stored().await, 2);
    service.finish().await;
}

#[tokio::test]
async fn a_connection_that_falls_silent_around_the_statement_is_given_up_and_the_batch_repeated() {
    let service = TestService::new().await;
    let proxy = DatabaseProxy::start(&service.database_url).await;
    let api = api_behind(&service, &proxy, QUICK).await;
    for (key, fault) in [("before", Fault::HoldBefore), ("after", Fault::HoldAfter)] {
        let mut silence = proxy.arm(INSERT_BATCH, fault);
        let answer = api.client.charge(key, &body(1000)).await;
        silence.struck().await;
        assert_eq!((answer.status, answer.is_replay()), (202, false), "{key}");
    }
    assert_eq!(service.stored().await, 2);
    api.stop().await;
    service.finish().await;
}

/// The statement that was given up as lost arrives all the same, after the batch that repeated it.
#[tokio::test]
async fn a_statement_that_arrives_late_makes_no_second_charge() {
    let service = TestService::new().await;
    let proxy = DatabaseProxy::start(&service.database_url).await;
    let api = api_behind(&service, &proxy, QUICK).await;
    let mut late = proxy.arm(INSERT_BATCH, Fault::HoldBefore);
    let answer = api.client.charge("k1", &body(1000)).await;
    late.struck().await;
    assert_eq!(answer.status, 202);
    let sessions = "SELECT count(*) FROM pg_stat_activity
                    WHERE datname = current_database() AND application_name = 'payonce'";
    let before = service.count(sessions).await;
    late.release();
    // Its session, which nobody speaks to any more, ends after it.
    until("the late statement was executed", async || {
        (service.count(sessions).await == before - 1).then_some(())
    })
    .await;
    let again = api.client.charge("k1", &body(1000)).await;
    assert_eq!(again.status, 200);
    assert_eq!(service.stored().await, 1);
    api.stop().await;
    service.finish().await;
}

/// Nobody can say what became of the statement; the client is told so, and its retry finds out.
#[tokio::test]
async fn while_nothing_comes_back_from_the_database_acceptance_is_unknown() {
    for (fault, retried) in [(Fault::HoldBefore, 202), (Fault::HoldAfter, 200)] {
        let service = TestService::new().await;
        let proxy = DatabaseProxy::start(&service.database_url).await;
        let settings = &[
            ("database.statement_timeout", "300ms"),
            ("database.connect_timeout", "300ms"),
            ("intake.give_up_after", "1s"),
        ];
        let api = api_behind(&service, &proxy, settings).await;
        let mut silence = proxy.arm(INSERT_BATCH, fault);
        let unknown = body(1000);
        let request = api.client.charge("k1", &unknown);
        let (answer, ()) = tokio::join!(request, async {
            silence.struck().await;
            proxy.network.swallow();
        });
        asks_to_retry(&answer, "acceptance_unknown");
        assert_eq!(
            answer.body["charge_id"],
            service.charge_id("k1").to_string()
        );
        proxy.network.recover();
        let again = api.client.charge_until_accepted("k1", &body(1000)).await;
        assert_eq!(again.status, retried, "{fault:?}");
        assert_eq!(service.stored().await, 1);
        api.stop().await;
        service.finish().await;
    }
}

/// Every connection is cut at some statement while clients go on: a storm, with the same rules.
#[tokio::test]
async fn cuts_under_load_lose_nothing_and_double_nothing() {
    let service = TestService::new().await;
    let proxy = DatabaseProxy::start(&service.database_url).await;
    let api = api_behind(&service, &proxy, &[]).await;
    let faults = [
        (INSERT_BATCH, Fault::CutAfter),
        (INSERT_BATCH, Fault::CutBefore),
        (READ_WINNERS, Fault::CutAfter),
        (READ_WINNERS, Fault::CutBefore),
    ];
    for round in 0..12 {
        let (text, fault) = faults[round % faults.len()];
        proxy.arm(text, fault);
        // Each key three times, so that there are winners and losers.
        let keys = (0..30).map(|n| format!("{round}-{}", n % 10));
        let requests = keys.map(|key| {
            let client = &api.client;
            async move { (client.charge(&key, &body(1000)).await, key) }
        });
        let mut made = std::collections::BTreeMap::new();
        for (answer, key) in join_all(requests).await {
            assert!(matches!(answer.status, 200 | 202), "{key}: {answer:?}");
            *made.entry(key).or_insert(0) += i32::from(answer.status == 202);
        }
        assert!(made.values().all(|count| *count == 1), "{made:?}");
    }
    assert_eq!(service.stored().await, 120);
    api.stop().await;
    service.finish().await;
}

/// The client was told that nobody knows, and went away. The request was stored, and its work is done: the id that it was
/// told, and its own key, find the charge.
#[tokio::test]
async fn a_request_whose_acceptance_is_unknown_is_charged_and_can_be_found() {
    let service = TestService::new().await;
    let proxy = DatabaseProxy::start(&service.database_url).await;
    let settings = &[
        ("database.statement_timeout", "300ms"),
        ("database.connect_timeout", "300ms"),
        ("intake.give_up_after", "1s"),
    ];
    let api = api_behind(&service, &proxy, settings).await;
    let mut silence = proxy.arm(INSERT_BATCH, Fault::HoldAfter);
    let unknown = body(1000);
    let request = api.client.charge("k1", &unknown);
    let (told, ()) = tokio::join!(request, async {
        silence.struck().await;
        proxy.network.swallow();
    });
    asks_to_retry(&told, "acceptance_unknown");
    let detail = told.body["detail"].as_str().unwrap();
    assert!(detail.contains("may have been accepted"), "{detail}");
    assert!(detail.contains("same key"), "{detail}");
    let id = told.body["charge_id"].as_str().unwrap();
    let worker = service.run_with(WORKER, &[]).await;
    service.drained().await;
    assert_eq!(service.ledger.times_charged(id).await, 1);

    proxy.network.recover();
    until("it is found by its id", async || {
        let found = api.client.show(id).await;
        (found.status == 200 && found.body["status"] == "completed").then_some(())
    })
    .await;
    let found = api.client.get("/v1/charges?idempotency_key=k1").await;
    assert_eq!(found.body["data"][0]["id"], id);
    let again = api.client.charge_until_accepted("k1", &body(1000)).await;
    assert_eq!((again.status, again.id().as_str()), (200, id));
    assert_eq!(again.body["status"], "completed");
    worker.stop().await;
    api.stop().await;
    assert_eq!(service.ledger.charges().await.len(), 1);
    service.check_books().await;
}
