//! One purchase through the client that openapi-generator's `rust` makes.
//!
//! A call without a key does not compile: it is the second argument. Of an answer that is no error, the client shows
//! the body alone, so that a replay is told by its charge.

#[path = "../world.rs"]
mod world;

use payonce_client::apis::charges_api::{
    CreateChargeError, GetChargeError, create_charge, get_charge, list_charges,
};
use payonce_client::apis::configuration::Configuration;
use payonce_client::apis::{Error, ResponseContent};
use payonce_client::models::{Charge, ChargeStatus, CreateCharge, Money, Problem, RetryAdvice};

use world::{API_KEY, FOREIGN, LATER_CHARGE, LATER_PROBLEM, env};

fn at(url: String) -> Configuration {
    Configuration {
        base_path: url,
        bearer_access_token: Some(API_KEY.to_owned()),
        ..Configuration::new()
    }
}

fn refused<T: std::fmt::Debug, E: std::fmt::Debug>(
    answer: Result<T, Error<E>>,
) -> ResponseContent<E> {
    match answer {
        Err(Error::ResponseError(content)) => content,
        other => panic!("{other:?}"),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let key = env("IDEMPOTENCY_KEY");
    let payonce = at(env("PAYONCE_URL"));
    let purchase = |amount| CreateCharge::new(amount, "usd".into(), "pm_card_visa".into());
    let create = async |amount| create_charge(&payonce, &key, purchase(amount), None, None).await;

    let mut charge: Charge = create(1999).await.unwrap();
    assert_eq!(charge.amount, 1999);
    let replayed = create(1999).await.unwrap();
    assert_eq!(
        (&replayed.id, &replayed.created_at),
        (&charge.id, &charge.created_at)
    );

    let reused = refused(create(2999).await);
    assert_eq!(reused.status, 422);
    // The variant is the first whose body fits, not that of the status.
    let Some(CreateChargeError::Status400(problem)) = reused.entity else {
        panic!("{:?}", reused.entity);
    };
    let problem: Problem = problem;
    assert_eq!(problem.code, "idempotency_key_reused");
    assert_eq!(problem.retry, RetryAdvice::Never);
    assert_eq!(problem.charge_id.as_ref(), Some(&charge.id));
    assert_eq!(
        problem.errors.unwrap()[0].pointer.as_deref(),
        Some("#/amount")
    );

    while charge.status == ChargeStatus::InProgress {
        charge = get_charge(&payonce, &charge.id, Some("wait=20"), None)
            .await
            .unwrap();
    }
    assert_eq!(charge.status, ChargeStatus::Completed);
    assert_eq!(charge.money, Money::Moved);
    assert!(charge.failure.is_none() && charge.finished_at.is_some());

    let page = list_charges(
        &payonce,
        None,
        None,
        None,
        Some(&key),
        None,
        None,
        None,
        None,
        None,
        None,
    );
    let page = page.await.unwrap();
    assert_eq!(page.data.len(), 1);
    assert_eq!(page.data[0].id, charge.id);
    assert!(page.next_cursor.is_none());

    let stub = at(env("STUB_URL"));
    let get = async |id| get_charge(&stub, id, None, None).await;
    let later = get(LATER_CHARGE).await.unwrap();
    assert_eq!(
        (later.stage.as_str(), later.provider.as_str()),
        ("expired", "adyen")
    );
    assert_eq!(later.failure.unwrap().advice, "ask_the_customer");
    let Some(GetChargeError::Status401(problem)) = refused(get(LATER_PROBLEM).await).entity else {
        panic!("not a problem");
    };
    assert_eq!(problem.code, "charge_archived");
    for (id, status) in FOREIGN {
        let foreign = refused(get(id).await);
        assert_eq!(foreign.status, status);
        assert!(foreign.entity.is_none());
    }
}
