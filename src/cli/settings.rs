//! The option that every command with a configuration has.

use std::path::PathBuf;

use clap::Args;

use super::output::Hinted;
use crate::config::{Config, Sources};

#[derive(Clone, Debug, Default, Args)]
pub(super) struct Settings {
    /// A TOML file with settings; the environment (`DATABASE_URL`, `PAYONCE__SECTION__KEY`) overrides it.
    #[arg(long = "config", value_name = "FILE")]
    file: Option<PathBuf>,
}

impl Settings {
    pub(super) fn load(&self) -> anyhow::Result<Config> {
        Ok(Config::load(&Sources::of_process(self.file.clone()))
            .map_err(|errors| hinted(&errors))?)
    }
}

pub(super) fn hinted(errors: &crate::config::ConfigErrors) -> Hinted {
    Hinted::new(
        errors.to_string(),
        "`payonce config check` shows what is in force",
    )
}
