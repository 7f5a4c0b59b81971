//! What merchants are told: endpoints, deliveries, events.

mod commands;
mod deliveries;
mod endpoints;
mod events;
mod faults;
mod verify;

use serde_json::{Value, json};

use crate::support::client::Client;
use crate::support::receiver::Receiver;

/// An endpoint as its merchant made it.
pub struct Endpoint {
    pub path: String,
    pub id: String,
    pub secret: String,
}

impl Client {
    pub async fn make_endpoint(&self, receiver: &Receiver) -> Endpoint {
        self.make_endpoint_with(json!({"url": receiver.url()}))
            .await
    }

    pub async fn make_endpoint_with(&self, body: Value) -> Endpoint {
        let made = self.send("POST", "/v1/webhook_endpoints", Some(body)).await;
        assert_eq!(made.status, 201, "{made:?}");
        let id = made.id();
        Endpoint {
            path: format!("/v1/webhook_endpoints/{id}"),
            secret: made.body["secret"].as_str().unwrap().to_owned(),
            id,
        }
    }

    /// The one delivery, or the newest, of an endpoint.
    pub async fn delivery(&self, endpoint: &Endpoint) -> Value {
        let found = self.get(&format!("{}/deliveries", endpoint.path)).await;
        found.body["data"][0].clone()
    }

    /// The newest delivery of an endpoint, once it has this status.
    pub async fn delivery_is(&self, endpoint: &Endpoint, status: &str) -> Value {
        crate::support::until(&format!("a delivery is {status}"), async || {
            let delivery = self.delivery(endpoint).await;
            (delivery["status"] == status).then_some(delivery)
        })
        .await
    }
}
