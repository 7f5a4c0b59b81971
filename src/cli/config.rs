//! `payonce config`.

use clap::Subcommand;

use super::output;
use super::settings::{Settings, hinted};
use crate::config::Roles;

#[derive(Debug, Subcommand)]
pub(super) enum Config {
    /// Print the configuration that is in force, secrets masked, and check it.
    Check {
        #[command(flatten)]
        settings: Settings,
    },
}

impl Config {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let Self::Check { settings } = self;
        let config = settings.load()?;
        output::data(&config.effective())?;
        config.check().map_err(|errors| hinted(&errors))?;
        // No fault by itself: not every command needs everything.
        for missing in config.missing_for(Roles::ALL) {
            output::message(format_args!("note: `serve` needs {missing}"));
        }
        output::message("ok");
        Ok(())
    }
}
