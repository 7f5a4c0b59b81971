//! GET /v1/policy: what this service takes, from the rules that judge it.

use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use bytes::Bytes;
use serde::Serialize;
use utoipa::ToSchema;

use super::charge_list::{MOST_LISTED, USUALLY_LISTED};
use super::limits::{HttpLimits, MOST_URI_LENGTH};
use super::problem::ApiError;
use super::{HttpParts, HttpState, answer, prefer};
use crate::domain::idempotency::IdempotencyKey;
use crate::domain::money::{Currency, MAX_AMOUNT};
use crate::domain::request::{Amounts, ProviderRules, limits};

/// A key as an expression that all common languages read.
pub(super) const KEY_PATTERN: &str = r"^[!#-+\-.-\[\]-~]{1,255}$";

/// What this service takes. It changes with a release or its configuration, not from request to request.
#[derive(Serialize, ToSchema)]
#[schema(as = Policy)]
pub struct Policy {
    /// Whether real money is meant.
    #[schema(example = false)]
    live: bool,
    /// Who carries the charges out.
    #[schema(example = "stripe", extensions(("x-extensible-enum" = json!(["stripe"]))))]
    provider: &'static str,
    idempotency: IdempotencyPolicy,
    limits: LimitsPolicy,
    /// Every currency that is taken, by its code.
    currencies: Vec<CurrencyPolicy>,
}

/// Rules of the `Idempotency-Key` header.
#[derive(Serialize, ToSchema)]
pub struct IdempotencyPolicy {
    /// A key as it stands between the quotation marks, if it has any.
    #[schema(example = json!(KEY_PATTERN))]
    key_pattern: &'static str,
    #[schema(format = Int32, minimum = 1, example = 255)]
    key_max_length: usize,
    /// How long the record of a request is kept after its charge has ended. The charge itself goes on answering for its
    /// key: a key never expires.
    // The most that every JSON number holds exactly.
    #[schema(minimum = 0, maximum = 9_007_199_254_740_991_i64, example = 2_592_000)]
    retention_seconds: u64,
}

/// Sizes, lengths in characters, and counts: the most that is taken of each.
#[derive(Serialize, ToSchema)]
pub struct LimitsPolicy {
    #[schema(format = Int32, minimum = 1, example = 65_536)]
    body_bytes: usize,
    #[schema(format = Int32, minimum = 1, example = 8192)]
    uri_length: usize,
    /// In minor units of any currency; `currencies` has the caps.
    #[schema(
        minimum = 1,
        maximum = 999_999_999_999_i64,
        example = 999_999_999_999_i64
    )]
    amount: i64,
    #[schema(format = Int32, minimum = 1, example = 255)]
    payment_method_length: usize,
    #[schema(format = Int32, minimum = 1, example = 255)]
    customer_length: usize,
    #[schema(format = Int32, minimum = 1, example = 2048)]
    return_url_length: usize,
    #[schema(format = Int32, minimum = 1, example = 255)]
    reference_length: usize,
    #[schema(format = Int32, minimum = 1, example = 500)]
    description_length: usize,
    #[schema(format = Int32, minimum = 1, example = 20)]
    metadata_entries: usize,
    #[schema(format = Int32, minimum = 1, example = 40)]
    metadata_key_length: usize,
    #[schema(format = Int32, minimum = 1, example = 500)]
    metadata_value_length: usize,
    /// Charges on one page of a list.
    #[schema(minimum = 1, example = 100)]
    page_size: u8,
    /// Charges on one page of a list, if no limit is asked for.
    #[schema(minimum = 1, example = 20)]
    page_size_default: u8,
    /// Seconds that `Prefer: wait` can hold an answer.
    #[schema(value_type = i32, minimum = 1, example = 30)]
    wait_seconds: u64,
    /// Requests a second that a merchant may send to each process of the service, on average, duplicates included. Absent if there
    /// is no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 1, example = 50)]
    requests_per_second: Option<u32>,
    /// How many of them may come at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 1, example = 100)]
    requests_burst: Option<u32>,
}

/// The amounts that are taken in a currency, in its ISO 4217 minor units.
#[derive(Serialize, ToSchema)]
pub struct CurrencyPolicy {
    /// ISO 4217 code in lower case.
    #[schema(pattern = "^[a-z]{3}$", example = "usd")]
    code: String,
    /// How many decimals the minor unit has: 1999 is 19.99 with 2.
    #[schema(minimum = 0, maximum = 4, example = 2)]
    decimals: u8,
    /// The largest amount.
    #[schema(minimum = 1, maximum = 999_999_999_999_i64, example = 99_999_999)]
    max_amount: i64,
    /// An amount must be a multiple of it.
    #[schema(minimum = 1, maximum = 999_999_999_999_i64, example = 1)]
    step: i64,
}

/// The policy as it is sent, written once.
pub(super) fn render(parts: &HttpParts) -> Bytes {
    let policy = Policy::new(parts);
    serde_json::to_vec(&policy)
        .expect("numbers and strings are always valid JSON")
        .into()
}

pub(super) async fn show(
    State(state): State<HttpState>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    state.auth().authenticate(&headers).await?;
    Ok(answer::written(state.policy()))
}

impl Policy {
    fn new(parts: &HttpParts) -> Self {
        let (rules, retention): (&ProviderRules, Duration) = (&parts.rules, parts.retention);
        let HttpLimits {
            body_bytes,
            request_rate,
            ..
        } = parts.limits;
        Self {
            live: parts.live,
            provider: rules.provider,
            idempotency: IdempotencyPolicy {
                key_pattern: KEY_PATTERN,
                key_max_length: IdempotencyKey::MAX_LENGTH,
                retention_seconds: retention.as_secs(),
            },
            limits: LimitsPolicy {
                body_bytes,
                uri_length: MOST_URI_LENGTH,
                amount: MAX_AMOUNT,
                payment_method_length: limits::TOKEN_LENGTH,
                customer_length: limits::TOKEN_LENGTH,
                return_url_length: limits::RETURN_URL_LENGTH,
                reference_length: limits::REFERENCE_LENGTH,
                description_length: limits::DESCRIPTION_LENGTH,
                metadata_entries: limits::METADATA_ENTRIES,
                metadata_key_length: limits::METADATA_KEY_LENGTH,
                metadata_value_length: limits::METADATA_VALUE_LENGTH,
                page_size: MOST_LISTED,
                page_size_default: USUALLY_LISTED,
                wait_seconds: prefer::MOST_SECONDS,
                requests_per_second: request_rate.map(|rate| rate.per_second.get()),
                requests_burst: request_rate.map(|rate| rate.burst.get()),
            },
            currencies: Currency::all()
                .filter_map(|currency| {
                    let Amounts { most, step } = rules.amounts(currency)?;
                    Some(CurrencyPolicy {
                        code: currency.to_string(),
                        decimals: currency.decimals(),
                        max_amount: most,
                        step,
                    })
                })
                .collect(),
        }
    }
}
