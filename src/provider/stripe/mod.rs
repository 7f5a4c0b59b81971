//! The Stripe adapter.
