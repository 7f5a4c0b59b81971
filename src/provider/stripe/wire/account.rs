//! Whose account a key opens: what `GET /v1/account` says of it.

use std::borrow::Cow;

use serde::Deserialize;

use super::Called;
use super::failure::ErrorObject;
use crate::domain::charge::Failure;
use crate::domain::ids::ProviderAccountId;
use crate::provider::Whose;

/// The call has no parameters: nothing of it is refused for good, and nothing can be missing.
#[derive(Clone, Copy)]
pub(super) struct Account;

impl Called for Account {
    type Object = ProviderAccountId;

    fn object(body: &[u8]) -> Option<ProviderAccountId> {
        #[derive(Deserialize)]
        struct Shown<'a> {
            #[serde(borrow)]
            id: Cow<'a, str>,
        }
        let shown: Shown<'_> = serde_json::from_slice(body).ok()?;
        id(&shown.id)
    }

    fn is_missing(self, _error: &ErrorObject<'_>) -> bool {
        false
    }

    fn final_refusal(self, _error: &ErrorObject<'_>) -> Option<Failure> {
        None
    }
}

/// What a 403 says, to a restricted key that lacks the right or for which there is none: `Some` if it is in Stripe's words
/// and not somebody's on the way. Its message names the account: "… this endpoint on account 'acct_…'".
pub(super) fn may_not_ask(body: &[u8]) -> Option<Whose> {
    #[derive(Deserialize)]
    struct Refused<'a> {
        #[serde(borrow)]
        error: Error<'a>,
    }
    #[derive(Deserialize)]
    struct Error<'a> {
        #[serde(borrow, rename = "type")]
        kind: Cow<'a, str>,
        #[serde(borrow, default)]
        message: Cow<'a, str>,
    }
    let Refused { error } = serde_json::from_slice(body).ok()?;
    (error.kind == "invalid_request_error")
        .then(|| named(&error.message).map_or(Whose::Untold, Whose::Account))
}

fn named(message: &str) -> Option<ProviderAccountId> {
    let mut ids = message
        .split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .filter_map(id);
    let first = ids.next()?;
    ids.all(|other| other == first).then_some(first)
}

fn id(text: &str) -> Option<ProviderAccountId> {
    let rest = text.strip_prefix("acct_")?;
    let plain = !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_alphanumeric());
    plain.then(|| ProviderAccountId::parse(text)).flatten()
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderMap;

    use super::super::decode_account;
    use super::*;
    use crate::domain::outcome::{Answer, Unclear};

    fn decoded(status: u16, body: &str) -> Whose {
        decode_account(status, &HeaderMap::new(), body.as_bytes())
    }

    fn refused(message: &str) -> Whose {
        let error =
            serde_json::json!({"error": {"type": "invalid_request_error", "message": message}});
        decoded(403, &error.to_string())
    }

    fn account(id: &str) -> Whose {
        Whose::Account(ProviderAccountId::parse(id).unwrap())
    }

    #[test]
    fn an_account_is_known_by_its_id_and_anything_else_says_nothing() {
        assert_eq!(
            decoded(200, r#"{"id":"acct_1PJB","object":"account"}"#),
            account("acct_1PJB")
        );
        for body in [
            "",
            "{}",
            r#"{"id":"pi_1"}"#,
            r#"{"id":"acct_"}"#,
            r#"{"id":"acct_ä"}"#,
        ] {
            let unreadable = Whose::Unanswered(Answer::Unclear {
                reason: Unclear::Unreadable,
                replayed: false,
            });
            assert_eq!(decoded(200, body), unreadable, "{body}");
        }
        let denied =
            r#"{"error":{"type":"invalid_request_error","message":"Invalid API Key provided"}}"#;
        assert_eq!(decoded(401, denied), Whose::Unanswered(Answer::Denied));
        assert!(matches!(
            decoded(404, denied),
            Whose::Unanswered(Answer::Rejected { .. })
        ));
    }

    #[test]
    fn a_restricted_key_without_the_right_is_told_by_stripe_alone_and_its_message_names_the_account()
     {
        let begins = "The provided key 'rk_test_*****' does not have the required permissions for this endpoint on account";
        assert_eq!(
            refused(&format!(
                "{begins} 'acct_1PJBLEBBLEfV'. Having the 'rak_accounts_kyc_basic_read' permission would allow this request \
                 to continue."
            )),
            account("acct_1PJBLEBBLEfV")
        );
        for message in [
            "You may not.".to_owned(),
            format!("{begins} 'acct_1' of 'acct_2'."),
            format!("{begins} 'acct_***'."),
        ] {
            assert_eq!(refused(&message), Whose::Untold, "{message}");
        }
        // Of a proxy or a firewall.
        for body in ["", "<html>Forbidden</html>", "{}", r#"{"error":"acct_1"}"#] {
            assert_eq!(decoded(403, body), Whose::Unanswered(Answer::Forbidden));
        }
    }
}
