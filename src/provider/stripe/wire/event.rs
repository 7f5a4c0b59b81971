//! What is read of an event that Stripe delivers: which object it is about, and nothing of what the object became.

use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use time::OffsetDateTime;

use super::failure::Text;
use super::object::Metadata;
use super::refund;
use crate::domain::ids::{ChargeId, ProviderChargeId, ProviderRefundId};
use crate::domain::provider_event::{About, AboutRefund, ProviderEvent, Says};

/// The longest id and the longest name of a kind that are kept.
const MOST_TEXT: usize = 255;
/// How long after its `PaymentIntent` a charge, a refund or a dispute is taken to be made at the most. Beyond that the
/// routine sweep finds what the event would have told.
const LONGEST_BEHIND: Duration = Duration::from_hours(25);

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow)]
    id: Text<'a>,
    #[serde(borrow, rename = "type")]
    kind: Text<'a>,
    created: i64,
    livemode: bool,
    #[serde(borrow)]
    data: Data<'a>,
}

#[derive(Deserialize)]
struct Data<'a> {
    #[serde(borrow)]
    object: Subject<'a>,
}

/// A `PaymentIntent`, or what belongs to one.
#[derive(Deserialize)]
struct Subject<'a> {
    #[serde(borrow, default)]
    object: Option<Text<'a>>,
    #[serde(borrow, default)]
    id: Option<Text<'a>>,
    #[serde(default)]
    created: Option<i64>,
    // Read apart: what has another shape belongs to no intent, or has no stamp.
    #[serde(borrow, default)]
    payment_intent: Option<&'a RawValue>,
    #[serde(borrow, default)]
    metadata: Option<&'a RawValue>,
    #[serde(borrow, default)]
    status: Option<&'a RawValue>,
}

/// Named by its id, or shown whole where the endpoint expands it.
#[derive(Deserialize)]
#[serde(untagged)]
enum Belongs<'a> {
    Id(#[serde(borrow)] Text<'a>),
    Whole {
        #[serde(borrow)]
        id: Text<'a>,
    },
}

impl Subject<'_> {
    fn about(&self, kind: &str, at: OffsetDateTime) -> Option<About> {
        let made = self.created.and_then(instant).unwrap_or(at);
        let text = |text: Option<&Text<'_>>| text.map(|text| text.as_str().to_owned());
        let of = self.object.as_ref()?.as_str();
        let (object, made_from) = match of {
            "payment_intent" => (text(self.id.as_ref()), made),
            "charge" | "refund" | "dispute" | "review" => {
                let object = self
                    .payment_intent
                    .and_then(shape)
                    .map(|belongs| match belongs {
                        Belongs::Id(id) | Belongs::Whole { id } => id.as_str().to_owned(),
                    });
                (object, made - LONGEST_BEHIND)
            }
            _ => return None,
        };
        let refund = (of == "refund").then(|| self.refund()).flatten();
        Some(About {
            object: object.and_then(|id| ProviderChargeId::parse(&id)),
            charge: self
                .metadata
                .and_then(shape::<Metadata<'_>>)
                .and_then(|metadata| metadata.stamp()?.parse::<ChargeId>().ok()),
            made_from,
            says: match &refund {
                Some((_, says)) => *says,
                None => says(kind),
            },
            refund: refund.map(|(refund, _)| refund),
        })
    }

    fn refund(&self) -> Option<(AboutRefund, Says)> {
        let stamp = self
            .metadata
            .and_then(shape::<refund::Metadata<'_>>)
            .and_then(|metadata| metadata.stamp()?.parse().ok());
        let id = ProviderRefundId::parse(self.id.as_ref()?.as_str())?;
        let says = match self
            .status
            .and_then(shape::<Text<'_>>)
            .as_ref()
            .map(Text::as_str)
        {
            Some("succeeded") => Says::Moved,
            Some("failed" | "canceled") => Says::Over,
            _ => Says::Changed,
        };
        Some((AboutRefund { id, stamp }, says))
    }
}

fn shape<'a, T: Deserialize<'a>>(raw: &'a RawValue) -> Option<T> {
    serde_json::from_str(raw.get()).ok()
}

fn says(kind: &str) -> Says {
    match kind {
        "payment_intent.created" => Says::Made,
        "payment_intent.succeeded" | "charge.succeeded" => Says::Moved,
        "payment_intent.canceled" => Says::Over,
        _ => Says::Changed,
    }
}

/// None before 1970: nobody made an object then, and there is no time before the earliest one to look from.
fn instant(seconds: i64) -> Option<OffsetDateTime> {
    OffsetDateTime::from_unix_timestamp(seconds)
        .ok()
        .filter(|_| seconds >= 0)
}

/// `None` for what is no event.
pub(in super::super) fn event(body: &[u8]) -> Option<ProviderEvent> {
    let event: Event<'_> = serde_json::from_slice(body).ok()?;
    let (id, kind) = (event.id.as_str(), event.kind.as_str());
    let sane = |text: &str| {
        (1..=MOST_TEXT).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
    };
    if !sane(id) || !sane(kind) {
        return None;
    }
    let created_at = instant(event.created)?;
    Some(ProviderEvent {
        id: id.to_owned(),
        kind: kind.to_owned(),
        live: event.livemode,
        created_at,
        about: event.data.object.about(kind, created_at),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: &str = "chg_03510a50e711533aba21e1dd9ddf20be";

    fn read(kind: &str, object: &str) -> Option<ProviderEvent> {
        let body = format!(
            r#"{{"id":"evt_1","object":"event","type":"{kind}","created":1700000000,"livemode":false,"api_version":"x","data":{{"object":{object}}}}}"#
        );
        event(body.as_bytes())
    }

    fn about(kind: &str, object: &str) -> About {
        read(kind, object).unwrap().about.unwrap()
    }

    #[test]
    fn an_intent_is_named_by_its_id_and_its_stamp() {
        let object = format!(
            r#"{{"object":"payment_intent","id":"pi_1","created":1699999000,"status":"succeeded","metadata":{{"payonce_charge_id":"{STAMP}"}}}}"#
        );
        let about = about("payment_intent.succeeded", &object);
        assert_eq!(about.object, ProviderChargeId::parse("pi_1"));
        assert_eq!(about.charge, STAMP.parse().ok());
        assert_eq!(about.made_from.unix_timestamp(), 1_699_999_000);
        assert_eq!(about.says, Says::Moved);
    }

    #[test]
    fn what_belongs_to_an_intent_names_it() {
        for object in ["charge", "refund", "dispute"] {
            for intent in [r#""pi_1""#, r#"{"id":"pi_1","object":"payment_intent"}"#] {
                let object = format!(
                    r#"{{"object":"{object}","id":"x_1","created":1700000000,"payment_intent":{intent}}}"#
                );
                let about = about("charge.updated", &object);
                assert_eq!(about.object, ProviderChargeId::parse("pi_1"));
                assert_eq!(about.charge, None);
                assert!(about.made_from.unix_timestamp() < 1_700_000_000);
                assert_eq!(about.says, Says::Changed);
            }
        }
    }

    #[test]
    fn a_refund_is_named_with_its_stamp_and_what_is_claimed_of_it() {
        let stamp = STAMP.replace("chg_", "rfd_");
        for (status, claims) in [
            (r#""succeeded""#, Says::Moved),
            (r#""failed""#, Says::Over),
            (r#""canceled""#, Says::Over),
            (r#""pending""#, Says::Changed),
            ("7", Says::Changed),
        ] {
            let object = format!(
                r#"{{"object":"refund","id":"re_1","payment_intent":"pi_1","status":{status},"metadata":{{"payonce_refund_id":"{stamp}"}}}}"#
            );
            let about = about("refund.updated", &object);
            let refund = about.refund.unwrap();
            assert_eq!(refund.id.as_str(), "re_1");
            assert_eq!(refund.stamp, stamp.parse().ok());
            assert_eq!((about.says, about.charge), (claims, None));
        }
        let object = r#"{"object":"refund","id":"re_1","payment_intent":"pi_1","metadata":[]}"#;
        assert_eq!(about("refund.created", object).refund.unwrap().stamp, None);
    }

    #[test]
    fn other_objects_are_events_about_nothing_of_ours() {
        for object in [
            r#"{"object":"balance"}"#,
            r#"{"object":"customer","id":"cus_1"}"#,
            "{}",
        ] {
            assert_eq!(read("x.y.z", object).unwrap().about, None, "{object}");
        }
        // Not by us: an intent without a stamp, and one whose stamp is no id of ours.
        for metadata in [
            "{}",
            r#"{"payonce_charge_id":"order-1"}"#,
            r#"{"payonce_charge_id":5}"#,
            "[]",
            "null",
        ] {
            let object =
                format!(r#"{{"object":"payment_intent","id":"pi_1","metadata":{metadata}}}"#);
            assert_eq!(about("payment_intent.created", &object).charge, None);
        }
        let charge = r#"{"object":"charge","id":"ch_1","payment_intent":null}"#;
        assert_eq!(about("charge.succeeded", charge).object, None);
    }

    #[test]
    fn a_time_that_no_object_has_is_taken_for_the_event_s() {
        for created in [-1, -377_705_116_800, i64::MIN] {
            let object = format!(
                r#"{{"object":"charge","id":"ch_1","created":{created},"payment_intent":"pi_1"}}"#
            );
            let made_from = about("charge.succeeded", &object).made_from;
            assert_eq!(made_from.unix_timestamp(), 1_700_000_000 - 25 * 3600);
        }
    }

    #[test]
    fn what_is_no_event_is_not_read() {
        for body in [
            "",
            "[]",
            "{}",
            r#"{"id":"evt_1","type":"x","created":1,"livemode":false}"#,
            r#"{"id":"evt_1","type":"x","created":"1","livemode":false,"data":{"object":{}}}"#,
            r#"{"id":"","type":"x","created":1,"livemode":false,"data":{"object":{}}}"#,
            r#"{"id":"e\u0000","type":"x","created":1,"livemode":false,"data":{"object":{}}}"#,
            r#"{"id":"evt_1","type":"x","created":9223372036854775807,"livemode":false,"data":{"object":{}}}"#,
            r#"{"id":"evt_1","type":"x","created":-377705116800,"livemode":false,"data":{"object":{}}}"#,
        ] {
            assert_eq!(event(body.as_bytes()), None, "{body}");
        }
    }
}
