//! One throw-away Postgres for the whole test binary, and a database cloned from a migrated template for each test.

use std::sync::atomic::{AtomicU32, Ordering};

use payonce::embedded_postgres::{EmbeddedPostgres, Options};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tokio::sync::OnceCell;

static CLUSTER: OnceCell<EmbeddedPostgres> = OnceCell::const_new();
static NEXT: AtomicU32 = AtomicU32::new(1);

const TEMPLATE: &str = "template_payonce";

/// The cluster; it ends with this process, however that ends.
pub async fn cluster() -> &'static EmbeddedPostgres {
    CLUSTER
        .get_or_init(|| async {
            let cluster = EmbeddedPostgres::start(Options::throw_away())
                .await
                .unwrap();
            cluster.ensure_database(TEMPLATE).await.unwrap();
            let options = cluster.url(TEMPLATE).parse().unwrap();
            payonce::db::migrations::migrate(&options).await.unwrap();
            cluster
        })
        .await
}

/// The address of a copy of a database that nobody is connected to.
pub async fn copy_of(url: &str) -> String {
    let cluster = cluster().await;
    let name = url.rsplit('/').next().unwrap().split('?').next().unwrap();
    let copy = format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed));
    cluster.clone_database(name, &copy).await.unwrap();
    cluster.url(&copy)
}

/// The address of a migrated database that nobody else uses.
pub async fn fresh_database() -> String {
    let cluster = cluster().await;
    let name = format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed));
    cluster.clone_database(TEMPLATE, &name).await.unwrap();
    cluster.url(&name)
}

/// The database behind `url` fails over to `older`, a copy of its past, under whoever is connected: from now on the address
/// holds the older books.
pub async fn fail_over(url: &str, older: &str) {
    let name = |url: &str| url.rsplit('/').next().unwrap().to_owned();
    let (now, older) = (name(url), name(older));
    let maintenance = cluster().await.url("postgres");
    let mut connection = PgConnection::connect(&maintenance).await.unwrap();
    // A database that somebody is connected to can't be renamed, and clients come back at once.
    for statement in [
        format!("ALTER DATABASE {now} WITH ALLOW_CONNECTIONS false"),
        format!(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = '{now}'"
        ),
        format!("ALTER DATABASE {now} RENAME TO {now}_lost"),
        format!("ALTER DATABASE {older} RENAME TO {now}"),
    ] {
        sqlx::raw_sql(AssertSqlSafe(statement))
            .execute(&mut connection)
            .await
            .unwrap();
    }
}
