//! `payonce openapi`.

use clap::{Args, ValueEnum};

use super::output;
use crate::http::{openapi, openapi_3_0};

#[derive(Debug, Args)]
pub(super) struct Openapi {
    /// In this version of `OpenAPI`; 3.0 for generators that read no 3.1.
    #[arg(long, value_name = "VERSION", default_value = "3.1")]
    version: Version,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Version {
    #[value(name = "3.1")]
    V3_1,
    #[value(name = "3.0")]
    V3_0,
}

impl Openapi {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        output::data(&match self.version {
            Version::V3_1 => openapi::document(),
            Version::V3_0 => openapi_3_0::document(),
        })
    }
}
