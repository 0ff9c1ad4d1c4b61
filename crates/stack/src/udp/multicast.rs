//! Multicast memberships of sockets, and sending to groups.
//!
//! RFC 1112 6, 7.1 and 7.2, RFC 3493 5.2, RFC 3678; defaults are Linux's.

use alloc::vec::Vec;
use core::net::IpAddr;

use super::Udp;
use crate::error::SocketError;
use crate::groups::{Asker, GroupFilter};
use crate::ids::UdpId;
use crate::ip::LinkedGroup;
use crate::network_layer::Cx;
use crate::options::{GroupChange, MulticastOption};

/// Groups that one socket is in at most.
pub const MEMBERSHIPS_MAX: usize = 1024;

/// A socket's multicast state. Made for the first setting that is not the default.
#[derive(Debug)]
pub(super) struct Multicast {
    ttl: [u8; 2],
    loops: [bool; 2],
    hears_all: [bool; 2],
    source: Option<IpAddr>,
    /// By family, of datagrams to others and to groups.
    links: [[Option<u16>; 2]; 2],
    /// The last one first, as on Linux.
    memberships: Vec<(LinkedGroup, GroupFilter)>,
}

impl Multicast {
    pub const DEFAULT: Self = Self {
        ttl: [1; 2],
        loops: [true; 2],
        hears_all: [true; 2],
        source: None,
        links: [[None; 2]; 2],
        memberships: Vec::new(),
    };

    pub fn ttl(&self, is_v6: bool) -> u8 {
        self.ttl[usize::from(is_v6)]
    }

    pub fn loops(&self, is_v6: bool) -> bool {
        self.loops[usize::from(is_v6)]
    }

    /// Returns the source address of this family.
    pub fn source(&self, is_v6: bool) -> Option<IpAddr> {
        self.source.filter(|source| source.is_ipv6() == is_v6)
    }

    /// Returns the link by which a datagram to this address leaves, if one is chosen.
    pub fn link_towards(&self, dst: IpAddr) -> Option<u16> {
        self.links[usize::from(dst.is_ipv6())][usize::from(dst.is_multicast())]
    }

    /// ip_mc_sf_allow(), and inet6_mc_check(), which ignores the link.
    pub fn hears(&self, to: LinkedGroup, source: IpAddr) -> bool {
        let mut memberships = self.memberships.iter();
        let is_v6 = to.group.is_ipv6();
        let is_it = |of: &LinkedGroup| of.group == to.group && (is_v6 || of.link == to.link);
        match memberships.find(|(of, _)| is_it(of)) {
            Some((_, filter)) => filter.allows(source),
            None => self.hears_all[usize::from(is_v6)],
        }
    }

    fn set(&mut self, option: MulticastOption) {
        match option {
            // Concerns the interface too: [`Udp::change_group`].
            MulticastOption::Group { .. } => {}
            MulticastOption::Ttl { is_v6, ttl } => self.ttl[usize::from(is_v6)] = ttl,
            MulticastOption::Loop { is_v6, on } => self.loops[usize::from(is_v6)] = on,
            MulticastOption::All { is_v6, on } => self.hears_all[usize::from(is_v6)] = on,
            MulticastOption::Source(ip) => self.source = (!ip.is_unspecified()).then_some(ip),
            MulticastOption::Leaves {
                is_v6,
                is_to_group,
                link,
            } => self.links[usize::from(is_v6)][usize::from(is_to_group)] = link,
        }
    }

    /// Applies a change and returns the group's filter from now on.
    fn change(
        &mut self,
        group: LinkedGroup,
        change: GroupChange,
    ) -> Result<GroupFilter, SocketError> {
        let at = self.memberships.iter().position(|(of, _)| *of == group);
        let is_room = self.memberships.len() < MEMBERSHIPS_MAX;
        let mut filter = match (at, change) {
            (Some(at), _) => self.memberships[at].1.clone(),
            (None, GroupChange::Join) if is_room => GroupFilter::ALL,
            (None, GroupChange::Include(_)) if is_room => GroupFilter::NOTHING,
            (None, GroupChange::Join | GroupChange::Include(_)) => {
                return Err(SocketError::LimitReached);
            }
            (None, _) => return Err(SocketError::AddrNotAvailable),
        };
        match change {
            GroupChange::Join => {}
            GroupChange::Leave => filter = GroupFilter::NOTHING,
            GroupChange::Include(ip) if !filter.is_exclude => filter.set(ip, true),
            GroupChange::Forgo(ip) if !filter.is_exclude => filter.set(ip, false),
            GroupChange::Block(ip) if filter.is_exclude => filter.set(ip, true),
            GroupChange::Unblock(ip) if filter.is_exclude => filter.set(ip, false),
            _ => return Err(SocketError::InvalidArgument),
        }
        self.memberships.retain(|(of, _)| *of != group);
        if !filter.is_nothing() {
            self.memberships.insert(0, (group, filter.clone()));
        }
        Ok(filter)
    }
}

impl Udp {
    pub(super) fn set_multicast(
        &mut self,
        id: UdpId,
        option: MulticastOption,
        cx: &mut Cx<'_>,
    ) -> Result<(), SocketError> {
        if let MulticastOption::Group {
            group,
            link,
            change,
        } = option
        {
            return self.change_group(id, LinkedGroup { group, link }, change, cx);
        }
        let socket = self.find_mut(id)?;
        let multicast = socket.multicast.get_or_insert(Multicast::DEFAULT.into());
        multicast.set(option);
        // The way may be another one from now on.
        socket.hop.1 = None;
        Ok(())
    }

    fn change_group(
        &mut self,
        id: UdpId,
        group: LinkedGroup,
        change: GroupChange,
        cx: &mut Cx<'_>,
    ) -> Result<(), SocketError> {
        if !group.group.is_multicast() {
            return Err(SocketError::InvalidArgument);
        }
        let socket = self.find_mut(id)?;
        let multicast = socket.multicast.get_or_insert(Multicast::DEFAULT.into());
        let filter = multicast.change(group, change)?;
        if !cx.want_group(Asker::Socket(id), group, filter) {
            multicast.memberships.retain(|(of, _)| *of != group);
            return Err(SocketError::LimitReached);
        }
        Ok(())
    }

    /// A socket that had something to do with groups is closed.
    #[cold]
    pub(super) fn leave_all(id: UdpId, cx: &mut Cx<'_>) {
        if let Some(groups) = &mut cx.net.groups {
            groups.forget(Asker::Socket(id));
            cx.net.look_at(Some(crate::time::Instant::ZERO));
        }
    }
}
