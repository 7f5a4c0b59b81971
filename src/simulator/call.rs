//! Reads one API request: which operation, by whom, with which parameters and key.

use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, header};
use sha2::{Digest, Sha256};

use super::faults::Phase;
use super::form::Form;
use super::keys::First;
use super::state::Owner;

/// The version that Stripe is taken to speak when the caller names none.
pub(super) const VERSION: &str = "2025-09-30.clover";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Operation {
    Create,
    Confirm(String),
    Cancel(String),
    Retrieve(String),
    List,
    CreateRefund,
    RetrieveRefund(String),
    ListRefunds,
    Search,
    Events,
    Balance,
    Account,
    Unknown,
}

impl Operation {
    fn parse(method: &Method, path: &str) -> Self {
        let mut segments = path.trim_start_matches('/').split('/');
        let (get, post) = (method == Method::GET, method == Method::POST);
        match [
            segments.next(),
            segments.next(),
            segments.next(),
            segments.next(),
            segments.next(),
        ] {
            [Some("v1"), Some("payment_intents"), None, ..] if post => Self::Create,
            [Some("v1"), Some("payment_intents"), None, ..] if get => Self::List,
            [Some("v1"), Some("payment_intents"), Some("search"), None, _] if get => Self::Search,
            [Some("v1"), Some("payment_intents"), Some(id), None, _] if get => {
                Self::Retrieve(id.to_owned())
            }
            [
                Some("v1"),
                Some("payment_intents"),
                Some(id),
                Some("confirm"),
                None,
            ] if post => Self::Confirm(id.to_owned()),
            [
                Some("v1"),
                Some("payment_intents"),
                Some(id),
                Some("cancel"),
                None,
            ] if post => Self::Cancel(id.to_owned()),
            [Some("v1"), Some("refunds"), None, ..] if post => Self::CreateRefund,
            [Some("v1"), Some("refunds"), None, ..] if get => Self::ListRefunds,
            [Some("v1"), Some("refunds"), Some(id), None, _] if get => {
                Self::RetrieveRefund(id.to_owned())
            }
            [Some("v1"), Some("events"), None, ..] if get => Self::Events,
            [Some("v1"), Some("balance"), None, ..] if get => Self::Balance,
            [Some("v1"), Some("account"), None, ..] if get => Self::Account,
            _ => Self::Unknown,
        }
    }

    fn phase(&self, form: &Form) -> Phase {
        match self {
            Self::Create if form.get("confirm") == Some("true") => Phase::Execute,
            Self::Create => Phase::Prepare,
            Self::Confirm(_) => Phase::Execute,
            Self::Cancel(_) => Phase::Cancel,
            Self::CreateRefund => Phase::Refund,
            Self::RetrieveRefund(_) | Self::ListRefunds => Phase::ReadRefunds,
            Self::Retrieve(_)
            | Self::List
            | Self::Search
            | Self::Events
            | Self::Balance
            | Self::Unknown => Phase::Read,
            Self::Account => Phase::Account,
        }
    }
}

#[derive(Debug)]
pub(super) struct Call {
    pub(super) operation: Operation,
    pub(super) phase: Phase,
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) form: Form,
    /// Of a POST; elsewhere a key has no effect.
    pub(super) key: Option<String>,
    pub(super) version: Option<String>,
    pub(super) secret: Option<String>,
    /// None without a secret key that opens an account.
    pub(super) owner: Option<Owner>,
    pub(super) fingerprint: [u8; 16],
    pub(super) request_id: String,
}

impl Call {
    /// All that needs no lock; the request's id comes later.
    pub(super) fn read(parts: &Parts, body: &[u8]) -> Self {
        let path = parts.uri.path().to_owned();
        let post = parts.method == Method::POST;
        let form = Form::parse(if post {
            body
        } else {
            parts.uri.query().unwrap_or_default().as_bytes()
        });
        let operation = Operation::parse(&parts.method, &path);
        let secret = secret(&parts.headers);
        let key = text(&parts.headers, "idempotency-key").filter(|key| post && !key.is_empty());
        let fingerprint = key
            .as_ref()
            .map_or([0; 16], |_| form.fingerprint("POST", &path));
        Self {
            phase: operation.phase(&form),
            operation,
            method: parts.method.clone(),
            path,
            form,
            key,
            version: text(&parts.headers, "stripe-version"),
            owner: secret.as_deref().and_then(owner),
            secret,
            fingerprint,
            request_id: String::new(),
        }
    }

    /// What its key stands for, if nobody had it before.
    pub(super) fn first(&self) -> First {
        First {
            request: self.request_id.as_str().into(),
            path: self.path.as_str().into(),
            fingerprint: self.fingerprint,
        }
    }
}

fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    headers
        .get(name)
        .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
}

/// The key in a Bearer header, or the user name in a Basic one.
fn secret(headers: &HeaderMap) -> Option<String> {
    let header = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, rest) = header.split_once(' ')?;
    if scheme.eq_ignore_ascii_case("bearer") {
        Some(rest.trim().to_owned())
    } else if scheme.eq_ignore_ascii_case("basic") {
        let pair = String::from_utf8(base64(rest.trim())?).ok()?;
        Some(
            pair.split_once(':')
                .map_or(pair.as_str(), |(user, _)| user)
                .to_owned(),
        )
    } else {
        None
    }
}

fn base64(encoded: &str) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(encoded.len() * 3 / 4);
    let (mut bits, mut held) = (0_u32, 0);
    for byte in encoded.trim_end_matches('=').bytes() {
        let six = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = (bits << 6) | u32::from(six);
        held += 6;
        if held >= 8 {
            held -= 8;
            decoded.push((bits >> held).to_be_bytes()[3]);
            bits &= (1 << held) - 1;
        }
    }
    Some(decoded)
}

/// The account that a secret key opens; None for what is no secret key.
fn owner(secret: &str) -> Option<Owner> {
    let livemode = secret.starts_with("sk_live_") || secret.starts_with("rk_live_");
    let test = secret.starts_with("sk_test_") || secret.starts_with("rk_test_");
    let rest = secret.get(8..).filter(|rest| {
        (livemode || test) && !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_graphic())
    })?;
    let digest = Sha256::digest(secret);
    let mut id = String::from("acct_");
    for byte in &digest[..8] {
        id.push(char::from(b"0123456789abcdef"[usize::from(byte >> 4)]));
        id.push(char::from(b"0123456789abcdef"[usize::from(byte & 15)]));
    }
    let hint = format!("{}…{}", &secret[..8], &rest[rest.len().saturating_sub(4)..]);
    Some(Owner { id, hint, livemode })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_comes_as_bearer_or_as_the_user_name() {
        let with = |value: &str| {
            secret(&HeaderMap::from_iter([(
                header::AUTHORIZATION,
                value.parse().unwrap(),
            )]))
        };
        assert_eq!(with("Bearer sk_test_1").as_deref(), Some("sk_test_1"));
        // sk_test_1: and sk_test_12:x
        assert_eq!(with("Basic c2tfdGVzdF8xOg==").as_deref(), Some("sk_test_1"));
        assert_eq!(
            with("Basic c2tfdGVzdF8xMjp4").as_deref(),
            Some("sk_test_12")
        );
        assert_eq!(with("Digest x"), None);
    }

    #[test]
    fn only_secret_keys_open_an_account() {
        assert!(owner("sk_live_1").unwrap().livemode);
        assert!(!owner("rk_test_1").unwrap().livemode);
        assert_ne!(
            owner("sk_test_1").unwrap().id,
            owner("sk_test_2").unwrap().id
        );
        for wrong in ["pk_test_1", "sk_test_", "", "sk_test_ä"] {
            assert!(owner(wrong).is_none(), "{wrong}");
        }
    }
}
