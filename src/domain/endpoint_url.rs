//! Which addresses events may be sent to: those of the public internet, so that no merchant can reach through us what
//! only we can reach (server-side request forgery).
//!
//! Judged three times: here when an endpoint is made, by name and, where the name resolves, by its addresses; and by the
//! deliverer for each connection, whose address is one that was looked at. A name that resolves to something else each
//! time therefore gets nowhere.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use url::{Host, Url};

/// The longest address.
pub const LENGTH: usize = 2048;

/// Which addresses count as reachable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The public internet, by https.
    Public,
    /// And the loopback interface, by http too: for trying things.
    Loopback,
}

/// An address that keeps the rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointUrl(Url);

impl EndpointUrl {
    /// Reads an address, or says what it should be.
    pub fn parse(text: &str, reach: Reach) -> Result<Self, &'static str> {
        if text.len() > LENGTH || !text.bytes().all(|b| b.is_ascii_graphic()) {
            return Err("must be an https address of up to 2048 visible ASCII characters");
        }
        let url = Url::parse(text).map_err(|_| "must be an https address")?;
        let host = url.host().ok_or("must be an https address with a host")?;
        let loopback = reach == Reach::Loopback && is_loopback(&host);
        if url.scheme() != "https" && !(url.scheme() == "http" && loopback) {
            return Err("must be an https address");
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("must not have a user or a password in it: deliveries are signed");
        }
        if url.fragment().is_some() {
            return Err("must not have a fragment");
        }
        // What listens on the others below 1024 does not speak https.
        if !loopback && url.port().is_some_and(|port| port < 1024) {
            return Err("must have port 443, or one from 1024 on");
        }
        let sane = loopback
            || match host {
                Host::Domain(name) => is_public_name(name),
                Host::Ipv4(ip) => may_be_reached(ip.into(), reach),
                Host::Ipv6(ip) => may_be_reached(ip.into(), reach),
            };
        if !sane {
            return Err("must be an address of the public internet");
        }
        Ok(Self(url))
    }

    pub fn url(&self) -> &Url {
        &self.0
    }
}

fn is_loopback(host: &Host<&str>) -> bool {
    match host {
        Host::Domain(name) => *name == "localhost",
        Host::Ipv4(ip) => ip.is_loopback(),
        Host::Ipv6(ip) => ip.is_loopback(),
    }
}

/// Names that no public server has (RFC 6761, RFC 6762, RFC 8375, ICANN's .internal), and names of one word.
fn is_public_name(name: &str) -> bool {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    let Some((_, top)) = name.rsplit_once('.') else {
        return false;
    };
    let private = [
        "localhost",
        "local",
        "internal",
        "localdomain",
        "lan",
        "home",
        "corp",
        "test",
        "invalid",
        "onion",
        "arpa",
    ];
    !private.contains(&top)
}

/// Whether a connection may be made to this address.
pub fn may_be_reached(ip: IpAddr, reach: Reach) -> bool {
    if reach == Reach::Loopback && ip.to_canonical().is_loopback() {
        return true;
    }
    match ip {
        IpAddr::V4(ip) => is_public_v4(ip),
        IpAddr::V6(ip) => is_public_v6(ip),
    }
}

/// Not in IANA's registry of special-purpose addresses, nor where clouds answer for a machine's secrets.
fn is_public_v4(ip: Ipv4Addr) -> bool {
    const REFUSED: &[(Ipv4Addr, u32)] = &[
        (Ipv4Addr::UNSPECIFIED, 8),
        (Ipv4Addr::new(10, 0, 0, 0), 8),
        // Carrier-grade NAT, and Alibaba's metadata.
        (Ipv4Addr::new(100, 64, 0, 0), 10),
        (Ipv4Addr::new(127, 0, 0, 0), 8),
        // Link-local: the metadata of most clouds.
        (Ipv4Addr::new(169, 254, 0, 0), 16),
        (Ipv4Addr::new(172, 16, 0, 0), 12),
        (Ipv4Addr::new(192, 0, 0, 0), 24),
        (Ipv4Addr::new(192, 0, 2, 0), 24),
        (Ipv4Addr::new(192, 88, 99, 0), 24),
        (Ipv4Addr::new(192, 168, 0, 0), 16),
        (Ipv4Addr::new(198, 18, 0, 0), 15),
        (Ipv4Addr::new(198, 51, 100, 0), 24),
        (Ipv4Addr::new(203, 0, 113, 0), 24),
        // Multicast, reserved and broadcast.
        (Ipv4Addr::new(224, 0, 0, 0), 3),
        // Azure's wire server.
        (Ipv4Addr::new(168, 63, 129, 16), 32),
    ];
    let bits = ip.to_bits();
    !REFUSED
        .iter()
        .any(|(net, length)| (bits ^ net.to_bits()).leading_zeros() >= *length)
}

/// Global unicast, without what carries an IPv4 address (Teredo, 6to4) or is for documents. Everything else, mapped
/// addresses, unique local ones and NAT64 among it, is outside of `2000::/3`.
fn is_public_v6(ip: Ipv6Addr) -> bool {
    let within =
        |net: Ipv6Addr, length: u32| (ip.to_bits() ^ net.to_bits()).leading_zeros() >= length;
    within(Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3)
        && !within(Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23)
        && !within(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32)
        && !within(Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16)
        && !within(Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_of_the_public_internet_is_refused_however_it_is_written() {
        for bad in [
            "http://shop.example.com/hooks",
            "ftp://shop.example.com/",
            "https://",
            "not an address",
            "https://user@shop.example.com/",
            "https://user:secret@shop.example.com/",
            "https://shop.example.com/#x",
            "https://shop.example.com:22/",
            "https://shop.example.com:80/",
            "https://localhost/",
            "https://shop/",
            "https://db.internal/",
            "https://printer.local./",
            "https://metadata.google.internal/computeMetadata/v1/",
            "https://127.0.0.1/",
            "https://127.1/",
            "https://2130706433/",
            "https://0x7f000001/",
            "https://0177.0.0.1/",
            "https://0.0.0.0/",
            "https://10.0.0.1/",
            "https://100.64.0.1/",
            "https://100.100.100.200/",
            "https://169.254.169.254/latest/meta-data/",
            "https://172.16.0.1/",
            "https://172.31.255.255/",
            "https://192.0.0.192/",
            "https://192.168.1.1/",
            "https://198.18.0.1/",
            "https://168.63.129.16/",
            "https://224.0.0.1/",
            "https://255.255.255.255/",
            "https://[::1]/",
            "https://[::]/",
            "https://[::ffff:127.0.0.1]/",
            "https://[::ffff:8.8.8.8]/",
            "https://[::127.0.0.1]/",
            "https://[64:ff9b::7f00:1]/",
            "https://[fc00::1]/",
            "https://[fd00:ec2::254]/",
            "https://[fe80::1]/",
            "https://[fec0::1]/",
            "https://[ff02::1]/",
            "https://[2001::1]/",
            "https://[2001:db8::1]/",
            "https://[2002:7f00:1::]/",
            "https://[3fff::1]/",
        ] {
            assert!(EndpointUrl::parse(bad, Reach::Public).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_of_the_public_internet_is_taken() {
        for good in [
            "https://shop.example.com/hooks?x=1",
            "https://shop.example.com:443/",
            "https://shop.example.com:8443/",
            "https://8.8.8.8/",
            "https://172.32.0.1/",
            "https://100.128.0.1/",
            "https://[2606:4700:4700::1111]/",
        ] {
            assert!(EndpointUrl::parse(good, Reach::Public).is_ok(), "{good}");
        }
    }

    #[test]
    fn for_trying_things_the_loopback_interface_is_taken_too_and_nothing_else() {
        for good in [
            "http://127.0.0.1:80/",
            "http://localhost:3000/x",
            "http://[::1]:1/",
        ] {
            assert!(EndpointUrl::parse(good, Reach::Loopback).is_ok(), "{good}");
        }
        for bad in [
            "http://10.0.0.1/",
            "http://shop.example.com/",
            "https://169.254.169.254/",
        ] {
            assert!(EndpointUrl::parse(bad, Reach::Loopback).is_err(), "{bad}");
        }
        assert!(may_be_reached(
            "::ffff:127.0.0.1".parse().unwrap(),
            Reach::Loopback
        ));
        assert!(!may_be_reached(
            "::ffff:127.0.0.1".parse().unwrap(),
            Reach::Public
        ));
    }
}
