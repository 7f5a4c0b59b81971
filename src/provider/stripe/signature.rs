//! Stripe's signature on what it delivers: HMAC-SHA256 over the time, a dot and the body as it came, under the secret of
//! the endpoint (<https://docs.stripe.com/webhooks/signature>).
//!
//! Several secrets hold while one is being replaced, and Stripe may send several signatures then; one that fits is
//! enough. The time is part of what is signed, and must be near this machine's in both directions: an old delivery that
//! somebody recorded is refused, and so is one from a clock that is ahead.

use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use time::OffsetDateTime;

use crate::domain::provider_event::EventRefused;

/// The most signatures that are tried; Stripe sends one for each secret that holds.
const MOST_SIGNATURES: usize = 16;

/// A signing secret of a webhook endpoint; nothing prints it.
#[derive(Clone)]
pub struct WebhookSecret(Hmac<Sha256>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a signing secret of Stripe's starts with whsec_ and goes on in letters, digits, +, / and ="
)]
pub struct InvalidWebhookSecret;

impl WebhookSecret {
    pub fn parse(text: &str) -> Result<Self, InvalidWebhookSecret> {
        let rest = text.strip_prefix("whsec_").ok_or(InvalidWebhookSecret)?;
        let sane = (1..=255).contains(&rest.len())
            && rest.bytes().all(|b| {
                b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'=' | b'_' | b'-')
            });
        if !sane {
            return Err(InvalidWebhookSecret);
        }
        // The prefix is part of Stripe's key.
        let key = Hmac::new_from_slice(text.as_bytes());
        Ok(Self(key.expect("an HMAC takes a key of any length")))
    }

    /// The signature of a body at a time, as it stands behind `v1=`.
    pub fn sign(&self, at: i64, body: &[u8]) -> String {
        hex::encode(self.mac(at, body).finalize().into_bytes())
    }

    fn mac(&self, at: i64, body: &[u8]) -> Hmac<Sha256> {
        let mut mac = self.0.clone();
        mac.update(at.to_string().as_bytes());
        mac.update(b".");
        mac.update(body);
        mac
    }
}

impl std::fmt::Debug for WebhookSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WebhookSecret(..)")
    }
}

/// Whether one of the secrets signed this body, at a time near `now`.
pub(super) fn verify(
    header: &str,
    body: &[u8],
    secrets: &[WebhookSecret],
    now: OffsetDateTime,
    tolerance: Duration,
) -> Result<(), EventRefused> {
    let (at, signatures) = parse(header).ok_or(EventRefused::SignatureUnreadable)?;
    let fits = secrets.iter().any(|secret| {
        signatures
            .iter()
            // Compared in constant time.
            .any(|signature| secret.mac(at, body).verify_slice(signature).is_ok())
    });
    if !fits {
        return Err(EventRefused::SignatureWrong);
    }
    let apart = now.unix_timestamp().abs_diff(at);
    if apart > tolerance.as_secs() {
        return Err(EventRefused::OutOfTolerance);
    }
    Ok(())
}

/// The time and the signatures of the scheme `v1`; elements of other schemes are passed over.
fn parse(header: &str) -> Option<(i64, Vec<[u8; 32]>)> {
    let mut at = None;
    let mut signatures = Vec::new();
    for element in header.split(',') {
        let (name, value) = element.trim().split_once('=')?;
        match name {
            "t" => {
                let plain = !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit());
                let time = plain.then(|| value.parse().ok()).flatten()?;
                if at.replace(time).is_some() {
                    return None;
                }
            }
            // What is no SHA-256 in hex fits nothing.
            "v1" if signatures.len() < MOST_SIGNATURES => signatures.extend(digest(value)),
            _ => {}
        }
    }
    Some((at?, signatures))
}

fn digest(text: &str) -> Option<[u8; 32]> {
    let mut digest = [0; 32];
    hex::decode_to_slice(text, &mut digest).ok()?;
    Some(digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &[u8] = br#"{"id":"evt_1"}"#;
    const AT: i64 = 1_700_000_000;

    fn secret(text: &str) -> WebhookSecret {
        WebhookSecret::parse(text).unwrap()
    }

    fn check(header: &str, body: &[u8], now: i64) -> Result<(), EventRefused> {
        let secrets = [secret("whsec_new"), secret("whsec_old")];
        let now = OffsetDateTime::from_unix_timestamp(now).unwrap();
        verify(header, body, &secrets, now, Duration::from_mins(5))
    }

    fn signed(by: &str, at: i64) -> String {
        format!("t={at},v1={}", secret(by).sign(at, BODY))
    }

    /// What Python's own hmac and hashlib compute of Stripe's rule.
    #[test]
    fn a_signature_is_the_one_that_stripes_rule_makes() {
        assert_eq!(
            secret("whsec_test_secret")
                .sign(1_700_000_000, br#"{"id": "evt_test", "object": "event"}"#),
            KNOWN
        );
    }
    const KNOWN: &str = "0100910533bf78166b66dc7160802120e1b68016f3f63f0b701e6e23790a64d5";

    #[test]
    fn each_secret_that_holds_is_taken_and_no_other() {
        for by in ["whsec_new", "whsec_old"] {
            assert_eq!(check(&signed(by, AT), BODY, AT), Ok(()));
        }
        let stranger = signed("whsec_stranger", AT);
        assert_eq!(
            check(&stranger, BODY, AT),
            Err(EventRefused::SignatureWrong)
        );
        let both = format!("{stranger},v1={}", secret("whsec_old").sign(AT, BODY));
        assert_eq!(check(&both, BODY, AT), Ok(()));
    }

    #[test]
    fn another_body_or_another_time_is_refused() {
        let header = signed("whsec_new", AT);
        let wrong = Err(EventRefused::SignatureWrong);
        assert_eq!(check(&header, br#"{"id":"evt_2"}"#, AT), wrong);
        assert_eq!(check(&header, b"", AT), wrong);
        let moved = header.replace("t=1700000000", "t=1700000001");
        assert_eq!(check(&moved, BODY, AT), wrong);
    }

    #[test]
    fn the_clocks_may_be_apart_by_the_tolerance_in_both_directions() {
        let header = signed("whsec_new", AT);
        for now in [AT - 300, AT, AT + 300] {
            assert_eq!(check(&header, BODY, now), Ok(()));
        }
        for now in [AT - 301, AT + 301, 0, 4_000_000_000] {
            let refused = check(&header, BODY, now);
            assert_eq!(refused, Err(EventRefused::OutOfTolerance), "{now}");
        }
    }

    #[test]
    fn a_header_without_a_signature_fits_nothing() {
        let unreadable = Err(EventRefused::SignatureUnreadable);
        for header in [
            "",
            "t",
            "v1=00",
            "t=,v1=00",
            "t=-5,v1=00",
            "t=1,t=2,v1=00",
            "t=99999999999999999999",
        ] {
            assert_eq!(check(header, BODY, AT), unreadable, "{header}");
        }
        for header in [
            "t=1700000000",
            "t=1700000000,v0=aa",
            "t=1700000000,v1=",
            "t=1700000000,v1=zz",
        ] {
            assert_eq!(
                check(header, BODY, AT),
                Err(EventRefused::SignatureWrong),
                "{header}"
            );
        }
        // A signature that fits behind too many that do not is not tried.
        let many = format!(
            "t={AT}{},v1={}",
            format!(",v1={}", "0".repeat(64)).repeat(16),
            secret("whsec_new").sign(AT, BODY)
        );
        assert_eq!(check(&many, BODY, AT), Err(EventRefused::SignatureWrong));
    }

    #[test]
    fn a_secret_is_of_stripes_shape_and_is_never_shown() {
        for text in ["", "whsec_", "sk_test_1", "whsec_a b"] {
            assert_eq!(
                WebhookSecret::parse(text).unwrap_err(),
                InvalidWebhookSecret
            );
        }
        assert_eq!(format!("{:?}", secret("whsec_abc")), "WebhookSecret(..)");
    }
}
