//! The idempotency key and the fingerprint: same key and same fingerprint is the same request; same key and another
//! fingerprint is refused.

use std::fmt;

use sha2::{Digest, Sha256};

use super::request::Draft;

/// What the client calls its request: 1 to 255 visible ASCII characters other than `"`, `\` and `,`. Case matters.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IdempotencyKey(String);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidIdempotencyKey {
    #[error("the key is empty")]
    Empty,
    #[error("the key is longer than 255 characters")]
    TooLong,
    #[error("the key opens or closes a quoted string and does not do both")]
    Unbalanced,
    #[error(
        "the key may hold visible ASCII characters other than the quotation mark, the backslash and the comma, and nothing may follow a quoted key"
    )]
    Character,
}

impl IdempotencyKey {
    /// The longest key, in characters.
    pub const MAX_LENGTH: usize = 255;

    /// Reads a header's value, bare (`order-42`) or as a structured-field string (`"order-42"`): both are the same key.
    pub fn parse(value: &[u8]) -> Result<Self, InvalidIdempotencyKey> {
        let value = value.trim_ascii();
        let bare = match (value.first(), value.last()) {
            (Some(b'"'), Some(b'"')) if value.len() >= 2 => &value[1..value.len() - 1],
            (Some(b'"'), Some(_)) if !value[1..].contains(&b'"') => {
                return Err(InvalidIdempotencyKey::Unbalanced);
            }
            (Some(_), Some(b'"')) if !value[..value.len() - 1].contains(&b'"') => {
                return Err(InvalidIdempotencyKey::Unbalanced);
            }
            (Some(_) | None, _) => value,
        };
        if bare.is_empty() {
            return Err(InvalidIdempotencyKey::Empty);
        }
        let visible = |b: &u8| b.is_ascii_graphic() && !matches!(b, b'"' | b'\\' | b',');
        if !bare.iter().all(visible) {
            return Err(InvalidIdempotencyKey::Character);
        }
        if bare.len() > Self::MAX_LENGTH {
            return Err(InvalidIdempotencyKey::TooLong);
        }
        let text = std::str::from_utf8(bare).map_err(|_| InvalidIdempotencyKey::Character)?;
        Ok(Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a request means, as SHA-256 over its normalised fields in sorted order, with the version of that encoding.
/// A stored fingerprint is compared by the version that made it, so versions are only ever added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    pub version: i16,
    pub hash: [u8; 32],
}

impl Fingerprint {
    pub const CURRENT_VERSION: i16 = 1;

    pub fn of(draft: &Draft) -> Self {
        Self {
            version: Self::CURRENT_VERSION,
            hash: hash_v1(draft),
        }
    }

    /// Whether `draft` means what the request behind this fingerprint meant. A version from a later release can't be
    /// judged here: `None`.
    pub fn matches(&self, draft: &Draft) -> Option<bool> {
        match self.version {
            1 => Some(self.hash == hash_v1(draft)),
            _ => None,
        }
    }
}

/// Version 1: each field as name and value, each with its length in front, in the names' order; absent fields are left
/// out. Lengths make the encoding unambiguous whatever the values hold.
fn hash_v1(draft: &Draft) -> [u8; 32] {
    let mut hasher = Sha256::new();
    hasher.update(b"payonce charge fingerprint 1\n");
    let mut field = |name: &str, value: &str| {
        for part in [name, value] {
            hasher.update((part.len() as u64).to_be_bytes());
            hasher.update(part.as_bytes());
        }
    };
    field("amount", &draft.amount.to_string());
    field("currency", &draft.currency);
    if let Some(customer) = &draft.customer {
        field("customer", customer);
    }
    if let Some(description) = &draft.description {
        field("description", description);
    }
    for (key, value) in &draft.metadata {
        field("metadata.", key);
        field("=", value);
    }
    if draft.off_session {
        field("off_session", "true");
    }
    field("payment_method", &draft.payment_method);
    if let Some(reference) = &draft.reference {
        field("reference", reference);
    }
    if let Some(return_url) = &draft.return_url {
        field("return_url", return_url);
    }
    hasher.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn draft() -> Draft {
        Draft {
            amount: 1999,
            currency: "usd".to_owned(),
            payment_method: "pm_card_visa".to_owned(),
            ..Draft::default()
        }
    }

    #[test]
    fn a_quoted_and_a_bare_key_are_the_same() {
        let bare = IdempotencyKey::parse(b"order-42").unwrap();
        assert_eq!(IdempotencyKey::parse(b"\"order-42\"").unwrap(), bare);
        assert_eq!(IdempotencyKey::parse(b" \torder-42 ").unwrap(), bare);
        assert_ne!(IdempotencyKey::parse(b"Order-42").unwrap(), bare);
    }

    #[test]
    fn what_is_no_key_is_refused_with_its_reason() {
        use InvalidIdempotencyKey::{Character, Empty, TooLong, Unbalanced};
        let long = "a".repeat(256);
        let cases: &[(&[u8], InvalidIdempotencyKey)] = &[
            (b"", Empty),
            (b" \t ", Empty),
            (b"\"\"", Empty),
            (b"\"", Unbalanced),
            (b"\"k2", Unbalanced),
            (b"k2\"", Unbalanced),
            (b"\"k\\\"2\"", Character),
            (b"\"k2\";p=1", Character),
            (b"a,b", Character),
            (b"a b", Character),
            (b"a\\b", Character),
            (b"\xc3\xa9", Character),
            (b"a\x7f", Character),
            (long.as_bytes(), TooLong),
        ];
        for (value, reason) in cases {
            assert_eq!(
                IdempotencyKey::parse(value),
                Err(*reason),
                "{:?}",
                String::from_utf8_lossy(value)
            );
        }
        assert!(IdempotencyKey::parse("a".repeat(255).as_bytes()).is_ok());
    }

    #[test]
    fn the_encoding_of_version_1_never_changes() {
        let mut full = draft();
        full.customer = Some("cus_1".to_owned());
        full.description = Some("Tea".to_owned());
        full.metadata = [("b", "2"), ("a", "1")]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .into();
        full.off_session = true;
        full.reference = Some("r".to_owned());
        full.return_url = Some("https://example.com/".to_owned());
        let hex = |draft: &Draft| hex::encode(Fingerprint::of(draft).hash);
        assert_eq!(
            hex(&draft()),
            "0a78c761ecb367ac278230be01b42980bdac48d68ecbe83e71f341d72e4f4647"
        );
        assert_eq!(
            hex(&full),
            "ca2efe7839a260691dbb21d06377e897577ef729f02ef3bff989fea945412ff4"
        );
    }

    #[test]
    fn a_later_version_is_not_judged() {
        let later = Fingerprint {
            version: 2,
            hash: [0; 32],
        };
        assert_eq!(later.matches(&draft()), None);
    }

    proptest! {
        #[test]
        fn parsing_a_key_never_panics(value in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = IdempotencyKey::parse(&value);
        }

        #[test]
        fn different_meanings_have_different_fingerprints(
            a in proptest::collection::btree_map("[a-c=.]{0,3}", "[a-c=.]{0,3}", 0..3),
            b in proptest::collection::btree_map("[a-c=.]{0,3}", "[a-c=.]{0,3}", 0..3),
        ) {
            let (left, right) = (Draft { metadata: a, ..draft() }, Draft { metadata: b, ..draft() });
            prop_assert_eq!(Fingerprint::of(&left).hash == Fingerprint::of(&right).hash, left == right);
        }
    }
}
