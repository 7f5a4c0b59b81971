//! What a client asks for: first a [`Draft`], normalised and not yet judged, then a [`ChargeRequest`] that keeps every
//! rule. The draft has the fingerprint, so that a request once accepted is known again even if a later release would
//! refuse it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::money::{Currency, MAX_AMOUNT, Money};
use limits::{
    DESCRIPTION_LENGTH, METADATA_ENTRIES, METADATA_KEY_LENGTH, METADATA_VALUE_LENGTH,
    REFERENCE_LENGTH, RETURN_URL_LENGTH, TOKEN_LENGTH,
};

/// How much a request may hold; part of the contract. Lengths are in characters.
pub mod limits {
    /// Of the payment method and the customer.
    pub const TOKEN_LENGTH: usize = 255;
    pub const RETURN_URL_LENGTH: usize = 2048;
    pub const REFERENCE_LENGTH: usize = 255;
    pub const DESCRIPTION_LENGTH: usize = 500;
    pub const METADATA_ENTRIES: usize = 20;
    pub const METADATA_KEY_LENGTH: usize = 40;
    pub const METADATA_VALUE_LENGTH: usize = 500;
}

/// A request of the right shape: every field has its type, absent, null and empty are one, the currency is in lower case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Draft {
    pub amount: i64,
    pub currency: String,
    pub payment_method: String,
    pub customer: Option<String>,
    pub return_url: Option<String>,
    pub off_session: bool,
    pub reference: Option<String>,
    pub description: Option<String>,
    pub metadata: BTreeMap<String, String>,
}

impl Draft {
    /// The names of the fields in which two drafts differ, as JSON pointers.
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let mut pointers: Vec<String> = [
            ("#/amount", self.amount == other.amount),
            ("#/currency", self.currency == other.currency),
            (
                "#/payment_method",
                self.payment_method == other.payment_method,
            ),
            ("#/customer", self.customer == other.customer),
            ("#/return_url", self.return_url == other.return_url),
            ("#/off_session", self.off_session == other.off_session),
            ("#/reference", self.reference == other.reference),
            ("#/description", self.description == other.description),
        ]
        .into_iter()
        .filter(|(_, same)| !same)
        .map(|(pointer, _)| pointer.to_owned())
        .collect();
        let keys: std::collections::BTreeSet<&String> =
            self.metadata.keys().chain(other.metadata.keys()).collect();
        pointers.extend(
            keys.into_iter()
                .filter(|key| self.metadata.get(*key) != other.metadata.get(*key))
                .map(|key| format!("#/metadata/{}", pointer_token(key))),
        );
        pointers
    }
}

/// Escapes one step of a JSON pointer (RFC 6901).
pub fn pointer_token(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// One rule that a request breaks, and its mend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// A JSON pointer: `#/amount`.
    pub pointer: String,
    pub rule: &'static str,
    pub detail: Cow<'static, str>,
}

impl Violation {
    pub fn new(
        pointer: impl Into<String>,
        rule: &'static str,
        detail: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self {
            pointer: pointer.into(),
            rule,
            detail: detail.into(),
        }
    }
}

/// The pure functions of a provider's adapter that intake needs. They come in here so that intake knows no provider.
#[derive(Clone, Copy, Debug)]
pub struct ProviderRules {
    /// As the charge shows it: `stripe`.
    pub provider: &'static str,
    /// Converts to what the provider counts, exactly or not at all.
    pub to_provider_units: fn(Money) -> Result<i64, UnitsRefused>,
    /// Whether a text has the shape of one of the provider's own tokens.
    pub is_token: fn(&str) -> bool,
}

/// The amounts that are taken in a currency: the multiples of `step` up to `most`, in minor units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amounts {
    pub most: i64,
    pub step: i64,
}

impl ProviderRules {
    /// What the conversion takes in a currency, learned from the conversion itself; `None` if nothing.
    pub fn amounts(&self, currency: Currency) -> Option<Amounts> {
        let units = |amount| Money::new(amount, currency).map(self.to_provider_units);
        let step = match units(1)? {
            Err(UnitsRefused::NotAMultipleOf(step)) => step,
            Ok(_) => 1,
            Err(UnitsRefused::CurrencyNotTaken | UnitsRefused::MoreThan(_)) => return None,
        };
        let most = match units(MAX_AMOUNT)? {
            Err(UnitsRefused::MoreThan(most)) => most,
            Ok(_) | Err(UnitsRefused::NotAMultipleOf(_)) => MAX_AMOUNT - MAX_AMOUNT % step,
            Err(UnitsRefused::CurrencyNotTaken) => return None,
        };
        Some(Amounts { most, step })
    }
}

/// Why an amount can't be sent: it is never rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitsRefused {
    CurrencyNotTaken,
    /// The amount must be a multiple of this many minor units.
    NotAMultipleOf(i64),
    /// The most that is taken in this currency, in minor units.
    MoreThan(i64),
}

/// A draft with all the rules that it breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    pub draft: Draft,
    pub violations: Vec<Violation>,
}

/// A request that keeps every rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChargeRequest {
    draft: Draft,
    money: Money,
    provider_units: i64,
}

impl ChargeRequest {
    /// Judges a draft by every rule and names all that are broken.
    pub fn judge(draft: Draft, rules: &ProviderRules) -> Result<Self, Box<Refused>> {
        let mut violations = Vec::new();
        let money = judge_money(&draft, rules, &mut violations);
        judge_texts(&draft, rules, &mut violations);
        judge_metadata(&draft.metadata, &mut violations);
        match money {
            Some((money, provider_units)) if violations.is_empty() => Ok(Self {
                draft,
                money,
                provider_units,
            }),
            Some(_) | None => Err(Box::new(Refused { draft, violations })),
        }
    }

    pub fn draft(&self) -> &Draft {
        &self.draft
    }

    pub fn into_draft(self) -> Draft {
        self.draft
    }

    pub fn money(&self) -> Money {
        self.money
    }

    /// What goes to the provider, frozen at intake.
    pub fn instruction(&self) -> Instruction<'_> {
        Instruction {
            amount: self.provider_units,
            currency: Cow::Borrowed(self.draft.currency.as_str()),
            payment_method: Cow::Borrowed(self.draft.payment_method.as_str()),
            customer: self.draft.customer.as_deref().map(Cow::Borrowed),
            return_url: self.draft.return_url.as_deref().map(Cow::Borrowed),
            off_session: self.draft.off_session,
            description: self.draft.description.as_deref().map(Cow::Borrowed),
            metadata: Cow::Borrowed(&self.draft.metadata),
        }
    }
}

/// The instruction to the provider in the provider's own units, written once at intake: whatever release runs an
/// attempt, it sends the same. Its encoding has a version, kept beside it in the outbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Instruction<'a> {
    pub amount: i64,
    pub currency: Cow<'a, str>,
    pub payment_method: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub customer: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub return_url: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub off_session: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "no_entries")]
    pub metadata: Cow<'a, BTreeMap<String, String>>,
}

#[expect(clippy::ptr_arg, reason = "serde hands over the field as it is")]
fn no_entries(metadata: &Cow<'_, BTreeMap<String, String>>) -> bool {
    metadata.is_empty()
}

impl Instruction<'_> {
    /// The version that [`Instruction`] is written in; a worker claims only those it knows.
    pub const VERSION: i16 = 1;
}

fn judge_money(
    draft: &Draft,
    rules: &ProviderRules,
    violations: &mut Vec<Violation>,
) -> Option<(Money, i64)> {
    let in_range = (1..=MAX_AMOUNT).contains(&draft.amount);
    if !in_range {
        violations.push(Violation::new(
            "#/amount",
            "range",
            format!("must be a whole number of minor units from 1 to {MAX_AMOUNT}"),
        ));
    }
    let Some(currency) = Currency::parse(&draft.currency) else {
        violations.push(Violation::new(
            "#/currency",
            "currency",
            "must be the three-letter ISO 4217 code of an active currency, such as usd",
        ));
        return None;
    };
    let money = Money::new(draft.amount, currency)?;
    match (rules.to_provider_units)(money) {
        Ok(units) => Some((money, units)),
        Err(UnitsRefused::CurrencyNotTaken) => {
            let detail = format!("{currency} is not taken by {}", rules.provider);
            violations.push(Violation::new("#/currency", "currency_not_taken", detail));
            None
        }
        Err(UnitsRefused::NotAMultipleOf(step)) => {
            let detail = format!(
                "must be a multiple of {step} in {currency}: {} takes no smaller step",
                rules.provider
            );
            violations.push(Violation::new("#/amount", "multiple_of", detail));
            None
        }
        Err(UnitsRefused::MoreThan(most)) => {
            let detail = format!(
                "must be at most {most} in {currency}: {} takes no more",
                rules.provider
            );
            violations.push(Violation::new("#/amount", "range", detail));
            None
        }
    }
}

fn judge_texts(draft: &Draft, rules: &ProviderRules, violations: &mut Vec<Violation>) {
    let tokens = [
        ("#/payment_method", Some(&draft.payment_method)),
        ("#/customer", draft.customer.as_ref()),
    ];
    for (pointer, value) in tokens {
        let Some(value) = value else { continue };
        if !(1..=TOKEN_LENGTH).contains(&value.len())
            || !value.bytes().all(|b| b.is_ascii_graphic())
        {
            violations.push(Violation::new(
                pointer,
                "token",
                format!("must be 1 to {TOKEN_LENGTH} visible ASCII characters"),
            ));
        } else if !(rules.is_token)(value) && looks_like_card_number(value) {
            violations.push(Violation::new(
                pointer,
                "card_number",
                "looks like a card number: send a token of the payment provider in its place; it was neither stored nor logged",
            ));
        }
    }
    if let Some(url) = &draft.return_url
        && !is_return_url(url)
    {
        violations.push(Violation::new(
            "#/return_url",
            "url",
            format!("must be an https address of up to {RETURN_URL_LENGTH} characters (http for localhost alone)"),
        ));
    }
    for (pointer, value, most) in [
        ("#/reference", &draft.reference, REFERENCE_LENGTH),
        ("#/description", &draft.description, DESCRIPTION_LENGTH),
    ] {
        let Some(value) = value else { continue };
        if !(1..=most).contains(&value.chars().count()) || value.chars().any(char::is_control) {
            let detail =
                format!("must be 1 to {most} characters, none of them a control character");
            violations.push(Violation::new(pointer, "text", detail));
        }
    }
}

pub(super) fn judge_metadata(metadata: &BTreeMap<String, String>, violations: &mut Vec<Violation>) {
    if metadata.len() > METADATA_ENTRIES {
        violations.push(Violation::new(
            "#/metadata",
            "entries",
            format!("must have at most {METADATA_ENTRIES} entries"),
        ));
    }
    for (key, value) in metadata {
        let pointer = || format!("#/metadata/{}", pointer_token(key));
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-');
        if !(1..=METADATA_KEY_LENGTH).contains(&key.len()) || !key.bytes().all(plain) {
            violations.push(Violation::new(
                pointer(),
                "metadata_key",
                format!("must be named by 1 to {METADATA_KEY_LENGTH} of A-Z a-z 0-9 _ . -"),
            ));
        } else if key.starts_with("payonce_") {
            violations.push(Violation::new(
                pointer(),
                "metadata_reserved",
                "names that start with payonce_ are reserved",
            ));
        }
        if value.chars().count() > METADATA_VALUE_LENGTH || value.contains('\0') {
            violations.push(Violation::new(
                pointer(),
                "metadata_value",
                format!("must be a string of up to {METADATA_VALUE_LENGTH} characters without NUL"),
            ));
        }
    }
}

/// https, or http for localhost; no user info, no white space, no control character.
fn is_return_url(url: &str) -> bool {
    if url.len() > RETURN_URL_LENGTH
        || !url.bytes().all(|b| b.is_ascii_graphic())
        || url.contains(['"', '<', '>', '\\', '^', '`', '{', '|', '}'])
    {
        return false;
    }
    let Some((scheme, rest)) = url.split_once("://") else {
        return false;
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) => host,
        Some((_, _)) if authority.ends_with(']') => authority,
        Some(_) => return false,
        None => authority,
    };
    let sane = !host.is_empty() && !authority.contains('@');
    match scheme.to_ascii_lowercase().as_str() {
        "https" => sane,
        "http" => sane && matches!(host, "localhost" | "127.0.0.1" | "[::1]"),
        _ => false,
    }
}

/// 13 to 19 digits, single spaces or dashes between them allowed, that start with 2 to 6 and pass the Luhn check.
pub fn looks_like_card_number(text: &str) -> bool {
    let mut digits: Vec<u8> = Vec::with_capacity(19);
    let mut last_was_separator = false;
    let mut runs = Vec::new();
    for b in text.bytes() {
        match b {
            b'0'..=b'9' => {
                digits.push(b - b'0');
                last_was_separator = false;
            }
            b'-' | b' ' if !digits.is_empty() && !last_was_separator => last_was_separator = true,
            _ => {
                runs.push(std::mem::take(&mut digits));
                last_was_separator = false;
            }
        }
    }
    runs.push(digits);
    runs.iter()
        .any(|run| (13..=19).contains(&run.len()) && (2..=6).contains(&run[0]) && luhn(run))
}

fn luhn(digits: &[u8]) -> bool {
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(place, digit)| {
            let value = u32::from(*digit) << (place % 2);
            if value > 9 { value - 9 } else { value }
        })
        .sum();
    sum.is_multiple_of(10)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> ProviderRules {
        ProviderRules {
            provider: "stripe",
            to_provider_units: |money| Ok(money.minor_units()),
            is_token: |text| text.starts_with("pm_"),
        }
    }

    fn draft() -> Draft {
        Draft {
            amount: 1999,
            currency: "usd".to_owned(),
            payment_method: "pm_card_visa".to_owned(),
            ..Draft::default()
        }
    }

    #[test]
    fn every_broken_rule_is_named_at_once() {
        let bad = Draft {
            amount: 0,
            currency: "zzz".to_owned(),
            payment_method: String::new(),
            return_url: Some("http://example.com".to_owned()),
            reference: Some("a\nb".to_owned()),
            metadata: [
                ("payonce_x".to_owned(), "1".to_owned()),
                ("a/b".to_owned(), "2".to_owned()),
            ]
            .into(),
            ..Draft::default()
        };
        let violations = ChargeRequest::judge(bad, &rules()).unwrap_err().violations;
        let pointers: Vec<_> = violations.iter().map(|v| v.pointer.as_str()).collect();
        assert_eq!(
            pointers,
            [
                "#/amount",
                "#/currency",
                "#/payment_method",
                "#/return_url",
                "#/reference",
                "#/metadata/a~1b",
                "#/metadata/payonce_x"
            ]
        );
    }

    #[test]
    fn a_card_number_is_refused_and_a_token_is_not() {
        for number in [
            "4242424242424242",
            "4242-4242-4242-4242",
            "card:4242424242424242",
            "5555555555554444",
        ] {
            let bad = Draft {
                payment_method: number.to_owned(),
                ..draft()
            };
            let violations = ChargeRequest::judge(bad, &rules()).unwrap_err().violations;
            assert_eq!(violations[0].rule, "card_number", "{number}");
            assert!(!violations[0].detail.contains("4242"));
        }
        for fine in [
            "pm_4242424242424242",
            "4242424242424241",
            "1234567890123",
            "9999999999999995",
        ] {
            assert!(
                ChargeRequest::judge(
                    Draft {
                        payment_method: fine.to_owned(),
                        ..draft()
                    },
                    &rules()
                )
                .is_ok(),
                "{fine}"
            );
        }
    }

    #[test]
    fn a_return_url_is_https_or_localhost() {
        for good in [
            "https://example.com",
            "https://a.b:8443/x?y=1#z",
            "http://localhost:3000/back",
            "http://[::1]:80/",
        ] {
            assert!(is_return_url(good), "{good}");
        }
        for bad in [
            "",
            "example.com",
            "http://example.com",
            "https://",
            "https://u@h/",
            "ftp://x",
            "https://a b",
            "http://localhost.evil.com/",
            "javascript://x",
        ] {
            assert!(!is_return_url(bad), "{bad}");
        }
    }

    #[test]
    fn the_encoding_of_instruction_version_1_never_changes() {
        let full = Draft {
            customer: Some("cus_1".to_owned()),
            return_url: Some("https://example.com/".to_owned()),
            off_session: true,
            reference: Some("r".to_owned()),
            description: Some("Tea".to_owned()),
            metadata: [("a".to_owned(), "1".to_owned())].into(),
            ..draft()
        };
        let encode = |d: Draft| {
            let request = ChargeRequest::judge(d, &rules()).unwrap();
            serde_json::to_string(&request.instruction()).unwrap()
        };
        assert_eq!(
            encode(draft()),
            r#"{"amount":1999,"currency":"usd","payment_method":"pm_card_visa"}"#
        );
        let text = encode(full);
        assert_eq!(
            text,
            r#"{"amount":1999,"currency":"usd","payment_method":"pm_card_visa","customer":"cus_1","return_url":"https://example.com/","off_session":true,"description":"Tea","metadata":{"a":"1"}}"#
        );
        let read: Instruction<'static> = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), text);
    }

    #[test]
    fn differences_name_fields_without_values() {
        let other = Draft {
            amount: 1,
            metadata: [("a~/".to_owned(), "1".to_owned())].into(),
            ..draft()
        };
        assert_eq!(
            draft().differences(&other),
            ["#/amount", "#/metadata/a~0~1"]
        );
        assert!(draft().differences(&draft()).is_empty());
    }
}
