//! The Postgres of a run, and what befalls it.

use std::path::{Path, PathBuf};

use anyhow::Context;
use payonce::embedded_postgres::{EmbeddedPostgres, Options};
use sqlx::{Connection, PgConnection};
use tokio::process::Command;
use tokio::sync::Mutex;

use crate::chronicle::line;
use crate::program;

const DATABASE: &str = "chaos";

pub struct Books {
    postgres: EmbeddedPostgres,
    /// One thing befalls it at a time.
    turn: Mutex<()>,
    pub url: String,
}

impl Books {
    /// A migrated database with one merchant; returns the token of its API key too.
    pub async fn start(directory: &Path) -> anyhow::Result<(Self, String)> {
        let options = Options {
            notice: line,
            settings: if cfg!(target_os = "linux") {
                // By default a recovery opens and syncs each file first, which takes seconds.
                vec![("recovery_init_sync_method".into(), "syncfs".into())]
            } else {
                Vec::new()
            },
            ..Options::kept_in(directory)
        };
        let postgres = EmbeddedPostgres::start(options).await?;
        postgres.ensure_database(DATABASE).await?;
        let url = postgres.url(DATABASE);
        program::output(&["migrate"], &url).await?;
        program::output(&["merchants", "create", "shop"], &url).await?;
        let token = program::output(&["api-keys", "create", "--merchant", "shop"], &url).await?;
        let books = Self {
            postgres,
            turn: Mutex::new(()),
            url,
        };
        Ok((books, token.trim().to_owned()))
    }

    pub async fn connect(&self) -> anyhow::Result<PgConnection> {
        Ok(PgConnection::connect(&self.url).await?)
    }

    /// As `pg_ctl restart -m fast`: sessions are ended, a checkpoint is written.
    pub async fn restart(&self) -> anyhow::Result<()> {
        let _turn = self.turn.lock().await;
        self.end_in_order().await?;
        Ok(self.postgres.restart_after_kill().await?)
    }

    /// As `pg_ctl restart -m immediate`: what is not in the log is lost, and it recovers.
    pub async fn crash(&self) -> anyhow::Result<()> {
        let _turn = self.turn.lock().await;
        self.postgres.kill().await?;
        Ok(self.postgres.restart_after_kill().await?)
    }

    /// One backend dies by `kill -9`, and Postgres ends all the others and recovers.
    pub async fn kill_backend(&self) -> anyhow::Result<()> {
        let _turn = self.turn.lock().await;
        let mut connection = self.connect().await?;
        let backend: Option<i32> = sqlx::query_scalar(
            "SELECT pid FROM pg_stat_activity
             WHERE application_name = 'payonce' AND datname = current_database()
             ORDER BY query_start DESC NULLS LAST LIMIT 1",
        )
        .fetch_optional(&mut connection)
        .await?;
        if let Some(backend) = backend {
            program::signal("KILL", u32::try_from(backend)?).await?;
        }
        Ok(())
    }

    /// Copies the database aside, as it is at this moment.
    pub async fn back_up(&self) -> anyhow::Result<()> {
        let _turn = self.turn.lock().await;
        self.end_in_order().await?;
        copy(&self.data(), &self.copy()).await?;
        Ok(self.postgres.restart_after_kill().await?)
    }

    /// Loses the database and puts the copy in its place.
    pub async fn restore(&self) -> anyhow::Result<()> {
        let _turn = self.turn.lock().await;
        self.postgres.kill().await?;
        tokio::fs::rename(self.data(), self.home("lost")).await?;
        tokio::fs::rename(self.copy(), self.data()).await?;
        Ok(self.postgres.restart_after_kill().await?)
    }

    pub async fn stop(&self) -> anyhow::Result<()> {
        let _turn = self.turn.lock().await;
        self.end_in_order().await
    }

    async fn end_in_order(&self) -> anyhow::Result<()> {
        let pid = tokio::fs::read_to_string(self.home("data/postmaster.pid")).await?;
        let pid = pid.lines().next().context("the file names a process")?;
        program::signal("INT", pid.trim().parse()?).await?;
        self.postgres.ended().await;
        Ok(())
    }

    fn home(&self, name: &str) -> PathBuf {
        self.postgres.home().join(name)
    }

    fn data(&self) -> PathBuf {
        self.home("data")
    }

    fn copy(&self) -> PathBuf {
        self.home("copy")
    }
}

async fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    let copied = Command::new("cp")
        .arg("-a")
        .args([from, to])
        .status()
        .await?;
    anyhow::ensure!(copied.success(), "the database could not be copied");
    Ok(())
}
