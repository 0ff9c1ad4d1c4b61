//! Notices of addresses, interfaces, routes and neighbours for programs that listen on
//! NETLINK_ROUTE, in the kernel's form (rtnetlink(7)).
//!
//! Notices are sent to single sockets: the groups are the kernel's, whose listeners know nothing of
//! a stack.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::OwnedFd;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{SendFlags, sendto};

use crate::netlink::{
    DELADDR, DELLINK, DELNEIGHBOUR, DELROUTE, NEWADDR, NEWLINK, NEWNEIGHBOUR, NEWROUTE, Request,
    open,
};

// linux/if_addr.h
const PERMANENT: u8 = 0x80;
const SCOPE_LINK: u8 = 253;
const ADDRESS: u16 = 1;
const LOCAL: u16 = 2;
const LABEL: u16 = 3;
const BROADCAST: u16 = 4;
const FLAGS: u16 = 8;
// linux/if_link.h
const LINK_ADDRESS: u16 = 1;
const LINK_NAME: u16 = 3;
const LINK_MTU: u16 = 4;
const LINK_PARENT: u16 = 5;
const LINK_STATE: u16 = 16;
const STATE_DOWN: u8 = 2;
const STATE_UP: u8 = 6;
const ETHERNET: u16 = 1;
// linux/rtnetlink.h
const TO: u16 = 1;
const OUT: u16 = 4;
const GATEWAY: u16 = 5;
const PRIORITY: u16 = 6;
const SOURCE: u16 = 7;
const TABLE: u16 = 15;
const TABLE_COMPAT: u8 = 252;
const BY_KERNEL: u8 = 2;
const BY_OPERATOR: u8 = 3;
const BY_ROUTER: u8 = 9;
const UNICAST: u8 = 1;
const UNREACHABLE: u8 = 7;
// linux/neighbour.h
const REACHABLE: u16 = 0x02;
const SET: u16 = 0x80;
const NEIGHBOUR: u16 = 1;
const NEIGHBOUR_MAC: u16 = 2;

/// Something of a network that programs may listen for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Notice {
    Link(ListedLink),
    Address(ListedAddress),
    Route(ListedRoute),
    Neighbour(ListedNeighbour),
}

/// An address of an interface.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListedAddress {
    pub ip: IpAddr,
    pub prefix_len: u8,
    /// The interface's number and name.
    pub index: u32,
    pub name: String,
}

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListedLink {
    pub index: u32,
    pub name: String,
    pub mac: [u8; 6],
    pub mtu: u32,
    pub is_up: bool,
    /// The number of the port that a VLAN is of.
    pub parent: Option<u32>,
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListedRoute {
    pub to: (IpAddr, u8),
    pub via: Option<IpAddr>,
    /// The number of the interface that it leads by; `None`: the destination is unreachable.
    pub out: Option<u32>,
    pub table: u32,
    pub metric: u32,
    pub source: Option<IpAddr>,
    pub origin: RouteOrigin,
}

/// Origin of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RouteOrigin {
    /// The route is the network of an address.
    Connected,
    Operator,
    /// A router of the link advertises it.
    Router,
}

/// A neighbour.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListedNeighbour {
    /// The interface's number.
    pub index: u32,
    pub ip: IpAddr,
    pub mac: [u8; 6],
    /// An operator has set it.
    pub is_permanent: bool,
}

impl Notice {
    /// The group that hears of it, as a bit of `nl_groups`.
    pub fn group(&self) -> u32 {
        let by_family = |ip: IpAddr, v4: u32, v6: u32| if ip.is_ipv4() { v4 } else { v6 };
        match self {
            Notice::Link(_) => libc::RTMGRP_LINK as u32,
            Notice::Address(it) => {
                let (v4, v6) = (libc::RTMGRP_IPV4_IFADDR, libc::RTMGRP_IPV6_IFADDR);
                by_family(it.ip, v4 as u32, v6 as u32)
            }
            Notice::Route(it) => {
                let (v4, v6) = (libc::RTMGRP_IPV4_ROUTE, libc::RTMGRP_IPV6_ROUTE);
                by_family(it.to.0, v4 as u32, v6 as u32)
            }
            Notice::Neighbour(_) => libc::RTMGRP_NEIGH as u32,
        }
    }

    /// The message that it is there now, or that it is gone.
    fn message(&self, is_new: bool) -> Vec<u8> {
        match self {
            Notice::Link(it) => it.message(if is_new { NEWLINK } else { DELLINK }),
            Notice::Address(it) => it.message(if is_new { NEWADDR } else { DELADDR }),
            Notice::Route(it) => it.message(if is_new { NEWROUTE } else { DELROUTE }),
            Notice::Neighbour(it) => it.message(if is_new { NEWNEIGHBOUR } else { DELNEIGHBOUR }),
        }
    }
}

impl ListedAddress {
    fn message(&self, kind: u16) -> Vec<u8> {
        let is_local = matches!(self.ip, IpAddr::V6(v6) if v6.is_unicast_link_local());
        let scope = if is_local { SCOPE_LINK } else { 0 };
        let mut fixed = vec![family(self.ip), self.prefix_len, PERMANENT, scope];
        fixed.extend_from_slice(&self.index.to_ne_bytes());
        let request = Request::notice(kind, &fixed);
        let flags = u32::from(PERMANENT).to_ne_bytes();
        let request = match self.ip {
            IpAddr::V4(ip) => {
                let label = [self.name.as_bytes(), &[0]].concat();
                let request = request
                    .attribute(ADDRESS, &ip.octets())
                    .attribute(LOCAL, &ip.octets());
                let request = match self.broadcast(ip) {
                    Some(all) => request.attribute(BROADCAST, &all.octets()),
                    None => request,
                };
                request.attribute(LABEL, &label)
            }
            IpAddr::V6(ip) => request.attribute(ADDRESS, &ip.octets()),
        };
        request.attribute(FLAGS, &flags).finish()
    }

    fn broadcast(&self, ip: Ipv4Addr) -> Option<Ipv4Addr> {
        let host = u32::MAX.checked_shr(self.prefix_len.into()).unwrap_or(0);
        (self.prefix_len < 31).then(|| Ipv4Addr::from_bits(ip.to_bits() | host))
    }
}

impl ListedLink {
    fn message(&self, kind: u16) -> Vec<u8> {
        let up = libc::IFF_UP | libc::IFF_RUNNING | libc::IFF_LOWER_UP;
        let flags = libc::IFF_BROADCAST | libc::IFF_MULTICAST | if self.is_up { up } else { 0 };
        let mut fixed = vec![0; 2];
        fixed.extend_from_slice(&ETHERNET.to_ne_bytes());
        for word in [self.index, flags as u32, u32::MAX] {
            fixed.extend_from_slice(&word.to_ne_bytes());
        }
        let state = if self.is_up { STATE_UP } else { STATE_DOWN };
        let request = Request::notice(kind, &fixed)
            .attribute(LINK_NAME, &[self.name.as_bytes(), &[0]].concat())
            .attribute(LINK_MTU, &self.mtu.to_ne_bytes())
            .attribute(LINK_ADDRESS, &self.mac)
            .attribute(LINK_STATE, &[state]);
        match self.parent {
            Some(parent) => request.attribute(LINK_PARENT, &parent.to_ne_bytes()),
            None => request,
        }
        .finish()
    }
}

impl RouteOrigin {
    /// `rtm_protocol`.
    fn protocol(self) -> u8 {
        match self {
            RouteOrigin::Connected => BY_KERNEL,
            RouteOrigin::Operator => BY_OPERATOR,
            RouteOrigin::Router => BY_ROUTER,
        }
    }
}

impl ListedNeighbour {
    fn message(&self, kind: u16) -> Vec<u8> {
        let mut fixed = vec![family(self.ip), 0, 0, 0];
        fixed.extend_from_slice(&self.index.to_ne_bytes());
        let state = if self.is_permanent { SET } else { REACHABLE };
        fixed.extend_from_slice(&state.to_ne_bytes());
        fixed.extend_from_slice(&[0, UNICAST]);
        Request::notice(kind, &fixed)
            .attribute(NEIGHBOUR, &octets(self.ip))
            .attribute(NEIGHBOUR_MAC, &self.mac)
            .finish()
    }
}

impl ListedRoute {
    fn message(&self, kind: u16) -> Vec<u8> {
        let (to, prefix_len) = self.to;
        let table = u8::try_from(self.table).unwrap_or(TABLE_COMPAT);
        let scope = match (self.via, self.out) {
            (None, Some(_)) => SCOPE_LINK,
            _ => 0,
        };
        let leads = if self.out.is_some() {
            UNICAST
        } else {
            UNREACHABLE
        };
        let mut fixed = vec![
            family(to),
            prefix_len,
            0,
            0,
            table,
            self.origin.protocol(),
            scope,
            leads,
        ];
        fixed.extend_from_slice(&[0; 4]);
        let mut attributes: Vec<(u16, Vec<u8>)> = vec![(TABLE, self.table.to_ne_bytes().into())];
        if prefix_len > 0 {
            attributes.push((TO, octets(to)));
        }
        if self.metric > 0 {
            attributes.push((PRIORITY, self.metric.to_ne_bytes().into()));
        }
        attributes.extend(self.source.map(|ip| (SOURCE, octets(ip))));
        attributes.extend(self.via.map(|ip| (GATEWAY, octets(ip))));
        attributes.extend(self.out.map(|index| (OUT, index.to_ne_bytes().into())));
        let start = Request::notice(kind, &fixed);
        let add =
            |request: Request, (kind, value): &(u16, Vec<u8>)| request.attribute(*kind, value);
        attributes.iter().fold(start, add).finish()
    }
}

fn family(ip: IpAddr) -> u8 {
    let family = match ip {
        IpAddr::V4(_) => libc::AF_INET,
        IpAddr::V6(_) => libc::AF_INET6,
    };
    family as u8
}

fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().into(),
        IpAddr::V6(ip) => ip.octets().into(),
    }
}

/// A socket that notices are sent from; needs CAP_NET_ADMIN.
#[derive(Debug)]
pub struct Notices(OwnedFd);

impl Notices {
    pub fn open() -> io::Result<Notices> {
        Ok(Notices(open(None)?))
    }

    /// Tells the socket with this number that something is there, or gone. One that has no room
    /// misses it, as it would miss the kernel's.
    pub fn tell(&self, port: u32, notice: &Notice, is_new: bool) -> io::Result<()> {
        let to = SocketAddrNetlink::new(port, 0);
        sendto(&self.0, &notice.message(is_new), SendFlags::DONTWAIT, &to)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Notice {
        Notice::Address(ListedAddress {
            ip: text.parse().unwrap(),
            prefix_len: 24,
            index: 7,
            name: "eth1".to_owned(),
        })
    }

    fn link(is_up: bool) -> Notice {
        Notice::Link(ListedLink {
            index: 9,
            name: "eth1.5".to_owned(),
            mac: [2, 0, 0, 0, 0, 1],
            mtu: 1400,
            is_up,
            parent: Some(7),
        })
    }

    fn route(via: Option<&str>, out: Option<u32>) -> ListedRoute {
        ListedRoute {
            to: ("10.9.0.0".parse().unwrap(), 16),
            via: via.map(|ip| ip.parse().unwrap()),
            out,
            table: 1000,
            metric: 5,
            source: None,
            origin: RouteOrigin::Operator,
        }
    }

    fn neighbour() -> ListedNeighbour {
        ListedNeighbour {
            index: 7,
            ip: "fd00::9".parse().unwrap(),
            mac: [2, 0, 0, 0, 0, 9],
            is_permanent: true,
        }
    }

    #[test]
    fn a_neighbour_has_its_address_and_state() {
        let bytes = Notice::Neighbour(neighbour()).message(true);
        assert_eq!(bytes[16], libc::AF_INET6 as u8);
        assert_eq!(bytes[24..26], SET.to_ne_bytes());
        assert_eq!(
            find(&bytes, 12, NEIGHBOUR_MAC),
            Some(vec![2, 0, 0, 0, 0, 9])
        );
        assert_eq!(find(&bytes, 12, NEIGHBOUR).map(|ip| ip.len()), Some(16));
    }

    /// Returns the value of an attribute behind a fixed part of this length.
    fn find(bytes: &[u8], fixed: usize, wanted: u16) -> Option<Vec<u8>> {
        let mut at = 16 + fixed;
        while at < bytes.len() {
            let word = |at: usize| u16::from_ne_bytes(bytes[at..at + 2].try_into().unwrap());
            let len = usize::from(word(at));
            if word(at + 2) == wanted {
                return Some(bytes[at + 4..at + len].to_vec());
            }
            at += len.next_multiple_of(4);
        }
        None
    }

    #[test]
    fn a_notice_is_a_whole_message_of_its_length_without_flags() {
        let all = [
            (address("10.0.0.5"), true, 20u16, 0x10),
            (address("fd00::5"), false, 21, 0x100),
            (link(true), true, 16, 1),
            (link(false), false, 17, 1),
            (Notice::Route(route(None, Some(7))), true, 24, 0x40),
            (Notice::Route(route(None, None)), false, 25, 0x40),
            (Notice::Neighbour(neighbour()), true, 28, 4),
            (Notice::Neighbour(neighbour()), false, 29, 4),
        ];
        for (notice, is_new, kind, group) in all {
            let bytes = notice.message(is_new);
            let len = u32::from_ne_bytes(bytes[..4].try_into().unwrap());
            assert_eq!(len as usize, bytes.len());
            assert_eq!(bytes[4..6], kind.to_ne_bytes());
            assert_eq!(bytes[6..8], [0, 0]);
            assert_eq!(notice.group(), group);
        }
    }

    #[test]
    fn an_address_has_its_interface_prefix_and_broadcast() {
        let bytes = address("10.0.0.5").message(true);
        assert_eq!(bytes[17], 24);
        assert_eq!(bytes[20..24], 7u32.to_ne_bytes());
        assert_eq!(find(&bytes, 8, BROADCAST), Some(vec![10, 0, 0, 255]));
        assert_eq!(find(&bytes, 8, LABEL), Some(b"eth1\0".to_vec()));
    }

    #[test]
    fn flags_and_state_show_that_a_link_is_up() {
        for (is_up, state) in [(true, STATE_UP), (false, STATE_DOWN)] {
            let bytes = link(is_up).message(true);
            let flags = u32::from_ne_bytes(bytes[24..28].try_into().unwrap());
            assert_eq!(flags & 1 != 0, is_up);
            assert_eq!(find(&bytes, 16, LINK_STATE), Some(vec![state]));
            assert_eq!(
                find(&bytes, 16, LINK_MTU),
                Some(1400u32.to_ne_bytes().into())
            );
            assert_eq!(
                find(&bytes, 16, LINK_PARENT),
                Some(7u32.to_ne_bytes().into())
            );
        }
    }

    #[test]
    fn a_route_has_its_table_gateway_and_kind() {
        let bytes = Notice::Route(route(Some("10.0.0.1"), Some(7))).message(true);
        assert_eq!(bytes[16 + 4], TABLE_COMPAT);
        assert_eq!(find(&bytes, 12, TABLE), Some(1000u32.to_ne_bytes().into()));
        assert_eq!(find(&bytes, 12, GATEWAY), Some(vec![10, 0, 0, 1]));
        assert_eq!(bytes[16 + 7], UNICAST);
        let bytes = Notice::Route(route(None, None)).message(true);
        assert_eq!((bytes[16 + 7], find(&bytes, 12, OUT)), (UNREACHABLE, None));
    }
}
