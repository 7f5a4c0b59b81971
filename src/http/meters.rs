//! What is measured of the API: requests by route and status, and what became of the requests for a charge.

use std::sync::Arc;

use axum::http::StatusCode;
use metrics::Counter;

use super::code::Code;
use super::edge::ROUTES;
use super::problem::ApiError;
use crate::intake::meters::{REQUESTS, REQUESTS_HELP};
use crate::meters::Meters;

#[derive(Clone)]
pub struct HttpMeters(Arc<Handles>);

struct Handles {
    /// Route by route, in the order of [`ROUTES`] and [`statuses`].
    requests: Vec<Vec<Counter>>,
    statuses: Vec<StatusCode>,
    replayed: Counter,
    /// In the order of [`Code::ALL`].
    refused: Vec<Counter>,
}

impl HttpMeters {
    pub fn new(meters: &Meters) -> Self {
        let statuses = statuses();
        let request = |route, status: &StatusCode| {
            meters.counter(
                "payonce_http_requests_total",
                "Requests to the API that were answered, by route and status.",
                &[("route", route), ("status", digits(*status))],
            )
        };
        let requests = ROUTES
            .iter()
            .map(|route| {
                statuses
                    .iter()
                    .map(|status| request(*route, status))
                    .collect()
            })
            .collect();
        let taken = |result, code| {
            meters.counter(
                REQUESTS,
                REQUESTS_HELP,
                &[("result", result), ("code", code)],
            )
        };
        let refused = |code: &Code| match code {
            Code::IdempotencyKeyReused => taken("reused", code.as_str()),
            code => taken("refused", code.as_str()),
        };
        Self(Arc::new(Handles {
            requests,
            statuses,
            replayed: taken("replayed", ""),
            refused: Code::ALL.iter().map(refused).collect(),
        }))
    }

    pub(super) fn answered(&self, route: &'static str, status: StatusCode) {
        let handles = &self.0;
        // The last of the routes is that of any other path; every status that is given is a code's, or one of a success.
        let route = ROUTES.iter().position(|known| *known == route);
        let status = handles.statuses.iter().position(|known| *known == status);
        let of_route = handles.requests.get(route.unwrap_or(ROUTES.len() - 1));
        if let (Some(of_route), Some(status)) = (of_route, status) {
            of_route[status].increment(1);
        }
    }

    /// A request for a charge that was made before.
    pub(super) fn replayed(&self) {
        self.0.replayed.increment(1);
    }

    pub(super) fn refused(&self, error: &ApiError) {
        let index = Code::ALL.iter().position(|code| *code == error.code());
        if let Some(counter) = index.and_then(|index| self.0.refused.get(index)) {
            counter.increment(1);
        }
    }
}

fn statuses() -> Vec<StatusCode> {
    let mut statuses = vec![
        StatusCode::OK,
        StatusCode::CREATED,
        StatusCode::ACCEPTED,
        StatusCode::NO_CONTENT,
    ];
    statuses.extend(Code::ALL.iter().map(|code| code.status()));
    statuses.sort_unstable();
    statuses.dedup();
    statuses
}

/// A status as the text of a label.
fn digits(status: StatusCode) -> &'static str {
    match status.as_u16() {
        200 => "200",
        201 => "201",
        202 => "202",
        204 => "204",
        400 => "400",
        401 => "401",
        403 => "403",
        404 => "404",
        405 => "405",
        408 => "408",
        409 => "409",
        413 => "413",
        414 => "414",
        415 => "415",
        422 => "422",
        429 => "429",
        431 => "431",
        500 => "500",
        503 => "503",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_of_a_code_is_counted_under_its_own_digits() {
        let meters = Meters::new();
        let counted = HttpMeters::new(&meters);
        for code in Code::ALL {
            counted.answered("/v1/charges", code.status());
        }
        counted.answered("/of/somewhere/else", StatusCode::OK);
        let text = meters.render();
        assert!(!text.contains("status=\"other\""));
        for status in Code::ALL.iter().map(|code| code.status().as_u16()) {
            let series = format!("{{route=\"/v1/charges\",status=\"{status}\"}} ");
            let line = text.lines().find(|line| line.contains(&series)).unwrap();
            assert!(!line.ends_with(" 0"), "{line}");
        }
        assert!(text.contains("{route=\"unknown\",status=\"200\"} 1"));
    }
}
