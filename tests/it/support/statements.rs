//! Statements of the service, for tests that ask Postgres how it plans them.

use sqlx::PgConnection;

use super::books::run_sql;

/// A statement by the name under which it is prepared.
#[derive(Clone, Copy)]
pub struct Statement {
    pub name: &'static str,
    /// Their types.
    pub parameters: &'static str,
    pub sql: &'static str,
}

pub const CLAIM: Statement = Statement {
    name: "claim",
    parameters: "bigint, uuid, interval, smallint[], text, uuid[], bigint, smallint[], text[], bigint[], text, interval",
    sql: include_str!("../../../src/db/sql/claim.sql"),
};

pub const LIST: Statement = Statement {
    name: "list",
    parameters: "uuid, text, text[], timestamptz, timestamptz, uuid, bigint, text, text, text, uuid",
    sql: include_str!("../../../src/db/sql/list_charges.sql"),
};

impl Statement {
    pub async fn prepare(self, connection: &mut PgConnection) {
        let Self {
            name,
            parameters,
            sql,
        } = self;
        run_sql(
            connection,
            format!("PREPARE {name} ({parameters}) AS {sql}"),
        )
        .await;
    }
}

/// The plan of a prepared statement, as `plan_cache_mode` says.
pub async fn planned(connection: &mut PgConnection, mode: &str, execute: &str) -> String {
    let explain = format!("SET plan_cache_mode = {mode}; EXPLAIN EXECUTE {execute}");
    run_sql(connection, explain).await.join("\n")
}
