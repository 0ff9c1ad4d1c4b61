//! UDP (RFC 768, RFC 1122 4.1): sockets, lookup, input and output.
//!
//! A port has a short list of sockets. A datagram goes to the best match: connected to its sender,
//! else bound to its destination address, else wildcard; among equals the last one, or, in a
//! reuse-port group, the one that the flow's hash names. Broadcasts go to every socket that
//! matches.
//!
//! RFC 1122 4.1.3.1, 4.1.3.5 and 4.1.3.6: closed ports, several addresses, invalid ones.

mod choosing;
mod errors;
mod extended;
mod input;
mod multicast;
mod output;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use slipstack_wire::protocol;

use crate::bound::Bound;
use crate::chooser::Chooser;
use crate::error::SocketError;
use crate::fib::{Choice, Query};
use crate::ids::UdpId;
use crate::network_layer::{Cx, NextHop};
use crate::options::{MtuDiscovery, PortRange, SocketOption, UdpOptions};
use crate::rng::{Rng, SipKey};
use crate::scatter::Scatter;
use crate::time::Instant;

pub(crate) use input::UdpOutcome;
use multicast::Multicast;

/// Bound sockets of a stack at most.
const SOCKETS_MAX: usize = 65_536;

#[derive(Debug)]
struct Socket {
    /// The address that the program bound; `local` is narrower while the socket is connected.
    bound: SocketAddr,
    local: SocketAddr,
    remote: Option<SocketAddr>,
    options: UdpOptions,
    /// [`Choice::of`] the options, for every datagram.
    choice: Choice,
    /// The next hop between the last pair of addresses: rules may go by the source.
    hop: ((IpAddr, IpAddr), Option<NextHop>),
    multicast: Option<Box<Multicast>>,
}

impl Socket {
    fn mtu_discovery(&self, remote: IpAddr) -> MtuDiscovery {
        match remote {
            IpAddr::V4(_) => self.options.socket.mtu_discovery,
            IpAddr::V6(_) => self.options.socket.mtu_discovery_v6,
        }
    }

    /// The choice for a datagram to this address that makes none itself. A socket that is bound to
    /// a link has chosen that (udp_sendmsg()).
    fn choice_towards(&self, dst: IpAddr) -> Choice {
        let choice = self.choice;
        let link = self.multicast.as_ref().and_then(|it| it.link_towards(dst));
        match link {
            Some(link) if choice.chosen_link().is_none() => Choice {
                link: Choice::link_of(link),
                ..choice
            },
            _ => choice,
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
    scatter: Scatter,
    key: SipKey,
    /// By the address that the group's sockets are bound to; there are few.
    choosers: Vec<(SocketAddr, Chooser)>,
    /// See [`Udp::expect`].
    expected: Option<u64>,
}

impl Udp {
    pub fn new(ephemeral: (u16, u16), scatter: Scatter, rng: &mut Rng) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            ports: HashMap::default(),
            ephemeral,
            scatter,
            key: rng.sip_key(),
            choosers: Vec::new(),
            expected: None,
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
        let ip = local.ip();
        let is_ours = ip.is_unspecified() || cx.net.is_own(ip) || is_group(ip, cx);
        if !is_ours && !options.socket.is_transparent {
            return Err(SocketError::AddrNotAvailable);
        }
        if self.slots.len() - self.free.len() >= SOCKETS_MAX {
            return Err(SocketError::LimitReached);
        }
        let port = match local.port() {
            0 => {
                let bound = Bound::new(local.ip(), options.is_v6_only);
                self.pick_port(
                    bound,
                    options.socket.port_range.within(cx.config.ports),
                    cx.rng,
                )?
            }
            port if self.is_taken(local.ip(), port, &options) => {
                return Err(SocketError::AddrInUse);
            }
            port => port,
        };
        let local = SocketAddr::new(local.ip(), port);
        let hop = ((local.ip(), local.ip()), None);
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            (self.slots.len() - 1) as u32
        });
        let slot = &mut self.slots[index as usize];
        slot.socket = Some(Socket {
            bound: local,
            local,
            remote: None,
            choice: Choice::of(&options.socket),
            options,
            hop,
            multicast: None,
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
        let choice = remote.map_or(Choice::NONE, |to| socket.choice_towards(to.ip()));
        let mut local = socket.bound;
        if let Some(remote) = remote {
            let link = &cx.net;
            let ports = (local.port(), remote.port());
            let query = Query::to(remote.ip()).carrying(protocol::UDP, ports);
            if local.ip().is_unspecified() {
                let query = query.by(choice);
                let source = link.find_source_by(&query);
                local.set_ip(source.ok_or_else(|| link.refusal(&query))?);
            } else {
                let query = Query {
                    src: Some(local.ip()),
                    ..query.by(choice)
                };
                if link.find_path_by(Instant::ZERO, &query).is_none() {
                    return Err(link.refusal(&query));
                }
            }
        }
        let is_moved = socket.local.ip() != local.ip();
        socket.local = local;
        socket.remote = remote;
        if is_moved && let Some(indices) = self.ports.get_mut(&local.port()) {
            indices.retain(|&index| index != id.index);
            indices.push(id.index);
        }
        Ok(())
    }

    pub fn set_option(
        &mut self,
        id: UdpId,
        option: SocketOption,
        cx: &mut Cx<'_>,
    ) -> Result<(), SocketError> {
        if let SocketOption::Multicast(option) = option {
            return self.set_multicast(id, option, cx);
        }
        let socket = self.find_mut(id)?;
        socket.options.socket.set(option);
        socket.choice = Choice::of(&socket.options.socket);
        socket.hop.1 = None;
        Ok(())
    }

    /// The peer that is fixed.
    pub fn remote(&self, id: UdpId) -> Option<SocketAddr> {
        self.find(id)?.remote
    }

    pub fn local(&self, id: UdpId) -> Option<SocketAddr> {
        self.find(id).map(|socket| socket.local)
    }

    /// Ends a socket's reception and frees its port; it may still send.
    pub fn retire(&mut self, id: UdpId, cx: &mut Cx<'_>) -> Result<(), SocketError> {
        let socket = self.find_mut(id)?;
        let port = socket.local.port();
        if socket.multicast.is_some() {
            Self::leave_all(id, cx);
        }
        if let Entry::Occupied(mut entry) = self.ports.entry(port) {
            entry.get_mut().retain(|&index| index != id.index);
            if entry.get().is_empty() {
                entry.remove();
            }
        }
        Ok(())
    }

    pub fn close(&mut self, id: UdpId, cx: &mut Cx<'_>) -> Result<(), SocketError> {
        self.retire(id, cx)?;
        let slot = &mut self.slots[id.index as usize];
        slot.socket = None;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(id.index);
        Ok(())
    }

    fn is_taken(&self, ip: IpAddr, port: u16, options: &UdpOptions) -> bool {
        let bound = Bound::new(ip, options.is_v6_only);
        let link = options.socket.link;
        let is_apart = |other: u16| link != 0 && other != 0 && link != other;
        self.holders(bound, port).any(|holder| {
            let is_shared = options.is_shared && holder.options.is_shared;
            !(is_shared || is_apart(holder.choice.link))
        })
    }

    fn is_held(&self, bound: Bound, port: u16) -> bool {
        self.holders(bound, port).next().is_some()
    }

    /// The sockets that take some address of these at this port.
    fn holders(&self, bound: Bound, port: u16) -> impl Iterator<Item = &Socket> {
        let indices = self.ports.get(&port).map_or(&[][..], Vec::as_slice);
        indices
            .iter()
            .filter_map(|&index| self.slots[index as usize].socket.as_ref())
            .filter(move |socket| socket.takes().overlaps(bound))
    }

    /// RFC 6056 algorithm 1: a random start, then the next free port. A socket that asks for no
    /// particular port shares none: if two sockets had one port and one peer, one would get the
    /// other's answers.
    fn pick_port(&self, bound: Bound, range: PortRange, rng: &mut Rng) -> Result<u16, SocketError> {
        let (lo, hi) = self.ephemeral;
        let count = u32::from(hi.saturating_sub(lo)) + 1;
        let start = rng.below(count);
        (0..count)
            .map(|step| self.scatter.port(lo + ((start + step) % count) as u16))
            .find(|&port| port != 0 && range.has(port) && !self.is_held(bound, port))
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

/// Returns whether the address is a multicast group: a socket bound to one receives only that group
/// (RFC 3678 does not say so, but every system does it).
fn is_group(ip: IpAddr, cx: &Cx<'_>) -> bool {
    match ip {
        IpAddr::V4(v4) => v4.is_multicast() || cx.net.routes.is_broadcast(v4),
        IpAddr::V6(v6) => v6.is_multicast(),
    }
}
