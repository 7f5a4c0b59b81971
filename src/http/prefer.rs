//! `Prefer: wait=N`: holds an answer until the charge is terminal or needs the customer, or N seconds have passed.
//!
//! Waiting reads the charge again and again, so only so many requests wait at once; one more is answered without a wait
//! and without `Preference-Applied`. Shutdown ends every wait.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue};
use axum::response::Response;
use tokio::time::Instant;

use super::HttpState;
use super::{charges, refunds};
use crate::domain::charge::{Charge, State};
use crate::domain::refund::{Refund, RefundState};

/// The longest wait, in seconds; part of the contract.
pub(super) const MOST_SECONDS: u64 = 30;
/// How many requests wait at once: at the slowest pace they read the database a thousand times a second.
pub(super) const MOST_WAITING: usize = 512;
/// Reads start close together, because most charges are done in some milliseconds, and drift apart.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LAST_PAUSE: Duration = Duration::from_millis(500);

/// The wait a client asks for, cut to the most; the first `wait` counts, and a bad value is none.
pub(super) fn wait(headers: &HeaderMap) -> Option<u64> {
    let value = headers
        .get_all("prefer")
        .iter()
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(','))
        .find_map(|preference| {
            let (name, value) = preference.split(';').next()?.split_once('=')?;
            name.trim()
                .eq_ignore_ascii_case("wait")
                .then_some(value.trim())
        })?;
    let is_number = (1..=18).contains(&value.len()) && value.bytes().all(|b| b.is_ascii_digit());
    let seconds: u64 = is_number.then(|| value.parse().ok())??;
    Some(seconds.min(MOST_SECONDS))
}

/// The charge after the wait, and whether the wait was applied. What can't be read in between does not matter: the
/// charge as it was last known is the answer.
pub(super) async fn settle(
    state: &HttpState,
    mut charge: Box<Charge>,
    seconds: u64,
) -> (Box<Charge>, bool) {
    let Ok(_place) = state.waiting().try_acquire() else {
        return (charge, false);
    };
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut pause = FIRST_PAUSE;
    while is_on_its_way(&charge) && Instant::now() < end {
        tokio::select! {
            () = tokio::time::sleep_until(end.min(Instant::now() + pause)) => {}
            () = state.parts().closing.cancelled() => break,
        }
        pause = (pause * 2).min(LAST_PAUSE);
        if let Ok(Some(now)) = charges::read(state, charge.merchant, charge.id).await {
            charge = Box::new(now);
        }
    }
    (charge, true)
}

/// Says how long the wait could have been.
pub(super) fn set_applied(response: &mut Response, seconds: u64) {
    if let Ok(value) = HeaderValue::try_from(format!("wait={seconds}")) {
        response.headers_mut().insert("preference-applied", value);
    }
}

/// The same for a refund.
pub(super) async fn settle_refund(
    state: &HttpState,
    mut refund: Box<Refund>,
    seconds: u64,
) -> (Box<Refund>, bool) {
    let Ok(_place) = state.waiting().try_acquire() else {
        return (refund, false);
    };
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut pause = FIRST_PAUSE;
    while refund_is_on_its_way(&refund) && Instant::now() < end {
        tokio::select! {
            () = tokio::time::sleep_until(end.min(Instant::now() + pause)) => {}
            () = state.parts().closing.cancelled() => break,
        }
        pause = (pause * 2).min(LAST_PAUSE);
        if let Ok(Some(now)) = refunds::read(state, refund.merchant, refund.id).await {
            refund = Box::new(now);
        }
    }
    (refund, true)
}

fn refund_is_on_its_way(refund: &Refund) -> bool {
    match &refund.progress.state {
        RefundState::Pending | RefundState::Processing | RefundState::RequiresReconciliation => {
            true
        }
        RefundState::RequiresAction
        | RefundState::Succeeded
        | RefundState::Failed(_)
        | RefundState::Canceled => false,
    }
}

fn is_on_its_way(charge: &Charge) -> bool {
    match &charge.progress.state {
        State::Pending | State::Processing { .. } | State::RequiresReconciliation => true,
        State::RequiresAction(_) | State::Succeeded | State::Failed(_) | State::Canceled => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(lines: &[&'static str]) -> Option<u64> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append("prefer", HeaderValue::from_static(line));
        }
        wait(&headers)
    }

    #[test]
    fn a_wait_is_read_wherever_it_stands_and_a_bad_one_is_none() {
        assert_eq!(asked(&["wait=5"]), Some(5));
        assert_eq!(asked(&["wait=0"]), Some(0));
        assert_eq!(asked(&["respond-async, Wait = 100"]), Some(30));
        assert_eq!(asked(&["respond-async", "wait=5; x=1", "wait=6"]), Some(5));
        for bad in [
            "wait",
            "wait=",
            "wait=-1",
            "wait=1.5",
            "wait=x",
            "waits=1",
            "wait=9999999999999999999",
        ] {
            assert_eq!(asked(&[bad]), None, "{bad}");
        }
        assert_eq!(asked(&[]), None);
    }
}
