//! Received datagrams, and the sockets they are delivered to.

use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use core::num::NonZeroU16;

use slipstack_wire::udp::UdpDatagram;
use slipstack_wire::{checksum, protocol};

use super::Udp;
use super::choosing::Chosen;
use crate::counters::Counter;
use crate::effects::{DatagramIn, Effects, RxChecksum, RxMeta};
use crate::ids::UdpId;
use crate::ip::{IpMeta, LinkedGroup};
use crate::network_layer::Cx;
use crate::rng::SipKey;

/// The outcome of a received datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UdpOutcome {
    Done,
    /// No socket has the port: the sender may get an error.
    PortClosed,
}

impl Udp {
    #[inline(never)]
    pub fn on_datagram(
        &mut self,
        ip: &IpMeta,
        bytes: &[u8],
        meta: RxMeta,
        cx: &mut Cx<'_>,
        fx: &mut impl Effects,
    ) -> UdpOutcome {
        let Some(datagram) = UdpDatagram::parse(bytes) else {
            cx.counters.bump(Counter::DropUdpMalformed);
            return UdpOutcome::Done;
        };
        if !is_checksum_right(ip, &datagram, meta) && !self.takes_bare(ip, &datagram, meta) {
            cx.counters.bump(Counter::DropUdpChecksum);
            return UdpOutcome::Done;
        }
        let from = SocketAddr::new(ip.src, datagram.src_port);
        let to = SocketAddr::new(ip.dst, datagram.dst_port);
        let arrived = DatagramIn {
            from,
            to,
            payload: datagram.payload,
            tos: ip.tos,
            ttl: ip.ttl,
            segment: joined(&datagram, meta),
            link: meta.link,
            is_to_group: ip.group,
            is_copy: false,
        };
        if ip.group {
            return self.deliver_to_group(&arrived, cx, fx);
        }
        let Some(id) = self.find_taker(from, to, meta.link) else {
            // The sockets of a port that is served here are connected to others: there is no other
            // receiver.
            if !self.serves(to, meta.link) && fx.stray_datagram(&arrived, false) {
                cx.counters.bump(Counter::UdpStrays);
                cx.note_stray(protocol::UDP, (from, to));
                return UdpOutcome::Done;
            }
            cx.counters.bump(Counter::DropUdpPort);
            return UdpOutcome::PortClosed;
        };
        let chosen = match self.choosers.is_empty() {
            true => None,
            false => self.choose(id, &arrived, cx, fx),
        };
        match chosen {
            None => self.deliver(id, &arrived, cx, fx),
            Some(Chosen::Here(id)) => self.deliver(id, &arrived, cx, fx),
            Some(Chosen::Elsewhere) => {
                cx.counters.bump(Counter::UdpStrays);
                cx.note_stray(protocol::UDP, (from, to));
            }
            Some(Chosen::Nowhere) => {
                cx.counters.bump(Counter::DropUdpProgram);
                return UdpOutcome::PortClosed;
            }
        }
        UdpOutcome::Done
    }

    /// Returns whether a datagram over IPv6 has no checksum, and is for a socket that does not want
    /// one (UDP_NO_CHECK6_RX).
    #[cold]
    fn takes_bare(&self, ip: &IpMeta, datagram: &UdpDatagram<'_>, meta: RxMeta) -> bool {
        let from = SocketAddr::new(ip.src, datagram.src_port);
        let to = SocketAddr::new(ip.dst, datagram.dst_port);
        let taker = || self.find_taker(from, to, meta.link);
        let is_bare = datagram.checksum == 0 && ip.src.is_ipv6();
        is_bare
            && taker()
                .and_then(|id| self.find(id))
                .is_some_and(|socket| socket.options.socket.takes_no_checksum_v6)
    }

    /// Returns whether a datagram to a group is for this socket.
    fn hears(&self, id: UdpId, datagram: &DatagramIn<'_>) -> bool {
        let (source, link) = (datagram.from.ip(), datagram.link);
        let group = datagram.to.ip();
        let socket = self.find(id);
        let multicast = socket.and_then(|socket| socket.multicast.as_ref());
        !group.is_multicast()
            || multicast
                .is_none_or(|multicast| multicast.hears(LinkedGroup { group, link }, source))
    }

    fn deliver_to_group(
        &self,
        arrived: &DatagramIn<'_>,
        cx: &mut Cx<'_>,
        fx: &mut impl Effects,
    ) -> UdpOutcome {
        let mut delivered = 0;
        for (id, _) in self.takers(arrived.from, arrived.to, arrived.link) {
            if self.hears(id, arrived) {
                let copy = DatagramIn {
                    is_copy: delivered > 0,
                    ..*arrived
                };
                self.deliver(id, &copy, cx, fx);
                delivered += 1;
            }
        }
        if delivered == 0 && !fx.stray_datagram(arrived, true) {
            cx.counters.bump(Counter::DropUdpGroup);
        }
        UdpOutcome::Done
    }

    fn deliver(
        &self,
        id: UdpId,
        datagram: &DatagramIn<'_>,
        cx: &mut Cx<'_>,
        fx: &mut impl Effects,
    ) {
        if let Some(size) = datagram.segment
            && self
                .find(id)
                .is_some_and(|socket| !socket.options.socket.takes_joined)
        {
            return deliver_apart(id, datagram, size, cx, fx);
        }
        cx.counters.bump(Counter::RxUdp);
        fx.datagram(id, datagram);
    }

    /// Sockets that take a datagram, with how well they match.
    fn takers(
        &self,
        from: SocketAddr,
        to: SocketAddr,
        link: u16,
    ) -> impl Iterator<Item = (UdpId, u8)> + '_ {
        let indices = self.ports.get(&to.port()).map_or(&[][..], Vec::as_slice);
        indices.iter().filter_map(move |&index| {
            let slot = &self.slots[index as usize];
            let socket = slot.socket.as_ref()?;
            let is_wildcard = socket.local.ip().is_unspecified();
            let is_connected = socket.remote.is_some();
            let matches = socket.takes().takes(to.ip())
                && (is_connected || !socket.options.socket.awaits_peer)
                && socket.choice.admits(link)
                && socket.remote.is_none_or(|remote| is_peer(remote, from));
            // Among wildcards one that is bound to the link, and one of the datagram's own family.
            let is_family = socket.local.is_ipv4() == to.is_ipv4();
            let is_linked = socket.choice.link != 0;
            let quality = u8::from(is_family)
                + 2 * u8::from(is_linked)
                + 4 * u8::from(!is_wildcard)
                + 8 * u8::from(is_connected);
            matches.then_some((UdpId::new(index, slot.generation), quality))
        })
    }

    /// Returns whether a socket has exactly these two ends.
    pub fn has_connected(&self, (local, remote): (SocketAddr, SocketAddr)) -> bool {
        let indices = self.ports.get(&local.port()).map_or(&[][..], Vec::as_slice);
        indices.iter().any(|&index| {
            let socket = self.slots[index as usize].socket.as_ref();
            socket.is_some_and(|it| it.local == local && it.remote == Some(remote))
        })
    }

    /// Returns whether a socket is bound to this address and admits this link, whoever it is
    /// connected to.
    fn serves(&self, to: SocketAddr, link: u16) -> bool {
        let indices = self.ports.get(&to.port()).map_or(&[][..], Vec::as_slice);
        indices.iter().any(|&index| {
            let socket = self.slots[index as usize].socket.as_ref();
            socket.is_some_and(|it| it.takes().takes(to.ip()) && it.choice.admits(link))
        })
    }

    pub(super) fn find_taker(&self, from: SocketAddr, to: SocketAddr, link: u16) -> Option<UdpId> {
        // The last of several equal sockets: the one bound or connected later comes first, as on
        // Linux.
        let (last, best) = self
            .takers(from, to, link)
            .max_by_key(|&(_, quality)| quality)?;
        if !self.spreads(last) {
            return Some(last);
        }
        let equals = || {
            self.takers(from, to, link)
                .filter(move |&(id, quality)| quality == best && self.spreads(id))
        };
        let count = equals().count();
        let hash = hash_of(&self.key, from);
        equals()
            .nth((hash % count as u64) as usize)
            .map(|(id, _)| id)
    }

    fn spreads(&self, id: UdpId) -> bool {
        self.find(id)
            .is_some_and(|socket| socket.options.reuse_port)
    }
}

/// Returns the size of the datagrams that one frame has joined.
fn joined(datagram: &UdpDatagram<'_>, meta: RxMeta) -> Option<NonZeroU16> {
    NonZeroU16::new(meta.segment).filter(|size| datagram.payload.len() > usize::from(size.get()))
}

/// A datagram's boundaries are part of its meaning: a socket that has not asked for joined ones
/// gets each alone.
#[cold]
fn deliver_apart(
    id: UdpId,
    datagram: &DatagramIn<'_>,
    size: NonZeroU16,
    cx: &mut Cx<'_>,
    fx: &mut impl Effects,
) {
    for payload in datagram.payload.chunks(usize::from(size.get())) {
        cx.counters.bump(Counter::RxUdp);
        let part = DatagramIn {
            payload,
            segment: None,
            ..*datagram
        };
        fx.datagram(id, &part);
    }
}

/// RFC 1122 4.1.3.4: zero means that the sender computed none, which IPv6 does not allow
/// (RFC 8200 8.1).
fn is_checksum_right(ip: &IpMeta, datagram: &UdpDatagram<'_>, meta: RxMeta) -> bool {
    let is_missing = datagram.checksum == 0;
    match (ip.src, ip.dst) {
        _ if meta.checksum == RxChecksum::Partial => true,
        (IpAddr::V4(_), _) if is_missing => true,
        (IpAddr::V6(_), _) if is_missing => false,
        _ if meta.checksum == RxChecksum::Verified => true,
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            checksum::is_valid_l4_v4(src, dst, protocol::UDP, datagram.covered)
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            checksum::is_valid_l4_v6(src, dst, protocol::UDP, datagram.covered)
        }
        _ => false,
    }
}

/// Returns whether a socket that is connected to `remote` receives from `from`: compute_score(),
/// where port 0 is any.
#[inline]
fn is_peer(remote: SocketAddr, from: SocketAddr) -> bool {
    remote == from || (remote.port() == 0 && remote.ip() == from.ip())
}

/// The number by which the socket of a group is chosen for a sender.
pub(super) fn hash_of(key: &SipKey, from: SocketAddr) -> u64 {
    key.hash_words([ip_bits(from.ip()), u64::from(from.port())])
}

fn ip_bits(ip: IpAddr) -> u64 {
    match ip {
        IpAddr::V4(ip) => u64::from(ip.to_bits()),
        IpAddr::V6(ip) => {
            let bits = ip.to_bits();
            (bits >> 64) as u64 ^ bits as u64
        }
    }
}
