//! Deliveries of the provider: nothing is taken that is not signed, whatever its header, and what is signed is read as
//! another reader reads it.
//!
//! The input is a header, a NUL, and a body.

#![no_main]

use std::sync::LazyLock;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use oracle::Json;
use payonce::clock::Clock;
use payonce::domain::provider_event::{EventRefused, OpenEvent, ProviderEvent, Says};
use payonce::provider::stripe::signature::WebhookSecret;
use payonce::provider::stripe::webhooks::{WebhookSettings, open_with};
use time::OffsetDateTime;

const NOW: i64 = 1_700_000_000;
const TOLERANCE: i64 = 300;

static SECRET: LazyLock<WebhookSecret> =
    LazyLock::new(|| WebhookSecret::parse("whsec_fuzz").expect("a secret"));

static OPEN: LazyLock<OpenEvent> = LazyLock::new(|| {
    let settings = WebhookSettings {
        secrets: vec![SECRET.clone()],
        tolerance: Duration::from_secs(TOLERANCE.unsigned_abs()),
    };
    let now = OffsetDateTime::from_unix_timestamp(NOW).expect("a time");
    open_with(settings, Clock::from_fn(move || now))
});

fuzz_target!(|bytes: &[u8]| {
    let at = bytes.iter().position(|byte| *byte == 0);
    let (header, body) = at.map_or((&[][..], bytes), |at| (&bytes[..at], &bytes[at + 1..]));
    let header = std::str::from_utf8(header).ok();
    // Nobody has signed it.
    let unsigned = OPEN(header, body);
    assert!(matches!(
        unsigned,
        Err(EventRefused::SignatureUnreadable | EventRefused::SignatureWrong)
    ));
    for at in [NOW, NOW - TOLERANCE, NOW + TOLERANCE] {
        let signed = format!("t={at},v1={}", SECRET.sign(at, body));
        check_event(body, OPEN(Some(&signed), body));
        // Beside anything else, it holds for its own body and its own time alone.
        if let Some(beside) = header {
            for header in [format!("{beside},{signed}"), format!("{signed},{beside}")] {
                if OPEN(Some(&header), body).is_ok() {
                    let mut other = body.to_vec();
                    other.push(b' ');
                    assert_eq!(
                        OPEN(Some(&header), &other),
                        Err(EventRefused::SignatureWrong)
                    );
                }
            }
        }
    }
    for at in [0, NOW - TOLERANCE - 1, NOW + TOLERANCE + 1, i64::MAX] {
        let signed = format!("t={at},v1={}", SECRET.sign(at, body));
        assert_eq!(OPEN(Some(&signed), body), Err(EventRefused::OutOfTolerance));
    }
});

fn check_event(body: &[u8], opened: Result<ProviderEvent, EventRefused>) {
    let event = match opened {
        Ok(event) => event,
        Err(refused) => {
            assert_eq!(refused, EventRefused::Unreadable);
            return;
        }
    };
    let json = Json::of(body);
    assert_eq!(json.at(&["id"]), event.id.as_str());
    assert_eq!(json.at(&["type"]), event.kind.as_str());
    assert_eq!(json.at(&["livemode"]), event.live);
    assert_eq!(json.at(&["created"]), event.created_at.unix_timestamp());
    let Some(about) = event.about else { return };
    if let Some(charge) = about.charge {
        let stamp = json.at(&["data", "object", "metadata", "payonce_charge_id"]);
        assert_eq!(stamp, charge.to_string());
    }
    if let Some(id) = about.object {
        let intent = json.at(&["data", "object", "payment_intent"]);
        let told = if json.at(&["data", "object", "object"]) == "payment_intent" {
            json.at(&["data", "object", "id"])
        } else if intent.is_string() {
            intent
        } else {
            json.at(&["data", "object", "payment_intent", "id"])
        };
        assert_eq!(told, id.as_str());
    }
    // A refund says so by its status, the others by the event's kind.
    let moved = if about.refund.is_some() {
        json.at(&["data", "object", "status"]) == "succeeded"
    } else {
        matches!(
            event.kind.as_str(),
            "payment_intent.succeeded" | "charge.succeeded"
        )
    };
    assert_eq!(about.says == Says::Moved, moved);
}
