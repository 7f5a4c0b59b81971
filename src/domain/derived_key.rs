//! An idempotency key that follows from what is being done: the same order, charged again after a crash, has the same key
//! without anything being stored first.
//!
//! Any language can do it. Take the operation and the parts, in this order; of each, its length in bytes of UTF-8 in
//! decimal digits, a colon, and the bytes themselves; put all of it together without anything between. The key is the
//! operation, a hyphen, and the first 32 hex digits, in lower case, of the SHA-256 of that.
//!
//! `charge order-42 1` is `SHA-256("6:charge8:order-421:1")`. In a shell:
//! `printf '6:charge8:order-421:1' | sha256sum | cut -c1-32`.
//!
//! Lengths keep `ab c` and `a bc` apart. Texts are taken byte by byte: nothing is trimmed, folded or normalised.

use sha2::{Digest, Sha256};

use super::idempotency::IdempotencyKey;

/// The longest name of an operation.
const LONGEST_OPERATION: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidParts {
    #[error("an operation is 1 to {LONGEST_OPERATION} of a-z, 0-9, `_` and `-`")]
    Operation,
    #[error("a key takes at least one part: what it is that must happen once")]
    NoParts,
    #[error("a part is empty: most often something that was meant to be there")]
    EmptyPart,
}

/// The key of one operation on what the parts name.
pub fn derive(operation: &str, parts: &[String]) -> Result<IdempotencyKey, InvalidParts> {
    let sane = (1..=LONGEST_OPERATION).contains(&operation.len())
        && operation
            .bytes()
            .all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-'));
    if !sane {
        return Err(InvalidParts::Operation);
    }
    if parts.is_empty() {
        return Err(InvalidParts::NoParts);
    }
    if parts.iter().any(String::is_empty) {
        return Err(InvalidParts::EmptyPart);
    }
    let mut hasher = Sha256::new();
    for part in std::iter::once(operation).chain(parts.iter().map(String::as_str)) {
        hasher.update(part.len().to_string());
        hasher.update(b":");
        hasher.update(part);
    }
    let key = format!("{operation}-{}", hex::encode(&hasher.finalize()[..16]));
    Ok(IdempotencyKey::parse(key.as_bytes()).expect("letters, digits, `_` and `-` make a key"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(operation: &str, parts: &[&str]) -> Result<String, InvalidParts> {
        let parts: Vec<String> = parts.iter().map(|part| (*part).to_owned()).collect();
        derive(operation, &parts).map(|key| key.to_string())
    }

    /// Pinned for ever: clients in other languages compute the same.
    #[test]
    fn the_published_vectors_hold() {
        for (operation, parts, expected) in VECTORS {
            assert_eq!(key(operation, parts).as_deref(), Ok(*expected), "{parts:?}");
        }
    }

    #[test]
    fn what_is_cut_elsewhere_is_another_key() {
        let keys = [
            key("charge", &["ab", "c"]),
            key("charge", &["a", "bc"]),
            key("charge", &["abc"]),
            key("charge", &["ab", "c", "1"]),
            key("charge", &["c", "ab"]),
            key("refund", &["ab", "c"]),
        ];
        let distinct: std::collections::HashSet<_> =
            keys.into_iter().map(|key| key.unwrap()).collect();
        assert_eq!(distinct.len(), 6);
    }

    #[test]
    fn what_would_make_two_things_one_is_refused() {
        let long = "x".repeat(LONGEST_OPERATION + 1);
        for operation in ["", "Charge", "char ge", "chärge", "a,b", &long] {
            assert_eq!(key(operation, &["1"]), Err(InvalidParts::Operation));
        }
        assert_eq!(key("charge", &[]), Err(InvalidParts::NoParts));
        assert_eq!(key("charge", &["1", ""]), Err(InvalidParts::EmptyPart));
    }

    const VECTORS: &[(&str, &[&str], &str)] = &[
        (
            "charge",
            &["order-42", "1"],
            "charge-f9be41d4c0c2660fe6d8c51a566ed5a2",
        ),
        (
            "charge",
            &["order-42"],
            "charge-84ee576a40f4e12d5b57f5cb083f0a4b",
        ),
        (
            "charge",
            &["Grüße 你好", "  "],
            "charge-9c28e8385884da87f21804bacf515259",
        ),
        (
            "renewal_2026-11",
            &["sub_1:2", "a,b\"c\\"],
            "renewal_2026-11-3c7a925b3c7c381903bf4fcf693b404a",
        ),
    ];
}
