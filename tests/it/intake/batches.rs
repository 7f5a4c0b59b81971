//! What happens within a batch and between two: order, conflicts, duplicates, and rows that Postgres refuses.

use futures_util::future::join_all;
use payonce::intake::{IntakeError, Verdict};

use super::{API, body, draft, one_made_it};
use crate::support::database_proxy::{DatabaseProxy, INSERT_BATCH};
use crate::support::{TestService, charge_body};

/// Two replicas insert the same keys in opposite orders at once.
#[tokio::test]
async fn batches_with_the_same_keys_in_opposite_order_do_not_fail_each_other() {
    let service = TestService::new().await;
    // One batcher each, so that a batch holds many keys.
    let settings = &[("intake.batchers", "1")];
    let (one, two) = (
        service.run_with(API, settings).await,
        service.run_with(API, settings).await,
    );
    let body = charge_body("pm_card_visa");
    for round in 0..12 {
        let keys: Vec<String> = (0..64).map(|n| format!("{round}-{n}")).collect();
        let up = join_all(keys.iter().map(|key| one.client.charge(key, &body)));
        let down = join_all(keys.iter().rev().map(|key| two.client.charge(key, &body)));
        let (up, down) = tokio::join!(up, down);
        for (one, two) in up.into_iter().zip(down.into_iter().rev()) {
            one_made_it(&[one, two]);
        }
    }
    assert_eq!(service.stored().await, 12 * 64);
    one.stop().await;
    two.stop().await;
    service.finish().await;
}

/// The first eight inserts fail as Postgres fails them under contention; a sequence counts them, since its steps are
/// not rolled back.
#[tokio::test]
async fn a_deadlock_or_serialization_failure_repeats_the_statement_alone() {
    let service = TestService::new().await;
    service
        .obstruct(&[
            "CREATE SEQUENCE obstructions",
            "CREATE FUNCTION obstruct() RETURNS trigger LANGUAGE plpgsql AS $$
             DECLARE obstruction bigint := nextval('obstructions');
             BEGIN
                 IF obstruction <= 8 THEN
                     RAISE EXCEPTION 'obstructed'
                         USING ERRCODE = CASE obstruction % 2 WHEN 0 THEN '40P01' ELSE '40001' END;
                 END IF;
                 RETURN NEW;
             END $$",
        ])
        .await;
    let api = service.run_with(API, &[("intake.batchers", "1")]).await;
    let body = charge_body("pm_card_visa");
    let keys: Vec<String> = (0..8).map(|n| format!("k{n}")).collect();
    let answers = join_all(keys.iter().map(|key| api.client.charge(key, &body))).await;
    for answer in answers {
        assert_eq!(answer.status, 202, "{answer:?}");
    }
    assert_eq!(service.stored().await, 8);
    api.stop().await;
    service.finish().await;
}

#[tokio::test]
async fn of_one_key_in_one_batch_the_first_wins_and_the_others_are_judged_by_it() {
    let service = TestService::new().await;
    let proxy = DatabaseProxy::start(&service.database_url).await;
    let intake = service.intake(proxy.url());
    let batch = [
        ("twice", draft(1000)),
        ("thrice", draft(1000)),
        ("twice", draft(1000)),
        ("alone", draft(1000)),
        ("thrice", draft(2000)),
        ("thrice", draft(1000)),
    ];
    let verdicts = service.in_one_batch(&intake, &batch).await;
    let [
        Ok(Verdict::Created(twice)),
        Ok(Verdict::Created(thrice)),
        Ok(Verdict::Duplicate(again)),
        Ok(Verdict::Created(_)),
        Ok(Verdict::Reused {
            charge,
            differences,
        }),
        Ok(Verdict::Duplicate(third)),
    ] = &verdicts[..]
    else {
        panic!("{verdicts:?}");
    };
    assert_eq!(
        (again.id, *charge, third.id),
        (twice.id, thrice.id, thrice.id)
    );
    assert_eq!(*differences, ["#/amount"]);
    assert_eq!(proxy.executions(INSERT_BATCH), 1);
    assert_eq!(service.stored().await, 3);
    service.finish().await;
}

/// As before, with all keys taken: who comes second in a batch is no more than a duplicate either.
#[tokio::test]
async fn of_a_taken_key_in_one_batch_all_are_duplicates() {
    let service = TestService::new().await;
    let intake = service.intake(&service.database_url);
    service.in_one_batch(&intake, &[("k", draft(1000))]).await;
    let batch = [("k", draft(1000)), ("k", draft(1000)), ("k", draft(7))];
    let verdicts = service.in_one_batch(&intake, &batch).await;
    assert!(
        matches!(
            &verdicts[..],
            [
                Ok(Verdict::Duplicate(_)),
                Ok(Verdict::Duplicate(_)),
                Ok(Verdict::Reused { .. })
            ]
        ),
        "{verdicts:?}"
    );
    assert_eq!(service.stored().await, 1);
    service.finish().await;
}

/// Postgres refuses what a reference says, with the classes of errors that mean "these data, never".
async fn refuse_marked_rows(service: &TestService) {
    service
        .obstruct(&[
            "CREATE FUNCTION obstruct() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN
                 IF NEW.reference LIKE 'refuse-%' THEN
                     RAISE EXCEPTION 'obstructed' USING ERRCODE = substr(NEW.reference, 8);
                 END IF;
                 RETURN NEW;
             END $$",
        ])
        .await;
}

#[tokio::test]
async fn a_row_that_postgres_refuses_fails_alone_and_its_neighbours_are_accepted() {
    let service = TestService::new().await;
    refuse_marked_rows(&service).await;
    let intake = service.intake(&service.database_url);
    let keys: Vec<String> = (0..9).map(|n| format!("k{n}")).collect();
    let batch: Vec<_> = keys
        .iter()
        .map(|key| {
            let mut draft = draft(1000);
            draft.reference = match key.as_str() {
                "k3" => Some("refuse-22000".to_owned()),
                "k8" => Some("refuse-23514".to_owned()),
                _ => None,
            };
            (key.as_str(), draft)
        })
        .collect();
    let verdicts = service.in_one_batch(&intake, &batch).await;
    for ((key, _), verdict) in batch.iter().zip(verdicts) {
        match (*key, verdict) {
            ("k3" | "k8", Err(IntakeError::Refused)) => {}
            ("k3" | "k8", verdict) => panic!("{key}: {verdict:?}"),
            (_, Ok(Verdict::Created(_))) => {}
            (key, verdict) => panic!("{key}: {verdict:?}"),
        }
    }
    assert_eq!(service.stored().await, 7);
    service.finish().await;
}

#[tokio::test]
async fn a_client_whose_row_postgres_refuses_is_told_of_a_fault_of_ours_and_keeps_its_key() {
    let service = TestService::new().await;
    refuse_marked_rows(&service).await;
    let api = service.run_with(API, &[]).await;
    let mut marked = body(1000);
    marked["reference"] = "refuse-22000".into();
    let refused = api.client.charge("k1", &marked).await;
    assert_eq!((refused.status, refused.code()), (500, "internal"));
    assert_eq!(service.stored().await, 0);
    assert_eq!(api.client.charge("k1", &body(1000)).await.status, 202);
    api.stop().await;
    service.finish().await;
}
