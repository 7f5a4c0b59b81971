//! What a request's headers say, read to the letter.

use axum::http::{HeaderMap, header};

use super::code::Code;
use super::problem::ApiError;
use crate::domain::idempotency::IdempotencyKey;

const IDEMPOTENCY_KEY: &str = "Idempotency-Key";

/// The key of exactly one header line: two readers of several lines could pick different ones.
pub fn idempotency_key(headers: &HeaderMap) -> Result<IdempotencyKey, ApiError> {
    let mut lines = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(line) = lines.next() else {
        return Err(ApiError::header(
            Code::IdempotencyKeyMissing,
            IDEMPOTENCY_KEY,
            "required",
            "send one key for each purchase, the same with every retry",
        ));
    };
    if lines.next().is_some() {
        return Err(ApiError::header(
            Code::IdempotencyKeyInvalid,
            IDEMPOTENCY_KEY,
            "single",
            "must be sent as exactly one header line",
        ));
    }
    IdempotencyKey::parse(line.as_bytes()).map_err(|error| {
        ApiError::header(
            Code::IdempotencyKeyInvalid,
            IDEMPOTENCY_KEY,
            "syntax",
            error.to_string(),
        )
    })
}

/// `application/json`, in UTF-8 if it says so, and not compressed.
pub fn json_content(headers: &HeaderMap) -> Result<(), ApiError> {
    let mut types = headers.get_all(header::CONTENT_TYPE).iter();
    let is_json = match (types.next(), types.next()) {
        (Some(one), None) => one.to_str().is_ok_and(is_json),
        _ => false,
    };
    if !is_json {
        return Err(ApiError::header(
            Code::UnsupportedMediaType,
            "Content-Type",
            "media_type",
            "must be application/json, with no other charset than utf-8",
        ));
    }
    let is_plain = headers
        .get_all(header::CONTENT_ENCODING)
        .iter()
        .all(|coding| coding.as_bytes().eq_ignore_ascii_case(b"identity"));
    if !is_plain {
        return Err(ApiError::header(
            Code::UnsupportedMediaType,
            "Content-Encoding",
            "media_type",
            "must be absent: a compressed body is not taken",
        ));
    }
    Ok(())
}

fn is_json(value: &str) -> bool {
    let mut parts = value.split(';').map(str::trim);
    let essence = parts.next().unwrap_or_default();
    essence.eq_ignore_ascii_case("application/json")
        && parts.filter(|part| !part.is_empty()).all(|parameter| {
            parameter.split_once('=').is_some_and(|(name, value)| {
                name.eq_ignore_ascii_case("charset")
                    && value.trim_matches('"').eq_ignore_ascii_case("utf-8")
            })
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn keys(values: &[&str]) -> Result<IdempotencyKey, Code> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(
                IDEMPOTENCY_KEY,
                HeaderValue::from_bytes(value.as_bytes()).unwrap(),
            );
        }
        idempotency_key(&headers).map_err(|error| error.code())
    }

    #[test]
    fn exactly_one_key_line_is_taken() {
        assert_eq!(keys(&[]), Err(Code::IdempotencyKeyMissing));
        assert_eq!(keys(&["order-42"]).unwrap().as_str(), "order-42");
        assert_eq!(keys(&["\"order-42\""]).unwrap().as_str(), "order-42");
        for bad in [
            &["a", "a"][..],
            &["a", "b"],
            &[""],
            &["\"\""],
            &["\"a"],
            &["a,b"],
        ] {
            assert_eq!(keys(bad), Err(Code::IdempotencyKeyInvalid), "{bad:?}");
        }
        let mut other = HeaderMap::new();
        other.insert("x-idempotency-key", HeaderValue::from_static("k1"));
        other.insert("idempotency_key", HeaderValue::from_static("k1"));
        let missing = idempotency_key(&other).unwrap_err().code();
        assert_eq!(missing, Code::IdempotencyKeyMissing);
    }

    #[test]
    fn json_in_utf_8_is_taken_and_nothing_else() {
        for good in [
            "application/json",
            "Application/JSON",
            "application/json; charset=utf-8",
            "application/json;charset=\"UTF-8\"",
        ] {
            assert!(is_json(good), "{good}");
        }
        for bad in [
            "",
            "text/plain",
            "application/json; charset=latin1",
            "application/problem+json",
            "application/x-www-form-urlencoded",
            "application/json; version=1",
        ] {
            assert!(!is_json(bad), "{bad}");
        }
        assert!(json_content(&HeaderMap::new()).is_err());
    }
}
