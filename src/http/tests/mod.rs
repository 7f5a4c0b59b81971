//! The router without a database: keys are trusted by hand, nobody runs intake's batcher, and the pool leads nowhere.

mod accepted;
mod document;
mod reads;
mod refused;

use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::{Value, json};
use time::macros::datetime;
use tower::ServiceExt;
use uuid::Uuid;

use super::*;
use crate::batch::{BatchLimits, Batcher};
use crate::db::api_keys::Holder;
use crate::db::pool::Pool;
use crate::db::session::{Durability, Session, SessionLimits};
use crate::domain::api_key::{ApiKey, DEV_KEY, Mode, Scope};
use crate::domain::charge::{Charge, Progress};
use crate::domain::idempotency::Fingerprint;
use crate::domain::ids::{ChargeId, MerchantId};
use crate::domain::request::Draft;
use crate::intake::{Accept, IntakeError, IntakeMeters, IntakeSettings, Verdict};
use crate::meters::Meters;

const GOOD: &str = r#"{"amount":1999,"currency":"usd","payment_method":"pm_card_visa"}"#;

struct Rig {
    state: HttpState,
    /// Never run: what is handed in stays in the queue, which has one place.
    _batchers: Vec<Batcher<Accept>>,
    key: ApiKey<'static>,
}

impl Rig {
    fn new() -> Self {
        let random = Random::from_seed(7);
        let limits = BatchLimits {
            queue: 1,
            queue_bytes: usize::MAX,
            items: 1,
            bytes: 1,
            give_up_after: Duration::from_secs(1),
        };
        let settings = IntakeSettings {
            live: false,
            provider: "stripe",
            batchers: 1,
            limits,
        };
        let (intake, batchers) = Intake::new(
            settings,
            nowhere,
            &Arc::default(),
            &random,
            &IntakeMeters::new(&Meters::none()),
        );
        let (refunds, _accepting) = crate::intake::refunds::RefundIntake::new(
            crate::provider::stripe::currency::RULES,
            limits,
            nowhere,
            &Arc::default(),
            &random,
        );
        let state = HttpState::new(HttpParts {
            events: EventEndpoints {
                default: "default".to_owned(),
                by_account: std::collections::BTreeMap::new(),
            },
            intake,
            refunds,
            // Nobody listens at port 1.
            pool: Pool::new(1, Duration::from_millis(100), nowhere),
            rules: ProviderRules {
                provider: "stripe",
                to_provider_units: |money| Ok(money.minor_units()),
                is_token: |text| text.starts_with("pm_"),
            },
            live: false,
            dev: false,
            retention: Duration::from_hours(1),
            schema_version: 1,
            random,
            closing: CancellationToken::new(),
            waits: crate::watches::Waits::new(
                crate::watches::WatchLimits {
                    watches: 1,
                    poll: Duration::from_secs(1),
                },
                &crate::watches::WatchMeters::new(&Meters::none()),
            ),
            meters: HttpMeters::new(&Meters::none()),
            limits: HttpLimits {
                intake_wait: Duration::from_millis(200),
                body_read: Duration::from_millis(200),
                ..HttpLimits::default()
            },
        });
        let key = ApiKey::generate(Mode::Test, &mut StdRng::seed_from_u64(7));
        let rig = Self {
            state,
            _batchers: batchers,
            key,
        };
        rig.trust(Scope::Write, Mode::Test);
        rig
    }

    fn trust(&self, scope: Scope, mode: Mode) {
        let merchant = MerchantId::from_uuid(Uuid::from_u128(7));
        let holder = Holder {
            merchant,
            account: None,
            scope,
            mode,
        };
        self.state.auth().trust(&self.key, Some(holder));
    }

    fn post(&self) -> axum::http::request::Builder {
        Request::post("/v1/charges")
            .header("authorization", format!("Bearer {}", self.key.reveal()))
            .header("content-type", "application/json")
            .header("idempotency-key", "order-42")
    }

    async fn send(&self, request: Request<Body>) -> Response<Body> {
        router(self.state.clone()).oneshot(request).await.unwrap()
    }

    async fn refusal(&self, request: Request<Body>) -> (StatusCode, Value) {
        problem_of(self.send(request).await).await
    }

    /// What a client is told of `verdict`.
    async fn told(&self, verdict: Result<Verdict, IntakeError>) -> Response<Body> {
        let told = async {
            let accepted = charges::judge_verdict(verdict)?;
            let (head, ()) = Request::new(()).into_parts();
            charges::accepted_response(&self.state, &head, accepted).await
        };
        let response = std::sync::Mutex::new(Some(told.await.into_response()));
        let response = Arc::new(response);
        let route = post(move || async move { response.lock().unwrap().take().unwrap() });
        let router = Router::new().route("/v1/charges", route);
        let router = router.layer(edge::EdgeLayer {
            random: Random::from_seed(7),
            meters: None,
        });
        router
            .oneshot(self.post().body(Body::from(GOOD)).unwrap())
            .await
            .unwrap()
    }
}

pub(super) fn nowhere() -> Session {
    let limit = Duration::from_millis(100);
    let limits = SessionLimits {
        statement_timeout: limit,
        lock_timeout: limit,
        connect_timeout: limit,
    };
    Session::new(
        &"postgres://nobody@127.0.0.1:1/nothing".parse().unwrap(),
        limits,
        Durability::Durable,
    )
}

async fn text_of(response: Response<Body>) -> String {
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Checks what every problem must have, and takes it apart.
async fn problem_of(response: Response<Body>) -> (StatusCode, Value) {
    let status = response.status();
    let headers = response.headers().clone();
    assert_eq!(headers["content-type"], "application/problem+json");
    let problem: Value = serde_json::from_str(&text_of(response).await).unwrap();
    let code = Code::parse(problem["code"].as_str().unwrap()).unwrap();
    assert_eq!(code.status(), status);
    assert_eq!(problem["status"], status.as_u16());
    assert_eq!(problem["type"], format!("/problems/{}", code.as_str()));
    assert_eq!(
        headers["x-request-id"],
        *problem["request_id"].as_str().unwrap()
    );
    assert_eq!(
        headers.contains_key("retry-after"),
        matches!(status.as_u16(), 429 | 503)
    );
    assert_eq!(
        headers.contains_key("www-authenticate"),
        status == StatusCode::UNAUTHORIZED
    );
    (status, problem)
}

fn charge() -> Box<Charge> {
    let request = Draft {
        amount: 1999,
        currency: "usd".to_owned(),
        payment_method: "pm_card_visa".to_owned(),
        ..Draft::default()
    };
    let merchant = MerchantId::from_uuid(Uuid::from_u128(7));
    let idempotency_key = crate::domain::idempotency::IdempotencyKey::parse(b"order-42").unwrap();
    Box::new(Charge {
        id: ChargeId::derive(merchant, &idempotency_key),
        merchant,
        idempotency_key,
        fingerprint: Fingerprint::of(&request),
        request,
        live: false,
        provider: "stripe".to_owned(),
        progress: Progress::new(),
        created_at: datetime!(2026-11-29 20:15:00.104233 UTC),
        updated_at: datetime!(2026-11-29 20:15:00 UTC),
        finished_at: None,
        cancel_requested: false,
        amount_refunded: 0,
        account: None,
    })
}
