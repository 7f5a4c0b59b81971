//! The types of single values: read from text, shown as text, and secrets never shown.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use serde::de::{self, Deserializer, SeqAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use sqlx::postgres::PgConnectOptions;

const MASK: &str = "***";

/// A text that no output of ours holds.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself, for the one place that needs it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(MASK)
    }
}

/// How much of a key is shown: what kind it is, and its last four, as in Stripe's dashboard. Of what may be no key, or is too
/// short for it, less.
fn told(key: &str) -> String {
    const KINDS: [&str; 4] = ["sk_test_", "rk_test_", "sk_live_", "rk_live_"];
    const HIDDEN: usize = 4;
    let Some((kind, rest)) = KINDS
        .iter()
        .find_map(|kind| Some((kind, key.strip_prefix(kind)?)))
    else {
        return MASK.to_owned();
    };
    let last = match rest.char_indices().rev().nth(3) {
        Some((at, _)) if at >= HIDDEN => &rest[at..],
        Some(_) | None => "",
    };
    format!("{kind}…{last}")
}

#[expect(clippy::ref_option, reason = "the signature is serde's")]
pub(super) fn show_key<S: Serializer>(
    key: &Option<Secret>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    key.as_ref()
        .map(|key| told(key.reveal()))
        .serialize(serializer)
}

pub(super) fn secret<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Secret>, D::Error> {
    let text = String::deserialize(value)?;
    Ok((!text.is_empty()).then_some(Secret(text)))
}

/// A list of secrets, or one text with commas. Serde's own error would quote a text where a list is due.
pub(super) fn secrets<'de, D: Deserializer<'de>>(value: D) -> Result<Vec<Secret>, D::Error> {
    struct List;

    impl<'de> Visitor<'de> for List {
        type Value = Vec<Secret>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list of texts")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
            Ok(split(text).map(Secret::new).collect())
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
            let mut secrets = Vec::new();
            while let Some(text) = list.next_element::<String>()? {
                secrets.push(Secret(text));
            }
            Ok(secrets)
        }
    }

    value.deserialize_any(List)
}

/// The entries of a list in one text.
pub(super) fn split(text: &str) -> impl Iterator<Item = &str> {
    text.split(',')
        .map(str::trim)
        .filter(|entry| !entry.is_empty())
}

/// An address of a database. Shown without its password and parameters.
#[derive(Clone)]
pub struct DatabaseUrl(PgConnectOptions);

impl DatabaseUrl {
    pub fn options(&self) -> &PgConnectOptions {
        &self.0
    }
}

impl FromStr for DatabaseUrl {
    type Err = InvalidDatabaseUrl;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let known = text.starts_with("postgres://") || text.starts_with("postgresql://");
        if !known {
            return Err(InvalidDatabaseUrl);
        }
        text.parse().map(Self).map_err(|_| InvalidDatabaseUrl)
    }
}

/// Says nothing about the text, which may hold a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not an address of Postgres: postgres://user:password@host:port/database, the password percent-encoded"
)]
pub struct InvalidDatabaseUrl;

impl fmt::Display for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (user, host, port) = (self.0.get_username(), self.0.get_host(), self.0.get_port());
        write!(f, "postgres://{user}@{host}:{port}")?;
        match self.0.get_database() {
            Some(database) => write!(f, "/{database}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for DatabaseUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

pub(super) fn database_url<'de, D: Deserializer<'de>>(
    value: D,
) -> Result<Option<DatabaseUrl>, D::Error> {
    let text = String::deserialize(value)?;
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(de::Error::custom)
}

/// An address to listen on, or `off`.
pub(super) fn listener<'de, D: Deserializer<'de>>(
    value: D,
) -> Result<Option<SocketAddr>, D::Error> {
    let text = String::deserialize(value)?;
    if text.is_empty() || text == "off" {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| {
        de::Error::custom(format_args!(
            "`{text}` is neither an address with a port nor off"
        ))
    })
}

/// How many calls a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallRate {
    /// What the provider is known to take.
    Auto,
    /// 0 for no bound.
    PerSecond(u32),
}

impl<'de> Deserialize<'de> for CallRate {
    fn deserialize<D: Deserializer<'de>>(value: D) -> Result<Self, D::Error> {
        struct Rate;

        impl Visitor<'_> for Rate {
            type Value = CallRate;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("auto or a number of calls, 0 for no bound")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<CallRate, E> {
                if text == "auto" {
                    return Ok(CallRate::Auto);
                }
                text.parse()
                    .map(CallRate::PerSecond)
                    .map_err(|_| E::invalid_value(de::Unexpected::Str(text), &self))
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<CallRate, E> {
                u32::try_from(number)
                    .map(CallRate::PerSecond)
                    .map_err(|_| E::invalid_value(de::Unexpected::Signed(number), &self))
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<CallRate, E> {
                u32::try_from(number)
                    .map(CallRate::PerSecond)
                    .map_err(|_| E::invalid_value(de::Unexpected::Unsigned(number), &self))
            }
        }

        value.deserialize_any(Rate)
    }
}

impl Serialize for CallRate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => serializer.serialize_str("auto"),
            Self::PerSecond(calls) => serializer.serialize_u32(*calls),
        }
    }
}

/// Durations with their unit.
pub(super) mod span {
    use std::time::Duration;

    use serde::de::{self, Deserializer};
    use serde::{Deserialize, Serializer};

    pub(in crate::config) fn deserialize<'de, D: Deserializer<'de>>(
        value: D,
    ) -> Result<Duration, D::Error> {
        let text = String::deserialize(value)?;
        humantime::parse_duration(&text).map_err(|_| {
            de::Error::custom(format_args!(
                "`{text}` is not a duration: write it with its unit, as in 250ms, 30s, 5m or 24h"
            ))
        })
    }

    pub(in crate::config) fn serialize<S: Serializer>(
        span: &Duration,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&show(*span))
    }

    /// In the largest unit that shows it whole.
    pub(in crate::config) fn show(span: Duration) -> String {
        let milliseconds = span.as_millis();
        if !span.subsec_nanos().is_multiple_of(1_000_000) {
            return humantime::format_duration(span)
                .to_string()
                .replace(' ', "");
        }
        for (unit, size) in [("h", 3_600_000), ("m", 60_000), ("s", 1000)] {
            if milliseconds >= size && milliseconds.is_multiple_of(size) {
                return format!("{}{unit}", milliseconds / size);
            }
        }
        if milliseconds == 0 {
            "0s".to_owned()
        } else {
            format!("{milliseconds}ms")
        }
    }
}

/// Lists of durations, each with its unit.
pub(super) mod spans {
    use std::time::Duration;

    use serde::de::{self, Deserializer};
    use serde::{Deserialize, Serializer};

    pub(in crate::config) fn deserialize<'de, D: Deserializer<'de>>(
        value: D,
    ) -> Result<Vec<Duration>, D::Error> {
        let texts = Vec::<String>::deserialize(value)?;
        texts
            .iter()
            .map(|text| {
                humantime::parse_duration(text).map_err(|_| {
                    de::Error::custom(format_args!(
                        "`{text}` is not a duration: write it with its unit, as in 5s, 5m or 24h"
                    ))
                })
            })
            .collect()
    }

    pub(in crate::config) fn serialize<S: Serializer>(
        spans: &[Duration],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(spans.iter().map(|span| super::span::show(*span)))
    }
}

/// `test` or `live`.
pub(super) mod mode {
    use serde::de::{self, Deserializer};
    use serde::{Deserialize, Serializer};

    use crate::domain::api_key::Mode;

    pub(in crate::config) fn deserialize<'de, D: Deserializer<'de>>(
        value: D,
    ) -> Result<Mode, D::Error> {
        let word = String::deserialize(value)?;
        Mode::parse(&word)
            .ok_or_else(|| de::Error::custom(format_args!("`{word}` is neither test nor live")))
    }

    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "the signature is serde's"
    )]
    pub(in crate::config) fn serialize<S: Serializer>(
        mode: &Mode,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(mode.as_str())
    }
}
