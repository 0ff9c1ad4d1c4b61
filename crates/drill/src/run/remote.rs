//! The remote end, with packetdrill's default addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The addresses at the other end (packetdrill's defaults).
const REMOTE_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const REMOTE_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
/// The port that scripts bind and connect to.
pub const PORT: u16 = 8080;

/// The peer of an address.
pub fn remote(local: IpAddr) -> IpAddr {
    match local {
        IpAddr::V4(_) => REMOTE_V4.into(),
        IpAddr::V6(_) => REMOTE_V6.into(),
    }
}
