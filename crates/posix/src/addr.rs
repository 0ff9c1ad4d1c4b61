//! Socket addresses: conversion between `struct sockaddr` and [`SocketAddr`].

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use slipstack_channel::control::net::zone;

use crate::errno::Errno;

/// `sizeof(struct sockaddr_in)`.
const V4_LEN: usize = 16;
/// `sizeof(struct sockaddr_in6)`.
const V6_LEN: usize = 28;
/// `sizeof(struct sockaddr_nl)`.
const NETLINK_LEN: usize = 12;
/// Least length of a `sockaddr_in6` that `bind` and `connect` accept
/// (without `sin6_scope_id`; SIN6_LEN_RFC2133).
const V6_LEN_MIN: usize = 24;

/// The address family of a socket the stack may carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    V4,
    V6,
}

impl Family {
    #[must_use]
    pub fn number(self) -> i32 {
        match self {
            Family::V4 => libc::AF_INET,
            Family::V6 => libc::AF_INET6,
        }
    }
}

/// The bytes of a socket address as the program gets them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddrBytes {
    bytes: [u8; V6_LEN],
    len: usize,
}

impl AddrBytes {
    /// `addr` as a socket of `family` shows it: an IPv4 address on an AF_INET6
    /// socket is shown v4-mapped.
    #[must_use]
    pub fn new(addr: SocketAddr, family: Family) -> Self {
        let mut bytes = [0; V6_LEN];
        let len = match (family, addr) {
            (Family::V4, SocketAddr::V4(v4)) => {
                bytes[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
                bytes[2..4].copy_from_slice(&v4.port().to_be_bytes());
                bytes[4..8].copy_from_slice(&v4.ip().octets());
                V4_LEN
            }
            (_, addr) => {
                let (ip, scope) = match addr {
                    SocketAddr::V4(v4) if v4.ip().is_unspecified() => (Ipv6Addr::UNSPECIFIED, 0),
                    SocketAddr::V4(v4) => (v4.ip().to_ipv6_mapped(), 0),
                    SocketAddr::V6(v6) => (zone::plain(*v6.ip()), v6.scope_id()),
                };
                bytes[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
                bytes[2..4].copy_from_slice(&addr.port().to_be_bytes());
                bytes[8..24].copy_from_slice(&ip.octets());
                bytes[24..28].copy_from_slice(&scope.to_ne_bytes());
                V6_LEN
            }
        };
        AddrBytes { bytes, len }
    }

    /// The kernel itself, as sockets of netlink show it (struct sockaddr_nl).
    pub(crate) fn of_kernel() -> Self {
        let mut bytes = [0; V6_LEN];
        bytes[..2].copy_from_slice(&(libc::AF_NETLINK as u16).to_ne_bytes());
        let len = NETLINK_LEN;
        AddrBytes { bytes, len }
    }

    /// Converts an address from the stack: link-local ones get this interface as their scope.
    pub(crate) fn on_stack(addr: SocketAddr, family: Family, interface: u32) -> Self {
        Self::new(with_scope(addr, interface), family)
    }

    /// An address as [`AddrBytes::as_bytes`] gives it.
    pub(crate) fn from_bytes(raw: &[u8]) -> Self {
        let len = raw.len().min(V6_LEN);
        let mut bytes = [0; V6_LEN];
        bytes[..len].copy_from_slice(&raw[..len]);
        AddrBytes { bytes, len }
    }

    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// An address that a program hands to `bind`, `connect` or `sendto`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    /// An address of the socket's own family; v4-mapped ones become IPv4.
    Addr(SocketAddr),
    /// AF_UNSPEC.
    Unspecified,
    /// An address family that the stack does not serve.
    Other,
}

/// Reads the bytes a program gave for a socket of `family`.
pub fn parse(bytes: &[u8], family: Family) -> Result<Given, Errno> {
    let Some(&[a, b]) = bytes.get(..2) else {
        return Err(Errno::EINVAL);
    };
    match i32::from(u16::from_ne_bytes([a, b])) {
        libc::AF_UNSPEC => Ok(Given::Unspecified),
        libc::AF_INET if family == Family::V4 || bytes.len() >= V4_LEN => match parse_v4(bytes) {
            Some(addr) if family == Family::V4 => Ok(Given::Addr(addr)),
            Some(_) => Ok(Given::Other),
            None => Err(Errno::EINVAL),
        },
        libc::AF_INET6 if family == Family::V6 => {
            parse_v6(bytes).map(Given::Addr).ok_or(Errno::EINVAL)
        }
        _ if family == Family::V4 && bytes.len() < V4_LEN => Err(Errno::EINVAL),
        _ if family == Family::V6 && bytes.len() < V6_LEN_MIN => Err(Errno::EINVAL),
        _ => Ok(Given::Other),
    }
}

/// Whether it is too short for an address of IPv6, and not AF_UNSPEC.
pub(crate) fn is_short_of_v6(bytes: &[u8]) -> bool {
    let is_unspecified = bytes.starts_with(&(libc::AF_UNSPEC as u16).to_ne_bytes());
    bytes.len() < V6_LEN_MIN && !is_unspecified
}

/// As [`parse`], for the destination of `sendto`: udp_sendmsg() takes AF_UNSPEC for AF_INET, and
/// udpv6_sendmsg() leaves AF_INET to it.
pub(crate) fn parse_destination(bytes: &[u8], family: Family) -> Result<Given, Errno> {
    match parse(bytes, family)? {
        Given::Unspecified if family == Family::V4 => {
            parse_v4(bytes).map(Given::Addr).ok_or(Errno::EINVAL)
        }
        given => Ok(v4_of_v6(given, bytes, family)),
    }
}

/// As [`parse`] for `connect` of datagrams: __ip6_datagram_connect().
pub(crate) fn parse_peer(bytes: &[u8], family: Family) -> Result<Given, Errno> {
    Ok(v4_of_v6(parse(bytes, family)?, bytes, family))
}

/// inet_bind(): AF_UNSPEC with INADDR_ANY is AF_INET, as old programs have it.
pub(crate) fn parse_local(bytes: &[u8], family: Family) -> Result<Given, Errno> {
    match (parse(bytes, family)?, parse_v4(bytes)) {
        (Given::Unspecified, Some(any)) if family == Family::V4 && any.ip().is_unspecified() => {
            Ok(Given::Addr(any))
        }
        (given, _) => Ok(given),
    }
}

/// The AF_INET address of an AF_INET6 socket that takes one.
fn v4_of_v6(given: Given, bytes: &[u8], family: Family) -> Given {
    let is_v4 = bytes.starts_with(&(libc::AF_INET as u16).to_ne_bytes());
    match parse_v4(bytes) {
        Some(addr) if given == Given::Other && family == Family::V6 && is_v4 => Given::Addr(addr),
        _ => given,
    }
}

/// Returns whether the address is ambiguous without its interface (RFC 4007 6).
pub(crate) fn is_link_local(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local())
}

/// `sin6_scope_id`; 0 = none.
pub(crate) fn scope_of(addr: SocketAddr) -> u32 {
    match addr {
        SocketAddr::V4(_) => 0,
        SocketAddr::V6(v6) => v6.scope_id(),
    }
}

/// A link-local address without an interface gets this one.
pub(crate) fn with_scope(addr: SocketAddr, interface: u32) -> SocketAddr {
    match addr {
        SocketAddr::V6(mut v6) if is_link_local(addr.ip()) && v6.scope_id() == 0 => {
            v6.set_scope_id(interface);
            v6.into()
        }
        addr => addr,
    }
}

fn parse_v4(bytes: &[u8]) -> Option<SocketAddr> {
    let bytes: &[u8; V4_LEN] = bytes.get(..V4_LEN)?.try_into().ok()?;
    let port = u16::from_be_bytes([bytes[2], bytes[3]]);
    let ip = Ipv4Addr::new(bytes[4], bytes[5], bytes[6], bytes[7]);
    Some(SocketAddr::V4(SocketAddrV4::new(ip, port)))
}

fn parse_v6(bytes: &[u8]) -> Option<SocketAddr> {
    let head = bytes.get(..V6_LEN_MIN)?;
    let port = u16::from_be_bytes([head[2], head[3]]);
    let octets: [u8; 16] = head[8..24].try_into().ok()?;
    let ip = Ipv6Addr::from(octets);
    if let Some(v4) = ip.to_ipv4_mapped() {
        return Some(SocketAddr::V4(SocketAddrV4::new(v4, port)));
    }
    let flow = u32::from_be_bytes([head[4], head[5], head[6], head[7]]);
    let scope = match bytes.get(24..28) {
        Some(s) => u32::from_ne_bytes([s[0], s[1], s[2], s[3]]),
        None => 0,
    };
    Some(SocketAddr::V6(SocketAddrV6::new(ip, port, flow, scope)))
}

/// 0.0.0.0:0.
pub(crate) const ANY: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);

/// The unspecified address as a socket of `family` has it.
pub(crate) fn any(family: Family) -> SocketAddr {
    match family {
        Family::V4 => SocketAddr::V4(ANY),
        Family::V6 => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    }
}

/// Returns the address on the stack for a bound one: v4-mapped addresses are IPv4 there.
pub(crate) fn stack_addr(addr: SocketAddr) -> SocketAddr {
    SocketAddr::new(addr.ip().to_canonical(), addr.port())
}

/// An address as a kernel socket of `family` takes it.
pub(crate) fn for_kernel(addr: SocketAddr, family: Family) -> SocketAddr {
    match (family, addr) {
        (Family::V6, SocketAddr::V4(v4)) => mapped(v4),
        _ => zone::plain_addr(addr),
    }
}

fn mapped(v4: SocketAddrV4) -> SocketAddr {
    let ip: Ipv6Addr = v4.ip().to_ipv6_mapped();
    SocketAddr::V6(SocketAddrV6::new(ip, v4.port(), 0, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(addr: &str, family: Family) -> Given {
        let addr: SocketAddr = addr.parse().unwrap();
        parse(AddrBytes::new(addr, family).as_bytes(), family).unwrap()
    }

    #[test]
    fn addresses_come_back_as_they_were_given() {
        for text in ["1.2.3.4:5", "0.0.0.0:0"] {
            assert_eq!(shown(text, Family::V4), Given::Addr(text.parse().unwrap()));
        }
        let v6 = "[2001:db8::1]:443";
        assert_eq!(shown(v6, Family::V6), Given::Addr(v6.parse().unwrap()));
    }

    #[test]
    fn a_mapped_address_is_reported_as_ipv4() {
        assert_eq!(
            shown("10.0.0.1:80", Family::V6),
            Given::Addr("10.0.0.1:80".parse().unwrap())
        );
    }

    #[test]
    fn link_local_addresses_of_the_stack_have_its_interface() {
        // RFC 4007 6.
        let shown = |text: &str| {
            let bytes = AddrBytes::on_stack(text.parse().unwrap(), Family::V6, 7);
            u32::from_ne_bytes(bytes.as_bytes()[24..].try_into().unwrap())
        };
        assert_eq!(shown("[fe80::1]:5"), 7);
        assert_eq!(shown("[fe80::1%3]:5"), 3);
        assert_eq!(shown("[fd00::1]:5"), 0);
        assert_eq!(shown("1.2.3.4:5"), 0);
    }

    #[test]
    fn short_addresses_are_invalid() {
        assert_eq!(parse(&[2], Family::V4), Err(Errno::EINVAL));
        assert_eq!(parse(&[2, 0, 0, 80], Family::V4), Err(Errno::EINVAL));
        assert_eq!(parse(&[10, 0, 0, 80], Family::V6), Err(Errno::EINVAL));
    }
}
