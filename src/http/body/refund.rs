//! The body of POST /v1/charges/{id}/refunds, by the rules of the other.

use std::collections::BTreeMap;

use super::{ApiError, Json, Violation, advise, child, read_json};

/// The fields of a refund request, as the contract lists them.
pub(in crate::http) const REFUND_FIELDS: [&str; 3] = ["amount", "reason", "metadata"];

/// A body that is JSON: what could be read of it, and the faults of its shape.
#[derive(Debug)]
pub(in crate::http) struct ParsedRefund {
    pub(in crate::http) amount: Option<i64>,
    pub(in crate::http) reason: Option<String>,
    pub(in crate::http) metadata: BTreeMap<String, String>,
    pub(in crate::http) faults: Vec<Violation>,
}

/// Reads a body. Only what is no JSON at all is an error here.
pub(in crate::http) fn parse(body: &[u8]) -> Result<ParsedRefund, ApiError> {
    let (json, mut form) = read_json(body)?;
    let mut given: [Option<Json<'_>>; REFUND_FIELDS.len()] = Default::default();
    match json {
        Json::Object(fields) => {
            for (name, value) in fields {
                match REFUND_FIELDS.iter().position(|field| *field == name) {
                    Some(at) => given[at] = Some(value),
                    None => form.refuse(
                        child("#", &name),
                        "unknown_field",
                        advise(&name, &REFUND_FIELDS, "refund"),
                    ),
                }
            }
        }
        _ => form.refuse("#", "type", "must be one JSON object"),
    }
    let [amount, reason, metadata] = given.map(|value| value.filter(|value| *value != Json::Null));
    let amount = amount.map(|amount| {
        form.amount(Some(&amount));
        form.draft.amount
    });
    let reason = match reason {
        None => None,
        Some(Json::Text(text)) => Some(text.into_owned()),
        Some(_) => {
            form.refuse("#/reason", "type", "must be a string");
            None
        }
    };
    form.metadata(metadata);
    Ok(ParsedRefund {
        amount,
        reason,
        metadata: form.draft.metadata,
        faults: form.faults,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_may_be_left_out_and_nothing_else_may_be_there() {
        let whole = parse(b"{}").unwrap();
        assert_eq!((whole.amount, whole.reason), (None, None));
        assert!(whole.faults.is_empty());
        let nulls = parse(br#"{"amount":null,"reason":null,"metadata":null}"#).unwrap();
        assert!(nulls.faults.is_empty() && nulls.amount.is_none());
        let wrong = parse(
            br#"{"amount":"5","amout":1,"reason":7,"metadata":{"a":1},"currency":"usd","reason":"x"}"#,
        )
        .unwrap();
        let told: Vec<(&str, &str)> = wrong
            .faults
            .iter()
            .map(|fault| (fault.pointer.as_str(), fault.rule))
            .collect();
        assert_eq!(
            told,
            [
                ("#/reason", "duplicate_field"),
                ("#/amout", "unknown_field"),
                ("#/currency", "unknown_field"),
                ("#/amount", "type"),
                ("#/metadata/a", "type"),
            ]
        );
        assert!(parse(b"").is_err());
    }
}
