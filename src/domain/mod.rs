//! The rules, pure: no I/O, no clock, no randomness of its own. Everything here can be called by a test or a model as
//! the service calls it.

pub mod api_key;
pub mod charge;
pub mod derived_key;
pub mod endpoint_url;
pub mod event;
pub mod idempotency;
pub mod ids;
pub mod money;
pub mod outcome;
pub mod provider_event;
pub mod refund;
pub mod request;
pub mod retry;
pub mod signing;
pub mod sweep;
