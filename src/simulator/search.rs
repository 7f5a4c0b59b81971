//! The search: it shows what was known `search_lag_ms` ago, and compares without case. As at Stripe, that nothing is
//! found proves nothing.

use super::form::Form;
use super::listing::{List, Listed, json, limit};
use super::model::{ApiError, Snapshot};
use super::params;
use super::state::Account;

pub(super) fn search(account: Option<&Account>, form: &Form, now_ms: i64, lag_ms: u64) -> Listed {
    params::known(form, &["expand", "limit", "page", "query"])?;
    let limit = limit(form)?;
    let query = form.filled("query").unwrap_or_default();
    let terms = terms(query).ok_or_else(|| {
        ApiError::invalid(format!(
            "We were unable to parse your search query: {query}"
        ))
        .param("query")
    })?;
    let skip: usize = form
        .filled("page")
        .map_or(Some(0), |page| page.parse().ok())
        .ok_or_else(|| ApiError::invalid("Invalid page").param("page"))?;
    let horizon = now_ms.saturating_sub(i64::try_from(lag_ms).unwrap_or(i64::MAX));
    let mut found: Vec<Snapshot> = account
        .map_or(&[][..], |account| &account.intents)
        .iter()
        .rev()
        .filter(|intent| intent.created_ms <= horizon)
        .map(|intent| match &intent.before {
            Some(before) if intent.changed_ms > horizon => Snapshot {
                fixed: intent.snapshot.fixed.clone(),
                now: before.clone(),
            },
            _ => intent.snapshot.clone(),
        })
        .filter(|intent| terms.iter().all(|term| term.matches(intent)))
        .skip(skip)
        .take(limit + 1)
        .collect();
    let has_more = found.len() > limit;
    found.truncate(limit);
    let next_page = has_more.then(|| (skip + limit).to_string());
    let data = found.iter().map(Snapshot::view).collect();
    Ok(json(&List {
        object: "search_result",
        data,
        has_more,
        next_page,
        url: "/v1/payment_intents/search",
    }))
}

#[derive(Debug, PartialEq, Eq)]
enum Term {
    Metadata(String, String),
    Status(String),
    Customer(String),
}

impl Term {
    fn matches(&self, intent: &Snapshot) -> bool {
        match self {
            Self::Metadata(key, wanted) => intent.fixed.metadata.iter().any(|(name, value)| {
                **name == **key && value.to_lowercase() == wanted.to_lowercase()
            }),
            Self::Status(wanted) => intent.now.status.as_str().eq_ignore_ascii_case(wanted),
            Self::Customer(wanted) => intent
                .fixed
                .customer
                .as_deref()
                .is_some_and(|id| id.eq_ignore_ascii_case(wanted)),
        }
    }
}

/// `field:'value'` joined by AND; None for what is not of this form.
fn terms(query: &str) -> Option<Vec<Term>> {
    let mut rest = query.trim();
    let mut terms = Vec::new();
    loop {
        let key;
        (key, rest) = match rest.strip_prefix("metadata[") {
            Some(inner) => {
                let (key, rest) = quoted(inner)?;
                (Some(key), rest.strip_prefix(']')?)
            }
            None => (None, rest),
        };
        let (field, after) = rest.split_once(':')?;
        let (value, after) = quoted(after)?;
        terms.push(match (key, field) {
            (Some(key), "") => Term::Metadata(key, value),
            (None, "status") => Term::Status(value),
            (None, "customer") => Term::Customer(value),
            _ => return None,
        });
        rest = after.trim_start();
        if rest.is_empty() {
            return Some(terms);
        }
        rest = rest
            .strip_prefix("AND ")
            .or_else(|| rest.strip_prefix("and "))?
            .trim_start();
    }
}

/// A quoted string, a backslash taking the next character as it is, and what follows it.
fn quoted(text: &str) -> Option<(String, &str)> {
    let quote = text
        .chars()
        .next()
        .filter(|quote| matches!(quote, '\'' | '"'))?;
    let mut value = String::new();
    let mut letters = text.char_indices().skip(1);
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' => value.push(letters.next()?.1),
            _ if letter == quote => return Some((value, &text[at + 1..])),
            _ => value.push(letter),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_query_is_read_with_its_quotes() {
        let metadata = |key: &str, value: &str| Term::Metadata(key.into(), value.into());
        assert_eq!(terms("metadata['a']:'b'"), Some(vec![metadata("a", "b")]));
        assert_eq!(
            terms(r#"metadata["a"]:"it's" AND status:'succeeded'"#),
            Some(vec![
                metadata("a", "it's"),
                Term::Status("succeeded".into())
            ])
        );
        assert_eq!(
            terms(r"metadata['a']:'x\' y'"),
            Some(vec![metadata("a", "x' y")])
        );
        for wrong in [
            "",
            "metadata['a']",
            "metadata['a']:'b",
            "metadata['a']:'b' OR status:'x'",
            "amount>1",
        ] {
            assert_eq!(terms(wrong), None, "{wrong}");
        }
    }
}
