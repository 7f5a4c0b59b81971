//! `payonce openapi`.

use super::output;

pub(super) fn run() -> anyhow::Result<()> {
    output::data(&document()?)
}

/// The document of the HTTP interface.
fn document() -> anyhow::Result<String> {
    anyhow::bail!("not wired: openapi")
}
