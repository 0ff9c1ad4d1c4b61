//! Configuration learnt from the link's routers (IPv6), and the state of the link.

use alloc::vec::Vec;
use core::net::Ipv6Addr;

use serde::{Deserialize, Serialize};

/// Addresses and routes beside the configured ones. The stack that receives advertisements makes
/// it; the others on the same device use it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Learnt {
    pub addresses: Vec<LearntAddress>,
    /// On-link networks.
    pub networks: Vec<LearntNetwork>,
    /// Default routers, the one to use first, each with its link (`wire::zone`).
    pub routers: Vec<Ipv6Addr>,
    pub redirects: Vec<Redirected>,
    /// Largest packet of IPv6 in bytes on the first link, if it is smaller than the link's.
    pub mtu: Option<u16>,
    /// Largest packets on the other links, with their numbers.
    pub further_mtus: Vec<(u16, u16)>,
    /// Largest packet of the link itself, where it has changed since the stack began; `None`: as
    /// far as is known.
    #[serde(skip)]
    pub link_mtu: Option<u16>,
    /// Values of the links whose routers advertise some.
    #[serde(default)]
    pub links: Vec<LearntLink>,
}

/// The values that routers advertise for a link; `None`: they leave it to the stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LearntLink {
    /// Number of the link.
    pub link: u16,
    /// Default hop limit of packets that leave by it.
    pub hop_limit: Option<u8>,
    /// Lifetime of a neighbour's answer, and the interval of solicitations.
    pub reachable_ms: Option<u32>,
    pub retry_ms: Option<u32>,
}

impl Learnt {
    /// Returns the part that engines and programs use. The link's own MTU is passed separately.
    #[must_use]
    pub fn published(&self) -> Learnt {
        Learnt {
            link_mtu: None,
            ..self.clone()
        }
    }

    /// Returns the part that concerns links of which `is_up` is true.
    #[must_use]
    pub fn on_links(&self, is_up: impl Fn(u16) -> bool, zone_of: impl Fn(Ipv6Addr) -> u16) -> Self {
        let mut kept = self.clone();
        kept.addresses.retain(|it| is_up(it.link));
        kept.networks.retain(|it| is_up(it.link));
        kept.routers.retain(|router| is_up(zone_of(*router)));
        kept.redirects.retain(|it| is_up(it.link));
        kept.further_mtus.retain(|(link, _)| is_up(*link));
        kept.links.retain(|it| is_up(it.link));
        kept.mtu = kept.mtu.filter(|_| is_up(0));
        kept
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LearntAddress {
    pub ip: Ipv6Addr,
    /// Length of its prefix; [`Learnt::networks`] decides which addresses are neighbours.
    pub prefix_len: u8,
    /// Deprecated: no new connections use it (RFC 4862 5.5.4).
    pub is_deprecated: bool,
    /// The link that has it.
    pub link: u16,
}

/// A network on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LearntNetwork {
    pub address: Ipv6Addr,
    pub prefix_len: u8,
    pub link: u16,
}

/// A better first hop for one destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Redirected {
    pub destination: Ipv6Addr,
    /// The destination itself if that is a neighbour.
    pub hop: Ipv6Addr,
    /// The link that both are on.
    pub link: u16,
}
