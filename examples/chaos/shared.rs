//! What the run shares with the tests: the proxies, and waiting.

#[path = "../../tests/it/support/database_proxy.rs"]
#[expect(dead_code, reason = "the tests use more of it")]
pub mod database_proxy;
#[path = "../../tests/it/support/network.rs"]
pub mod network;
#[path = "../../tests/it/support/provider_proxy.rs"]
#[expect(dead_code, reason = "the tests use more of it")]
pub mod provider_proxy;
#[path = "../../tests/it/support/until.rs"]
mod until;

use until::{PATIENCE, until};
