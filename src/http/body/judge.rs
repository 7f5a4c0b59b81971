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
    let violations = judged
        .err()
        .map_or_else(Vec::new, |refused| refused.violations);
    Err(ApiError::invalid_request(join(faults, violations)))
}

/// What could not be read, and the rules that are broken besides: a field that could not be read was judged by what stands
/// in its place.
pub(in crate::http) fn join(faults: Vec<Violation>, violations: Vec<Violation>) -> Vec<Violation> {
    let mut all = faults;
    let unread = all.len();
    for violation in violations {
        let known = all[..unread].iter().any(|fault| covers(fault, &violation));
        if !known {
            all.push(violation);
        }
    }
    all
}

/// Whether a rule was judged by what stands in the place of something that could not be read.
fn covers(fault: &Violation, violation: &Violation) -> bool {
    let is_no_object = fault.pointer == "#" && fault.rule == "type";
    is_no_object || fault.pointer == violation.pointer
}
