//! A typed confirmation: what can't be undone is not done by a slip.

use std::io::{self, BufRead};

use super::output::{self, Hinted};

/// Asks for `word` on stderr and reads a line. Anything else is a no, and so is the end of the input.
pub(super) fn typed(question: &str, word: &str) -> anyhow::Result<()> {
    output::message(format_args!("{question}\nType {word} to go on:"));
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    if line.trim() == word {
        return Ok(());
    }
    Err(Hinted::new(
        "not confirmed; nothing was done",
        format!("type {word} when asked, or give --yes where nobody is there to type"),
    )
    .into())
}
