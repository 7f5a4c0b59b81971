//! `payonce openapi`.

use super::output;
use crate::http::openapi;

pub(super) fn run() -> anyhow::Result<()> {
    output::data(&openapi::document())
}
