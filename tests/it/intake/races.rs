//! One key, many clients: exactly one of them made the charge, and every other sees it.

use futures_util::future::join_all;

use super::{API, body, one_made_it};
use crate::support::client::Client;
use crate::support::{TestService, charge_body};

const ROUNDS: i64 = 50;

/// Twenty requests with one key at once, a key a round; in turns over the APIs.
async fn race(service: &TestService, apis: &[&Client]) {
    let body = charge_body("pm_card_visa");
    for round in 0..ROUNDS {
        let key = format!("race-{round}");
        let requests = apis.iter().cycle().take(20);
        let answers = join_all(requests.map(|api| api.charge(&key, &body))).await;
        let id = one_made_it(&answers);
        assert_eq!(id, service.charge_id(&key).to_string());
    }
    assert_eq!(service.stored().await, ROUNDS);
}

#[tokio::test]
async fn the_losers_of_a_race_are_answered_with_the_winners_charge() {
    let service = TestService::new().await;
    let api = service.run_with(API, &[]).await;
    race(&service, &[&api.client]).await;
    api.stop().await;
    service.finish().await;
}

#[tokio::test]
async fn the_losers_on_another_replica_are_answered_with_the_winners_charge() {
    let service = TestService::new().await;
    let (one, two) = (
        service.run_with(API, &[]).await,
        service.run_with(API, &[]).await,
    );
    race(&service, &[&one.client, &two.client]).await;
    one.stop().await;
    two.stop().await;
    service.finish().await;
}

/// The loser waits for the winner's row, and then there is none.
#[tokio::test]
async fn a_request_whose_rival_rolls_back_is_accepted() {
    let service = TestService::new().await;
    let api = service.run_with(API, &[]).await;
    let rival = service.rival("k1", 1000).await;
    let (key, body) = ("k1", body(1000));
    let request = api.client.charge(key, &body);
    let (answer, ()) = tokio::join!(request, async {
        service.waits_for_a_lock().await;
        rival.rollback().await.unwrap();
    });
    assert_eq!((answer.status, answer.is_replay()), (202, false));
    assert_eq!(service.stored().await, 1);
    api.stop().await;
    service.finish().await;
}

#[tokio::test]
async fn a_request_whose_rival_commits_is_judged_by_the_rivals_meaning() {
    let service = TestService::new().await;
    let api = service.run_with(API, &[]).await;
    for (key, amount, status) in [("same", 1000, 200), ("other", 2000, 422)] {
        let rival = service.rival(key, amount).await;
        let body = body(1000);
        let request = api.client.charge(key, &body);
        let (answer, ()) = tokio::join!(request, async {
            service.waits_for_a_lock().await;
            rival.commit().await.unwrap();
        });
        assert_eq!(answer.status, status, "{answer:?}");
        if status == 200 {
            assert!(answer.is_replay());
        } else {
            assert_eq!(answer.code(), "idempotency_key_reused");
            assert_eq!(answer.body["charge_id"], service.charge_id(key).to_string());
            assert_eq!(answer.body["errors"][0]["pointer"], "#/amount");
        }
    }
    assert_eq!(service.stored().await, 2);
    api.stop().await;
    service.finish().await;
}
