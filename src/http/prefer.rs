//! `Prefer: wait=N`: holds an answer until the charge or refund is terminal or needs the customer, or N seconds have passed.
//!
//! The wait itself is a [`Watch`](crate::watches::Watch). Only so many requests wait at once; one more is answered without
//! a wait and without `Preference-Applied`, as RFC 7240 has it: a preference that is not honoured is no error. So is a
//! client that hangs up, or only closes its sending side, which looks the same: its place is free at once. Shutdown ends
//! every wait.

use std::time::Duration;

use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue};
use axum::response::Response;

use super::HttpState;
use super::problem::ApiError;
use super::wire::Peer;
use crate::watches::{Watched, Watches};

/// The longest wait, in seconds; part of the contract.
pub const MOST_SECONDS: u64 = 30;

/// The wait a client asks for, cut to the most; the first `wait` counts, and a bad value is none.
pub fn wait(headers: &HeaderMap) -> Option<u64> {
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

/// Answers with the object as `written`, after the wait that the client asked for.
pub(super) async fn answer<T: Watched>(
    state: &HttpState,
    head: &Parts,
    watches: &Watches<T>,
    object: Box<T>,
    written: impl FnOnce(&T) -> Result<Response, ApiError>,
) -> Result<Response, ApiError> {
    let Some(seconds) = wait(&head.headers) else {
        return written(&object);
    };
    let peer = head.extensions.get();
    let (object, applied) = settle(state, peer, watches, object, seconds).await;
    let mut response = written(&object)?;
    if applied {
        set_applied(&mut response, seconds);
    }
    Ok(response)
}

/// The object after the wait, and whether the wait was applied.
async fn settle<T: Watched>(
    state: &HttpState,
    peer: Option<&Peer>,
    watches: &Watches<T>,
    object: Box<T>,
    seconds: u64,
) -> (Box<T>, bool) {
    if seconds == 0 || !object.is_on_its_way() {
        return (object, true);
    }
    let known = object.clone();
    let mut watch = match watches.watch(object) {
        Ok(watch) => watch,
        Err(object) => return (object, false),
    };
    let hung_up = async {
        match peer {
            Some(peer) => peer.hung_up().await,
            None => std::future::pending().await,
        }
    };
    let (settled, applied) = tokio::select! {
        biased;
        settled = watch.settled() => (settled, true),
        () = hung_up => (watch.hung_up(), false),
        () = tokio::time::sleep(Duration::from_secs(seconds)) => (watch.give_up(), true),
        () = state.parts().closing.cancelled() => (watch.give_up(), true),
    };
    (settled.unwrap_or(known), applied)
}

/// Says how long the wait could have been.
fn set_applied(response: &mut Response, seconds: u64) {
    if let Ok(value) = HeaderValue::try_from(format!("wait={seconds}")) {
        response.headers_mut().insert("preference-applied", value);
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
