//! UDP (RFC 768, RFC 1122 4.1): sockets, look-up, input and output.
//!
//! A port has a short list of sockets. A datagram goes to the best match: connected to its sender,
//! else bound to its destination address, else wildcard; among equals (a reuse-port group) the
//! flow's hash decides. Broadcasts go to every socket that matches.
//!
//! RFC 1122 4.1.3.1, 4.1.3.5 and 4.1.3.6: closed ports, several addresses, invalid ones.

use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use slipstack_wire::udp::{self, UdpDatagram};
use slipstack_wire::{checksum, protocol};

use crate::bound::Bound;
use crate::counters::Counter;
use crate::effects::{Effects, Event, Payload, RxChecksum, RxMeta};
use crate::error::{Reason, SocketError};
use crate::ids::UdpId;
use crate::ip::{IpMeta, PathCause, PathError};
use crate::link::{Cx, NextHop, OutPacket, OutSegment, Output};
use crate::options::{MtuDiscovery, UdpOption, UdpOptions};
use crate::rng::{Rng, SipKey};
use crate::time::Instant;

#[derive(Debug)]
struct Socket {
    /// What the program bound; `local` is narrower while the socket is connected.
    bound: SocketAddr,
    local: SocketAddr,
    remote: Option<SocketAddr>,
    options: UdpOptions,
    /// The last destination's next hop.
    hop: (IpAddr, Option<NextHop>),
}

impl Socket {
    fn mtu_discovery(&self, remote: IpAddr) -> MtuDiscovery {
        match remote {
            IpAddr::V4(_) => self.options.mtu_discovery,
            IpAddr::V6(_) => self.options.mtu_discovery_v6,
        }
    }

    fn takes(&self) -> Bound {
        Bound::new(self.local.ip(), self.options.is_v6_only)
    }
}

#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    socket: Option<Socket>,
}

/// Local ports are chosen by our own programs: a table over them needs no keyed hash.
#[derive(Clone, Copy, Debug, Default)]
struct PortHasher(u64);

impl core::hash::Hasher for PortHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u16(u16::from(byte));
        }
    }

    fn write_u16(&mut self, port: u16) {
        self.0 = (self.0 ^ u64::from(port))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(32);
    }
}

type BuildPortHasher = core::hash::BuildHasherDefault<PortHasher>;

/// All UDP sockets of a stack.
#[derive(Debug)]
pub(crate) struct Udp {
    slots: Vec<Slot>,
    free: Vec<u32>,
    ports: HashMap<u16, Vec<u32>, BuildPortHasher>,
    ephemeral: (u16, u16),
    key: SipKey,
}

/// What became of a datagram that came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UdpOutcome {
    Done,
    /// Nobody has the port: the sender may be told.
    PortClosed,
}

impl Udp {
    pub fn new(ephemeral: (u16, u16), rng: &mut Rng) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            ports: HashMap::default(),
            ephemeral,
            key: rng.sip_key(),
        }
    }

    pub fn set_ephemeral(&mut self, lo: u16, hi: u16) {
        self.ephemeral = (lo, hi);
    }

    pub fn bind(
        &mut self,
        local: SocketAddr,
        options: UdpOptions,
        cx: &mut Cx<'_>,
    ) -> Result<UdpId, SocketError> {
        if !local.ip().is_unspecified() && !cx.link.is_own(local.ip()) {
            return Err(SocketError::AddrNotAvailable);
        }
        if self.slots.len() - self.free.len() >= cx.config.udp_sockets_max as usize {
            return Err(SocketError::LimitReached);
        }
        let port = match local.port() {
            0 => self.pick_port(local.ip(), &options, cx.rng)?,
            port if self.is_taken(local.ip(), port, &options) => {
                return Err(SocketError::AddrInUse);
            }
            port => port,
        };
        let local = SocketAddr::new(local.ip(), port);
        let hop = (local.ip(), None);
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            (self.slots.len() - 1) as u32
        });
        let slot = &mut self.slots[index as usize];
        slot.socket = Some(Socket {
            bound: local,
            local,
            remote: None,
            options,
            hop,
        });
        self.ports.entry(port).or_default().push(index);
        Ok(UdpId::new(index, slot.generation))
    }

    /// Fixes the peer, or with `None` releases it.
    pub fn connect(
        &mut self,
        id: UdpId,
        remote: Option<SocketAddr>,
        cx: &Cx<'_>,
    ) -> Result<(), SocketError> {
        let socket = self.find_mut(id)?;
        let mut local = socket.bound;
        if let Some(remote) = remote {
            if remote.port() == 0 {
                return Err(SocketError::InvalidArgument);
            }
            let source = cx
                .link
                .find_source(remote.ip())
                .ok_or(SocketError::NetUnreachable)?;
            if local.ip().is_unspecified() {
                local.set_ip(source);
            }
        }
        socket.local = local;
        socket.remote = remote;
        Ok(())
    }

    pub fn set_option(&mut self, id: UdpId, option: UdpOption) -> Result<(), SocketError> {
        let options = &mut self.find_mut(id)?.options;
        match option {
            UdpOption::Tos(tos) => options.tos = tos,
            UdpOption::Ttl(ttl) => options.ttl = ttl,
            UdpOption::MtuDiscovery(discovery) => options.mtu_discovery = discovery,
            UdpOption::MtuDiscoveryV6(discovery) => options.mtu_discovery_v6 = discovery,
        }
        Ok(())
    }

    /// The peer that is fixed.
    pub fn remote(&self, id: UdpId) -> Option<SocketAddr> {
        self.find(id)?.remote
    }

    pub fn local(&self, id: UdpId) -> Option<SocketAddr> {
        self.find(id).map(|socket| socket.local)
    }

    pub fn close(&mut self, id: UdpId) -> Result<(), SocketError> {
        let port = self.find_mut(id)?.local.port();
        let slot = &mut self.slots[id.index as usize];
        slot.socket = None;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(id.index);
        if let Entry::Occupied(mut entry) = self.ports.entry(port) {
            entry.get_mut().retain(|&index| index != id.index);
            if entry.get().is_empty() {
                entry.remove();
            }
        }
        Ok(())
    }

    pub fn send(
        &mut self,
        now: Instant,
        id: UdpId,
        dst: Option<SocketAddr>,
        payload: &[u8],
        cx: &mut Cx<'_>,
        fx: &mut impl Effects,
    ) -> Result<(), SocketError> {
        let socket = self.find_mut(id)?;
        let dst = dst
            .or(socket.remote)
            .ok_or(SocketError::DestinationRequired)?;
        if dst.port() == 0 || dst.ip().is_unspecified() {
            return Err(SocketError::InvalidArgument);
        }
        if let IpAddr::V4(ip) = dst.ip()
            && cx.link.routes.is_broadcast(ip)
            && !socket.options.broadcast
        {
            return Err(SocketError::BroadcastDenied);
        }
        let src = if socket.local.ip().is_unspecified() {
            cx.link
                .find_source(dst.ip())
                .ok_or(SocketError::NetUnreachable)?
        } else {
            socket.local.ip()
        };
        if payload.len() > usize::from(u16::MAX) - udp::HEADER_LEN {
            return Err(SocketError::MessageTooLong);
        }
        if socket.hop.0 != dst.ip() {
            socket.hop = (dst.ip(), None);
        }
        let packet = OutPacket {
            src,
            dst: dst.ip(),
            protocol: protocol::UDP,
            tos: socket.options.tos,
            ttl: socket.options.ttl,
            dont_fragment: true,
        };
        let way = (&packet, socket.mtu_discovery(dst.ip()));
        let segment = OutSegment {
            header: &udp::header(socket.local.port(), dst.port(), payload.len()),
            payload: Payload::Inline(payload),
            checksum_at: Some(udp::CHECKSUM_AT),
            gso_mss: None,
        };
        match cx.output_datagram(now, way, &mut socket.hop.1, &segment, fx) {
            Output::Sent | Output::Held => {
                cx.counters.bump(Counter::TxUdp);
                Ok(())
            }
            Output::Unreachable(Reason::MessageTooLong) => Err(SocketError::MessageTooLong),
            Output::Unreachable(Reason::NetUnreachable) => Err(SocketError::NetUnreachable),
            Output::Unreachable(_) => Err(SocketError::HostUnreachable),
        }
    }

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
        if !is_checksum_right(ip, &datagram, meta) {
            cx.counters.bump(Counter::DropUdpChecksum);
            return UdpOutcome::Done;
        }
        if datagram.dst_port == 0 {
            cx.counters.bump(Counter::DropUdpPortZero);
            return UdpOutcome::Done;
        }
        let from = SocketAddr::new(ip.src, datagram.src_port);
        let to = SocketAddr::new(ip.dst, datagram.dst_port);
        if ip.group {
            let mut delivered = 0;
            for (id, _) in self.takers(from, to) {
                fx.datagram(id, from, to, datagram.payload);
                delivered += 1;
            }
            cx.counters.add(Counter::RxUdp, delivered);
            if delivered == 0 {
                cx.counters.bump(Counter::DropUdpGroup);
            }
            return UdpOutcome::Done;
        }
        let Some(id) = self.find_taker(from, to) else {
            cx.counters.bump(Counter::DropUdpPort);
            return UdpOutcome::PortClosed;
        };
        cx.counters.bump(Counter::RxUdp);
        fx.datagram(id, from, to, datagram.payload);
        UdpOutcome::Done
    }

    /// RFC 1122 4.1.3.3: errors go up, but only to a socket that is connected to that peer.
    pub fn on_path_error(
        &mut self,
        now: Instant,
        error: &PathError,
        cx: &mut Cx<'_>,
        fx: &mut impl Effects,
    ) {
        let reason = match error.cause {
            PathCause::PortUnreachable | PathCause::ProtocolUnreachable => Reason::Refused,
            PathCause::NetUnreachable => Reason::NetUnreachable,
            PathCause::HostUnreachable
            | PathCause::SourceRouteFailed
            | PathCause::AdminProhibited
            | PathCause::TimeExceeded => Reason::HostUnreachable,
            PathCause::FragmentationNeeded { .. } => Reason::MessageTooLong,
            PathCause::ParameterProblem => Reason::ProtocolError,
        };
        let Some(udp) = self.find_taker(error.remote, error.local) else {
            return;
        };
        let Ok(socket) = self.find_mut(udp) else {
            return;
        };
        if let PathCause::FragmentationNeeded { mtu } = error.cause {
            let discovery = socket.mtu_discovery(error.remote.ip());
            if discovery.learns() {
                cx.learn_path_mtu(now, error.remote.ip(), mtu);
                socket.hop.1 = None;
            }
            // Who does not want to know of it is not told.
            if !discovery.learns() || discovery == MtuDiscovery::Dont {
                return;
            }
        }
        if socket.remote == Some(error.remote) {
            fx.event(Event::UdpFailed { udp, reason });
        }
    }

    /// Sockets that take a datagram, with how well they match.
    fn takers(&self, from: SocketAddr, to: SocketAddr) -> impl Iterator<Item = (UdpId, u8)> + '_ {
        let indices = self.ports.get(&to.port()).map_or(&[][..], Vec::as_slice);
        indices.iter().filter_map(move |&index| {
            let slot = &self.slots[index as usize];
            let socket = slot.socket.as_ref()?;
            let is_wildcard = socket.local.ip().is_unspecified();
            let is_connected = socket.remote.is_some();
            let matches =
                socket.takes().takes(to.ip()) && socket.remote.is_none_or(|remote| remote == from);
            let quality = u8::from(!is_wildcard) + 2 * u8::from(is_connected);
            matches.then_some((UdpId::new(index, slot.generation), quality))
        })
    }

    fn find_taker(&self, from: SocketAddr, to: SocketAddr) -> Option<UdpId> {
        let (first, best) = self.takers(from, to).max_by_key(|&(_, quality)| quality)?;
        let equals = || {
            self.takers(from, to)
                .filter(move |&(_, quality)| quality == best)
        };
        let count = equals().count();
        if count == 1 {
            return Some(first);
        }
        let hash = self
            .key
            .hash_words([ip_bits(from.ip()), u64::from(from.port())]);
        equals()
            .nth((hash % count as u64) as usize)
            .map(|(id, _)| id)
    }

    fn is_taken(&self, ip: IpAddr, port: u16, options: &UdpOptions) -> bool {
        let bound = Bound::new(ip, options.is_v6_only);
        let indices = self.ports.get(&port).map_or(&[][..], Vec::as_slice);
        indices
            .iter()
            .filter_map(|&index| self.slots[index as usize].socket.as_ref())
            .any(|socket| {
                socket.takes().overlaps(bound) && !(options.reuse_port && socket.options.reuse_port)
            })
    }

    /// RFC 6056 algorithm 1: a random start, then the next that is free.
    fn pick_port(
        &self,
        ip: IpAddr,
        options: &UdpOptions,
        rng: &mut Rng,
    ) -> Result<u16, SocketError> {
        let (lo, hi) = self.ephemeral;
        let count = u32::from(hi.saturating_sub(lo)) + 1;
        let start = rng.below(count);
        (0..count)
            .map(|step| lo + ((start + step) % count) as u16)
            .find(|&port| port != 0 && !self.is_taken(ip, port, options))
            .ok_or(SocketError::AddrNotAvailable)
    }

    fn find(&self, id: UdpId) -> Option<&Socket> {
        let slot = self.slots.get(id.index as usize)?;
        slot.socket
            .as_ref()
            .filter(|_| slot.generation == id.generation)
    }

    fn find_mut(&mut self, id: UdpId) -> Result<&mut Socket, SocketError> {
        let slot = self
            .slots
            .get_mut(id.index as usize)
            .ok_or(SocketError::UnknownId)?;
        let is_alive = slot.generation == id.generation;
        slot.socket
            .as_mut()
            .filter(|_| is_alive)
            .ok_or(SocketError::UnknownId)
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

fn ip_bits(ip: IpAddr) -> u64 {
    match ip {
        IpAddr::V4(ip) => u64::from(ip.to_bits()),
        IpAddr::V6(ip) => {
            let bits = ip.to_bits();
            (bits >> 64) as u64 ^ bits as u64
        }
    }
}
