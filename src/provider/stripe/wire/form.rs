//! Forms and queries as Stripe reads them: `application/x-www-form-urlencoded`, nested names in brackets.
//!
//! The same instruction always gives the same bytes, or Stripe would answer a repeat with an idempotency error.

use std::fmt::Write as _;

use crate::domain::ids::{ChargeId, RefundId};
use crate::domain::refund::request::RefundInstruction;
use crate::domain::request::Instruction;
use crate::provider::RefundsOf;

/// The name in the provider's metadata under which a charge's id is stamped.
pub(super) const STAMP: &str = "payonce_charge_id";

/// The same for a refund's id.
pub(super) const REFUND_STAMP: &str = "payonce_refund_id";

/// Makes a `PaymentIntent` and does not confirm it. `return_url`, `off_session` and `error_on_requires_action` are taken
/// by Stripe only together with a confirmation, so they belong to [`execute`].
pub(crate) fn prepare(charge: ChargeId, instruction: &Instruction<'_>) -> String {
    let mut form = String::with_capacity(256);
    let _ = write!(form, "amount={}", instruction.amount);
    field(&mut form, "currency", &instruction.currency);
    field(&mut form, "payment_method", &instruction.payment_method);
    if let Some(customer) = &instruction.customer {
        field(&mut form, "customer", customer);
    }
    if let Some(description) = &instruction.description {
        field(&mut form, "description", description);
    }
    // Without an address to come back to, a method that sends the customer away could never be finished: Stripe would
    // refuse the confirmation.
    form.push_str(match instruction.return_url {
        Some(_) => "&automatic_payment_methods%5Benabled%5D=true&automatic_payment_methods%5Ballow_redirects%5D=always",
        None => "&automatic_payment_methods%5Benabled%5D=true&automatic_payment_methods%5Ballow_redirects%5D=never",
    });
    for (key, value) in instruction.metadata.iter() {
        // Refused at intake already; whatever got past it must not pose as our stamp.
        if key != STAMP {
            form.push_str("&metadata%5B");
            encode(&mut form, key);
            form.push_str("%5D=");
            encode(&mut form, value);
        }
    }
    let _ = write!(form, "&metadata%5B{STAMP}%5D={charge}");
    form
}

/// Confirms a `PaymentIntent`. With nobody there to act, Stripe is asked to decline what would need an action.
pub(crate) fn execute(instruction: &Instruction<'_>) -> String {
    let mut form = String::with_capacity(64);
    match &instruction.return_url {
        Some(url) => {
            form.push_str("return_url=");
            encode(&mut form, url);
        }
        None => form.push_str("error_on_requires_action=true"),
    }
    if instruction.off_session {
        form.push_str("&off_session=true");
    }
    form
}

/// The query of one page of a walk from `since` (Unix seconds) on. A page is as large as Stripe gives.
pub(crate) fn list(since: i64, after: Option<&str>) -> String {
    let mut query = format!("created%5Bgte%5D={since}&limit=100");
    if let Some(after) = after {
        field(&mut query, "starting_after", after);
    }
    query
}

/// Makes a refund of a `PaymentIntent`. The amount is always named: without one Stripe refunds what is left by then.
pub(crate) fn refund(refund: RefundId, instruction: &RefundInstruction<'_>) -> String {
    let mut form = String::with_capacity(192);
    form.push_str("payment_intent=");
    encode(&mut form, &instruction.charge);
    let _ = write!(form, "&amount={}", instruction.amount);
    if let Some(reason) = &instruction.reason {
        field(&mut form, "reason", reason);
    }
    for (key, value) in instruction.metadata.iter() {
        // Refused at intake already; whatever got past it must not pose as our stamp.
        if key != REFUND_STAMP {
            form.push_str("&metadata%5B");
            encode(&mut form, key);
            form.push_str("%5D=");
            encode(&mut form, value);
        }
    }
    let _ = write!(form, "&metadata%5B{REFUND_STAMP}%5D={refund}");
    form
}

/// The query of one page of refunds.
pub(crate) fn list_refunds(of: RefundsOf<'_>, after: Option<&str>) -> String {
    let mut query = match of {
        RefundsOf::Charge(object) => {
            let mut query = "payment_intent=".to_owned();
            encode(&mut query, object.as_str());
            query
        }
        RefundsOf::AccountSince(since) => format!("created%5Bgte%5D={}", since.unix_timestamp()),
    };
    query.push_str("&limit=100");
    if let Some(after) = after {
        field(&mut query, "starting_after", after);
    }
    query
}

fn field(form: &mut String, name: &str, value: &str) {
    form.push('&');
    form.push_str(name);
    form.push('=');
    encode(form, value);
}

fn encode(form: &mut String, text: &str) {
    const HEX: [char; 16] = [
        '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'A', 'B', 'C', 'D', 'E', 'F',
    ];
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            form.push(char::from(byte));
        } else {
            form.push('%');
            form.push(HEX[usize::from(byte >> 4)]);
            form.push(HEX[usize::from(byte & 15)]);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::collections::BTreeMap;

    use super::*;
    use proptest::prelude::*;

    fn charge() -> ChargeId {
        "chg_03510a50e711533aba21e1dd9ddf20be".parse().unwrap()
    }

    fn instruction(metadata: &BTreeMap<String, String>) -> Instruction<'_> {
        Instruction {
            amount: 1999,
            currency: Cow::Borrowed("usd"),
            payment_method: Cow::Borrowed("pm_card_visa"),
            customer: None,
            return_url: None,
            off_session: false,
            description: None,
            metadata: Cow::Borrowed(metadata),
        }
    }

    #[test]
    fn the_least_form_asks_for_no_redirect_and_carries_the_stamp() {
        assert_eq!(
            prepare(charge(), &instruction(&BTreeMap::new())),
            "amount=1999&currency=usd&payment_method=pm_card_visa\
             &automatic_payment_methods%5Benabled%5D=true&automatic_payment_methods%5Ballow_redirects%5D=never\
             &metadata%5Bpayonce_charge_id%5D=chg_03510a50e711533aba21e1dd9ddf20be"
        );
    }

    #[test]
    fn the_full_form_is_escaped_and_nobody_else_writes_the_stamp() {
        let metadata = BTreeMap::from([
            ("a.b".to_owned(), "x&y=1 é".to_owned()),
            (STAMP.to_owned(), "victim".to_owned()),
        ]);
        let full = Instruction {
            customer: Some(Cow::Borrowed("cus_1")),
            description: Some(Cow::Borrowed("50% off + tea")),
            return_url: Some(Cow::Borrowed("https://shop.example/back")),
            ..instruction(&metadata)
        };
        assert_eq!(
            prepare(charge(), &full),
            "amount=1999&currency=usd&payment_method=pm_card_visa&customer=cus_1&description=50%25%20off%20%2B%20tea\
             &automatic_payment_methods%5Benabled%5D=true&automatic_payment_methods%5Ballow_redirects%5D=always\
             &metadata%5Ba.b%5D=x%26y%3D1%20%C3%A9\
             &metadata%5Bpayonce_charge_id%5D=chg_03510a50e711533aba21e1dd9ddf20be"
        );
    }

    #[test]
    fn execute_says_who_is_there() {
        let none = BTreeMap::new();
        let plain = instruction(&none);
        assert_eq!(execute(&plain), "error_on_requires_action=true");
        let renewal = Instruction {
            off_session: true,
            ..plain.clone()
        };
        assert_eq!(
            execute(&renewal),
            "error_on_requires_action=true&off_session=true"
        );
        let present = Instruction {
            return_url: Some(Cow::Borrowed("https://a.example/?o=1")),
            ..plain
        };
        assert_eq!(
            execute(&present),
            "return_url=https%3A%2F%2Fa.example%2F%3Fo%3D1"
        );
    }

    #[test]
    fn a_refund_names_its_amount_and_carries_its_stamp() {
        let metadata = BTreeMap::from([
            ("order".to_owned(), "4 2".to_owned()),
            (REFUND_STAMP.to_owned(), "victim".to_owned()),
        ]);
        let instruction = RefundInstruction {
            amount: 500,
            currency: Cow::Borrowed("usd"),
            charge: Cow::Borrowed("pi_1"),
            reason: Some(Cow::Borrowed("duplicate")),
            metadata: Cow::Borrowed(&metadata),
        };
        let id = "rfd_03510a50e711533aba21e1dd9ddf20be".parse().unwrap();
        assert_eq!(
            refund(id, &instruction),
            "payment_intent=pi_1&amount=500&reason=duplicate&metadata%5Border%5D=4%202\
             &metadata%5Bpayonce_refund_id%5D=rfd_03510a50e711533aba21e1dd9ddf20be"
        );
    }

    #[test]
    fn a_page_says_where_it_starts() {
        assert_eq!(list(17, None), "created%5Bgte%5D=17&limit=100");
        assert_eq!(
            list(17, Some("pi_1")),
            "created%5Bgte%5D=17&limit=100&starting_after=pi_1"
        );
    }

    proptest! {
        #[test]
        fn what_is_escaped_reads_back_as_it_was(text in any::<String>()) {
            let mut form = "v=".to_owned();
            encode(&mut form, &text);
            let url = reqwest::Url::parse(&format!("http://x/?{form}")).unwrap();
            let pairs: Vec<_> = url.query_pairs().into_owned().collect();
            prop_assert_eq!(pairs, vec![("v".to_owned(), text)]);
        }
    }
}
