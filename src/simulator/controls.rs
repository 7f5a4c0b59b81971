//! What no provider has: the ledger, the settings, the clock and the hooks, for tests and for people who try things.

use std::time::Duration;

use axum::http::StatusCode;
use axum::http::request::Parts;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::Shared;
use super::faults::{Dice, Settings};
use super::form::Form;
use super::holds::{self, Wanted};
use super::intents;
use super::model::{Status, View, as_map};
use super::refunds;
use super::reply::Reply;
use super::scripted::Scripted;
use super::state::State;
use super::webhooks::Endpoint;

const ABOUT: &str = "\
This is payonce's simulator: it speaks the part of Stripe's API that payonce uses. No money moves here.

  POST /v1/payment_intents, …/{id}/confirm, …/{id}/cancel    GET /v1/payment_intents, …/{id}, …/search, /v1/events, /v1/balance, /v1/account
  POST /v1/refunds    GET /v1/refunds, /v1/refunds/{id}
  GET  /_sim/refunds     every refund
  GET  /_sim/charges     every charge that moved money          GET /_sim/objects    every object
  PUT  /_sim/settings    {seed, latency_ms, search_lag_ms, key_window_s, slow_ms, land_late_ms, rates, revoked: [secret keys]}
  GET  /_sim/faults      how often each fault was met
  POST /_sim/clock       {advance_seconds}                      GET /_sim/requests   the last requests
  PUT  /_sim/hold        {phase, when}                          PUT  /_sim/answer    {phase, status, body, location, effect, times}
  POST /_sim/authenticate/{id}?result=success|fail              the customer comes back from the bank
  POST /_sim/settle/{id}?result=succeeded|failed                what a bank decides of an intent or a refund, later too
  PUT  /_sim/webhook     {url, secret, account, seed, lost, twice, late_ms}: events go there; DELETE ends it
  DELETE /_sim           forget everything
";

/// The longest that a control keeps its caller waiting.
const LONGEST_WAIT_MS: u64 = 60_000;

#[derive(Serialize)]
struct Charge<'a> {
    id: &'a str,
    #[serde(rename = "charge")]
    attempt: Option<String>,
    /// What moved; a partial charge moves less than was asked for.
    amount: i64,
    amount_requested: i64,
    currency: &'a str,
    #[serde(serialize_with = "as_map")]
    metadata: &'a [(Box<str>, Box<str>)],
    payment_method: Option<&'a str>,
    created: i64,
    livemode: bool,
    account: &'a str,
    account_id: &'a str,
}

#[derive(Serialize)]
struct Object<'a> {
    #[serde(flatten)]
    view: View<'a>,
    account: &'a str,
    account_id: &'a str,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Advance {
    advance_seconds: i64,
}

#[derive(Serialize)]
struct Now {
    now: String,
    offset_seconds: i64,
}

pub(super) fn rfc3339(ms: i64) -> String {
    OffsetDateTime::from_unix_timestamp_nanos(i128::from(ms) * 1_000_000)
        .ok()
        .and_then(|time| time.format(&Rfc3339).ok())
        .unwrap_or_default()
}

/// None when the path is none of the controls'.
pub(super) async fn answer(shared: &Shared, parts: &Parts, body: &[u8]) -> Option<Reply> {
    let path = parts.uri.path();
    if path == "/" {
        return Some(Reply::text(200, ABOUT));
    }
    let control = path.strip_prefix("/_sim")?;
    let query = Form::parse(parts.uri.query().unwrap_or_default().as_bytes());
    let method = parts.method.as_str();
    if (method, control) == ("GET", "/hold") {
        let held = shared.lock().holds.watch();
        let patience = query
            .get("wait_ms")
            .and_then(|wait| wait.parse().ok())
            .unwrap_or(0)
            .min(LONGEST_WAIT_MS);
        let held = holds::count(held, Duration::from_millis(patience)).await;
        return Some(json(&serde_json::json!({ "held": held })));
    }
    let mut state = shared.lock();
    Some(match (method, control) {
        ("GET", "/charges") => json(&charges(&state)),
        ("GET", "/objects") => json(&objects(&state)),
        ("GET", "/refunds") => json(&refunds(&state)),
        ("GET", "/requests") => json(&state.requests.to_json()),
        ("GET", "/faults") => json(&state.met),
        ("GET", "/settings") => json(&state.settings),
        ("PUT", "/settings") => parsed(body, |settings| set(&mut state, settings)),
        ("GET", "/clock") => now(shared, &mut state),
        ("POST", "/clock") => parsed(body, |advance| moved(shared, &mut state, &advance)),
        ("PUT", "/hold") => parsed(body, |wanted: Wanted| {
            state.holds.want(wanted);
            json(&wanted)
        }),
        ("PUT", "/answer") => parsed(body, |scripted: Scripted| {
            if StatusCode::from_u16(scripted.status).is_err() || scripted.status < 200 {
                return refused(400, "status must be between 200 and 999");
            }
            state.script.push(scripted.clone());
            json(&scripted)
        }),
        ("DELETE", "/answer") => {
            state.script.clear();
            Reply::text(204, "")
        }
        ("PUT", "/webhook") => parsed(body, |endpoint: Endpoint| match endpoint.check() {
            Ok(()) => {
                state.outgoing.set(endpoint);
                Reply::text(204, "")
            }
            Err(why) => refused(400, why),
        }),
        ("DELETE", "/webhook") => {
            state.outgoing.clear();
            Reply::text(204, "")
        }
        ("DELETE", "/hold") => {
            state.holds.release();
            Reply::text(204, "")
        }
        ("DELETE", "" | "/") => reset(&mut state),
        ("GET" | "POST", _) if control.starts_with("/authenticate/") => {
            authenticate(shared, &mut state, control, &query)
        }
        ("POST", _) if control.starts_with("/settle/") => {
            settle(shared, &mut state, control, &query)
        }
        _ => refused(404, "no such control"),
    })
}

fn json<T: Serialize + ?Sized>(value: &T) -> Reply {
    Reply::json(200, serde_json::to_vec(value).unwrap_or_default())
}

fn refused(status: u16, why: &str) -> Reply {
    Reply::json(
        status,
        serde_json::json!({ "error": why }).to_string().into_bytes(),
    )
}

fn parsed<T: for<'de> Deserialize<'de>>(body: &[u8], then: impl FnOnce(T) -> Reply) -> Reply {
    match serde_json::from_slice(body) {
        Ok(value) => then(value),
        Err(error) => refused(400, &error.to_string()),
    }
}

fn charges(state: &State) -> Vec<Charge<'_>> {
    let succeeded = state
        .all()
        .into_iter()
        .filter(|(_, intent)| intent.snapshot.now.status == Status::Succeeded);
    succeeded
        .map(|(owner, intent)| {
            let (fixed, now) = (&intent.snapshot.fixed, &intent.snapshot.now);
            Charge {
                id: &fixed.id,
                attempt: intent.snapshot.charge_id(),
                amount: now.amount_received,
                amount_requested: fixed.amount,
                currency: &fixed.currency,
                metadata: &fixed.metadata,
                payment_method: now.payment_method.as_deref(),
                created: fixed.created,
                livemode: fixed.livemode,
                account: &owner.hint,
                account_id: &owner.id,
            }
        })
        .collect()
}

fn objects(state: &State) -> Vec<Object<'_>> {
    let all = state.all().into_iter();
    all.map(|(owner, intent)| Object {
        view: intent.snapshot.view(),
        account: &owner.hint,
        account_id: &owner.id,
    })
    .collect()
}

#[derive(Serialize)]
struct Refunded<'a> {
    #[serde(flatten)]
    view: refunds::View<'a>,
    account: &'a str,
    account_id: &'a str,
}

fn refunds(state: &State) -> Vec<Refunded<'_>> {
    let all = state.all_refunds().into_iter();
    all.map(|(owner, refund)| Refunded {
        view: refund.view(),
        account: &owner.hint,
        account_id: &owner.id,
    })
    .collect()
}

fn set(state: &mut State, settings: Settings) -> Reply {
    match Dice::new(&settings) {
        Ok(dice) => {
            state.dice = dice;
            state.settings = settings;
            json(&state.settings)
        }
        Err(why) => refused(400, &why),
    }
}

fn now(shared: &Shared, state: &mut State) -> Reply {
    let now = rfc3339(shared.now_ms(state));
    json(&Now {
        now,
        offset_seconds: state.offset_s,
    })
}

fn moved(shared: &Shared, state: &mut State, advance: &Advance) -> Reply {
    if advance.advance_seconds < 0 {
        return refused(400, "the clock does not go back");
    }
    match state.move_clock(advance.advance_seconds) {
        Ok(()) => now(shared, state),
        Err(error) => refused(500, &error.to_string()),
    }
}

fn reset(state: &mut State) -> Reply {
    let settings = Settings::default();
    match Dice::new(&settings).map(|dice| state.reset(settings, dice)) {
        Ok(Ok(())) => Reply::text(204, ""),
        Ok(Err(error)) => refused(500, &error.to_string()),
        Err(why) => refused(500, &why),
    }
}

/// The page that a customer is sent to.
fn authenticate(shared: &Shared, state: &mut State, control: &str, query: &Form) -> Reply {
    let id = control.trim_start_matches("/authenticate/");
    let Some((owner, current)) = state.find(id) else {
        return refused(404, "no such object");
    };
    let success = match query.get("result") {
        Some("success") => true,
        Some("fail") => false,
        _ => {
            return Reply::html(
                200,
                "<!doctype html><title>Authenticate</title><p>Is it you? <a href=\"?result=success\">Yes</a> <a href=\"?result=fail\">No</a>\n",
            );
        }
    };
    let Some(change) = intents::authenticated(&current, success) else {
        return Reply::html(
            409,
            "<!doctype html><title>Nothing to do</title><p>This payment does not wait for authentication.\n",
        );
    };
    let now_ms = shared.now_ms(state);
    let back = change
        .after
        .now
        .return_url
        .as_deref()
        .map_or_else(String::new, |url| {
            format!(" <a href=\"{}\">Go back</a>", escaped(url))
        });
    match state.commit(&owner, Some(change), None, None, now_ms) {
        Ok(()) => Reply::html(
            200,
            format!(
                "<!doctype html><title>Done</title><p>Authentication {}.{back}\n",
                if success { "succeeded" } else { "failed" }
            ),
        ),
        Err(error) => refused(500, &error.to_string()),
    }
}

fn settle(shared: &Shared, state: &mut State, control: &str, query: &Form) -> Reply {
    let id = control.trim_start_matches("/settle/");
    let success = match query.get("result") {
        Some("succeeded") => true,
        Some("failed") => false,
        _ => return refused(400, "result must be succeeded or failed"),
    };
    if let Some((owner, refund)) = state.find_refund(id) {
        let Some(refund) = refund.settled(success) else {
            return refused(409, "it has ended");
        };
        let now_ms = shared.now_ms(state);
        return match state.commit_refund(&owner, Some(refund.clone()), None, now_ms) {
            Ok(()) => json(&refund.view()),
            Err(error) => refused(500, &error.to_string()),
        };
    }
    let Some((owner, current)) = state.find(id) else {
        return refused(404, "no such object");
    };
    let Some(change) = intents::settled(&current, success) else {
        return refused(409, "it is not processing");
    };
    let (now_ms, after) = (shared.now_ms(state), change.after.clone());
    match state.commit(&owner, Some(change), None, None, now_ms) {
        Ok(()) => json(&after.view()),
        Err(error) => refused(500, &error.to_string()),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('"', "&quot;")
}
