//! The Stripe adapter: `PaymentIntents`, made unconfirmed, confirmed by id, read by id.
//!
//! `wire` says what goes out and what an answer means, `transport` carries it; nothing here decides or retries. The
//! same instruction under the same key is the same bytes, so a repeat is a repeat for Stripe too.

pub mod currency;
pub mod signature;
mod transport;
pub mod webhooks;
pub mod wire;

use std::fmt;
use std::time::Duration;

use reqwest::header::HeaderValue;
use reqwest::{Method, Request, Url};
use time::OffsetDateTime;

use self::transport::Transport;
use self::wire::Called;
use super::{Page, Profile, Provider, RefundPage, RefundsOf, Reply, Whose};
use crate::domain::ids::{ChargeId, ProviderChargeId, ProviderRefundId, RefundId};
use crate::domain::outcome::{Answer, Phase, Unclear};
use crate::domain::refund::outcome::{RefundObject, RefundPhase};
use crate::domain::refund::request::RefundInstruction;
use crate::domain::request::Instruction;

#[derive(Clone, Debug)]
pub struct StripeSettings {
    /// The configured account's name, pinned on charges.
    pub account: String,
    /// `https://api.stripe.com`, or an address that speaks the same.
    pub base_url: String,
    pub secret_key: SecretKey,
    /// Pinned, so that an upgrade of the account's default does not change what answers look like.
    pub api_version: String,
    /// The most a call takes from its start to the last byte of its answer.
    pub timeout: Duration,
    pub connect_timeout: Duration,
    /// How many idle connections are kept.
    pub pool_idle: usize,
    /// How long Stripe remembers a key: at the least 24 hours after its first use
    /// (<https://docs.stripe.com/api/idempotent_requests>).
    pub key_window: Duration,
}

/// A secret API key; nothing prints it.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretKey(String);

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a Stripe secret key starts with sk_live_, rk_live_, sk_test_ or rk_test_ and goes on in letters, digits and _"
)]
pub struct InvalidSecretKey;

impl SecretKey {
    pub fn parse(text: &str) -> Result<Self, InvalidSecretKey> {
        let rest = ["sk_live_", "rk_live_", "sk_test_", "rk_test_"]
            .iter()
            .find_map(|prefix| text.strip_prefix(prefix))
            .ok_or(InvalidSecretKey)?;
        let sane = (1..=255).contains(&rest.len())
            && rest.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        sane.then(|| Self(text.to_owned())).ok_or(InvalidSecretKey)
    }

    /// Whether it moves real money.
    pub fn live(&self) -> bool {
        self.0.starts_with("sk_live_") || self.0.starts_with("rk_live_")
    }

    fn bearer(&self) -> Option<HeaderValue> {
        let mut value = HeaderValue::from_str(&format!("Bearer {}", self.0)).ok()?;
        value.set_sensitive(true);
        Some(value)
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretKey(..)")
    }
}

impl fmt::Display for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

/// Why the adapter can't be set up.
#[derive(Debug, thiserror::Error)]
pub enum StripeError {
    #[error("the Stripe base_url must be an http or https address without user, query or fragment")]
    BaseUrl,
    #[error("a live Stripe key goes out over https alone")]
    LiveKeyInTheClear,
    #[error("the Stripe {0} is empty, zero or holds what it can't")]
    Setting(&'static str),
    #[error("the HTTP client for Stripe can't be built")]
    Client(#[source] reqwest::Error),
}

#[derive(Debug)]
pub struct Stripe {
    profile: Profile,
    /// `…/v1/payment_intents`
    intents: Url,
    /// `…/v1/refunds`
    refunds: Url,
    /// `…/v1/account`
    account: Url,
    transport: Transport,
}

impl Stripe {
    pub fn new(settings: StripeSettings) -> Result<Self, StripeError> {
        let intents = endpoint(&settings.base_url, "payment_intents")?;
        let refunds = endpoint(&settings.base_url, "refunds")?;
        let account = endpoint(&settings.base_url, "account")?;
        let live = settings.secret_key.live();
        let loopback = matches!(
            intents.host_str(),
            Some("localhost" | "127.0.0.1" | "[::1]")
        );
        if live && intents.scheme() != "https" && !loopback {
            return Err(StripeError::LiveKeyInTheClear);
        }
        for (name, bad) in [
            ("account", settings.account.is_empty()),
            ("timeout", settings.timeout.is_zero()),
            ("connect_timeout", settings.connect_timeout.is_zero()),
        ] {
            if bad {
                return Err(StripeError::Setting(name));
            }
        }
        let transport = Transport::new(&settings, intents.scheme() == "https")?;
        Ok(Self {
            profile: Profile {
                provider: currency::RULES.provider,
                account: settings.account,
                live,
                key_window: settings.key_window,
                call_timeout: settings.timeout,
            },
            intents,
            refunds,
            account,
            transport,
        })
    }

    fn url(&self, object: &ProviderChargeId, action: Option<&str>) -> Url {
        let mut url = self.intents.clone();
        // Always so: `intents` is http or https.
        if let Ok(mut path) = url.path_segments_mut() {
            path.push(object.as_str()).extend(action);
        }
        url
    }

    /// The call under an idempotency key. A key that is no header value is a fault of ours that a repeat can't mend.
    async fn keyed<C: Called>(
        &self,
        url: Url,
        key: &str,
        form: String,
        called: C,
    ) -> Reply<C::Object> {
        let Some(key) = HeaderValue::from_str(key)
            .ok()
            .filter(|key| !key.is_empty())
        else {
            return Reply {
                answer: Answer::Rejected {
                    detail: "not sent: the idempotency key is no header value".to_owned(),
                },
                request_id: None,
                original_request_id: None,
            };
        };
        self.transport
            .call(transport::post(url, Some(key), Some(form)), called)
            .await
    }
}

fn endpoint(base_url: &str, name: &str) -> Result<Url, StripeError> {
    let mut url = Url::parse(base_url).map_err(|_| StripeError::BaseUrl)?;
    let plain = matches!(url.scheme(), "http" | "https")
        && url.has_host()
        && url.username().is_empty()
        && url.password().is_none()
        && url.query().is_none()
        && url.fragment().is_none();
    if !plain {
        return Err(StripeError::BaseUrl);
    }
    url.path_segments_mut()
        .map_err(|()| StripeError::BaseUrl)?
        .pop_if_empty()
        .extend(["v1", name]);
    Ok(url)
}

impl Provider for Stripe {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    async fn whose(&self) -> Whose {
        let request = Request::new(Method::GET, self.account.clone());
        self.transport.whose(request).await
    }

    async fn prepare(&self, charge: ChargeId, key: &str, instruction: &Instruction<'_>) -> Reply {
        let form = wire::prepare(charge, instruction);
        self.keyed(self.intents.clone(), key, form, Phase::Prepare)
            .await
    }

    async fn execute(
        &self,
        object: &ProviderChargeId,
        key: &str,
        instruction: &Instruction<'_>,
    ) -> Reply {
        let form = wire::execute(instruction);
        self.keyed(self.url(object, Some("confirm")), key, form, Phase::Execute)
            .await
    }

    async fn read(&self, object: &ProviderChargeId) -> Reply {
        let request = Request::new(Method::GET, self.url(object, None));
        self.transport.call(request, Phase::Read).await
    }

    /// Without a key: a cancellation is safe to repeat, and a replayed answer would be a picture of the past.
    async fn cancel(&self, object: &ProviderChargeId) -> Reply {
        let request = transport::post(self.url(object, Some("cancel")), None, None);
        self.transport.call(request, Phase::Cancel).await
    }

    /// Stripe's lists are consistent and newest first.
    async fn list(
        &self,
        since: OffsetDateTime,
        after: Option<&ProviderChargeId>,
    ) -> Result<Page, Box<Answer>> {
        let mut url = self.intents.clone();
        let query = wire::list(since.unix_timestamp(), after.map(ProviderChargeId::as_str));
        url.set_query(Some(&query));
        let page = self.transport.page(Request::new(Method::GET, url)).await?;
        // The walk would go round and round.
        if page.next.is_some() && page.next.as_ref() == after {
            return Err(Box::new(Answer::Unclear {
                reason: Unclear::Unreadable,
                replayed: false,
            }));
        }
        Ok(page)
    }

    async fn refund(
        &self,
        refund: RefundId,
        key: &str,
        instruction: &RefundInstruction<'_>,
    ) -> Reply<RefundObject> {
        let form = wire::refund(refund, instruction);
        self.keyed(self.refunds.clone(), key, form, RefundPhase::Refund)
            .await
    }

    async fn read_refund(&self, refund: &ProviderRefundId) -> Reply<RefundObject> {
        let mut url = self.refunds.clone();
        // Always so: `refunds` is http or https.
        if let Ok(mut path) = url.path_segments_mut() {
            path.push(refund.as_str());
        }
        let request = Request::new(Method::GET, url);
        self.transport.call(request, RefundPhase::ReadRefund).await
    }

    async fn list_refunds(
        &self,
        of: RefundsOf<'_>,
        after: Option<&ProviderRefundId>,
    ) -> Result<RefundPage, Box<Answer<RefundObject>>> {
        let mut url = self.refunds.clone();
        let query = wire::list_refunds(of, after.map(ProviderRefundId::as_str));
        url.set_query(Some(&query));
        let page = self
            .transport
            .refunds(Request::new(Method::GET, url))
            .await?;
        // The walk would go round and round.
        if page.next.is_some() && page.next.as_ref() == after {
            return Err(Box::new(Answer::Unclear {
                reason: Unclear::Unreadable,
                replayed: false,
            }));
        }
        Ok(page)
    }
}

#[cfg(test)]
mod tests;
