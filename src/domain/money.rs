//! Money is a whole number of ISO 4217 minor units and a currency; nothing here ever rounds.

use std::fmt;

/// The most payonce takes in any currency; a provider may take less.
pub const MAX_AMOUNT: i64 = 999_999_999_999;

/// An active ISO 4217 currency, written in lower case.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Currency([u8; 3]);

impl Currency {
    /// Takes any ASCII case.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes: [u8; 3] = text.as_bytes().try_into().ok()?;
        let code = bytes.map(|b| b.to_ascii_lowercase());
        ACTIVE
            .iter()
            .any(|(active, _)| active.as_bytes() == code)
            .then_some(Self(code))
    }

    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("the table holds ASCII codes alone")
    }

    /// How many decimals the minor unit has: usd 2, jpy 0, kwd 3.
    pub fn decimals(self) -> u8 {
        ACTIVE
            .iter()
            .find_map(|(code, decimals)| (code.as_bytes() == self.0).then_some(*decimals))
            .expect("a currency is only made from the table")
    }

    /// All active currencies, in alphabetical order.
    pub fn all() -> impl Iterator<Item = Self> {
        ACTIVE.iter().filter_map(|(code, _)| Self::parse(code))
    }
}

impl fmt::Display for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// At least 1 and at most [`MAX_AMOUNT`] minor units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Money {
    minor_units: i64,
    currency: Currency,
}

impl Money {
    pub fn new(minor_units: i64, currency: Currency) -> Option<Self> {
        (1..=MAX_AMOUNT).contains(&minor_units).then_some(Self {
            minor_units,
            currency,
        })
    }

    pub const fn minor_units(self) -> i64 {
        self.minor_units
    }

    pub const fn currency(self) -> Currency {
        self.currency
    }
}

/// ISO 4217 list one, funds codes and precious metals left out (amendment 179: bgn, ang, hrk, sll and zwl are retired).
const ACTIVE: &[(&str, u8)] = &[
    ("aed", 2),
    ("afn", 2),
    ("all", 2),
    ("amd", 2),
    ("aoa", 2),
    ("ars", 2),
    ("aud", 2),
    ("awg", 2),
    ("azn", 2),
    ("bam", 2),
    ("bbd", 2),
    ("bdt", 2),
    ("bhd", 3),
    ("bif", 0),
    ("bmd", 2),
    ("bnd", 2),
    ("bob", 2),
    ("brl", 2),
    ("bsd", 2),
    ("btn", 2),
    ("bwp", 2),
    ("byn", 2),
    ("bzd", 2),
    ("cad", 2),
    ("cdf", 2),
    ("chf", 2),
    ("clp", 0),
    ("cny", 2),
    ("cop", 2),
    ("crc", 2),
    ("cup", 2),
    ("cve", 2),
    ("czk", 2),
    ("djf", 0),
    ("dkk", 2),
    ("dop", 2),
    ("dzd", 2),
    ("egp", 2),
    ("ern", 2),
    ("etb", 2),
    ("eur", 2),
    ("fjd", 2),
    ("fkp", 2),
    ("gbp", 2),
    ("gel", 2),
    ("ghs", 2),
    ("gip", 2),
    ("gmd", 2),
    ("gnf", 0),
    ("gtq", 2),
    ("gyd", 2),
    ("hkd", 2),
    ("hnl", 2),
    ("htg", 2),
    ("huf", 2),
    ("idr", 2),
    ("ils", 2),
    ("inr", 2),
    ("iqd", 3),
    ("irr", 2),
    ("isk", 0),
    ("jmd", 2),
    ("jod", 3),
    ("jpy", 0),
    ("kes", 2),
    ("kgs", 2),
    ("khr", 2),
    ("kmf", 0),
    ("kpw", 2),
    ("krw", 0),
    ("kwd", 3),
    ("kyd", 2),
    ("kzt", 2),
    ("lak", 2),
    ("lbp", 2),
    ("lkr", 2),
    ("lrd", 2),
    ("lsl", 2),
    ("lyd", 3),
    ("mad", 2),
    ("mdl", 2),
    ("mga", 2),
    ("mkd", 2),
    ("mmk", 2),
    ("mnt", 2),
    ("mop", 2),
    ("mru", 2),
    ("mur", 2),
    ("mvr", 2),
    ("mwk", 2),
    ("mxn", 2),
    ("myr", 2),
    ("mzn", 2),
    ("nad", 2),
    ("ngn", 2),
    ("nio", 2),
    ("nok", 2),
    ("npr", 2),
    ("nzd", 2),
    ("omr", 3),
    ("pab", 2),
    ("pen", 2),
    ("pgk", 2),
    ("php", 2),
    ("pkr", 2),
    ("pln", 2),
    ("pyg", 0),
    ("qar", 2),
    ("ron", 2),
    ("rsd", 2),
    ("rub", 2),
    ("rwf", 0),
    ("sar", 2),
    ("sbd", 2),
    ("scr", 2),
    ("sdg", 2),
    ("sek", 2),
    ("sgd", 2),
    ("shp", 2),
    ("sle", 2),
    ("sos", 2),
    ("srd", 2),
    ("ssp", 2),
    ("stn", 2),
    ("svc", 2),
    ("syp", 2),
    ("szl", 2),
    ("thb", 2),
    ("tjs", 2),
    ("tmt", 2),
    ("tnd", 3),
    ("top", 2),
    ("try", 2),
    ("ttd", 2),
    ("twd", 2),
    ("tzs", 2),
    ("uah", 2),
    ("ugx", 0),
    ("usd", 2),
    ("uyu", 2),
    ("uzs", 2),
    ("ved", 2),
    ("ves", 2),
    ("vnd", 0),
    ("vuv", 0),
    ("wst", 2),
    ("xaf", 0),
    ("xcd", 2),
    ("xcg", 2),
    ("xof", 0),
    ("xpf", 0),
    ("yer", 2),
    ("zar", 2),
    ("zmw", 2),
    ("zwg", 2),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn currencies_are_read_in_any_case_and_retired_or_made_up_ones_are_not() {
        assert_eq!(Currency::parse("UsD").unwrap().as_str(), "usd");
        for bad in ["", "us", "usdd", "bgn", "zzz", "üs", "xau", "us\0"] {
            assert!(Currency::parse(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn decimals_follow_iso_4217() {
        for (code, decimals) in [
            ("usd", 2),
            ("jpy", 0),
            ("kwd", 3),
            ("isk", 0),
            ("mga", 2),
            ("ugx", 0),
        ] {
            assert_eq!(
                Currency::parse(code).unwrap().decimals(),
                decimals,
                "{code}"
            );
        }
    }

    #[test]
    fn money_is_at_least_one_minor_unit_and_at_most_the_cap() {
        let usd = Currency::parse("usd").unwrap();
        for bad in [i64::MIN, -1, 0, MAX_AMOUNT + 1, i64::MAX] {
            assert!(Money::new(bad, usd).is_none(), "{bad}");
        }
        assert_eq!(
            Money::new(MAX_AMOUNT, usd).unwrap().minor_units(),
            MAX_AMOUNT
        );
    }
}
