//! The stack: input from the link and the clock. Calls of sockets are in `sockets.rs`.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use slipstack_wire::ethernet::{self, EtherType, EthernetHeader};
use slipstack_wire::ipv4::{self as ipv4_header, Ipv4Packet};
use slipstack_wire::ipv6 as ipv6_header;
use slipstack_wire::rss::QueueMap;
use slipstack_wire::zone::zone_of_ip;
use slipstack_wire::{LinkId, checksum, protocol};

use crate::chooser::Chooser;
use crate::config::StackConfig;
use crate::counters::{Counter, Counters};
use crate::effects::{DatagramOut, Effects, RxChecksum, RxMeta};
use crate::error::SocketError;
use crate::fib::Fib;
use crate::groups::{Asker, GroupFilter};
use crate::held::HeldFrame;
use crate::icmp;
use crate::icmp_limit::IcmpLimit;
use crate::icmpv6;
use crate::ids::UdpId;
use crate::ip::{IcmpDetails, IpMeta, LinkedGroup, PathCause, QUOTED_LEN, Report, parse_flow};
use crate::ipv4;
use crate::ipv6;
use crate::neighbour::{Confidence, GivenUp, Learned, Querier};
use crate::network_layer::NetworkLayer;
use crate::options::{DEFAULT_TTL, PortRange, SocketOption, UdpOptions};
use crate::reassembly::Reassembly;
use crate::rng::Rng;
use crate::scatter::Scatter;
use crate::tcp::Tcp;
use crate::time::Instant;
use crate::udp::{Udp, UdpOutcome};
use slipstack_terms::Learnt;

/// One protocol stack: one interface, its neighbours, routes and sockets.
#[derive(Debug)]
pub struct Stack {
    pub(crate) config: StackConfig,
    /// As configured, while [`StackConfig`] has the value in force.
    pub(crate) delayed_ack: Duration,
    pub(crate) net: NetworkLayer,
    pub(crate) rng: Rng,
    pub(crate) counters: Counters,
    pub(crate) udp: Udp,
    pub(crate) tcp: Tcp,
    pub(crate) icmp_errors: IcmpLimit,
    /// Made for the first fragment.
    pub(crate) reassembly: Option<Box<Reassembly>>,
}

/// Borrows the parts of a stack that its protocols share; a macro so that the borrow checker sees
/// the fields.
macro_rules! cx {
    ($stack:expr) => {
        $crate::network_layer::Cx {
            config: &$stack.config,
            net: &mut $stack.net,
            rng: &mut $stack.rng,
            counters: &mut $stack.counters,
        }
    };
}
pub(crate) use cx;

impl Stack {
    pub fn new(config: StackConfig, now: Instant) -> Self {
        let mut rng = Rng::new(&config.seed);
        Self {
            net: NetworkLayer::new(&config, &mut rng),
            udp: Udp::new(config.ephemeral, config.scatter, &mut rng),
            tcp: Tcp::new(&config, &mut rng, now),
            icmp_errors: IcmpLimit::new(config.icmp_errors_per_second, now),
            counters: Counters::default(),
            reassembly: None,
            delayed_ack: config.tcp.delayed_ack,
            rng,
            config,
        }
        .asking(now)
    }

    fn asking(mut self, now: Instant) -> Self {
        cx!(self).ask_routers(now);
        self
    }

    pub fn config(&self) -> &StackConfig {
        &self.config
    }

    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    #[inline]
    pub(crate) fn on_ipv4(
        &mut self,
        now: Instant,
        bytes: &[u8],
        link_group: bool,
        meta: RxMeta,
        fx: &mut impl Effects,
    ) {
        let (ip, packet) = match ipv4::accept(bytes, link_group, meta, &self.net) {
            Ok(accepted) => accepted,
            Err(Counter::DropIpv4NotOurs) => {
                return self.on_foreign_ipv4(now, bytes, link_group, meta, fx);
            }
            Err(why) => {
                self.counters.bump(why);
                return;
            }
        };
        if packet.is_fragment {
            return self.on_fragment_v4(now, bytes, &packet, &ip, link_group, fx);
        }
        self.counters.bump(Counter::RxIpv4);
        match packet.header.protocol {
            protocol::TCP => {
                self.on_tcp(now, &ip, &packet, meta, fx);
                if self.tcp.saves_syns() {
                    let header_len = ipv4_header::HEADER_LEN + packet.options.len();
                    self.tcp.save_syn(&ip, &bytes[..header_len], packet.payload);
                }
            }
            protocol::UDP => {
                let mut cx = cx!(self);
                let outcome = self.udp.on_datagram(&ip, packet.payload, meta, &mut cx, fx);
                if outcome == UdpOutcome::PortClosed && !cx.config.udp_blackhole {
                    cx.send_port_unreachable(now, &mut self.icmp_errors, bytes, &ip, fx);
                }
            }
            protocol::ICMP => {
                if let Some(report) = cx!(self).on_icmp(now, &ip, packet.payload, fx) {
                    self.on_report(now, &report, fx);
                }
            }
            protocol::IGMP => cx!(self).on_igmp(now, &ip, packet.payload),
            _ => {
                self.counters.bump(Counter::DropIpv4Protocol);
                cx!(self).send_protocol_unreachable(now, &mut self.icmp_errors, bytes, &ip, fx);
            }
        }
    }

    #[inline]
    pub(crate) fn on_tcp(
        &mut self,
        now: Instant,
        ip: &IpMeta,
        packet: &Ipv4Packet<'_>,
        meta: RxMeta,
        fx: &mut impl Effects,
    ) {
        // RFC 9293 3.9.2.3, MUST-57.
        if ip.group {
            self.counters.bump(Counter::DropTcpGroup);
            return;
        }
        let (src, dst) = (packet.header.src, packet.header.dst);
        if meta.checksum == RxChecksum::Unknown
            && !checksum::is_valid_l4_v4(src, dst, protocol::TCP, packet.payload)
        {
            self.counters.bump(Counter::DropTcpChecksum);
            return;
        }
        self.tcp
            .on_segment(now, ip, packet.payload, meta, &mut cx!(self), fx);
    }

    pub(crate) fn on_report(&mut self, now: Instant, it: &Report<'_>, fx: &mut impl Effects) {
        match it.protocol {
            protocol::TCP => self.tcp.on_path_error(now, &it.error, &mut cx!(self), fx),
            _ => self
                .udp
                .on_path_error(now, (&it.error, &it.details), &mut cx!(self), fx),
        }
    }

    /// Fires due timers.
    pub fn on_timers(&mut self, now: Instant, fx: &mut impl Effects) {
        self.on_timers_due_by(now, now, fx);
    }

    /// Fires timers that were due at an earlier time: later frames are still to be processed.
    pub fn on_timers_due_by(&mut self, due_by: Instant, now: Instant, fx: &mut impl Effects) {
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= due_by);
        if is_due(self.net.neighbours.next_deadline()) {
            self.on_link_timers(now, fx);
        }
        if let Some(waiting) = &self.reassembly
            && is_due(waiting.next_deadline())
        {
            self.on_fragment_timers(now, fx);
        }
        self.tcp.on_timers(due_by, now, &mut cx!(self), fx);
    }

    #[cold]
    fn on_link_timers(&mut self, now: Instant, fx: &mut impl Effects) {
        self.on_neighbour_timers(now, fx);
        if self.net.groups.is_some() {
            cx!(self).on_group_timers(now, fx);
        }
        if self.net.slaac.is_some() {
            cx!(self).on_router_timers(now, fx);
        }
        if !self.net.lost_routers.is_empty() {
            cx!(self).probe_lost_routers(now, fx);
        }
        cx!(self).on_announcement_timers(now, fx);
        let groups = self.net.groups.as_ref();
        let groups = groups.and_then(|groups| groups.next_deadline());
        self.net.look_at(groups);
        self.note_fragments();
        self.on_filter_timers(now);
    }

    /// The timers of fragments are checked with those of the link.
    pub(crate) fn note_fragments(&mut self) {
        let waiting = self.reassembly.as_ref();
        self.net
            .look_at(waiting.and_then(|waiting| waiting.next_deadline()));
    }

    #[cold]
    fn on_neighbour_timers(&mut self, now: Instant, fx: &mut impl Effects) {
        let mut given_up = GivenUp::default();
        let NetworkLayer {
            neighbours, macs, ..
        } = &mut self.net;
        neighbours.on_timers(now, macs, &mut given_up, &mut self.counters, fx);
        if !given_up.neighbours.is_empty() {
            cx!(self).on_neighbours_lost(now, &given_up.neighbours);
        }
        for (hop, frame) in given_up.frames {
            let Some(frame) = cx!(self).divert(now, hop, frame, fx) else {
                continue;
            };
            let quoted = frame.header().get(ethernet::HEADER_LEN..);
            if quoted.is_some_and(|bytes| self.tell_unreachable(now, bytes, fx)) {
                continue;
            }
            if let Some(report) = report_of(&frame, zone_of_ip(hop)) {
                self.on_report(now, &report, fx);
            }
        }
    }

    /// Announces this stack's addresses to the link (RFC 5227 2.3, RFC 4861 7.2.6), and its
    /// multicast groups. Called once, when the interface is up and no other station has the
    /// addresses.
    pub fn announce(&mut self, now: Instant, fx: &mut impl Effects) {
        cx!(self).announce_addresses();
        self.announce_groups(now, fx);
    }

    /// Forgets which stations are on the links: they are asked for again.
    pub fn forget_neighbours(&mut self) {
        self.net.neighbours.forget_learnt();
    }

    /// Announces only the groups (RFC 3810 6.1), so that switches forward solicitations of its
    /// addresses.
    pub fn announce_groups(&mut self, now: Instant, fx: &mut impl Effects) {
        if let Some(groups) = &mut self.net.groups {
            groups.announce();
        }
        self.on_link_timers(now, fx);
    }

    /// Returns whether `on_timers` has something to do.
    #[inline]
    pub fn has_due(&self, now: Instant) -> bool {
        let neighbours = self.net.neighbours.next_deadline();
        self.tcp.has_due(now) || neighbours.is_some_and(|at| at <= now)
    }

    /// Time at which `on_timers` must be called next; may be earlier than anything that is due.
    pub fn next_deadline(&self) -> Option<Instant> {
        let sooner = |a: Option<Instant>, b: Option<Instant>| match (a, b) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let next = sooner(
            self.tcp.next_deadline(),
            self.net.neighbours.next_deadline(),
        );
        match &self.reassembly {
            None => next,
            Some(waiting) => sooner(next, waiting.next_deadline()),
        }
    }

    /// Ends a turn: emits the connections' segments. Nothing else emits data or plain ACKs.
    #[inline]
    pub fn flush(&mut self, now: Instant, fx: &mut impl Effects) {
        self.tcp.flush(now, &mut cx!(self), fx);
    }

    /// Returns whether `flush` has something to do.
    pub fn has_dirty(&self) -> bool {
        self.tcp.has_dirty()
    }

    /// Appends the neighbours that this stack is resolving to `out`. An engine, whose answers reach
    /// the keeper, looks them up there and calls [`Stack::on_neighbour`].
    pub fn pending_neighbours(&self, out: &mut Vec<IpAddr>) {
        out.extend(self.net.neighbours.pending());
    }

    /// Returns whether frames wait for neighbours.
    pub fn holds_frames(&self) -> bool {
        self.net.neighbours.holds_frames()
    }

    /// Neighbours whose link-layer address was learnt, with it.
    pub fn known_neighbours(&self) -> impl Iterator<Item = (IpAddr, [u8; 6])> + '_ {
        self.net.neighbours.known()
    }

    /// Returns whether it is one of several known default routers.
    pub fn has_other_routers(&self, ip: IpAddr) -> bool {
        let routers = &self.net.learnt.routers;
        routers.len() > 1 && routers.iter().any(|router| IpAddr::V6(*router) == ip)
    }

    /// Stores a neighbour's address from a trusted source.
    pub fn on_neighbour(&mut self, now: Instant, ip: IpAddr, mac: [u8; 6], fx: &mut impl Effects) {
        if ethernet::is_group(mac) || mac == [0; 6] {
            return;
        }
        if let Some(source) = self.net.find_source(ip) {
            let asker = Querier {
                ip: source,
                link: self.net.link_of(ip),
            };
            let learned = Learned {
                ip,
                mac,
                confidence: Confidence::Confirmed,
            };
            let neighbours = &mut self.net.neighbours;
            neighbours.learn(now, learned, asker, &mut self.counters, fx);
            if !self.net.lost_routers.is_empty() {
                cx!(self).on_router_found(ip);
            }
        }
    }

    /// Ports that a socket of this range may have, each once, from a random one on.
    pub fn ports_of(&mut self, range: PortRange) -> impl Iterator<Item = u16> + use<> {
        let range = range.within(self.config.ports);
        let count = range.count();
        let start = self.rng.below(count);
        (0..count).map(move |step| range.first + ((start + step) % count) as u16)
    }

    /// The order in which ports are handed out.
    pub fn scatter(&self) -> Scatter {
        self.config.scatter
    }

    /// Changes the range of ports of active opens, inclusive; places in the order of
    /// [`Stack::scatter`].
    pub fn set_ephemeral(&mut self, lo: u16, hi: u16) {
        self.config.ephemeral = (lo, hi);
        if self.config.scatter == Scatter::NONE {
            (self.config.ports.first, self.config.ports.last) = (lo, hi);
        }
        self.udp.set_ephemeral(lo, hi);
        self.tcp.set_ephemeral(lo, hi);
    }

    /// As [`Stack::set_ephemeral`]; connections still use the former ports too.
    pub fn add_ephemeral(&mut self, lo: u16, hi: u16) {
        self.config.ephemeral = (lo, hi);
        if self.config.scatter == Scatter::NONE {
            let ports = &mut self.config.ports;
            (ports.first, ports.last) = (ports.first.min(lo), ports.last.max(hi));
        }
        self.udp.set_ephemeral(lo, hi);
        self.tcp.add_ephemeral(lo, hi);
    }

    /// Has connections choose local ports by which the card puts their frames into the queue of
    /// this map.
    pub fn set_queue_map(&mut self, map: Option<QueueMap>) {
        self.tcp.set_queue_map(map);
    }
}

/// Returns the error that a router would send about a frame whose neighbour does not answer.
fn report_of(frame: &HeldFrame, link: LinkId) -> Option<Report<'_>> {
    let (header, bytes) = EthernetHeader::parse(frame.header())?;
    let is_v6 = header.ethertype == EtherType::IPV6;
    let cause = PathCause::HostUnreachable;
    let packet = if is_v6 {
        ipv6::parse_flow(bytes, cause, true)?
    } else {
        parse_flow(&Ipv4Packet::parse_quoted(bytes).ok()?, cause, true)?
    };
    let (kind, code, quoted) = if is_v6 {
        (1, 3, icmpv6::QUOTE_MAX - ipv6_header::HEADER_LEN)
    } else {
        (3, 1, icmp::QUOTE_MAX - ipv4_header::HEADER_LEN)
    };
    let error = packet.error.on_link(link);
    let payload = frame.bytes();
    let details = IcmpDetails {
        offender: error.local.ip(),
        local: error.local.ip(),
        tos: if is_v6 { 0 } else { icmp::error_tos(0) },
        ttl: DEFAULT_TTL,
        kind,
        code,
        info: 0,
        payload: &payload[..payload.len().min(quoted - QUOTED_LEN)],
    };
    Some(Report {
        protocol: packet.protocol,
        error,
        details,
    })
}

/// UDP sockets.
impl Stack {
    /// Port 0 picks one of the ephemeral range.
    pub fn udp_bind(
        &mut self,
        local: SocketAddr,
        options: UdpOptions,
    ) -> Result<UdpId, SocketError> {
        self.udp.bind(local, options, &mut cx!(self))
    }

    /// Fixes the peer; `None` releases it.
    pub fn udp_connect(
        &mut self,
        id: UdpId,
        remote: Option<SocketAddr>,
    ) -> Result<(), SocketError> {
        self.udp.connect(id, remote, &cx!(self))
    }

    /// A change of memberships is reported to routers at the next check of timers, which is at
    /// once.
    pub fn udp_set_option(&mut self, id: UdpId, option: SocketOption) -> Result<(), SocketError> {
        self.udp.set_option(id, option, &mut cx!(self))
    }

    /// See [`Udp::set_choosers`].
    pub fn udp_set_choosers(&mut self, port: u16, choosers: Vec<(SocketAddr, Chooser)>) {
        self.udp.set_choosers(port, choosers);
    }

    /// See [`Udp::has_choosers`].
    pub fn udp_has_choosers(&self, port: u16) -> bool {
        self.udp.has_choosers(port)
    }

    /// See [`Udp::expect`].
    pub fn udp_expect(&mut self, rank: Option<u64>) {
        self.udp.expect(rank);
    }

    /// The largest IP packet to the connected peer, as far as is known.
    pub fn udp_path_mtu(&self, now: Instant, id: UdpId) -> Option<u16> {
        let remote = self.udp.remote(id)?;
        let local = self.udp.local(id).map(|local| local.ip());
        let local = local.filter(|ip| !ip.is_unspecified());
        let path = self.net.find_path(now, local, remote.ip())?;
        Some(path.mtu)
    }

    /// The peer of a connected socket.
    pub fn udp_remote(&self, id: UdpId) -> Option<SocketAddr> {
        self.udp.remote(id)
    }

    pub fn udp_local(&self, id: UdpId) -> Option<SocketAddr> {
        self.udp.local(id)
    }

    /// Leaves at once.
    pub fn udp_send(
        &mut self,
        now: Instant,
        id: UdpId,
        datagram: &DatagramOut<'_>,
        fx: &mut impl Effects,
    ) -> Result<(), SocketError> {
        self.udp.send(now, id, datagram, &mut cx!(self), fx)
    }

    /// Ends a socket's reception and frees its port; it may still send until
    /// [`Stack::udp_close`].
    pub fn udp_retire(&mut self, id: UdpId) -> Result<(), SocketError> {
        self.udp.retire(id, &mut cx!(self))
    }

    pub fn udp_close(&mut self, id: UdpId) -> Result<(), SocketError> {
        self.udp.close(id, &mut cx!(self))
    }

    /// Sets the source filter of a group that the engine on another slot of our device receives.
    pub fn set_slot_group(&mut self, slot: u16, group: LinkedGroup, filter: GroupFilter) {
        cx!(self).want_group(Asker::Slot(slot), group, filter);
    }

    /// Removes the memberships of an engine that is gone.
    pub fn forget_slot_groups(&mut self, slot: u16) {
        if let Some(groups) = &mut self.net.groups {
            groups.forget(Asker::Slot(slot));
            self.net.look_at(Some(Instant::ZERO));
        }
    }

    /// The routing tables and rules of a family.
    pub fn fib(&self, is_v6: bool) -> &Fib {
        self.net.fib(is_v6)
    }

    /// Changes the routes. Cached next hops are looked up again for the next packet.
    pub fn change_fib<R>(&mut self, is_v6: bool, change: impl FnOnce(&mut Fib) -> R) -> R {
        self.net.change_fib(is_v6, change)
    }

    /// Returns the configuration by the link's routers; the number changes with it.
    pub fn learnt(&self) -> (&Learnt, u32) {
        (&self.net.learnt, self.net.learnt_revision)
    }

    /// With its lifetimes: the state that a successor resumes.
    pub fn slaac_image(&self) -> Vec<u64> {
        let slaac = self.net.slaac.as_ref();
        slaac.map(|slaac| slaac.image()).unwrap_or_default()
    }

    /// Returns whether no first request to the link is pending.
    pub fn is_settled(&self) -> bool {
        let slaac = self.net.slaac.as_ref();
        slaac.is_none_or(|slaac| slaac.is_settled())
    }

    /// Applies the configuration that another stack on the same device has learnt from routers, and
    /// the state of the link.
    pub fn learn(&mut self, now: Instant, learnt: Learnt) {
        let before = self.net.mtu();
        cx!(self).follow(learnt);
        if self.net.mtu() != before {
            self.tcp.on_link_mtu(now, &mut cx!(self));
        }
    }

    /// The address that packets to `dst` would come from; `None` = no route.
    pub fn find_source(&self, dst: IpAddr) -> Option<IpAddr> {
        self.net.find_source(dst)
    }
}
