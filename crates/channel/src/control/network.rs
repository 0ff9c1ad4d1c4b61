//! What routers of the link have told, as the keeper passes it on.

use std::net::{IpAddr, Ipv6Addr};

use serde::{Deserialize, Serialize};

/// Beside what is configured; of IPv6 alone, but for the link.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LearntTold {
    pub addresses: Vec<AddressTold>,
    /// Whose addresses are neighbours.
    pub networks: Vec<(Ipv6Addr, u8)>,
    /// Default routers, the one to use first.
    pub routers: Vec<Ipv6Addr>,
    /// Destinations with their first hops.
    pub redirects: Vec<(Ipv6Addr, Ipv6Addr)>,
    pub mtu: Option<u16>,
    /// The link's own, where it has changed.
    #[serde(default)]
    pub link_mtu: Option<u16>,
    pub hop_limit: Option<u8>,
    pub reachable_ms: Option<u32>,
    pub retry_ms: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressTold {
    pub ip: Ipv6Addr,
    pub prefix_len: u8,
    /// Not for new connections.
    pub is_deprecated: bool,
}

/// A configured route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteTold {
    pub to: (IpAddr, u8),
    /// `None`: the destination is a neighbour.
    pub via: Option<IpAddr>,
    pub table: u32,
    pub metric: u32,
    pub source: Option<IpAddr>,
    pub mtu: Option<u16>,
    pub is_unreachable: bool,
}

/// A configured rule: which table has the routes of which packets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleTold {
    pub priority: u32,
    pub from: Option<(IpAddr, u8)>,
    pub to: Option<(IpAddr, u8)>,
    pub table: u32,
}

impl LearntTold {
    /// Its addresses with those that are configured.
    pub fn with_configured(&self, configured: &[(IpAddr, u8)]) -> Vec<(IpAddr, u8)> {
        let told = self.addresses.iter();
        let told = told.map(|told| (IpAddr::V6(told.ip), told.prefix_len));
        configured.iter().copied().chain(told).collect()
    }

    /// Its routers behind those that are configured.
    pub fn with_gateways(&self, configured: &[IpAddr]) -> Vec<IpAddr> {
        let told = self.routers.iter().copied().map(IpAddr::V6);
        configured.iter().copied().chain(told).collect()
    }
}
