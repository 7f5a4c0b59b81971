//! The last requests received, for tests that ask what went over the wire.

use std::collections::VecDeque;

use axum::http::HeaderMap;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

const KEPT: usize = 10_000;

#[derive(Debug, Default)]
pub(super) struct Requests {
    entries: VecDeque<Entry>,
    /// The number of the oldest entry.
    first: u64,
}

#[derive(Debug)]
struct Entry {
    method: Box<str>,
    path: Box<str>,
    /// `name: value` lines, copied: slices of the connection's buffer would keep all of it alive.
    headers: Box<str>,
    body: Box<str>,
    outcome: Outcome,
    at_ms: i64,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Outcome {
    /// Neither answered nor dropped yet.
    Open,
    Answered(u16),
    Dropped,
}

impl Serialize for Outcome {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Open => serializer.serialize_none(),
            Self::Answered(status) => serializer.serialize_u16(*status),
            Self::Dropped => serializer.serialize_str("dropped"),
        }
    }
}

impl Requests {
    /// Answers the number under which [`Requests::close`] finds it again.
    pub(super) fn open(
        &mut self,
        method: &str,
        path: &str,
        headers: &HeaderMap,
        body: &[u8],
        at_ms: i64,
    ) -> u64 {
        if self.entries.len() == KEPT {
            self.entries.pop_front();
            self.first += 1;
        }
        let mut lines = String::with_capacity(256);
        for (name, value) in headers {
            lines.push_str(name.as_str());
            lines.push_str(": ");
            lines.push_str(&String::from_utf8_lossy(value.as_bytes()));
            lines.push('\n');
        }
        self.entries.push_back(Entry {
            method: method.into(),
            path: path.into(),
            headers: lines.into(),
            body: String::from_utf8_lossy(body).into(),
            outcome: Outcome::Open,
            at_ms,
        });
        self.first + self.entries.len() as u64 - 1
    }

    /// The numbers go on, so that a request still open does not close one of those to come.
    pub(super) fn clear(&mut self) {
        self.first += self.entries.len() as u64;
        self.entries.clear();
    }

    pub(super) fn close(&mut self, number: u64, outcome: Outcome) {
        let index = number
            .checked_sub(self.first)
            .and_then(|index| usize::try_from(index).ok());
        if let Some(entry) = index.and_then(|index| self.entries.get_mut(index)) {
            entry.outcome = outcome;
        }
    }

    pub(super) fn to_json(&self) -> Vec<Value> {
        self.entries
            .iter()
            .map(|entry| {
                let mut headers = Map::new();
                for (name, value) in entry
                    .headers
                    .lines()
                    .filter_map(|line| line.split_once(": "))
                {
                    match headers.get_mut(name) {
                        Some(Value::String(earlier)) => {
                            earlier.push_str(", ");
                            earlier.push_str(value);
                        }
                        _ => {
                            headers.insert(name.to_owned(), value.into());
                        }
                    }
                }
                serde_json::json!({
                    "method": entry.method,
                    "path": entry.path,
                    "headers": headers,
                    "body": entry.body,
                    "status": entry.outcome,
                    "at": super::controls::rfc3339(entry.at_ms),
                })
            })
            .collect()
    }
}
