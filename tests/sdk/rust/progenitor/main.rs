//! One purchase through the client that progenitor makes of the copy in `OpenAPI` 3.0.

#[path = "../world.rs"]
mod world;

mod sdk {
    progenitor::generate_api!(spec = "client/openapi-3.0.json", interface = Builder);
}

use std::num::NonZeroU64;

use futures_util::TryStreamExt;
use progenitor_client::{ByteStream, ResponseValue};
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use sdk::{Client, Error, types};

use world::{API_KEY, FOREIGN, LATER_CHARGE, LATER_PROBLEM, env};

fn at(url: &str) -> Client {
    let key = HeaderValue::from_str(&format!("Bearer {API_KEY}")).unwrap();
    let headers = HeaderMap::from_iter([(AUTHORIZATION, key)]);
    let client = reqwest::Client::builder().default_headers(headers);
    Client::new_with_client(url, client.build().unwrap())
}

/// Only JSON is typed, and a problem is `application/problem+json`: its bytes are read by hand.
async fn refused<T: std::fmt::Debug>(
    answer: Result<T, Error<ByteStream>>,
) -> (u16, Option<types::Problem>) {
    match answer.unwrap_err() {
        Error::ErrorResponse(response) => {
            let status = response.status().as_u16();
            let body: Vec<_> = response.into_inner_stream().try_collect().await.unwrap();
            (status, serde_json::from_slice(&body.concat()).ok())
        }
        other => (other.status().expect("an answer").as_u16(), None),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let client = at(&env("PAYONCE_URL"));
    let key = env("IDEMPOTENCY_KEY");
    let purchase = |amount: u64| {
        types::CreateCharge::builder()
            .amount(NonZeroU64::new(amount).unwrap())
            .currency("usd")
            .payment_method("pm_card_visa")
    };
    let create = async |amount| -> Result<ResponseValue<types::Charge>, Error<ByteStream>> {
        let call = client.create_charge().idempotency_key(&*key);
        call.body(purchase(amount)).send().await
    };

    let created = create(1999).await.unwrap();
    assert_eq!(created.status(), 202);
    assert!(created.headers().get("Idempotent-Replayed").is_none());
    let mut charge = created.into_inner();

    let replayed = create(1999).await.unwrap();
    assert_eq!(replayed.status(), 200);
    assert_eq!(replayed.headers()["Idempotent-Replayed"], "true");
    assert_eq!(replayed.id, charge.id);

    let (status, problem) = refused(create(2999).await).await;
    let problem = problem.unwrap();
    assert_eq!(
        (status, problem.code.as_str()),
        (422, "idempotency_key_reused")
    );
    assert_eq!(problem.retry, types::RetryAdvice::Never);
    assert_eq!(problem.charge_id.as_deref(), Some(charge.id.as_str()));
    assert_eq!(problem.errors[0].pointer.as_deref(), Some("#/amount"));

    // Without a key, or with one that can't be, nothing is sent.
    let keyless = client.create_charge().body(purchase(1999)).send().await;
    assert!(matches!(keyless, Err(Error::InvalidRequest(_))));
    let long = client.create_charge().idempotency_key("k".repeat(256));
    let long = long.body(purchase(1999)).send().await;
    assert!(matches!(long, Err(Error::InvalidRequest(_))));

    while charge.status == types::ChargeStatus::InProgress {
        let read = client
            .get_charge()
            .id(charge.id.as_str())
            .prefer("wait=20")
            .send();
        charge = read.await.unwrap().into_inner();
    }
    assert_eq!(charge.status, types::ChargeStatus::Completed);
    assert_eq!(charge.money, types::Money::Moved);
    assert!(charge.failure.is_none() && charge.finished_at.is_some());

    let page = client
        .list_charges()
        .idempotency_key(&*key)
        .send()
        .await
        .unwrap();
    assert_eq!(page.data.len(), 1);
    assert_eq!(page.data[0].id, charge.id);
    assert!(page.next_cursor.is_none());

    let stub = at(&env("STUB_URL"));
    let get = async |id: &str| stub.get_charge().id(id).send().await;
    let later = get(LATER_CHARGE).await.unwrap();
    assert_eq!(
        (later.stage.as_str(), later.provider.as_str()),
        ("expired", "adyen")
    );
    assert_eq!(later.failure.as_ref().unwrap().advice, "ask_the_customer");
    let (_, problem) = refused(get(LATER_PROBLEM).await).await;
    assert_eq!(problem.unwrap().code, "charge_archived");
    for (id, status) in FOREIGN {
        let (got, problem) = refused(get(id).await).await;
        assert_eq!(got, status);
        assert!(problem.is_none());
    }
}
