//! `payonce idempotency-key`.

use clap::Subcommand;

use super::output::{self, Hinted};
use crate::domain::derived_key;

#[derive(Debug, Subcommand)]
pub(super) enum IdempotencyKeys {
    /// Print the key that follows from what is being done: the same after every crash, with nothing stored first.
    #[command(after_help = "\
Name the operation and everything that makes it the one that must happen once: the order, and the number of the try that
a person asked for. Leave out what changes by itself, such as the time or a random number.

    payonce idempotency-key derive charge order-42 1    prints    charge-f9be41d4c0c2660fe6d8c51a566ed5a2

Any language can do the same. Take the operation and the parts, in this order; of each, its length in bytes of UTF-8 in
decimal digits, a colon, and the bytes themselves; put it all together without anything between. The key is the operation,
a hyphen, and the first 32 hex digits, in lower case, of the SHA-256 of that:

    printf '6:charge8:order-421:1' | sha256sum | cut -c1-32

Texts are taken byte by byte: nothing is trimmed, folded or normalised. More to compare with:
    charge order-42                       charge-84ee576a40f4e12d5b57f5cb083f0a4b
    charge 'Grüße 你好' '  '              charge-9c28e8385884da87f21804bacf515259
    renewal_2026-11 sub_1:2 'a,b\"c\\'       renewal_2026-11-3c7a925b3c7c381903bf4fcf693b404a")]
    Derive {
        /// What is done: 1 to 64 of a-z, 0-9, `_` and `-`.
        operation: String,
        /// What it is done to; at least one, none of them empty.
        #[arg(required = true, value_name = "PART", allow_hyphen_values = true)]
        parts: Vec<String>,
    },
}

impl IdempotencyKeys {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let Self::Derive { operation, parts } = self;
        let key = derived_key::derive(&operation, &parts).map_err(|error| {
            Hinted::new(
                error.to_string(),
                "for example `payonce idempotency-key derive charge order-42 1`",
            )
        })?;
        output::data(key.as_str())
    }
}
