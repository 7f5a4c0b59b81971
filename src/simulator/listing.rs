//! Lists and events: one account's, newest first, consistent at once.

use serde::Serialize;
use serde_json::json;

use super::call::VERSION;
use super::form::Form;
use super::model::{ApiError, Snapshot, View};
use super::params;
use super::state::{Account, Event, Intent, Owner};

const EVENT_FILTERS: &[&str] = &[
    "created",
    "delivery_success",
    "ending_before",
    "expand",
    "limit",
    "starting_after",
    "type",
    "types",
];

pub(super) type Listed = Result<Vec<u8>, ApiError>;

#[derive(Serialize)]
pub(super) struct List<T> {
    pub(super) object: &'static str,
    pub(super) data: Vec<T>,
    pub(super) has_more: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) next_page: Option<String>,
    pub(super) url: &'static str,
}

#[derive(Serialize)]
pub(super) struct EventView<'a> {
    pub(super) id: String,
    object: &'static str,
    api_version: &'static str,
    created: i64,
    data: Data<'a>,
    livemode: bool,
    pending_webhooks: u32,
    request: Request<'a>,
    #[serde(rename = "type")]
    kind: &'static str,
}

impl<'a> EventView<'a> {
    pub(super) fn new(place: usize, event: &'a Event, then: &'a Snapshot) -> Self {
        Self {
            id: format!("evt_{}{place}", then.fixed.tail()),
            object: "event",
            api_version: VERSION,
            created: event.at,
            data: Data {
                object: then.view(),
            },
            livemode: then.fixed.livemode,
            pending_webhooks: 0,
            request: Request {
                id: event.request.as_deref(),
                idempotency_key: event.key.as_deref(),
            },
            kind: event.kind.name(),
        }
    }
}

#[derive(Serialize)]
struct Data<'a> {
    object: View<'a>,
}

#[derive(Serialize)]
struct Request<'a> {
    id: Option<&'a str>,
    idempotency_key: Option<&'a str>,
}

/// The bounds on `created`, both included.
struct Created {
    from: i64,
    to: i64,
}

impl Created {
    fn parse(form: &Form) -> Result<Self, ApiError> {
        let mut bounds = Self {
            from: i64::MIN,
            to: i64::MAX,
        };
        let exact = form.filled("created").map(|value| ("", value));
        for (bound, value) in form.nested("created").chain(exact) {
            let seconds = params::integer(format!("created[{bound}]"), value)?;
            match bound {
                "gte" => bounds.from = bounds.from.max(seconds),
                "gt" => bounds.from = bounds.from.max(seconds.saturating_add(1)),
                "lte" => bounds.to = bounds.to.min(seconds),
                "lt" => bounds.to = bounds.to.min(seconds.saturating_sub(1)),
                "" => (bounds.from, bounds.to) = (seconds, seconds),
                _ => {
                    return Err(ApiError::invalid(format!(
                        "Received unknown parameter: created[{bound}]"
                    ))
                    .code("parameter_unknown"));
                }
            }
        }
        Ok(bounds)
    }
}

pub(super) fn limit(form: &Form) -> Result<usize, ApiError> {
    match form.filled("limit") {
        // Stripe's default.
        None => Ok(10),
        Some(value) => match usize::try_from(params::integer("limit", value)?) {
            Ok(limit @ 1..=100) => Ok(limit),
            _ => Err(ApiError::invalid("The limit must be between 1 and 100.").param("limit")),
        },
    }
}

/// Items with their places, newest first, and whether there are more.
pub(super) type Page<'a, T> = (Vec<(usize, &'a T)>, bool);

/// A page of `items`, which are oldest first and sorted by `created`.
pub(super) fn page<'a, T>(
    items: &'a [T],
    form: &Form,
    created: impl Fn(&T) -> i64,
    place: impl Fn(&str) -> Option<usize>,
    wanted: impl Fn(&T) -> bool,
) -> Result<Page<'a, T>, ApiError> {
    let (limit, bounds) = (limit(form)?, Created::parse(form)?);
    let cursor = |name: &'static str| match form.filled(name) {
        None => Ok(None),
        Some(id) => place(id)
            .map(Some)
            .ok_or_else(|| super::intents::missing("object", id, name)),
    };
    let first = items.partition_point(|item| created(item) < bounds.from);
    let end = items.partition_point(|item| created(item) <= bounds.to);
    let fits = |index: &usize| items.get(*index).is_some_and(&wanted);
    let mut found: Vec<usize> = match (cursor("starting_after")?, cursor("ending_before")?) {
        (Some(_), Some(_)) => {
            return Err(ApiError::invalid(
                "You may only use one of `starting_after` and `ending_before`.",
            ));
        }
        (None, Some(before)) => (first.max(before + 1)..end)
            .filter(fits)
            .take(limit + 1)
            .collect(),
        (after, None) => (first..end.min(after.unwrap_or(end)))
            .rev()
            .filter(fits)
            .take(limit + 1)
            .collect(),
    };
    let has_more = found.len() > limit;
    found.truncate(limit);
    found.sort_unstable_by(|one, other| other.cmp(one));
    Ok((
        found
            .into_iter()
            .filter_map(|index| Some((index, items.get(index)?)))
            .collect(),
        has_more,
    ))
}

pub(super) fn json<T: Serialize>(value: &T) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

pub(super) fn list(account: Option<&Account>, form: &Form) -> Listed {
    params::known(
        form,
        &[
            "created",
            "customer",
            "ending_before",
            "expand",
            "limit",
            "starting_after",
        ],
    )?;
    let customer = form.filled("customer");
    let (found, has_more) = page(
        account.map_or(&[][..], |account| &account.intents),
        form,
        |intent: &Intent| intent.snapshot.fixed.created,
        |id| account.and_then(|account| account.index(id)),
        |intent| {
            customer
                .is_none_or(|customer| intent.snapshot.fixed.customer.as_deref() == Some(customer))
        },
    )?;
    let data = found
        .into_iter()
        .map(|(_, intent)| intent.snapshot.view())
        .collect();
    Ok(json(&List {
        object: "list",
        data,
        has_more,
        next_page: None,
        url: "/v1/payment_intents",
    }))
}

pub(super) fn events(account: Option<&Account>, form: &Form) -> Listed {
    params::known(form, EVENT_FILTERS)?;
    let mut types: Vec<&str> = form.nested("types").map(|(_, value)| value).collect();
    types.extend(form.filled("type"));
    let wanted = |event: &Event| {
        let name = event.kind.name();
        let fits = |wanted: &&str| {
            *wanted == name
                || wanted
                    .strip_suffix('*')
                    .is_some_and(|start| name.starts_with(start))
        };
        types.is_empty() || types.iter().any(fits)
    };
    // An event's place in the account is the end of its id.
    let place = |id: &str| id.get(4 + 24..).and_then(|place| place.parse().ok());
    let events = account.map_or(&[][..], |account| &account.events);
    let (found, has_more) = page(events, form, |event: &Event| event.at, place, wanted)?;
    let then = |event: &Event| {
        let fixed = account?.intents.get(event.intent)?.snapshot.fixed.clone();
        Some(Snapshot {
            fixed,
            now: event.now.clone(),
        })
    };
    let pictures: Vec<_> = found
        .into_iter()
        .filter_map(|(place, event)| Some((place, event, then(event)?)))
        .collect();
    let data = pictures
        .iter()
        .map(|(place, event, then)| EventView::new(*place, event, then))
        .collect();
    Ok(json(&List {
        object: "list",
        data,
        has_more,
        next_page: None,
        url: "/v1/events",
    }))
}

pub(super) fn balance(owner: &Owner) -> Vec<u8> {
    let none = json!([{ "amount": 0, "currency": "usd", "source_types": { "card": 0 } }]);
    json(
        &json!({ "object": "balance", "available": none, "livemode": owner.livemode, "pending": none }),
    )
}

pub(super) fn account(owner: &Owner) -> Vec<u8> {
    json(&json!({
        "id": owner.id,
        "object": "account",
        "charges_enabled": true,
        "country": "US",
        "default_currency": "usd",
        "details_submitted": true,
        "payouts_enabled": true,
        "type": "standard",
    }))
}
