//! The Stripe adapter.

pub mod currency;
