//! What Stripe counts, and what its tokens look like: pure rules that intake applies before anything is stored.
//!
//! Stripe counts most currencies as ISO 4217 does. The exceptions are its own history: isk and ugx lost their decimals
//! in ISO and kept two of them at Stripe, mga has two in ISO and none at Stripe, and of three decimals the last must
//! be 0. Source: <https://docs.stripe.com/currencies>.

use crate::domain::money::{Currency, Money};
use crate::domain::request::{ProviderRules, UnitsRefused};

pub const RULES: ProviderRules = ProviderRules {
    provider: "stripe",
    to_provider_units,
    is_token,
};

/// Eight digits, in Stripe's units: what every payment method takes in every currency. Stripe takes more for some
/// methods in some currencies; that is not known before the method is looked at.
const MOST: i64 = 99_999_999;

/// How an ISO 4217 minor unit becomes Stripe's unit.
#[derive(Clone, Copy)]
enum Scale {
    AsIs,
    Times(i64),
    /// Only multiples of it can be sent, divided by it.
    DividedBy(i64),
    /// Only multiples of it can be sent, as they are.
    InStepsOf(i64),
}

/// Converts to what Stripe counts, exactly or not at all.
fn to_provider_units(money: Money) -> Result<i64, UnitsRefused> {
    let currency = money.currency();
    if !is_taken(currency) {
        return Err(UnitsRefused::CurrencyNotTaken);
    }
    let scale = scale(currency);
    let amount = money.minor_units();
    let most_minor = match scale {
        Scale::AsIs => MOST,
        Scale::Times(factor) => MOST / factor,
        Scale::DividedBy(step) => MOST.saturating_mul(step),
        Scale::InStepsOf(step) => MOST - MOST % step,
    };
    if amount > most_minor {
        return Err(UnitsRefused::MoreThan(most_minor));
    }
    match scale {
        Scale::Times(factor) => amount
            .checked_mul(factor)
            .ok_or(UnitsRefused::MoreThan(most_minor)),
        Scale::DividedBy(step) | Scale::InStepsOf(step) if amount % step != 0 => {
            Err(UnitsRefused::NotAMultipleOf(step))
        }
        Scale::DividedBy(step) => Ok(amount / step),
        Scale::AsIs | Scale::InStepsOf(_) => Ok(amount),
    }
}

fn scale(currency: Currency) -> Scale {
    match currency.as_str() {
        "isk" | "ugx" => Scale::Times(100),
        "mga" => Scale::DividedBy(100),
        "bhd" | "jod" | "kwd" | "omr" | "tnd" => Scale::InStepsOf(10),
        // Zero decimals (bif clp djf gnf jpy kmf krw pyg rwf vnd vuv xaf xof xpf) and two: ISO and Stripe agree.
        _ => Scale::AsIs,
    }
}

fn is_taken(currency: Currency) -> bool {
    TAKEN.binary_search(&currency.as_str()).is_ok()
}

/// The presentment currencies that Stripe names, those alone that ISO 4217 still has, in alphabetical order.
const TAKEN: &[&str] = &[
    "aed", "afn", "all", "amd", "aoa", "ars", "aud", "awg", "azn", "bam", "bbd", "bdt", "bhd",
    "bif", "bmd", "bnd", "bob", "brl", "bsd", "btn", "bwp", "byn", "bzd", "cad", "cdf", "chf",
    "clp", "cny", "cop", "crc", "cve", "czk", "djf", "dkk", "dop", "dzd", "egp", "etb", "eur",
    "fjd", "fkp", "gbp", "gel", "ghs", "gip", "gmd", "gnf", "gtq", "gyd", "hkd", "hnl", "htg",
    "huf", "idr", "ils", "inr", "isk", "jmd", "jod", "jpy", "kes", "kgs", "khr", "kmf", "krw",
    "kwd", "kyd", "kzt", "lak", "lbp", "lkr", "lrd", "lsl", "mad", "mdl", "mga", "mkd", "mmk",
    "mnt", "mop", "mur", "mvr", "mwk", "mxn", "myr", "mzn", "nad", "ngn", "nio", "nok", "npr",
    "nzd", "omr", "pab", "pen", "pgk", "php", "pkr", "pln", "pyg", "qar", "ron", "rsd", "rub",
    "rwf", "sar", "sbd", "scr", "sek", "sgd", "shp", "sle", "sos", "srd", "svc", "szl", "thb",
    "tjs", "tnd", "top", "try", "ttd", "twd", "tzs", "uah", "ugx", "usd", "uyu", "uzs", "vnd",
    "vuv", "wst", "xaf", "xcd", "xcg", "xof", "xpf", "yer", "zar", "zmw",
];

/// Whether a text is one of Stripe's own tokens: a known prefix, an underscore, letters, digits and underscores. Only
/// such a text may look like a card number and still be stored.
fn is_token(text: &str) -> bool {
    const PREFIXES: [&str; 10] = [
        "pm", "src", "tok", "card", "ba", "cus", "acct", "btok", "ctoken", "seti",
    ];
    text.split_once('_').is_some_and(|(prefix, rest)| {
        PREFIXES.contains(&prefix)
            && !rest.is_empty()
            && rest.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn units(amount: i64, currency: &str) -> Result<i64, UnitsRefused> {
        to_provider_units(Money::new(amount, Currency::parse(currency).unwrap()).unwrap())
    }

    #[test]
    fn the_table_is_sorted_and_every_row_is_an_active_currency() {
        assert!(TAKEN.is_sorted());
        for code in TAKEN {
            assert!(Currency::parse(code).is_some(), "{code}");
        }
    }

    #[test]
    fn two_and_zero_decimals_go_out_as_they_are() {
        for code in [
            "usd", "eur", "huf", "twd", "bif", "clp", "djf", "gnf", "jpy", "kmf", "krw", "pyg",
            "rwf", "vnd", "vuv", "xaf", "xof", "xpf",
        ] {
            assert_eq!(units(1, code), Ok(1), "{code}");
            assert_eq!(units(500, code), Ok(500), "{code}");
            assert_eq!(units(MOST, code), Ok(MOST), "{code}");
            assert_eq!(
                units(MOST + 1, code),
                Err(UnitsRefused::MoreThan(MOST)),
                "{code}"
            );
        }
    }

    #[test]
    fn isk_and_ugx_have_two_decimals_at_stripe() {
        for code in ["isk", "ugx"] {
            assert_eq!(units(5, code), Ok(500), "{code}");
            assert_eq!(units(999_999, code), Ok(99_999_900), "{code}");
            assert_eq!(
                units(1_000_000, code),
                Err(UnitsRefused::MoreThan(999_999)),
                "{code}"
            );
        }
    }

    #[test]
    fn mga_goes_out_in_whole_units_or_not_at_all() {
        assert_eq!(units(50_000, "mga"), Ok(500));
        assert_eq!(units(50_001, "mga"), Err(UnitsRefused::NotAMultipleOf(100)));
        assert_eq!(units(9_999_999_900, "mga"), Ok(MOST));
        assert_eq!(
            units(10_000_000_000, "mga"),
            Err(UnitsRefused::MoreThan(9_999_999_900))
        );
    }

    #[test]
    fn of_three_decimals_the_last_must_be_zero() {
        for code in ["bhd", "jod", "kwd", "omr", "tnd"] {
            assert_eq!(units(35_200, code), Ok(35_200), "{code}");
            assert_eq!(
                units(18_605, code),
                Err(UnitsRefused::NotAMultipleOf(10)),
                "{code}"
            );
            assert_eq!(
                units(MOST + 1, code),
                Err(UnitsRefused::MoreThan(99_999_990)),
                "{code}"
            );
        }
    }

    #[test]
    fn a_currency_that_stripe_does_not_name_is_not_taken() {
        for code in [
            "cup", "ern", "iqd", "irr", "kpw", "lyd", "mru", "sdg", "ssp", "stn", "syp", "tmt",
            "ved", "ves", "zwg",
        ] {
            assert_eq!(
                units(1000, code),
                Err(UnitsRefused::CurrencyNotTaken),
                "{code}"
            );
        }
    }

    #[test]
    fn the_amounts_that_are_taken_follow_from_the_conversion() {
        for currency in Currency::all() {
            let Some(amounts) = RULES.amounts(currency) else {
                assert!(!is_taken(currency), "{currency}");
                continue;
            };
            let code = currency.as_str();
            assert!(units(amounts.step, code).is_ok(), "{currency}");
            assert!(units(amounts.most, code).is_ok(), "{currency}");
            assert!(
                units(amounts.most + amounts.step, code).is_err(),
                "{currency}"
            );
            if amounts.step > 1 {
                assert!(units(amounts.step + 1, code).is_err(), "{currency}");
            }
        }
        let of = |code| {
            RULES
                .amounts(Currency::parse(code).unwrap())
                .map(|a| (a.most, a.step))
        };
        assert_eq!(of("usd"), Some((99_999_999, 1)));
        assert_eq!(of("isk"), Some((999_999, 1)));
        assert_eq!(of("mga"), Some((9_999_999_900, 100)));
        assert_eq!(of("kwd"), Some((99_999_990, 10)));
        assert_eq!(of("kpw"), None);
    }

    #[test]
    fn tokens_are_told_by_prefix_and_charset() {
        for token in [
            "pm_card_visa",
            "pm_1QZ8",
            "src_9",
            "tok_visa",
            "card_1A",
            "cus_R4t",
            "ba_1",
        ] {
            assert!(is_token(token), "{token}");
        }
        for other in [
            "",
            "pm",
            "pm_",
            "_x",
            "4242424242424242",
            "pm_42 42",
            "xx_1",
            "pm-1",
            "pm_ä",
        ] {
            assert!(!is_token(other), "{other}");
        }
    }

    proptest! {
        #[test]
        fn an_amount_is_converted_exactly_or_refused(
            amount in prop_oneof![1_i64..=crate::domain::money::MAX_AMOUNT, 1_i64..=200_000_000, 1_i64..=100_000],
            pick in any::<proptest::sample::Index>(),
        ) {
            let all: Vec<Currency> = Currency::all().collect();
            let currency = all[pick.index(all.len())];
            let money = Money::new(amount, currency).unwrap();
            match to_provider_units(money) {
                Ok(units) => {
                    prop_assert!((1..=MOST).contains(&units));
                    let back = match scale(currency) {
                        Scale::AsIs | Scale::InStepsOf(_) => units,
                        Scale::Times(factor) => units / factor,
                        Scale::DividedBy(step) => units * step,
                    };
                    prop_assert_eq!(back, amount);
                }
                Err(UnitsRefused::CurrencyNotTaken) => prop_assert!(!is_taken(currency)),
                Err(UnitsRefused::NotAMultipleOf(step)) => prop_assert!(amount % step != 0),
                Err(UnitsRefused::MoreThan(most_minor)) => {
                    prop_assert!(amount > most_minor);
                    // The most that is named is itself taken.
                    let named = Money::new(most_minor, currency).unwrap();
                    prop_assert!(to_provider_units(named).is_ok());
                }
            }
        }
    }
}
