//! The name of a request: the caller's own when it is sane, else a random one. It is echoed on every reply, told in
//! every problem and logged.

use axum::http::{HeaderMap, HeaderName, HeaderValue};

use crate::random::Random;

pub(super) const HEADER: HeaderName = HeaderName::from_static("x-request-id");

/// The caller's id, if there is exactly one and it is 1 to 128 visible ASCII characters without quotation mark and
/// backslash; else a new one.
pub(super) fn request_id(headers: &HeaderMap, random: &Random) -> HeaderValue {
    let mut given = headers.get_all(HEADER).iter();
    if let (Some(value), None) = (given.next(), given.next())
        && is_sane(value.as_bytes())
    {
        return value.clone();
    }
    made(random)
}

/// A new one.
pub(super) fn made(random: &Random) -> HeaderValue {
    let mut text = [0; uuid::fmt::Hyphenated::LENGTH];
    let text = random.uuid().hyphenated().encode_lower(&mut text);
    HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static("unnamed"))
}

fn is_sane(value: &[u8]) -> bool {
    (1..=128).contains(&value.len())
        && value
            .iter()
            .all(|b| b.is_ascii_graphic() && !matches!(b, b'"' | b'\\'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(values: &[&'static str]) -> String {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(HEADER, HeaderValue::from_static(value));
        }
        let random = Random::from_seed(7);
        let id = request_id(&headers, &random);
        id.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_sane_id_is_kept_and_any_other_is_replaced() {
        assert_eq!(id(&["abc-1"]), "abc-1");
        for bad in [&["a b"][..], &["a\"b"], &[""], &["a", "a"], &[]] {
            assert_eq!(id(bad).len(), 36, "{bad:?}");
        }
    }

    #[test]
    fn ids_differ() {
        let random = Random::from_seed(7);
        assert_ne!(random.uuid(), random.uuid());
    }
}
