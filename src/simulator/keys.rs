//! One account's idempotency keys.
//!
//! The first answer under a key is kept and replayed until the window is over; a key is never executed twice within
//! it, save when `forget` was called, for refunds or for all else. What is kept is pruned as time goes on, so memory is bounded by one window.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::model::Answer;

#[derive(Debug, Default)]
pub(super) struct Keys {
    entries: HashMap<Arc<str>, Entry>,
    /// Oldest first: when each entry was made, and which.
    order: VecDeque<(i64, Arc<str>, u64)>,
    next_ticket: u64,
    /// Answers of earlier tickets are as good as gone: of all but refunds, and of refunds.
    forgotten_before: [u64; 2],
}

#[derive(Debug)]
struct Entry {
    ticket: u64,
    at: i64,
    first: First,
    /// Still executing, or executed and not answered yet.
    busy: bool,
    answer: Option<Answer>,
}

/// The request that a key stands for.
#[derive(Debug, Clone)]
pub(super) struct First {
    /// Its own id.
    pub(super) request: Box<str>,
    pub(super) path: Box<str>,
    /// Of method, path and parameters.
    pub(super) fingerprint: [u8; 16],
}

/// What a key answers again.
#[derive(Debug, Clone)]
pub(super) struct Replay {
    pub(super) answer: Answer,
    /// The id of the request that was answered so first.
    pub(super) original: Box<str>,
}

#[derive(Debug)]
pub(super) enum Claim {
    /// Nobody had it: execute, then [`Keys::keep`] or [`Keys::release`].
    Ours(u64),
    Replay(Replay),
    InUse,
    /// It stands for a request at this path.
    OtherPath(Box<str>),
    OtherParameters,
}

/// One kept answer, for the journal.
pub(super) struct Kept<'a> {
    pub(super) key: &'a Arc<str>,
    pub(super) at: i64,
    pub(super) first: &'a First,
    pub(super) answer: &'a Answer,
}

impl Keys {
    pub(super) fn claim(&mut self, key: &str, request: First, now: i64, window_s: i64) -> Claim {
        self.prune(now, window_s);
        if let Some(entry) = self.entries.get(key) {
            let over = now - entry.at >= window_s || self.forgot(entry);
            if entry.busy || !over {
                if entry.first.fingerprint != request.fingerprint {
                    return if entry.first.path == request.path {
                        Claim::OtherParameters
                    } else {
                        Claim::OtherPath(entry.first.path.clone())
                    };
                }
                return match &entry.answer {
                    Some(answer) if !entry.busy => Claim::Replay(Replay {
                        answer: answer.clone(),
                        original: entry.first.request.clone(),
                    }),
                    _ => Claim::InUse,
                };
            }
        }
        Claim::Ours(self.insert(key.into(), request, now, None))
    }

    /// Keeps the first answer. `busy` leaves the key in use until [`Keys::settle`].
    pub(super) fn keep(&mut self, key: &str, ticket: u64, answer: Answer, busy: bool) {
        if let Some(entry) = self
            .entries
            .get_mut(key)
            .filter(|entry| entry.ticket == ticket)
        {
            entry.answer = Some(answer);
            entry.busy = busy;
        }
    }

    pub(super) fn settle(&mut self, key: &str, ticket: u64) {
        if let Some(entry) = self
            .entries
            .get_mut(key)
            .filter(|entry| entry.ticket == ticket)
        {
            entry.busy = false;
        }
    }

    /// Nothing was executed, or nothing is to be remembered: the key is free again.
    pub(super) fn release(&mut self, key: &str, ticket: u64) {
        if self
            .entries
            .get(key)
            .is_some_and(|entry| entry.ticket == ticket)
        {
            self.entries.remove(key);
        }
    }

    pub(super) fn restore(&mut self, key: Arc<str>, first: First, at: i64, answer: Answer) {
        self.insert(key, first, at, Some(answer));
    }

    /// Forgets the keys of all requests about refunds, or of all others.
    pub(super) fn forget(&mut self, of_refunds: bool) {
        self.forgotten_before[usize::from(of_refunds)] = self.next_ticket;
    }

    fn forgot(&self, entry: &Entry) -> bool {
        let of_refunds = entry.first.path.starts_with("/v1/refunds");
        entry.ticket < self.forgotten_before[usize::from(of_refunds)]
    }

    pub(super) fn kept(&self) -> impl Iterator<Item = Kept<'_>> {
        self.order.iter().filter_map(|(at, key, ticket)| {
            let entry = self
                .entries
                .get(key)
                .filter(|entry| entry.ticket == *ticket && !self.forgot(entry))?;
            Some(Kept {
                key,
                at: *at,
                first: &entry.first,
                answer: entry.answer.as_ref()?,
            })
        })
    }

    fn insert(&mut self, key: Arc<str>, first: First, at: i64, answer: Option<Answer>) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.order.push_back((at, Arc::clone(&key), ticket));
        let busy = answer.is_none();
        self.entries.insert(
            key,
            Entry {
                ticket,
                at,
                first,
                busy,
                answer,
            },
        );
        ticket
    }

    fn prune(&mut self, now: i64, window_s: i64) {
        while let Some((at, key, ticket)) = self.order.front() {
            match self.entries.get(key) {
                // Superseded or released: only its place in the order is left.
                None => {}
                Some(entry) if entry.ticket != *ticket => {}
                Some(entry) if now - at >= window_s && !entry.busy => {
                    self.entries.remove(key);
                }
                Some(_) => return,
            }
            self.order.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::ApiError;
    use super::*;

    fn asked(request: &str, path: &str, fingerprint: u8) -> First {
        First {
            request: request.into(),
            path: path.into(),
            fingerprint: [fingerprint; 16],
        }
    }

    fn same() -> First {
        asked("req_2", "/a", 1)
    }

    fn kept() -> Keys {
        let mut keys = Keys::default();
        let Claim::Ours(ticket) = keys.claim("k", asked("req_1", "/a", 1), 0, 100) else {
            panic!("a fresh key is ours")
        };
        assert!(matches!(keys.claim("k", same(), 0, 100), Claim::InUse));
        keys.keep(
            "k",
            ticket,
            Answer::error(402, ApiError::invalid("no")),
            false,
        );
        keys
    }

    #[test]
    fn the_first_answer_is_replayed_until_the_window_is_over() {
        let mut keys = kept();
        for _ in 0..2 {
            let Claim::Replay(replay) = keys.claim("k", same(), 99, 100) else {
                panic!("a kept answer is replayed")
            };
            assert_eq!(
                (replay.answer.status, &*replay.original),
                (402, "req_1"),
                "a replay does not become the original"
            );
        }
        assert!(matches!(keys.claim("k", same(), 100, 100), Claim::Ours(_)));
        assert_eq!(keys.entries.len(), 1);
        assert_eq!(keys.order.len(), 1);
    }

    #[test]
    fn another_request_under_the_key_is_refused() {
        assert!(matches!(
            kept().claim("k", asked("req_2", "/a", 2), 1, 100),
            Claim::OtherParameters
        ));
        assert!(matches!(
            kept().claim("k", asked("req_2", "/b", 2), 1, 100),
            Claim::OtherPath(path) if &*path == "/a"
        ));
    }

    #[test]
    fn a_released_or_forgotten_key_is_free() {
        let mut keys = kept();
        keys.forget(true);
        assert!(matches!(keys.claim("k", same(), 1, 100), Claim::Replay(_)));
        keys.forget(false);
        let Claim::Ours(ticket) = keys.claim("k", asked("req_2", "/b", 2), 1, 100) else {
            panic!("forgotten")
        };
        keys.release("k", ticket);
        assert!(matches!(keys.claim("k", same(), 1, 100), Claim::Ours(_)));
    }
}
