//! Who asks: a Bearer token, known by its SHA-256.
//!
//! The database is asked about a key at most once a second, and a key is never trusted on knowledge older than two
//! seconds: up to 1 s old is served as it is, up to 2 s while one task asks again, older is asked for by one caller while
//! the others wait. A malformed token never reaches the database, and only so many unknown ones a second do. If the database
//! can't be asked, nobody is let in.
//!
//! A token is never compared with one: it is looked up by its SHA-256, here and in the database. What such a search takes
//! may tell how much of some stored hash is like the hash of what was sent; nobody can send what has a hash of his choice,
//! and from a hash nobody gets to the 178 random bits of its token. So a comparison in constant time would add nothing.
//!
//! Here is also where a merchant's requests are counted against its limit: whoever is let in has taken one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::http::{HeaderMap, header};
use tokio::time::Instant;

use super::HttpParts;
use super::code::Code;
use super::problem::ApiError;
use super::rate_limit::{RateLimit, Strangers};
use crate::db::DbError;
use crate::db::api_keys::{self, Holder};
use crate::db::pool::Pool;
use crate::domain::api_key::{ApiKey, Mode, Scope, TokenHash};

/// Whom a request speaks for.
pub(super) type Principal = Holder;

/// How old knowledge may be to be served without asking.
const FRESH: Duration = Duration::from_secs(1);
/// How old knowledge may be to be served at all: a revoked key is refused within two seconds.
const USABLE: Duration = Duration::from_secs(2);
/// How many keys are remembered, known and unknown ones apart, so that a flood of made-up keys pushes out no real one.
const MOST_REMEMBERED: usize = 10_000;
/// How many keys are asked for at once: what is left of the pool serves reads.
const LANES: usize = 8;

pub(super) struct Authenticator(Arc<Inner>);

struct Inner {
    pool: Pool,
    mode: Mode,
    dev: bool,
    wait: Duration,
    known: Mutex<HashMap<TokenHash, Known>>,
    unknown: Mutex<HashMap<TokenHash, Instant>>,
    strangers: Strangers,
    limit: Option<RateLimit>,
    lanes: [tokio::sync::Mutex<()>; LANES],
}

struct Known {
    holder: Holder,
    /// When the database was asked.
    asked_at: Instant,
    /// When a task was sent to ask again.
    refreshing_since: Option<Instant>,
}

/// What the memory says about a key.
enum Memory {
    Holder {
        holder: Holder,
        refresh: bool,
    },
    Unknown,
    /// Too little to go by, of a key that somebody had once.
    Stale,
    Nothing,
}

impl Authenticator {
    pub(super) fn new(parts: &HttpParts) -> Self {
        Self(Arc::new(Inner {
            pool: parts.pool.clone(),
            mode: if parts.live { Mode::Live } else { Mode::Test },
            dev: parts.dev,
            wait: parts.limits.database_wait,
            known: Mutex::default(),
            unknown: Mutex::default(),
            strangers: Strangers::new(parts.limits.unknown_keys),
            limit: parts.limits.request_rate.map(RateLimit::new),
            lanes: Default::default(),
        }))
    }

    /// Who asks, if they may change something; `refusal` says what takes a key with the scope write.
    pub(super) async fn writer(
        &self,
        headers: &HeaderMap,
        refusal: &'static str,
    ) -> Result<Principal, ApiError> {
        let principal = self.authenticate(headers).await?;
        match principal.scope {
            Scope::Write => Ok(principal),
            Scope::Read => Err(ApiError::new(Code::Forbidden, refusal)),
        }
    }

    pub(super) async fn authenticate(&self, headers: &HeaderMap) -> Result<Principal, ApiError> {
        let hash = self.0.read_token(headers)?;
        let holder = match self.0.remember(hash, Instant::now()) {
            Memory::Holder { holder, refresh } => {
                if refresh {
                    let inner = Arc::clone(&self.0);
                    tokio::spawn(async move { inner.refresh(hash).await });
                }
                Some(holder)
            }
            Memory::Unknown => None,
            Memory::Stale | Memory::Nothing => self.0.ask_once(hash).await?,
        };
        let holder = holder.ok_or_else(|| refused("the API key is unknown or revoked"))?;
        if holder.mode != self.0.mode {
            return Err(self.0.other_mode(holder.mode));
        }
        if let Some(limit) = &self.0.limit {
            limit.check(holder.merchant).map_err(|wait| {
                let detail = "more requests than the merchant's limit allows; nothing was stored, send the same request again";
                ApiError::new(Code::RateLimited, detail).with_retry_after(wait)
            })?;
        }
        Ok(holder)
    }
}

#[cfg(test)]
impl Authenticator {
    /// Knows a key as if the database had just been asked.
    pub(super) fn trust(&self, key: &ApiKey<'_>, holder: Option<Holder>) {
        self.0.learn(key.hash(), holder, Instant::now());
    }
}

impl Inner {
    /// The hash of a well-formed token of our mode.
    fn read_token(&self, headers: &HeaderMap) -> Result<TokenHash, ApiError> {
        let mut lines = headers.get_all(header::AUTHORIZATION).iter();
        let Some(line) = lines.next() else {
            return Err(refused(
                "send the header Authorization: Bearer and an API key",
            ));
        };
        if lines.next().is_some() {
            return Err(refused("send exactly one Authorization header"));
        }
        let token = line
            .to_str()
            .ok()
            .and_then(|line| line.split_once(' '))
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
            .map(|(_, token)| token.trim_matches(' '));
        let Some(token) = token else {
            return Err(refused(
                "the Authorization header must be Bearer and an API key",
            ));
        };
        let Some(key) = ApiKey::parse(token, self.dev) else {
            return Err(refused(
                "the API key is not one of this service's: its shape or its check is wrong",
            ));
        };
        if key.mode() != self.mode {
            return Err(self.other_mode(key.mode()));
        }
        Ok(key.hash())
    }

    fn other_mode(&self, given: Mode) -> ApiError {
        let (given, ours) = (given.as_str(), self.mode.as_str());
        refused(format!(
            "this is a {given} key and the service runs in {ours} mode"
        ))
    }

    fn remember(&self, hash: TokenHash, now: Instant) -> Memory {
        if let Some(known) = lock(&self.known).get_mut(&hash) {
            let age = now.saturating_duration_since(known.asked_at);
            if age < FRESH {
                return Memory::Holder {
                    holder: known.holder.clone(),
                    refresh: false,
                };
            }
            if age < USABLE {
                let refresh = known.refreshing_since.is_none();
                known.refreshing_since = known.refreshing_since.or(Some(now));
                return Memory::Holder {
                    holder: known.holder.clone(),
                    refresh,
                };
            }
            return Memory::Stale;
        }
        let asked_at = lock(&self.unknown).get(&hash).copied();
        match asked_at {
            Some(at) if now.saturating_duration_since(at) < FRESH => Memory::Unknown,
            Some(_) | None => Memory::Nothing,
        }
    }

    /// Asks the database, one caller a key at a time; who waited finds what the first one learned.
    async fn ask_once(&self, hash: TokenHash) -> Result<Option<Holder>, ApiError> {
        let asked = tokio::time::timeout(self.wait, async {
            let _lane = self.lanes[usize::from(hash.0[0]) % LANES].lock().await;
            match self.remember(hash, Instant::now()) {
                Memory::Holder { holder, .. } => Ok(Some(holder)),
                Memory::Unknown => Ok(None),
                Memory::Stale => self.ask(hash).await.map_err(ApiError::database),
                Memory::Nothing => {
                    self.strangers.may_ask(Instant::now()).map_err(|wait| {
                        let detail = "too many unknown API keys at once, and this one was not seen lately; nothing was stored";
                        ApiError::new(Code::RateLimited, detail).with_retry_after(wait)
                    })?;
                    let holder = self.ask(hash).await.map_err(ApiError::database)?;
                    if holder.is_none() {
                        self.strangers.met(Instant::now());
                    }
                    Ok(holder)
                }
            }
        })
        .await;
        asked.unwrap_or_else(|_| Err(ApiError::unavailable()))
    }

    async fn refresh(&self, hash: TokenHash) {
        let asked = tokio::time::timeout(self.wait, self.ask(hash)).await;
        // Not learned: what is known grows too old by itself, and the next caller asks and hears why.
        if !matches!(asked, Ok(Ok(_)))
            && let Some(known) = lock(&self.known).get_mut(&hash)
        {
            known.refreshing_since = None;
        }
    }

    async fn ask(&self, hash: TokenHash) -> Result<Option<Holder>, DbError> {
        // Before the question: an answer is at least as new as this.
        let asked_at = Instant::now();
        let holder = self
            .pool
            .ask(async |connection| api_keys::find_holder(connection, hash).await)
            .await?;
        self.learn(hash, holder.clone(), asked_at);
        Ok(holder)
    }

    fn learn(&self, hash: TokenHash, holder: Option<Holder>, asked_at: Instant) {
        let mut known = lock(&self.known);
        if let Some(holder) = holder {
            lock(&self.unknown).remove(&hash);
            make_room(&mut known, |known| known.asked_at, asked_at);
            let refreshing_since = None;
            known.insert(
                hash,
                Known {
                    holder,
                    asked_at,
                    refreshing_since,
                },
            );
        } else {
            known.remove(&hash);
            let mut unknown = lock(&self.unknown);
            make_room(&mut unknown, |asked_at| *asked_at, asked_at);
            unknown.insert(hash, asked_at);
        }
    }
}

/// Keeps a memory bounded: forgets what is too old to use, and everything if that is not enough.
fn make_room<V>(
    memory: &mut HashMap<TokenHash, V>,
    asked_at: impl Fn(&V) -> Instant,
    now: Instant,
) {
    if memory.len() < MOST_REMEMBERED {
        return;
    }
    memory.retain(|_, value| now.saturating_duration_since(asked_at(value)) < USABLE);
    if memory.len() >= MOST_REMEMBERED {
        memory.clear();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn refused(detail: impl Into<std::borrow::Cow<'static, str>>) -> ApiError {
    ApiError::new(Code::Unauthenticated, detail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::api_key::Scope;
    use crate::domain::ids::MerchantId;
    use crate::http::tests::nowhere;

    const HOLDER: Holder = Holder {
        merchant: MerchantId::from_uuid(uuid::Uuid::from_u128(7)),
        account: None,
        scope: Scope::Write,
        mode: Mode::Test,
    };

    fn inner() -> Inner {
        Inner {
            pool: Pool::new(1, Duration::from_millis(50), nowhere),
            mode: Mode::Test,
            dev: false,
            wait: Duration::from_millis(50),
            known: Mutex::default(),
            unknown: Mutex::default(),
            strangers: Strangers::new(std::num::NonZeroU32::MIN),
            limit: None,
            lanes: Default::default(),
        }
    }

    fn hash(n: u32) -> TokenHash {
        let mut hash = [0; 32];
        hash[..4].copy_from_slice(&n.to_be_bytes());
        TokenHash(hash)
    }

    #[tokio::test]
    async fn knowledge_is_served_for_a_second_refreshed_once_in_the_next_and_then_dropped() {
        let inner = inner();
        let start = Instant::now();
        let after = |millis| inner.remember(hash(1), start + Duration::from_millis(millis));
        assert!(matches!(after(0), Memory::Nothing));
        inner.learn(hash(1), Some(HOLDER), start);
        let refreshes = |memory| match memory {
            Memory::Holder { holder, refresh } => {
                assert_eq!(holder, HOLDER);
                refresh
            }
            Memory::Unknown | Memory::Stale | Memory::Nothing => panic!("known"),
        };
        assert!(!refreshes(after(999)));
        assert!(refreshes(after(1000)));
        assert!(!refreshes(after(1999)));
        assert!(matches!(after(2000), Memory::Stale));
    }

    #[tokio::test]
    async fn a_revoked_key_is_unknown_at_once_and_an_unknown_one_is_asked_for_again_after_a_second()
    {
        let inner = inner();
        let start = Instant::now();
        inner.learn(hash(1), Some(HOLDER), start);
        inner.learn(hash(1), None, start);
        let after = |millis| inner.remember(hash(1), start + Duration::from_millis(millis));
        assert!(matches!(after(999), Memory::Unknown));
        assert!(matches!(after(1000), Memory::Nothing));
    }

    #[tokio::test]
    async fn a_failed_refresh_may_be_tried_again_and_lets_nobody_in_for_longer() {
        let inner = inner();
        let start = Instant::now();
        inner.learn(hash(1), Some(HOLDER), start);
        let after = |millis| inner.remember(hash(1), start + Duration::from_millis(millis));
        assert!(matches!(after(1000), Memory::Holder { refresh: true, .. }));
        inner.refresh(hash(1)).await;
        assert!(matches!(after(1500), Memory::Holder { refresh: true, .. }));
        assert!(matches!(after(2000), Memory::Stale));
    }

    #[tokio::test]
    async fn a_flood_of_made_up_keys_pushes_out_no_real_one() {
        let inner = inner();
        let now = Instant::now();
        inner.learn(hash(0), Some(HOLDER), now);
        for n in 1..=25_000 {
            inner.learn(hash(n), None, now);
        }
        assert!(lock(&inner.unknown).len() <= MOST_REMEMBERED);
        assert!(matches!(
            inner.remember(hash(0), now),
            Memory::Holder { .. }
        ));
    }
}
