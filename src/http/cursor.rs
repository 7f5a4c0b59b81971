//! Where a page of a list ended: opaque to the client, checked when it comes back.
//!
//! It names the last charge that was shown by its place in the list, which never changes, so charges that come in between
//! shift nothing. It is bound to the merchant and the filters. The check guards against mistakes, not against forgery:
//! whoever makes one up sees their own charges from another place on.

use std::borrow::Cow;

use sha2::{Digest, Sha256};
use time::OffsetDateTime;
use uuid::Uuid;

use super::charge_list::{EARLIEST, LATEST};
use crate::domain::ids::MerchantId;

/// What a list is of, in short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ListMark([u8; 8]);

impl ListMark {
    /// `filters` has every filter by its name, always in one order. A mark outlives the release that made it, so what
    /// a filter is written as never changes.
    pub(super) fn of(merchant: MerchantId, filters: &[(&str, Option<String>)]) -> Self {
        let mut hasher = Sha256::new();
        hasher.update(merchant.as_uuid().as_bytes());
        for (name, value) in filters {
            let Some(value) = value else { continue };
            for part in [name, value.as_str()] {
                hasher.update((part.len() as u64).to_be_bytes());
                hasher.update(part.as_bytes());
            }
        }
        Self(first_eight(hasher))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cursor {
    pub(super) created_at: OffsetDateTime,
    pub(super) id: Uuid,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BadCursor {
    /// Not what was handed out.
    Changed,
    /// Handed out for another list.
    OfOtherFilters,
}

impl BadCursor {
    pub(super) const fn mend(self) -> &'static str {
        match self {
            Self::Changed => "is no cursor: send next_cursor exactly as it came",
            Self::OfOtherFilters => {
                "belongs to a list with other filters: send the filters of the first page with every page"
            }
        }
    }
}

/// Leaves a page of what was read with one more than that, and tells where the next begins if there is one.
pub(super) fn cut<T>(
    found: &mut Vec<T>,
    limit: u8,
    list: ListMark,
    place: impl FnOnce(&T) -> Cursor,
) -> Option<String> {
    let has_more = found.len() > usize::from(limit);
    found.truncate(limit.into());
    let shown_last = found.last().filter(|_| has_more)?;
    Some(place(shown_last).encode(list))
}

const VERSION: u8 = 1;
/// Version, list, time, id, check.
const LENGTH: usize = 1 + 8 + 8 + 16 + 8;

impl Cursor {
    pub(super) fn encode(self, list: ListMark) -> String {
        let micros = self.created_at.unix_timestamp_nanos() / 1000;
        let micros = i64::try_from(micros).unwrap_or(i64::MAX);
        let mut bytes = Vec::with_capacity(LENGTH);
        bytes.push(VERSION);
        bytes.extend(list.0);
        bytes.extend(micros.to_be_bytes());
        bytes.extend(self.id.as_bytes());
        bytes.extend(check(&bytes));
        hex::encode(bytes)
    }

    /// As a parameter: what can't be used comes with its mend.
    pub(super) fn read(text: &str, list: ListMark) -> Result<Self, Cow<'static, str>> {
        Self::decode(text, list).map_err(|bad| bad.mend().into())
    }

    pub(super) fn decode(text: &str, list: ListMark) -> Result<Self, BadCursor> {
        let bytes = from_hex(text).ok_or(BadCursor::Changed)?;
        let (body, told) = bytes.split_at(LENGTH - 8);
        if told != check(body) || body[0] != VERSION {
            return Err(BadCursor::Changed);
        }
        if body[1..9] != list.0 {
            return Err(BadCursor::OfOtherFilters);
        }
        let micros = i64::from_be_bytes(part(body, 9));
        let created_at = OffsetDateTime::from_unix_timestamp_nanos(i128::from(micros) * 1000)
            .ok()
            // Postgres knows no others, and none of ours has one.
            .filter(|at| (EARLIEST..=LATEST).contains(at))
            .ok_or(BadCursor::Changed)?;
        let id = Uuid::from_bytes(part(body, 17));
        Ok(Self { created_at, id })
    }
}

fn check(body: &[u8]) -> [u8; 8] {
    first_eight(
        Sha256::new()
            .chain_update("payonce cursor")
            .chain_update(body),
    )
}

fn first_eight(hasher: Sha256) -> [u8; 8] {
    part(&hasher.finalize(), 0)
}

fn part<const N: usize>(bytes: &[u8], from: usize) -> [u8; N] {
    let mut part = [0; N];
    part.copy_from_slice(&bytes[from..from + N]);
    part
}

/// Lower-case digits alone: one cursor has one text.
fn from_hex(text: &str) -> Option<[u8; LENGTH]> {
    if text.bytes().any(|b| b.is_ascii_uppercase()) {
        return None;
    }
    let mut bytes = [0; LENGTH];
    hex::decode_to_slice(text, &mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use time::macros::datetime;

    fn mark(merchant: u128, status: &str) -> ListMark {
        let merchant = MerchantId::from_uuid(Uuid::from_u128(merchant));
        ListMark::of(merchant, &[("status", Some(status.to_owned()))])
    }

    fn cursor() -> Cursor {
        Cursor {
            created_at: datetime!(2026-11-29 20:15:00.104233 UTC),
            id: Uuid::from_u128(7),
        }
    }

    #[test]
    fn a_cursor_comes_back_as_it_went_and_for_its_own_list_alone() {
        let text = cursor().encode(mark(1, "failed"));
        assert_eq!(text.len(), 82);
        assert_eq!(Cursor::decode(&text, mark(1, "failed")), Ok(cursor()));
        for other in [mark(2, "failed"), mark(1, "completed")] {
            assert_eq!(Cursor::decode(&text, other), Err(BadCursor::OfOtherFilters));
        }
    }

    #[test]
    fn a_cursor_of_a_time_that_no_charge_has_is_none_however_well_it_checks() {
        let list = mark(1, "failed");
        for created_at in [
            datetime!(-4800-01-01 00:00 UTC),
            datetime!(0000-12-31 23:59:59 UTC),
        ] {
            let forged = Cursor {
                created_at,
                ..cursor()
            }
            .encode(list);
            assert_eq!(Cursor::decode(&forged, list), Err(BadCursor::Changed));
        }
    }

    #[test]
    fn a_changed_cursor_is_none() {
        let list = mark(1, "failed");
        let text = cursor().encode(list);
        for at in 0..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[at] = if changed[at] == b'0' { b'1' } else { b'0' };
            let changed = String::from_utf8(changed).unwrap();
            assert_eq!(
                Cursor::decode(&changed, list),
                Err(BadCursor::Changed),
                "{at}"
            );
        }
        for bad in ["", "00", &text[1..], &text.to_uppercase(), &"é".repeat(41)] {
            assert_eq!(Cursor::decode(bad, list), Err(BadCursor::Changed));
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,100}|[0-9a-f]{82}") {
            let _ = Cursor::decode(&text, mark(1, ""));
        }
    }
}
