//! `payonce migrate`.

use clap::Args;
use sqlx::Connection;
use sqlx::migrate::MigrateError;

use super::database;
use super::output::{self, Hinted};
use super::settings::Settings;
use crate::db::migrations;

#[derive(Debug, Args)]
pub(super) struct Migrate {
    #[command(flatten)]
    settings: Settings,
}

impl Migrate {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let config = self.settings.load()?;
        let url = database::url(&config)?;
        let mut connection = database::open(&config).await?;
        let pending = migrations::pending(&mut connection).await?;
        connection.close().await?;
        migrations::migrate(url.options()).await.map_err(hinted)?;
        output::message(match pending.len() {
            0 => format!("{url} is up to date"),
            missing => format!("{url} is up to date; missing before: {missing}"),
        });
        Ok(())
    }
}

fn hinted(error: MigrateError) -> anyhow::Error {
    let hint = match &error {
        MigrateError::VersionMissing(_) => {
            "a later release has migrated this database: run that release, or a later one"
        }
        MigrateError::VersionMismatch(_) => {
            "this database was migrated by something other than a release of payonce: use another one"
        }
        MigrateError::Dirty(_) => {
            "a migration that can't run in a transaction was cut short: finish or undo it by hand, then correct _sqlx_migrations"
        }
        _ => "nothing of the failed migration was kept: mend the cause and run it again",
    };
    anyhow::Error::from(error).context(Hinted::new("the database was not migrated", hint))
}
