//! Charges that were there before: made by SQL, with every row and every index entry that a real one leaves behind.

use futures_util::future;
use payonce::domain::ids::ChargeId;
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use super::books::Books;

const SQL: &str = include_str!("history.sql");
/// A transaction's worth.
const CHUNK: i64 = 50_000;
/// As many as the machine that the figures are told of has cores.
const WRITERS: i64 = 2;

/// Grows the books from `from` charges to `to`, vacuumed, analysed and on disk; the last fiftieth comes after the
/// checkpoint. Right after one every page that is touched is written to the log as a whole: on large books a few seconds of
/// load would measure that alone, which an hour of it does not.
pub(crate) async fn grow(books: &Books, from: i64, to: i64) -> anyhow::Result<()> {
    let most = to - (to - from) / 50;
    write_all(books, from, most, to).await?;
    let mut connection = books.connect().await?;
    for statement in [
        "VACUUM ANALYZE idempotent_requests, charges, outbox, charge_events",
        "CHECKPOINT",
    ] {
        sqlx::raw_sql(statement).execute(&mut connection).await?;
    }
    connection.close().await?;
    write_all(books, most, to, to).await
}

async fn write_all(books: &Books, from: i64, to: i64, size: i64) -> anyhow::Result<()> {
    let writers = (0..WRITERS).map(|writer| write(books, from + 1 + writer * CHUNK, to, size));
    future::try_join_all(writers).await?;
    Ok(())
}

async fn write(books: &Books, first: i64, last: i64, size: i64) -> anyhow::Result<()> {
    let mut connection = books.connect().await?;
    sqlx::raw_sql("SET synchronous_commit = off")
        .execute(&mut connection)
        .await?;
    let mut first = first;
    while first <= last {
        sqlx::query(SQL)
            .bind(first)
            .bind(last.min(first + CHUNK - 1))
            .bind(size)
            .bind(books.merchant.as_uuid())
            .execute(&mut connection)
            .await?;
        first += CHUNK * WRITERS;
    }
    connection.close().await?;
    Ok(())
}

/// The ids of the charges that were just accepted, which are what clients ask for.
pub(crate) async fn newest(connection: &mut PgConnection) -> anyhow::Result<Vec<ChargeId>> {
    let ids: Vec<Uuid> =
        sqlx::query_scalar("SELECT charge_id FROM outbox ORDER BY id DESC LIMIT 20000")
            .fetch_all(connection)
            .await?;
    Ok(ids.into_iter().map(ChargeId::from_uuid).collect())
}

/// The ids of charges from all over a history of `size`; of those that are there, if there is no history.
pub(crate) async fn some(
    connection: &mut PgConnection,
    size: i64,
) -> anyhow::Result<Vec<ChargeId>> {
    let ids: Vec<Uuid> = if size > 0 {
        sqlx::query_scalar(
            "SELECT md5('charge' || 1 + floor(random() * $1)::bigint)::uuid FROM generate_series(1, 20000)",
        )
        .bind(size)
        .fetch_all(connection)
        .await?
    } else {
        sqlx::query_scalar("SELECT id FROM charges LIMIT 20000")
            .fetch_all(connection)
            .await?
    };
    Ok(ids.into_iter().map(ChargeId::from_uuid).collect())
}
