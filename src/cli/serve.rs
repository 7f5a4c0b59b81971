//! `payonce serve`.

use clap::{Args, ValueEnum};

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio_util::sync::CancellationToken;

use super::database::POOLER;
use super::output::Hinted;
use super::settings::{Settings, hinted};
use crate::app::AppError;
use crate::app::recovery::Since;
use crate::config::Roles;
use crate::shutdown::Signals;
use crate::{app, telemetry};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Role {
    /// Take charges in.
    Api,
    /// Hand them to the provider.
    Worker,
    /// Look after what is stuck or unclear.
    Reconciler,
}

#[derive(Debug, Args)]
pub(super) struct Serve {
    /// What this process does; everything if left out.
    #[arg(long, value_name = "ROLES", value_delimiter = ',')]
    pub(super) only: Vec<Role>,
    /// Hold sending, in all processes, until the provider's objects since then are compared with the books: after a
    /// restore, or a failover that lost commits. Intake goes on. Sending begins by itself when the comparison is done;
    /// needs a process with the role reconciler.
    #[arg(long)]
    pub(super) recovery: bool,
    /// Since when the provider may have what the books have not: the time to which they were restored
    /// (`2026-11-28T00:00:00Z`) or how long ago that is (`48h`). Left out, the newest charge in the books says it.
    #[arg(long, value_name = "WHEN", requires = "recovery", value_parser = since)]
    since: Option<Since>,
    #[command(flatten)]
    settings: Settings,
}

fn since(text: &str) -> Result<Since, String> {
    if let Ok(ago) = humantime::parse_duration(text) {
        return Ok(Since::Ago(ago));
    }
    OffsetDateTime::parse(text, &Rfc3339)
        .map(Since::At)
        .map_err(|_| "a time like 2026-11-28T00:00:00Z or a duration like 48h".to_owned())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServeOptions {
    pub roles: Roles,
}

impl Serve {
    pub(super) fn options(&self) -> ServeOptions {
        let does = |role| self.only.is_empty() || self.only.contains(&role);
        ServeOptions {
            roles: Roles {
                api: does(Role::Api),
                worker: does(Role::Worker),
                reconciler: does(Role::Reconciler),
            },
        }
    }

    pub(super) async fn run(self) -> anyhow::Result<()> {
        let options = self.options();
        let config = self.settings.load()?;
        config
            .check_for(options.roles)
            .map_err(|errors| hinted(&errors))?;
        telemetry::init(&config.log)?;
        let shutdown = CancellationToken::new();
        tokio::spawn(Signals::register()?.watch(shutdown.clone()));
        let recovery = self
            .recovery
            .then(|| self.since.unwrap_or(Since::Remembered));
        let served = app::serve(&config, options.roles, recovery, shutdown).await;
        if served.map_err(unserved)? {
            Ok(())
        } else {
            anyhow::bail!("something ended by itself; the log says what")
        }
    }
}

fn unserved(error: AppError) -> anyhow::Error {
    let hint = match &error {
        AppError::Listen { key, .. } => {
            let variable = key.to_uppercase().replace('.', "__");
            format!("{key}, or PAYONCE__{variable}, chooses another address")
        }
        AppError::Schema(_) => {
            "check that Postgres runs there and that DATABASE_URL is right".to_owned()
        }
        AppError::Sessions(_) => POOLER.to_owned(),
        AppError::NothingRemembered => {
            "say it: --since 48h, or --since 2026-11-28T00:00:00Z".to_owned()
        }
        _ => return error.into(),
    };
    anyhow::Error::from(error).context(Hinted::new("serve can't start", hint))
}
