//! API keys: revoked ones, and floods of unknown ones.

use std::time::{Duration, Instant};

use payonce::domain::api_key::{ApiKey, Mode};
use payonce::random::Random;
use rand::SeedableRng;

use crate::support::service::API;
use crate::support::{TestService, charge_body, until};

fn made_up() -> String {
    let mut random = rand::rngs::StdRng::from_seed(Random::from_os().bytes());
    ApiKey::generate(Mode::Test, &mut random)
        .reveal()
        .to_owned()
}

/// While both are asked all the time, so that both know the key well.
#[tokio::test]
async fn a_revoked_key_is_refused_by_every_process_within_two_seconds() {
    let service = TestService::new().await;
    let first = service.spawn("api", &[("admin.listen", "off")]).await;
    let second = service.spawn("api", &[("admin.listen", "off")]).await;
    for process in [&first, &second] {
        assert_eq!(process.client.get("/v1/policy").await.status, 200);
    }
    sqlx::query("UPDATE api_keys SET revoked_at = now()")
        .execute(&service.books)
        .await
        .unwrap();
    let revoked = Instant::now();
    for process in [&first, &second] {
        until("it is refused", async || {
            let asked = Instant::now();
            let answer = process.client.get("/v1/policy").await;
            if answer.status == 401 {
                return Some(());
            }
            assert_eq!(answer.status, 200);
            assert!(asked - revoked < Duration::from_secs(2), "still let in");
            None
        })
        .await;
    }
    assert!(first.terminate().await && second.terminate().await);
}

#[tokio::test]
async fn a_flood_of_unknown_keys_is_held_off_from_the_database_and_holds_up_no_known_one() {
    let service = TestService::new().await;
    let settings = [("http.unknown_keys_per_second", "5")];
    let api = service.run_with(API, &settings).await;
    let body = charge_body("pm_card_visa");
    assert_eq!(api.client.charge("a", &body).await.status, 202);
    let mut unknown = 0;
    for _ in 0..60 {
        let answer = api.client.with_token(&made_up()).get("/v1/charges").await;
        match answer.status {
            401 => unknown += 1,
            429 => {
                assert_eq!(answer.code(), "rate_limited");
                assert_eq!(answer.headers["retry-after"], "1");
                // Longer known than the flood lasts, it is asked for again all the same.
                assert_eq!(api.client.charge("a", &body).await.status, 200);
            }
            status => panic!("{status}: {answer:?}"),
        }
    }
    assert!((6..60).contains(&unknown), "{unknown}");
    // One that was not seen before has its turn within seconds.
    let other = service.make_merchant("other").await.1;
    let other = api.client.with_token(&other);
    until("it is let in", async || {
        (other.charge("a", &body).await.status == 202).then_some(())
    })
    .await;
    api.stop().await;
    service.check_books().await;
}
