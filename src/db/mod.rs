//! All SQL, one function a statement, over a connection that the caller owns: nothing here begins or commits.

pub mod api_keys;
pub mod charges;
pub mod merchants;
pub mod schema;

use crate::domain::ids::ChargeId;

#[derive(Debug, thiserror::Error)]
pub enum DbError {
    #[error("the database did not answer as asked")]
    Sqlx(#[from] sqlx::Error),
    #[error("column {column} of charge {charge} holds what this release can't read")]
    Unreadable {
        charge: ChargeId,
        column: &'static str,
    },
}
