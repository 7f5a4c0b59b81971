//! Whether the process lives, and whether it can serve.

use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderName, header};

use super::HttpState;
use super::problem::ApiError;
use crate::db::pool::Pool;
use crate::db::{self, DbError};

/// A small JSON text that is always the same.
type Fixed = ([(HeaderName, &'static str); 1], &'static str);

const JSON: [(HeaderName, &str); 1] = [(header::CONTENT_TYPE, "application/json")];

pub(super) async fn alive() -> Fixed {
    (JSON, "{\"status\":\"ok\"}\n")
}

pub(super) async fn ready(State(state): State<HttpState>) -> Result<Fixed, ApiError> {
    state.parts().readiness().answer().await
}

/// What it takes to be ready.
#[derive(Clone, Debug)]
pub struct Readiness {
    pub pool: Pool,
    /// The newest migration that this release was built with.
    pub schema_version: i64,
    /// How long the database may take to answer.
    pub wait: Duration,
}

impl Readiness {
    /// Ready when the database answers, takes writes and has at least the migrations that this release was built with; a newer schema
    /// is fine, because migrations only ever extend it.
    pub(super) async fn answer(&self) -> Result<Fixed, ApiError> {
        let asked = self
            .pool
            .ask(async |connection| db::schema::applied_version(connection).await);
        let asked = tokio::time::timeout(self.wait, asked).await;
        match asked {
            Ok(Ok(Some(version))) if version >= self.schema_version => {
                Ok((JSON, "{\"status\":\"ready\"}\n"))
            }
            Ok(Ok(_)) => Err(ApiError::not_migrated()),
            Ok(Err(error)) if is_absent_table(&error) => Err(ApiError::not_migrated()),
            Ok(Err(error)) => Err(ApiError::unavailable().with_source(error)),
            Err(_) => Err(ApiError::unavailable()),
        }
    }
}

/// A database that was never migrated has no list of migrations.
fn is_absent_table(error: &DbError) -> bool {
    let DbError::Sqlx(sqlx::Error::Database(error)) = error else {
        return false;
    };
    error.code().is_some_and(|code| code == "42P01")
}
