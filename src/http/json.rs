//! JSON as it was written: keys in order, duplicated ones kept, numbers that are no 64-bit integer marked as such.
//!
//! The usual maps keep the last of two equal keys, so that we, a proxy and the provider could each read another value;
//! this tree lets the reader refuse them. Depth is bounded by the parser (128), size by the body's limit.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Json<'a> {
    Null,
    Bool(bool),
    Integer(i64),
    /// A number that is no 64-bit integer, or was not written as one: `1.0`, `1e3`, `-0`, 2^63.
    OtherNumber,
    Text(Cow<'a, str>),
    Array(Vec<Json<'a>>),
    Object(Vec<(Cow<'a, str>, Json<'a>)>),
}

/// Reads one JSON text. Says why it is none, without telling back what it holds.
pub(super) fn parse(text: &str) -> Result<Json<'_>, String> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let top = Top::deserialize(&mut deserializer)
        .and_then(|top| deserializer.end().map(|()| top))
        .map_err(|error| error.to_string())?;
    match top {
        Top::Object(fields) => fields
            .into_iter()
            .map(|(name, value)| Ok((name, parse_field(value)?)))
            .collect::<Result<_, _>>()
            .map(Json::Object),
        Top::Other(json) => Ok(json),
    }
}

/// Each field is read by itself, so that a number beyond every type (`1E400`) is the fault of one field and does not
/// hide the others.
fn parse_field(value: &RawValue) -> Result<Json<'_>, String> {
    match serde_json::from_str(value.get()) {
        Ok(json) => Ok(json),
        Err(error) => {
            let message = error.to_string();
            if message.starts_with("number out of range") {
                return Ok(Json::OtherNumber);
            }
            // The position counts from the value's start: it would mislead.
            let message = message.split(" at line ").next().unwrap_or_default();
            Err(message.to_owned())
        }
    }
}

enum Top<'a> {
    Object(Fields<'a>),
    Other(Json<'a>),
}

impl<'de> Deserialize<'de> for Top<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let fields = Cell::new(None);
        let json = deserializer.deserialize_any(Reader(Some(&fields)))?;
        Ok(match fields.take() {
            Some(fields) => Self::Object(fields),
            None => Self::Other(json),
        })
    }
}

impl<'de> Deserialize<'de> for Json<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader(None))
    }
}

type Fields<'a> = Vec<(Cow<'a, str>, &'a RawValue)>;

/// Reads any value; at the top, the fields of an object go into the cell unread.
struct Reader<'c, 'de>(Option<&'c Cell<Option<Fields<'de>>>>);

impl<'de> Visitor<'de> for Reader<'_, 'de> {
    type Value = Json<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Json<'de>, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Json<'de>, E> {
        Ok(Json::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Json<'de>, E> {
        Ok(Json::Integer(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Json<'de>, E> {
        Ok(i64::try_from(value).map_or(Json::OtherNumber, Json::Integer))
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Json<'de>, E> {
        Ok(Json::OtherNumber)
    }

    fn visit_borrowed_str<E: Error>(self, value: &'de str) -> Result<Json<'de>, E> {
        Ok(Json::Text(Cow::Borrowed(value)))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Json<'de>, E> {
        Ok(Json::Text(Cow::Owned(value.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Json<'de>, A::Error> {
        let mut array = Vec::new();
        while let Some(item) = items.next_element()? {
            array.push(item);
        }
        Ok(Json::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json<'de>, A::Error> {
        if let Some(top) = self.0 {
            let mut fields = Vec::with_capacity(8);
            while let Some(name) = map.next_key_seed(Name)? {
                fields.push((name, map.next_value()?));
            }
            top.set(Some(fields));
            return Ok(Json::Null);
        }
        let mut object = Vec::new();
        while let Some(name) = map.next_key_seed(Name)? {
            object.push((name, map.next_value()?));
        }
        Ok(Json::Object(object))
    }
}

/// Reads a key without a copy where it has no escapes.
struct Name;

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Name {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_borrowed_str<E: Error>(self, value: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(value.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_integers_only_when_written_as_such() {
        for (text, json) in [
            ("1", Json::Integer(1)),
            ("-1", Json::Integer(-1)),
            ("9223372036854775807", Json::Integer(i64::MAX)),
            ("9223372036854775808", Json::OtherNumber),
            ("-9223372036854775809", Json::OtherNumber),
            ("1.0", Json::OtherNumber),
            ("1e3", Json::OtherNumber),
            ("-0", Json::OtherNumber),
        ] {
            assert_eq!(parse(text), Ok(json), "{text}");
        }
        let beyond = parse(r#"{"amount":1E400,"x":[1E400]}"#).unwrap();
        let fields = ["amount", "x"].map(|name| (Cow::from(name), Json::OtherNumber));
        assert_eq!(beyond, Json::Object(fields.into()));
    }

    #[test]
    fn what_is_not_json_is_an_error_and_no_overflow() {
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        let hidden = format!("{{\"a\":{deep}}}");
        let open = "{\"a\":".repeat(10_000);
        for bad in [
            "",
            " ",
            "{",
            "{}{}",
            "nope",
            "NaN",
            r#"{"a":01}"#,
            r#"{"a":NaN}"#,
            "{'a':1}",
            r#"{"a":1,}"#,
            r#"{"a":"\ud800"}"#,
            "\u{feff}{}",
            &deep,
            &hidden,
            &open,
        ] {
            assert!(parse(bad).is_err(), "{}", &bad[..bad.len().min(20)]);
        }
    }

    #[test]
    fn duplicated_keys_are_kept() {
        let Ok(Json::Object(fields)) = parse(r#"{"a":{"b":1,"\u0062":2}}"#) else {
            panic!("an object");
        };
        let Json::Object(inner) = &fields[0].1 else {
            panic!("an object");
        };
        assert_eq!(inner.len(), 2);
        assert_eq!(inner[0].0, inner[1].0);
    }
}
