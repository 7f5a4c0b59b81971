//! `payonce serve`.

use clap::{Args, ValueEnum};

use tokio_util::sync::CancellationToken;

use super::output::Hinted;
use super::settings::{Settings, hinted};
use crate::app::AppError;
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
    #[command(flatten)]
    settings: Settings,
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
        let served = app::serve(&config, options.roles, shutdown).await;
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
        _ => return error.into(),
    };
    anyhow::Error::from(error).context(Hinted::new("serve can't start", hint))
}
