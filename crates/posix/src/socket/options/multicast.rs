//! Multicast memberships of the stack's interfaces (linux/net/ipv4/igmp.c, linux/net/ipv6/mcast.c).
//!
//! A membership belongs to one interface. The kernel checks and keeps those of its interfaces;
//! those of the stack's are kept here, in the description, and sent to the engine as changes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use slipstack_channel::{GroupChange, MulticastOption, SocketOption};

use crate::errno::Errno;
use crate::socket::options::Options;
use crate::socket::options::record::int_of;
use crate::socket::options::structures::{
    IP_MSFILTER, MCAST_BLOCK_SOURCE, MCAST_JOIN_GROUP, MCAST_JOIN_SOURCE_GROUP, MCAST_LEAVE_GROUP,
    MCAST_LEAVE_SOURCE_GROUP, MCAST_MSFILTER, MCAST_UNBLOCK_SOURCE, STORAGE, STORAGE_AT, read_wide,
    storage, v4_at, word_at,
};

/// Linux's igmp_max_memberships, igmp_max_msf and mld_max_msf.
const MEMBERSHIPS_MAX_V4: usize = 20;
const SOURCES_MAX_V4: usize = 10;
const SOURCES_MAX_V6: usize = 64;
/// Memberships of IPv6, of which Linux has as many as memory for options.
const MEMBERSHIPS_MAX_V6: usize = 256;

/// One group of one socket on one of the stack's links.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Membership {
    pub(crate) group: IpAddr,
    pub(crate) link: u16,
    pub(crate) is_exclude: bool,
    pub(crate) sources: Vec<IpAddr>,
}

/// The request of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MembershipRequest {
    Join,
    Leave,
    /// Listed with mode INCLUDE, after joining if that is requested.
    Include {
        source: IpAddr,
        joins: bool,
    },
    Forgo(IpAddr),
    Block(IpAddr),
    Unblock(IpAddr),
    Filter {
        is_exclude: bool,
        sources: Vec<IpAddr>,
    },
}

/// Which interface a call names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interface {
    Any,
    Address(Ipv4Addr),
    Index(u32),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) group: IpAddr,
    pub(crate) interface: Interface,
    request: MembershipRequest,
}

/// Returns the stack's counterpart of a recorded option about groups.
pub(crate) fn for_stack(options: &Options, level: i32, name: i32) -> Option<SocketOption> {
    let is_v6 = level == libc::IPPROTO_IPV6;
    let value = options.bytes(level, name)?;
    let number = match value {
        [byte] => i32::from(*byte),
        bytes => int_of(bytes)?,
    };
    let on = number != 0;
    let option = match (level, name) {
        (libc::IPPROTO_IP, libc::IP_MULTICAST_TTL)
        | (libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_HOPS) => {
            // -1 is the default.
            let ttl = u8::try_from(number).unwrap_or(1);
            MulticastOption::Ttl { is_v6, ttl }
        }
        (libc::IPPROTO_IP, libc::IP_MULTICAST_LOOP)
        | (libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_LOOP) => MulticastOption::Loop { is_v6, on },
        (libc::IPPROTO_IP, libc::IP_MULTICAST_ALL)
        | (libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_ALL) => MulticastOption::All { is_v6, on },
        (libc::IPPROTO_IP, libc::IP_MULTICAST_IF) => match interface_of(level, name, value)? {
            Interface::Address(own) => MulticastOption::Source(own.into()),
            Interface::Any | Interface::Index(_) => {
                MulticastOption::Source(Ipv4Addr::UNSPECIFIED.into())
            }
        },
        _ => return None,
    };
    Some(SocketOption::Multicast(option))
}

/// Returns the changes for an engine from memberships that were made before it had the socket.
pub(crate) fn all_changes(memberships: &[Membership]) -> Vec<SocketOption> {
    let nothing = Membership {
        group: Ipv4Addr::UNSPECIFIED.into(),
        link: 0,
        is_exclude: false,
        sources: Vec::new(),
    };
    let of = |membership: &Membership| {
        let (group, link) = (membership.group, membership.link);
        let changes = steps(&nothing, membership).into_iter();
        changes.map(move |change| {
            SocketOption::Multicast(MulticastOption::Group {
                group,
                link,
                change,
            })
        })
    };
    memberships.iter().flat_map(of).collect()
}

/// Applies a request about a link to the list; returns the changes for the engine.
pub(crate) fn change(
    all: &mut Vec<Membership>,
    request: &Request,
    link: u16,
) -> Result<Vec<GroupChange>, Errno> {
    let Request { group, request, .. } = request;
    if !group.is_multicast() {
        return Err(Errno::EINVAL);
    }
    let is_it = |one: &Membership| one.group == *group && one.link == link;
    let found = all.iter().position(is_it);
    let before = found.map(|at| all[at].clone());
    let empty = |is_exclude| Membership {
        group: *group,
        link,
        is_exclude,
        sources: Vec::new(),
    };
    let after = apply(request, before.as_ref(), empty)?;
    let is_over = !after.is_exclude && after.sources.is_empty();
    let of_family = all
        .iter()
        .filter(|one| one.group.is_ipv4() == group.is_ipv4());
    let most = if group.is_ipv4() {
        MEMBERSHIPS_MAX_V4
    } else {
        MEMBERSHIPS_MAX_V6
    };
    if found.is_none() && of_family.count() >= most {
        return Err(Errno::ENOBUFS);
    }
    let changes = steps(before.as_ref().unwrap_or(&empty(false)), &after);
    match found {
        Some(at) if is_over => {
            all.remove(at);
        }
        Some(at) => all[at] = after,
        None => all.push(after),
    }
    Ok(changes)
}

/// Returns the membership after a request; `before` is the present one, `empty` makes one without
/// sources.
fn apply(
    request: &MembershipRequest,
    before: Option<&Membership>,
    empty: impl Fn(bool) -> Membership,
) -> Result<Membership, Errno> {
    Ok(match (request, before) {
        (MembershipRequest::Join, Some(_)) => return Err(Errno::EADDRINUSE),
        (MembershipRequest::Join, None) => empty(true),
        (MembershipRequest::Leave, None) => return Err(Errno::EADDRNOTAVAIL),
        (MembershipRequest::Leave, Some(_)) => empty(false),
        (
            MembershipRequest::Include {
                source,
                joins: true,
            },
            None,
        ) => with_source(empty(false), *source, false)?,
        (_, None) => return Err(Errno::EINVAL),
        (MembershipRequest::Include { source, .. }, Some(now)) => {
            with_source(now.clone(), *source, false)?
        }
        (MembershipRequest::Block(source), Some(now)) => with_source(now.clone(), *source, true)?,
        (MembershipRequest::Forgo(source), Some(now)) => {
            without_source(now.clone(), *source, false)?
        }
        (MembershipRequest::Unblock(source), Some(now)) => {
            without_source(now.clone(), *source, true)?
        }
        (
            MembershipRequest::Filter {
                is_exclude,
                sources,
            },
            Some(_),
        ) => Membership {
            sources: sources.clone(),
            ..empty(*is_exclude)
        },
    })
}

/// ip_mc_source(): a filter without sources may change its mode, another one may not.
fn with_mode(mut of: Membership, is_exclude: bool) -> Result<Membership, Errno> {
    if of.is_exclude != is_exclude && !of.sources.is_empty() {
        return Err(Errno::EINVAL);
    }
    of.is_exclude = is_exclude;
    Ok(of)
}

fn with_source(of: Membership, source: IpAddr, is_exclude: bool) -> Result<Membership, Errno> {
    let mut of = with_mode(of, is_exclude)?;
    if of.sources.contains(&source) {
        return Err(Errno::EADDRNOTAVAIL);
    }
    let most = if of.group.is_ipv4() {
        SOURCES_MAX_V4
    } else {
        SOURCES_MAX_V6
    };
    if of.sources.len() >= most {
        return Err(Errno::ENOBUFS);
    }
    of.sources.push(source);
    Ok(of)
}

fn without_source(of: Membership, source: IpAddr, is_exclude: bool) -> Result<Membership, Errno> {
    if of.is_exclude != is_exclude && !of.sources.is_empty() {
        return Err(Errno::EINVAL);
    }
    let mut of = of;
    if of.is_exclude != is_exclude || !of.sources.contains(&source) {
        return Err(Errno::EADDRNOTAVAIL);
    }
    of.sources.retain(|one| *one != source);
    Ok(of)
}

/// The link of a request that names no interface: leaving ends the newest membership, wherever it
/// is (ip_mc_leave_group(), ipv6_sock_mc_drop()).
pub(crate) fn link_of_any(all: &[Membership], request: &Request) -> u16 {
    let is_left = matches!(request.request, MembershipRequest::Leave);
    let mut newest = all.iter().rev().filter(|_| is_left);
    let found = newest.find(|one| one.group == request.group);
    found.map_or(0, |one| one.link)
}

/// Returns the changes that lead from one filter to another.
fn steps(before: &Membership, after: &Membership) -> Vec<GroupChange> {
    let was_member = before.is_exclude || !before.sources.is_empty();
    let is_member = after.is_exclude || !after.sources.is_empty();
    if !is_member {
        return was_member
            .then_some(GroupChange::Leave)
            .into_iter()
            .collect();
    }
    let mut changes = Vec::new();
    let is_new = !was_member || before.is_exclude != after.is_exclude;
    if is_new && was_member {
        changes.push(GroupChange::Leave);
    }
    if is_new && after.is_exclude {
        changes.push(GroupChange::Join);
    }
    let before: &[IpAddr] = if is_new { &[] } else { &before.sources };
    let added = after.sources.iter().filter(|one| !before.contains(one));
    changes.extend(added.map(|source| match after.is_exclude {
        true => GroupChange::Block(*source),
        false => GroupChange::Include(*source),
    }));
    let removed = before.iter().filter(|one| !after.sources.contains(one));
    changes.extend(removed.map(|source| match after.is_exclude {
        true => GroupChange::Unblock(*source),
        false => GroupChange::Forgo(*source),
    }));
    changes
}

/// Returns the interface by number if there is one, else by address.
pub(crate) fn interface(index: u32, address: Ipv4Addr) -> Interface {
    match (index, address) {
        (0, Ipv4Addr::UNSPECIFIED) => Interface::Any,
        (0, address) => Interface::Address(address),
        (index, _) => Interface::Index(index),
    }
}

pub(crate) fn interface_of(level: i32, name: i32, value: &[u8]) -> Option<Interface> {
    match (level, name) {
        (libc::IPPROTO_IP, libc::IP_MULTICAST_IF) => Some(match value.len() {
            ..4 => return None,
            // An address, `struct ip_mreq`, `struct ip_mreqn`.
            4..8 => interface(0, v4_at(value, 0)?),
            8..12 => interface(0, v4_at(value, 4)?),
            _ => interface(word_at(value, 8)?, v4_at(value, 4)?),
        }),
        (libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_IF) => {
            Some(interface(word_at(value, 0)?, Ipv4Addr::UNSPECIFIED))
        }
        // In network order.
        (libc::IPPROTO_IP, libc::IP_UNICAST_IF) | (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_IF) => {
            let index = u32::from_be(word_at(value, 0)?);
            Some(interface(index, Ipv4Addr::UNSPECIFIED))
        }
        _ => None,
    }
}

/// `None`: no request about groups, or one whose format the kernel checks.
pub(crate) fn parse(level: i32, name: i32, value: &[u8]) -> Option<Request> {
    match (level, name) {
        (
            libc::IPPROTO_IP | libc::IPPROTO_IPV6,
            MCAST_JOIN_GROUP..=MCAST_LEAVE_SOURCE_GROUP | MCAST_MSFILTER,
        ) => parse_any(name, value),
        (libc::IPPROTO_IP, libc::IP_ADD_MEMBERSHIP | libc::IP_DROP_MEMBERSHIP) => {
            let index = if value.len() >= 12 {
                word_at(value, 8)?
            } else {
                0
            };
            Some(Request {
                group: v4_at(value, 0)?.into(),
                interface: interface(index, v4_at(value, 4)?),
                request: if name == libc::IP_ADD_MEMBERSHIP {
                    MembershipRequest::Join
                } else {
                    MembershipRequest::Leave
                },
            })
        }
        (libc::IPPROTO_IPV6, libc::IPV6_ADD_MEMBERSHIP | libc::IPV6_DROP_MEMBERSHIP) => {
            let octets: [u8; 16] = value.get(..16)?.try_into().ok()?;
            Some(Request {
                group: Ipv6Addr::from(octets).into(),
                interface: interface(word_at(value, 16)?, Ipv4Addr::UNSPECIFIED),
                request: if name == libc::IPV6_ADD_MEMBERSHIP {
                    MembershipRequest::Join
                } else {
                    MembershipRequest::Leave
                },
            })
        }
        (libc::IPPROTO_IP, name) => parse_source(name, value),
        _ => None,
    }
}

/// `struct ip_mreq_source` and `struct ip_msfilter`.
fn parse_source(name: i32, value: &[u8]) -> Option<Request> {
    let source = || v4_at(value, 8).map(IpAddr::V4);
    let request = match name {
        libc::IP_ADD_SOURCE_MEMBERSHIP => MembershipRequest::Include {
            source: source()?,
            joins: true,
        },
        libc::IP_DROP_SOURCE_MEMBERSHIP => MembershipRequest::Forgo(source()?),
        libc::IP_BLOCK_SOURCE => MembershipRequest::Block(source()?),
        libc::IP_UNBLOCK_SOURCE => MembershipRequest::Unblock(source()?),
        IP_MSFILTER => {
            let count = word_at(value, 12)? as usize;
            let sources = (0..count.min(SOURCES_MAX_V4)).map(|n| v4_at(value, 16 + 4 * n));
            let sources: Option<Vec<IpAddr>> = sources.map(|ip| ip.map(IpAddr::V4)).collect();
            let mode = word_at(value, 8)?;
            if count > SOURCES_MAX_V4 || mode > 1 {
                return None;
            }
            MembershipRequest::Filter {
                is_exclude: mode == 0,
                sources: sources?,
            }
        }
        _ => return None,
    };
    Some(Request {
        group: v4_at(value, 0)?.into(),
        interface: interface(0, v4_at(value, 4)?),
        request,
    })
}

/// `struct group_req` and `struct group_source_req`.
fn parse_any(name: i32, value: &[u8]) -> Option<Request> {
    let group = storage(value.get(STORAGE_AT..STORAGE_AT + STORAGE)?)?;
    let source = || {
        let second = STORAGE_AT + STORAGE;
        storage(value.get(second..second + STORAGE)?)
    };
    let request = match name {
        MCAST_JOIN_GROUP => MembershipRequest::Join,
        MCAST_LEAVE_GROUP => MembershipRequest::Leave,
        MCAST_JOIN_SOURCE_GROUP => MembershipRequest::Include {
            source: source()?,
            joins: true,
        },
        MCAST_LEAVE_SOURCE_GROUP => MembershipRequest::Forgo(source()?),
        MCAST_BLOCK_SOURCE => MembershipRequest::Block(source()?),
        MCAST_UNBLOCK_SOURCE => MembershipRequest::Unblock(source()?),
        MCAST_MSFILTER => {
            let sources_max = if group.is_ipv4() {
                SOURCES_MAX_V4
            } else {
                SOURCES_MAX_V6
            };
            let (is_exclude, sources) = read_wide(value, sources_max)?;
            MembershipRequest::Filter {
                is_exclude,
                sources,
            }
        }
        _ => return None,
    };
    Some(Request {
        group,
        interface: interface(word_at(value, 0)?, Ipv4Addr::UNSPECIFIED),
        request,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call_for(request: MembershipRequest) -> Request {
        Request {
            group: [239, 1, 2, 3].into(),
            interface: Interface::Any,
            request,
        }
    }

    fn ask(
        all: &mut Vec<Membership>,
        request: MembershipRequest,
    ) -> Result<Vec<GroupChange>, Errno> {
        change(all, &call_for(request), 0)
    }

    #[test]
    fn each_link_has_its_membership_and_the_newest_is_left_first() {
        let mut all = Vec::new();
        for link in [0, 7] {
            let joined = change(&mut all, &call_for(MembershipRequest::Join), link);
            assert_eq!(joined, Ok(vec![GroupChange::Join]));
            let again = change(&mut all, &call_for(MembershipRequest::Join), link);
            assert_eq!(again, Err(Errno::EADDRINUSE));
        }
        for link in [7, 0] {
            assert_eq!(link_of_any(&all, &call_for(MembershipRequest::Leave)), link);
            change(&mut all, &call_for(MembershipRequest::Leave), link).unwrap();
        }
        assert!(all.is_empty());
    }

    #[test]
    fn memberships_change_as_on_linux() {
        let (a, b) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let include = |source, joins| MembershipRequest::Include { source, joins };
        let table = [
            (MembershipRequest::Leave, Err(Errno::EADDRNOTAVAIL)),
            (MembershipRequest::Block(a), Err(Errno::EINVAL)),
            (MembershipRequest::Forgo(a), Err(Errno::EINVAL)),
            (MembershipRequest::Join, Ok(vec![GroupChange::Join])),
            (MembershipRequest::Join, Err(Errno::EADDRINUSE)),
            (MembershipRequest::Block(a), Ok(vec![GroupChange::Block(a)])),
            (MembershipRequest::Block(a), Err(Errno::EADDRNOTAVAIL)),
            (include(b, true), Err(Errno::EINVAL)),
            (MembershipRequest::Unblock(b), Err(Errno::EADDRNOTAVAIL)),
            (
                MembershipRequest::Unblock(a),
                Ok(vec![GroupChange::Unblock(a)]),
            ),
            // Without sources the mode may change.
            (
                include(b, true),
                Ok(vec![GroupChange::Leave, GroupChange::Include(b)]),
            ),
            (include(a, true), Ok(vec![GroupChange::Include(a)])),
            (MembershipRequest::Forgo(b), Ok(vec![GroupChange::Forgo(b)])),
            (MembershipRequest::Forgo(a), Ok(vec![GroupChange::Leave])),
            (MembershipRequest::Leave, Err(Errno::EADDRNOTAVAIL)),
        ];
        let mut all = Vec::new();
        for (request, want) in table {
            assert_eq!(ask(&mut all, request.clone()), want, "{request:?}");
        }
        assert!(all.is_empty());
    }

    #[test]
    fn requests_are_read_from_every_structure() {
        let mreqn = [239, 1, 2, 3, 10, 0, 0, 5, 7, 0, 0, 0];
        let call_on = |interface, request| {
            Some(Request {
                group: [239, 1, 2, 3].into(),
                interface,
                request,
            })
        };
        let own = Interface::Address([10, 0, 0, 5].into());
        let add = |value| parse(libc::IPPROTO_IP, libc::IP_ADD_MEMBERSHIP, value);
        assert_eq!(add(&mreqn[..8]), call_on(own, MembershipRequest::Join));
        assert_eq!(
            add(&mreqn),
            call_on(Interface::Index(7), MembershipRequest::Join)
        );
        assert_eq!(add(&mreqn[..7]), None);
        let mut any = [0; STORAGE_AT + STORAGE];
        any[8..16].copy_from_slice(&[2, 0, 0, 0, 239, 1, 2, 3]);
        let join = parse(libc::IPPROTO_IP, MCAST_JOIN_GROUP, &any);
        assert_eq!(join, call_on(Interface::Any, MembershipRequest::Join));
    }
}
