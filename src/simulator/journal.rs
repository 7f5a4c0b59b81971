//! The simulator's memory on disk: one JSON object a line, appended with one write(2) before the effect is answered.
//!
//! What was answered survives a kill of the process (not of the machine: nothing is synced). A torn last line was never
//! answered and is left out. At start the file is rewritten without what later lines superseded.

use std::borrow::Cow;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::keys::{First, Kept};
use super::model::{Answer, ApiError, Fixed, Moving, Snapshot};
use super::refunds::Refund;
use super::state::{Account, EventKind, Owner, State};

const FILE: &str = "simulator.jsonl";

#[derive(Debug, thiserror::Error)]
pub(super) enum JournalError {
    #[error("{path}")]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("line {line} of {path} cannot be read")]
    Line { path: PathBuf, line: usize },
}

#[derive(Debug)]
pub(super) struct Journal {
    file: File,
    buffer: Vec<u8>,
}

/// What one effect changed.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Record<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) owner: Option<Owner>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) intent: Option<IntentRecord<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) refund: Option<Cow<'a, Refund>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) events: Vec<EventRecord<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) key: Option<KeyRecord<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) spent: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) forget_keys: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) forget_refund_keys: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) offset_s: Option<i64>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct IntentRecord<'a> {
    pub(super) seq: u64,
    pub(super) created_ms: i64,
    pub(super) changed_ms: i64,
    pub(super) fixed: Cow<'a, Fixed>,
    pub(super) now: Cow<'a, Moving>,
}

impl<'a> IntentRecord<'a> {
    pub(super) fn new(seq: u64, snapshot: &'a Snapshot, created_ms: i64, changed_ms: i64) -> Self {
        Self {
            seq,
            created_ms,
            changed_ms,
            fixed: Cow::Borrowed(&snapshot.fixed),
            now: Cow::Borrowed(&snapshot.now),
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct EventRecord<'a> {
    pub(super) kind: EventKind,
    pub(super) at: i64,
    pub(super) intent: Cow<'a, str>,
    pub(super) now: Cow<'a, Moving>,
    pub(super) key: Option<Cow<'a, str>>,
    pub(super) request: Option<Cow<'a, str>>,
}

impl<'a> EventRecord<'a> {
    pub(super) fn new(
        kind: EventKind,
        at: i64,
        snapshot: &'a Snapshot,
        key: Option<&'a str>,
        request: Option<&'a str>,
    ) -> Self {
        Self {
            kind,
            at,
            intent: Cow::Borrowed(&snapshot.fixed.id),
            now: Cow::Borrowed(&snapshot.now),
            key: key.map(Into::into),
            request: request.map(Into::into),
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct KeyRecord<'a> {
    pub(super) key: Cow<'a, str>,
    pub(super) at: i64,
    fingerprint: [u8; 16],
    // Neither was kept at first.
    #[serde(default)]
    request: Cow<'a, str>,
    #[serde(default)]
    path: Cow<'a, str>,
    status: u16,
    intent: Option<(Cow<'a, str>, Cow<'a, Moving>)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    refund: Option<Cow<'a, Refund>>,
    error: Option<Cow<'a, ApiError>>,
}

impl<'a> KeyRecord<'a> {
    pub(super) fn new(key: &'a str, at: i64, first: &'a First, answer: &'a Answer) -> Self {
        let intent = answer.intent.as_ref();
        Self {
            key: key.into(),
            at,
            fingerprint: first.fingerprint,
            request: Cow::Borrowed(&*first.request),
            path: Cow::Borrowed(&*first.path),
            status: answer.status,
            intent: intent.map(|intent| {
                (
                    Cow::Borrowed(&*intent.fixed.id),
                    Cow::Borrowed(&*intent.now),
                )
            }),
            refund: answer.refund.as_ref().map(Cow::Borrowed),
            error: answer.error.as_ref().map(Cow::Borrowed),
        }
    }

    /// None when the object that was answered is not in the account.
    pub(super) fn answer(&self, account: &Account) -> Option<(First, Answer)> {
        let intent = match &self.intent {
            None => None,
            Some((id, now)) => {
                let fixed = account.snapshot(id)?.fixed.clone();
                Some(Snapshot {
                    fixed,
                    now: now.clone().into_owned().into(),
                })
            }
        };
        let error = self.error.clone().map(Cow::into_owned);
        let first = First {
            request: (*self.request).into(),
            path: (*self.path).into(),
            fingerprint: self.fingerprint,
        };
        Some((
            first,
            Answer {
                status: self.status,
                intent,
                refund: self.refund.clone().map(Cow::into_owned),
                error,
            },
        ))
    }
}

impl Journal {
    /// Reads what the directory holds into `state`, rewrites it compactly and goes on from there.
    pub(super) fn open(directory: &Path, state: &mut State) -> Result<Self, JournalError> {
        let path = directory.join(FILE);
        let at = |source| JournalError::Io {
            path: path.clone(),
            source,
        };
        fs::create_dir_all(directory).map_err(at)?;
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(at(error)),
        };
        for (index, line) in bytes.split_inclusive(|&byte| byte == b'\n').enumerate() {
            // Torn: the process died while writing it, so nobody was answered.
            let Some(line) = line.strip_suffix(b"\n") else {
                break;
            };
            let record = serde_json::from_slice(line).ok();
            record
                .and_then(|record| state.replay(record))
                .ok_or_else(|| JournalError::Line {
                    path: path.clone(),
                    line: index + 1,
                })?;
        }
        let draft = directory.join(format!("{FILE}.new"));
        let mut compact = io::BufWriter::new(File::create(&draft).map_err(at)?);
        write_all(state, &mut compact).map_err(at)?;
        compact.flush().map_err(at)?;
        fs::rename(&draft, &path).map_err(at)?;
        let file = OpenOptions::new().append(true).open(&path).map_err(at)?;
        Ok(Self {
            file,
            buffer: Vec::new(),
        })
    }

    pub(super) fn append(&mut self, record: &Record<'_>) -> io::Result<()> {
        self.buffer.clear();
        serde_json::to_writer(&mut self.buffer, record)?;
        self.buffer.push(b'\n');
        self.file.write_all(&self.buffer)
    }

    pub(super) fn clear(&mut self) -> io::Result<()> {
        self.file.set_len(0)
    }
}

fn write_all(state: &State, out: &mut impl Write) -> io::Result<()> {
    let mut line = |record: &Record<'_>| -> io::Result<()> {
        serde_json::to_writer(&mut *out, record)?;
        out.write_all(b"\n")
    };
    line(&Record {
        offset_s: Some(state.offset_s),
        ..Record::default()
    })?;
    for account in state.accounts.values() {
        let of_owner = || Record {
            owner: Some(account.owner.clone()),
            ..Record::default()
        };
        for intent in &account.intents {
            let intent = IntentRecord::new(
                intent.seq,
                &intent.snapshot,
                intent.created_ms,
                intent.changed_ms,
            );
            line(&Record {
                intent: Some(intent),
                ..of_owner()
            })?;
        }
        let refunds = account.refunds.iter().map(|refund| Record {
            refund: Some(Cow::Borrowed(refund)),
            ..of_owner()
        });
        refunds.into_iter().try_for_each(|record| line(&record))?;
        for event in &account.events {
            let Some(intent) = account.intents.get(event.intent) else {
                continue;
            };
            let then = Snapshot {
                fixed: intent.snapshot.fixed.clone(),
                now: event.now.clone(),
            };
            let event = EventRecord::new(
                event.kind,
                event.at,
                &then,
                event.key.as_deref(),
                event.request.as_deref(),
            );
            line(&Record {
                events: vec![event],
                ..of_owner()
            })?;
        }
        for Kept {
            key,
            at,
            first,
            answer,
        } in account.keys.kept()
        {
            line(&Record {
                key: Some(KeyRecord::new(key, at, first, answer)),
                ..of_owner()
            })?;
        }
        for what in &account.spent {
            line(&Record {
                spent: Some(Cow::Borrowed(what)),
                ..of_owner()
            })?;
        }
    }
    Ok(())
}
