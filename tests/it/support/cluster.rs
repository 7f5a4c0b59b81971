//! One throw-away Postgres for the whole test binary, and a database cloned from a migrated template for each test.

use std::sync::atomic::{AtomicU32, Ordering};

use payonce::embedded_postgres::{EmbeddedPostgres, Options};
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
