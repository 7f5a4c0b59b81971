//! What merchants are told of: the types of events and the names that single events have.

use std::fmt;

use uuid::Uuid;

use super::ids::uuid_behind;

/// Every type, as it is written. One that was published is never renamed; clients must expect new ones.
pub const TYPES: [&str; 9] = [
    "charge.completed",
    "charge.failed",
    "charge.requires_action",
    "charge.corrected",
    "refund.completed",
    "refund.failed",
    "refund.corrected",
    "webhook_endpoint.disabled",
    "webhook_endpoint.test",
];

/// An event's name, shown as `evt_` and 32 hex digits: `webhook-id` on every attempt. It follows from what the event says
/// of what, so that an event that is written again after a restore is known to who has seen it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EventId(Uuid);

impl EventId {
    /// A version 5 UUID in the object's namespace over the type and the object's version.
    pub fn derive(object: Uuid, r#type: &str, version: i32) -> Self {
        Self(Uuid::new_v5(
            &object,
            format!("{type}:{version}").as_bytes(),
        ))
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "evt_{}", self.0.simple())
    }
}

/// Shown as `prefix_` and 32 hex digits.
macro_rules! shown_id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub struct $name(Uuid);

        impl $name {
            pub const fn from_uuid(id: Uuid) -> Self {
                Self(id)
            }

            pub const fn as_uuid(self) -> Uuid {
                self.0
            }

            pub fn parse(text: &str) -> Option<Self> {
                uuid_behind(concat!($prefix, "_"), text).map(Self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "_{}"), self.0.simple())
            }
        }
    };
}

shown_id!(
    /// Where a merchant wants events.
    EndpointId,
    "whe"
);
shown_id!(
    /// One event on its way to one endpoint.
    DeliveryId,
    "whd"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_events_name_follows_from_what_it_says_for_ever() {
        let object = Uuid::from_u128(7);
        let id = EventId::derive(object, "charge.completed", 3);
        assert_eq!(id.to_string().len(), 36);
        assert_eq!(id, EventId::derive(object, "charge.completed", 3));
        assert_ne!(id, EventId::derive(object, "charge.completed", 4));
        assert_ne!(id, EventId::derive(object, "charge.failed", 3));
    }

    #[test]
    fn ids_are_read_as_they_are_written_and_no_other_way() {
        let id = EndpointId::from_uuid(Uuid::from_u128(0xab));
        assert_eq!(EndpointId::parse(&id.to_string()), Some(id));
        for bad in [
            "",
            "whe_",
            "whd_000000000000000000000000000000ab",
            "whe_000000000000000000000000000000AB",
        ] {
            assert_eq!(EndpointId::parse(bad), None, "{bad}");
        }
    }
}
