//! A body by every rule, so that all its faults are named at once.

use super::{ApiError, Draft, Parsed, Violation};
use crate::domain::request::{ChargeRequest, ProviderRules};

/// A body of the right shape.
#[derive(Debug)]
pub enum Judged {
    Good(ChargeRequest),
    /// Some rule refuses it.
    Refused(Draft, Vec<Violation>),
}

/// Judges what could be read. A body of another shape is an error here, with the rules that it breaks besides.
pub fn judge(parsed: Parsed, rules: &ProviderRules) -> Result<Judged, ApiError> {
    let Parsed { draft, faults } = parsed;
    let judged = ChargeRequest::judge(draft, rules);
    if faults.is_empty() {
        return Ok(match judged {
            Ok(request) => Judged::Good(request),
            Err(refused) => Judged::Refused(refused.draft, refused.violations),
        });
    }
    let mut all = faults;
    if let Err(refused) = judged {
        // A field that could not be read was judged by what stands in its place.
        let unread = all.len();
        for violation in refused.violations {
            let known = all[..unread].iter().any(|fault| covers(fault, &violation));
            if !known {
                all.push(violation);
            }
        }
    }
    Err(ApiError::invalid_request(all))
}

/// Whether a rule was judged by what stands in the place of something that could not be read.
pub(in crate::http) fn covers(fault: &Violation, violation: &Violation) -> bool {
    let is_no_object = fault.pointer == "#" && fault.rule == "type";
    is_no_object || fault.pointer == violation.pointer
}
