//! Policy of a zone: its primaries, the clients that may transfer it, and the servers to notify.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// Another name server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    pub addr: SocketAddr,
    /// Name of the key that signs messages to it.
    pub key: Option<Vec<u8>>,
}

/// A permitted client: an address, a key, or both together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub network: Option<(IpAddr, u8)>,
    pub key: Option<Vec<u8>>,
}

/// The policy of one zone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// As it was configured.
    pub origin: String,
    /// The master file, or the copy of a zone that comes from elsewhere.
    pub file: Option<PathBuf>,
    /// Empty: the zone is read from its file.
    pub primaries: Vec<Peer>,
    pub allow_transfer: Vec<Rule>,
    pub notify: Vec<Peer>,
    /// The zone lists other zones (RFC 9432), which come from the same primaries.
    pub is_catalog: bool,
    /// The catalog that lists the zone.
    pub member_of: Option<Vec<u8>>,
}

impl Policy {
    pub fn may_transfer(&self, ip: IpAddr, key: Option<&[u8]>) -> bool {
        self.allow_transfer.iter().any(|rule| rule.holds(ip, key))
    }

    /// Returns whether a NOTIFY is from one of the primaries.
    pub fn may_notify(&self, ip: IpAddr, key: Option<&[u8]>) -> bool {
        let is_it = |peer: &Peer| {
            peer.addr.ip() == ip.to_canonical()
                && (peer.key.is_none() || peer.key.as_deref() == key)
        };
        self.primaries.iter().any(is_it)
    }
}

impl Rule {
    fn holds(&self, ip: IpAddr, key: Option<&[u8]>) -> bool {
        let is_inside =
            |(network, prefix): (IpAddr, u8)| is_within(ip.to_canonical(), network, prefix);
        self.network.is_none_or(is_inside) && (self.key.is_none() || self.key.as_deref() == key)
    }
}

fn is_within(ip: IpAddr, network: IpAddr, prefix: u8) -> bool {
    let (bits, own, other) = match (ip, network) {
        (IpAddr::V4(ip), IpAddr::V4(network)) => (
            32 - u32::from(prefix.min(32)),
            u128::from(ip.to_bits()),
            u128::from(network.to_bits()),
        ),
        (IpAddr::V6(ip), IpAddr::V6(network)) => (
            128 - u32::from(prefix.min(128)),
            ip.to_bits(),
            network.to_bits(),
        ),
        _ => return false,
    };
    own.checked_shr(bits) == other.checked_shr(bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_hold_for_their_network_and_key() {
        let rule = |network: &str, prefix, key: Option<&[u8]>| Rule {
            network: Some((network.parse().unwrap(), prefix)),
            key: key.map(<[u8]>::to_vec),
        };
        let ip = "10.1.2.3".parse().unwrap();
        assert!(rule("10.1.0.0", 16, None).holds(ip, None));
        assert!(!rule("10.2.0.0", 16, None).holds(ip, None));
        assert!(rule("10.2.0.0", 0, None).holds(ip, None));
        assert!(!rule("::", 0, None).holds(ip, None));
        assert!(!rule("10.1.2.3", 32, Some(b"k")).holds(ip, None));
        assert!(rule("10.1.2.3", 32, Some(b"k")).holds(ip, Some(b"k")));
        let mapped = "::ffff:10.1.2.3".parse().unwrap();
        assert!(rule("10.1.2.3", 32, None).holds(mapped, None));
    }
}
