//! Which currencies are taken, and from which amount on.

/// Stripe's presentment currencies, sorted.
const KNOWN: &[&str] = &[
    "aed", "afn", "all", "amd", "ang", "aoa", "ars", "aud", "awg", "azn", "bam", "bbd", "bdt",
    "bgn", "bhd", "bif", "bmd", "bnd", "bob", "brl", "bsd", "bwp", "byn", "bzd", "cad", "cdf",
    "chf", "clp", "cny", "cop", "crc", "cve", "czk", "djf", "dkk", "dop", "dzd", "egp", "etb",
    "eur", "fjd", "fkp", "gbp", "gel", "gip", "gmd", "gnf", "gtq", "gyd", "hkd", "hnl", "htg",
    "huf", "idr", "ils", "inr", "isk", "jmd", "jod", "jpy", "kes", "kgs", "khr", "kmf", "krw",
    "kwd", "kyd", "kzt", "lak", "lbp", "lkr", "lrd", "lsl", "mad", "mdl", "mga", "mkd", "mmk",
    "mnt", "mop", "mur", "mvr", "mwk", "mxn", "myr", "mzn", "nad", "ngn", "nio", "nok", "npr",
    "nzd", "omr", "pab", "pen", "pgk", "php", "pkr", "pln", "pyg", "qar", "ron", "rsd", "rub",
    "rwf", "sar", "sbd", "scr", "sek", "sgd", "shp", "sle", "sos", "srd", "std", "szl", "thb",
    "tjs", "tnd", "top", "try", "ttd", "twd", "tzs", "uah", "ugx", "usd", "uyu", "uzs", "vnd",
    "vuv", "wst", "xaf", "xcd", "xcg", "xof", "xpf", "yer", "zar", "zmw",
];

/// Eight digits, whatever the currency.
pub(super) const MAXIMUM: i64 = 99_999_999;

pub(super) fn is_known(currency: &str) -> bool {
    KNOWN.binary_search(&currency).is_ok()
}

/// The least that Stripe charges, in the units it counts the currency in. Where it publishes none, one.
pub(super) fn minimum(currency: &str) -> i64 {
    match currency {
        "usd" | "aud" | "brl" | "cad" | "chf" | "eur" | "inr" | "jpy" | "nzd" | "sgd" => 50,
        "gbp" => 30,
        "bgn" => 100,
        "aed" | "myr" | "pln" | "ron" => 200,
        "dkk" => 250,
        "nok" | "sek" => 300,
        "hkd" => 400,
        "mxn" | "thb" => 1000,
        "czk" => 1500,
        "huf" => 17500,
        _ => 1,
    }
}

/// What an amount must be divisible by: currencies that Stripe counts finer than it charges.
pub(super) fn step(currency: &str) -> i64 {
    match currency {
        "isk" | "ugx" => 100,
        "bhd" | "jod" | "kwd" | "omr" | "tnd" => 10,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_sorted_so_that_it_can_be_searched() {
        assert!(KNOWN.is_sorted());
        assert!(is_known("usd") && is_known("zmw") && is_known("aed") && !is_known("xyz"));
    }
}
