//! Link-local addresses of several links (RFC 4007 6): the link is part of the address.
//!
//! Above the frame formats a link-local address carries its link in the second 16 bits, which are
//! zero in every frame (RFC 4291 2.5.6), so that equal addresses on two links are different
//! addresses in every table. [`crate::ipv6::Ipv6Header::emit`] and the pseudo header's sum leave
//! them out. Addresses of the first port's own link are unchanged.

use core::net::{IpAddr, Ipv6Addr, SocketAddr};

use crate::LinkId;

const SHIFT: u32 = 96;
const MASK: u128 = 0xffff << SHIFT;

/// Returns a link-local address as that of `link`, and any other as it is.
#[must_use]
pub const fn zoned(ip: Ipv6Addr, link: LinkId) -> Ipv6Addr {
    match ip.is_unicast_link_local() {
        true => Ipv6Addr::from_bits(ip.to_bits() & !MASK | (link.0 as u128) << SHIFT),
        false => ip,
    }
}

/// As [`zoned`] of either family.
#[must_use]
pub const fn zoned_ip(ip: IpAddr, link: LinkId) -> IpAddr {
    match ip {
        IpAddr::V6(ip) => IpAddr::V6(zoned(ip, link)),
        IpAddr::V4(_) => ip,
    }
}

/// Returns the link that a link-local address is of; that of any other address is the first.
#[must_use]
pub const fn zone_of(ip: Ipv6Addr) -> LinkId {
    match ip.is_unicast_link_local() {
        true => LinkId((ip.to_bits() >> SHIFT) as u16),
        false => LinkId(0),
    }
}

/// As [`zone_of`] of either family.
#[must_use]
pub const fn zone_of_ip(ip: IpAddr) -> LinkId {
    match ip {
        IpAddr::V6(ip) => zone_of(ip),
        IpAddr::V4(_) => LinkId(0),
    }
}

/// Returns the address as in frames.
#[inline]
#[must_use]
pub const fn plain(ip: Ipv6Addr) -> Ipv6Addr {
    zoned(ip, LinkId(0))
}

/// As [`plain`] of either family.
#[must_use]
pub const fn plain_ip(ip: IpAddr) -> IpAddr {
    zoned_ip(ip, LinkId(0))
}

/// As [`plain`] with its port.
#[must_use]
pub fn plain_addr(mut addr: SocketAddr) -> SocketAddr {
    addr.set_ip(plain_ip(addr.ip()));
    addr
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_local_address_carries_its_link() {
        let ip = |text: &str| text.parse::<Ipv6Addr>().unwrap();
        let link = LinkId::new(1, 7);
        for (text, zone) in [("fe80::1", link), ("fd00::1", LinkId(0))] {
            let there = zoned(ip(text), link);
            assert_eq!(zone_of(there), zone, "{text}");
            assert_eq!(plain(there), ip(text));
        }
        assert_ne!(zoned(ip("fe80::1"), link), ip("fe80::1"));
        assert_eq!(zone_of_ip([10, 0, 0, 1].into()), LinkId(0));
    }
}
