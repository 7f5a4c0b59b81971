//! Identities. A charge's id follows from the merchant and the client's key, so that the same request has the same id
//! on every replica, after a purge and after a restore, without a look-up.

use std::fmt;
use std::str::FromStr;

use uuid::Uuid;

use super::idempotency::IdempotencyKey;

/// The namespace of a merchant's charge ids; never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MerchantId(Uuid);

impl MerchantId {
    pub const fn from_uuid(id: Uuid) -> Self {
        Self(id)
    }

    pub const fn as_uuid(self) -> Uuid {
        self.0
    }
}

impl fmt::Display for MerchantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mer_{}", self.0.simple())
    }
}

/// Shown as `chg_` and 32 hex digits. The same text is the provider's idempotency key for prepare and the stamp in the
/// provider's metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChargeId(Uuid);

impl ChargeId {
    /// A version 5 UUID in the merchant's namespace over `charge:` and the client's key.
    pub fn derive(merchant: MerchantId, key: &IdempotencyKey) -> Self {
        const PREFIX: &[u8] = b"charge:";
        let mut name = Vec::with_capacity(PREFIX.len() + key.as_str().len());
        name.extend_from_slice(PREFIX);
        name.extend_from_slice(key.as_str().as_bytes());
        Self(Uuid::new_v5(&merchant.0, &name))
    }

    pub const fn from_uuid(id: Uuid) -> Self {
        Self(id)
    }

    pub const fn as_uuid(self) -> Uuid {
        self.0
    }
}

impl fmt::Display for ChargeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "chg_{}", self.0.simple())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a charge id is chg_ and 32 lower-case hex digits")]
pub struct InvalidChargeId;

impl FromStr for ChargeId {
    type Err = InvalidChargeId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        uuid_behind("chg_", text).map(Self).ok_or(InvalidChargeId)
    }
}

/// Shown as `rfd_` and 32 hex digits. The same text is the provider's idempotency key for the refund's first try and the
/// stamp in the provider's metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RefundId(Uuid);

impl RefundId {
    /// That of the one refund that payonce makes by itself of an object, beside all that clients' keys can name.
    pub fn of_discrepancy(merchant: MerchantId, object: &ProviderChargeId) -> Self {
        Self(Uuid::new_v5(
            &merchant.0,
            format!("discrepancy:{object}").as_bytes(),
        ))
    }

    /// A version 5 UUID in the merchant's namespace over `refund:` and the client's key.
    pub fn derive(merchant: MerchantId, key: &IdempotencyKey) -> Self {
        const PREFIX: &[u8] = b"refund:";
        let mut name = Vec::with_capacity(PREFIX.len() + key.as_str().len());
        name.extend_from_slice(PREFIX);
        name.extend_from_slice(key.as_str().as_bytes());
        Self(Uuid::new_v5(&merchant.0, &name))
    }

    pub const fn from_uuid(id: Uuid) -> Self {
        Self(id)
    }

    pub const fn as_uuid(self) -> Uuid {
        self.0
    }
}

impl fmt::Display for RefundId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rfd_{}", self.0.simple())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a refund id is rfd_ and 32 lower-case hex digits")]
pub struct InvalidRefundId;

impl FromStr for RefundId {
    type Err = InvalidRefundId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        uuid_behind("rfd_", text).map(Self).ok_or(InvalidRefundId)
    }
}

/// The id in a text of `prefix` and 32 hex digits, in lower case: one id has one text.
pub(super) fn uuid_behind(prefix: &str, text: &str) -> Option<Uuid> {
    let hex = text.strip_prefix(prefix)?;
    let plain = hex.len() == 32 && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    Uuid::try_parse(hex).ok().filter(|_| plain)
}

/// The id of the provider's object, as the provider wrote it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProviderChargeId(String);

impl ProviderChargeId {
    /// 1 to 255 of `[A-Za-z0-9_-]`: it becomes part of an address, so nothing else is taken from outside.
    pub fn parse(text: &str) -> Option<Self> {
        let sane = (1..=255).contains(&text.len())
            && text
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
        sane.then(|| Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ProviderChargeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The id of the provider's refund, as the provider wrote it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProviderRefundId(ProviderChargeId);

impl ProviderRefundId {
    /// By the rule of [`ProviderChargeId::parse`].
    pub fn parse(text: &str) -> Option<Self> {
        ProviderChargeId::parse(text).map(Self)
    }

    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl fmt::Display for ProviderRefundId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The provider's own id of one of its accounts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProviderAccountId(ProviderChargeId);

impl ProviderAccountId {
    /// By the rule of [`ProviderChargeId::parse`].
    pub fn parse(text: &str) -> Option<Self> {
        ProviderChargeId::parse(text).map(Self)
    }

    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl fmt::Display for ProviderAccountId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Fences one hold of one outbox row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseToken(Uuid);

impl LeaseToken {
    pub const fn from_uuid(token: Uuid) -> Self {
        Self(token)
    }

    pub const fn as_uuid(self) -> Uuid {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_charge_id_follows_from_merchant_and_key_for_ever() {
        let merchant = MerchantId::from_uuid(Uuid::from_u128(7));
        let key = IdempotencyKey::parse(b"order-42").unwrap();
        assert_eq!(
            ChargeId::derive(merchant, &key).to_string(),
            "chg_1a8bb9ca44e856c8a8d3a6dba8275373"
        );
        let other = MerchantId::from_uuid(Uuid::from_u128(8));
        assert_ne!(
            ChargeId::derive(merchant, &key),
            ChargeId::derive(other, &key)
        );
    }

    #[test]
    fn a_charge_and_a_refund_of_one_key_are_two() {
        let merchant = MerchantId::from_uuid(Uuid::from_u128(7));
        let key = IdempotencyKey::parse(b"order-42").unwrap();
        let refund = RefundId::derive(merchant, &key);
        assert_ne!(refund.as_uuid(), ChargeId::derive(merchant, &key).as_uuid());
        assert_eq!(refund.to_string().parse(), Ok(refund));
        assert_eq!(
            "chg_000000000000000000000000000000ab".parse::<RefundId>(),
            Err(InvalidRefundId)
        );
    }

    #[test]
    fn a_charge_id_is_read_as_it_is_written_and_no_other_way() {
        let id = ChargeId::from_uuid(Uuid::from_u128(0xab));
        assert_eq!(id.to_string().len(), 36);
        assert_eq!(id.to_string().parse(), Ok(id));
        for bad in [
            "",
            "chg_",
            "ab",
            "chg_000000000000000000000000000000AB",
            "chg_{0000000000000000000000000000ab}",
        ] {
            assert_eq!(bad.parse::<ChargeId>(), Err(InvalidChargeId), "{bad}");
        }
    }
}
