//! Names to addresses, for connections that merchants choose: a name with any address that may not be reached has none.
//!
//! The connection is made to one of the addresses that were looked at here, so a name that resolves to something else the
//! next time gets nowhere.

use std::net::SocketAddr;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::domain::endpoint_url::{Reach, may_be_reached};

#[derive(Clone, Copy, Debug)]
pub(super) struct Guarded(pub(super) Reach);

#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the name has an address that may not be reached")]
pub(super) struct Refused;

impl Resolve for Guarded {
    fn resolve(&self, name: Name) -> Resolving {
        let reach = self.0;
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let addresses: Vec<SocketAddr> = found.collect();
            if !addresses.iter().all(|at| may_be_reached(at.ip(), reach)) {
                return Err(Refused.into());
            }
            let addresses: Addrs = Box::new(addresses.into_iter());
            Ok(addresses)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_name_that_leads_to_this_machine_has_no_address() {
        let resolve = |reach| Guarded(reach).resolve("localhost".parse().unwrap());
        let error = resolve(Reach::Public).await.err().unwrap();
        assert!(error.downcast_ref::<Refused>().is_some(), "{error}");
        assert!(resolve(Reach::Loopback).await.unwrap().next().is_some());
    }
}
