//! A key that somebody else holds locked holds up nobody but itself.

use futures_util::future::join_all;

use super::{API, asks_to_retry, body};
use crate::support::TestService;

/// No answer of these tests waits for a limit: what they wait for is the lock.
const PATIENT: &[(&str, &str)] = &[
    ("intake.give_up_after", "20s"),
    ("http.acceptance_timeout", "25s"),
    ("intake.batchers", "1"),
];
/// The lock outlives these.
const HASTY: &[(&str, &str)] = &[
    ("database.lock_timeout", "50ms"),
    ("database.statement_timeout", "500ms"),
    ("intake.give_up_after", "1s"),
    ("intake.batchers", "1"),
];

#[tokio::test]
async fn a_locked_key_waits_alone_while_other_keys_are_accepted() {
    let service = TestService::new().await;
    let api = service.run_with(API, PATIENT).await;
    let rival = service.rival("locked", 1000).await;
    let client = api.client.clone();
    let blocked = tokio::spawn(async move { client.charge("locked", &body(1000)).await });
    service.waits_for_a_lock().await;

    let (keys, body) = (["a", "locked-not", "z"], body(1000));
    for round in 0..4 {
        let keys = keys.map(|key| format!("{key}-{round}"));
        let answers = join_all(keys.iter().map(|key| api.client.charge(key, &body))).await;
        assert!(answers.iter().all(|answer| answer.status == 202));
    }
    assert!(!blocked.is_finished(), "the key is locked");
    rival.rollback().await.unwrap();
    assert_eq!(blocked.await.unwrap().status, 202);
    assert_eq!(service.stored().await, 13);
    api.stop().await;
    service.finish().await;
}

#[tokio::test]
async fn neighbours_in_the_batch_of_a_locked_key_are_answered_while_it_is_locked() {
    let service = TestService::new().await;
    let api = service.run_with(API, PATIENT).await;
    let rival = service.rival("k20", 1000).await;
    let keys: Vec<String> = (0..40).map(|n| format!("k{n}")).collect();
    let mut requests = tokio::task::JoinSet::new();
    for key in &keys {
        let (client, key) = (api.client.clone(), key.clone());
        requests.spawn(async move { (client.charge(&key, &body(1000)).await, key) });
    }
    for _ in 0..39 {
        let (answer, key) = requests.join_next().await.unwrap().unwrap();
        assert_eq!(answer.status, 202, "{key}");
        assert_ne!(key, "k20");
    }
    rival.commit().await.unwrap();
    let (answer, _) = requests.join_next().await.unwrap().unwrap();
    assert_eq!((answer.status, answer.is_replay()), (200, true));
    api.stop().await;
    service.finish().await;
}

#[tokio::test]
async fn a_lock_that_outlives_our_patience_is_told_as_unavailable_and_nothing_is_stored() {
    let service = TestService::new().await;
    let api = service.run_with(API, HASTY).await;
    let rival = service.rival("k1", 1000).await;
    let answer = api.client.charge("k1", &body(1000)).await;
    asks_to_retry(&answer, "unavailable");
    rival.rollback().await.unwrap();
    assert_eq!(service.stored().await, 0);
    assert_eq!(api.client.charge("k1", &body(1000)).await.status, 202);
    api.stop().await;
    service.finish().await;
}

/// With the whole table locked every part of a batch is, and trying each part by itself would take far longer than
/// anybody waits.
#[tokio::test]
async fn while_the_table_is_locked_everybody_is_answered_in_time() {
    let service = TestService::new().await;
    let api = service.run_with(API, HASTY).await;
    let mut lock = service.books.begin().await.unwrap();
    sqlx::query("LOCK TABLE idempotent_requests IN ACCESS EXCLUSIVE MODE")
        .execute(&mut *lock)
        .await
        .unwrap();
    let keys: Vec<String> = (0..200).map(|n| format!("k{n}")).collect();
    let body = body(1000);
    let answers = join_all(keys.iter().map(|key| api.client.charge(key, &body))).await;
    // Not in time would be acceptance_unknown, from the HTTP side that waits no longer.
    for answer in &answers {
        asks_to_retry(answer, "unavailable");
    }
    lock.rollback().await.unwrap();
    assert_eq!(service.stored().await, 0);
    let answers = join_all(keys.iter().map(|key| api.client.charge(key, &body))).await;
    assert!(answers.iter().all(|answer| answer.status == 202));
    api.stop().await;
    service.finish().await;
}
