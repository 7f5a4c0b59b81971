//! The queries of the lists: read to the letter, refused by name, and the same however they are written.

#![no_main]

use libfuzzer_sys::fuzz_target;
use oracle::check_refusal;
use payonce::domain::ids::MerchantId;
use payonce::http::code::Code;
use payonce::http::problem::ApiError;
use payonce::http::{charge_list, event_list};
use uuid::Uuid;

fuzz_target!(|query: &str| {
    check(query, charge_list::Asked::read);
    check(query, event_list::Asked::read);
});

fn check<T: PartialEq + std::fmt::Debug>(
    query: &str,
    read: impl Fn(Option<&str>, MerchantId) -> Result<T, ApiError>,
) {
    let merchant = MerchantId::from_uuid(Uuid::from_u128(7));
    match read(Some(query), merchant) {
        Ok(asked) => {
            // As somebody else reads and writes it, from the last parameter to the first.
            let mut pairs: Vec<_> = form_urlencoded::parse(query.as_bytes()).collect();
            pairs.reverse();
            let again = form_urlencoded::Serializer::new(String::new())
                .extend_pairs(pairs)
                .finish();
            let again = read(Some(&again), merchant).expect("it says the same");
            assert_eq!(again, asked);
        }
        Err(error) => {
            assert_eq!(error.code(), Code::InvalidParameter);
            assert!(!error.faults().is_empty());
            check_refusal(&error);
        }
    }
}
