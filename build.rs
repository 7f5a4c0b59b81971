//! Builds never ask a database: the `query!` macros read `.sqlx`, whatever `DATABASE_URL` says, unless the caller
//! sets `SQLX_OFFLINE` itself (as `.ci/run` does to compare `.sqlx` with a migrated database).

fn main() {
    println!("cargo:rerun-if-changed=migrations");
    println!("cargo:rerun-if-env-changed=SQLX_OFFLINE");
    if std::env::var_os("SQLX_OFFLINE").is_none() {
        println!("cargo:rustc-env=SQLX_OFFLINE=true");
    }
}
