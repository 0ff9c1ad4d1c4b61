//! Application of the packet filter: to frames from the device, and to outgoing packets.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::SocketAddr;

use slipstack_wire::ethernet::{self, EtherType, EthernetHeader};
use slipstack_wire::flow::FrameFlow;
use slipstack_wire::icmpv4::{IcmpKind, code};
use slipstack_wire::icmpv6::Icmpv6Kind;
use slipstack_wire::ipv4::Ipv4Packet;
use slipstack_wire::ipv6::Ipv6Packet;
use slipstack_wire::protocol;
use slipstack_wire::tcp::TcpFlags;

use crate::counters::Counter;
use crate::effects::{Effects, FrameOut, RxChecksum, RxMeta};
use crate::filter::{
    Board, Count, Filter, FilterDirection, FilterRule, Logged, Packet, SharedLimits, StateRow,
    Table, UnreachCode, Verdict,
};
use crate::ip::IpMeta;
use crate::network_layer::{Cx, NetworkLayer};
use crate::stack::{Stack, cx};
use crate::tcp::FlowKey;
use crate::time::Instant;

/// The rules of a packet filter, with the tables and routes they refer to.
#[derive(Debug, Default)]
pub struct FilterRules {
    /// In ascending order of their numbers.
    pub rules: Vec<FilterRule>,
    /// Rules name them by their places.
    pub tables: Vec<Arc<Table>>,
}

impl Stack {
    /// Replaces the rules. Counts and known flows of rules that stay are kept.
    pub fn set_filter(&mut self, configured: FilterRules) {
        let before = self.net.filter.take();
        if configured.rules.is_empty() {
            if let Some(board) = &self.net.limits {
                board.shared.clear();
            }
            return;
        }
        let mut filter = Filter::new(&configured.rules, configured.tables);
        if let Some(before) = before {
            filter.keep(*before);
        }
        filter.states_mut().share(self.net.limits.clone());
        filter.set_times(self.config.filter_states);
        self.net.filter = Some(filter.into());
    }

    /// Counts the flows of rules with `limit` together with other stacks, which have the same
    /// `sequence_key`. Called before there are rules.
    pub fn share_limits(&mut self, shared: Arc<dyn SharedLimits>) {
        shared.clear();
        let key = self.config.sequence_key;
        self.net.limits = key.map(|key| Board::new(shared, key));
    }

    /// Returns the matches of each rule, by its id.
    pub fn filter_counts(&self) -> impl Iterator<Item = (u64, Count)> + '_ {
        self.net.filter.iter().flat_map(|filter| filter.counts())
    }

    /// Begins to count and to log again, or only to log; for some rules, or with `None` for all.
    pub fn zero_filter(&mut self, ids: Option<&[u64]>, is_log_only: bool) {
        if let Some(filter) = &mut self.net.filter {
            filter.zero(ids, is_log_only);
        }
    }

    /// The flows that stateful rules have let in.
    pub fn filter_states(&self, now: Instant) -> impl Iterator<Item = StateRow> + '_ {
        let filter = self.net.filter.iter();
        filter.flat_map(move |filter| filter.states(now))
    }

    /// Returns the logged matches since the last call.
    pub fn take_filter_log(&mut self) -> Vec<Logged> {
        let filter = self.net.filter.as_mut();
        filter.map_or_else(Vec::new, |filter| filter.take_logged())
    }

    /// Returns whether packets have to pass rules.
    pub fn has_filter(&self) -> bool {
        self.net.filter.is_some()
    }

    /// Returns whether [`Stack::take_filter_log`] has some.
    pub fn has_filter_log(&self) -> bool {
        let filter = self.net.filter.as_ref();
        filter.is_some_and(|filter| filter.has_logged())
    }

    /// A connection has come here; the filter knows its flow, if it would know it where it was.
    pub(crate) fn note_adopted(&mut self, now: Instant, local: SocketAddr, remote: SocketAddr) {
        let Some(filter) = &mut self.net.filter else {
            return;
        };
        let setup = |direction, src: SocketAddr, dst: SocketAddr| Packet {
            flags: TcpFlags::SYN,
            ..Packet::plain(direction, protocol::TCP, src, dst)
        };
        let came = setup(FilterDirection::In, remote, local);
        let went = setup(FilterDirection::Out, local, remote);
        filter.adopt(now, &[came, went]);
    }

    /// A connection has left for another stack, which counts its flow from now on.
    pub(crate) fn note_detached(&mut self, local: SocketAddr, remote: SocketAddr) {
        let flow = Packet::plain(FilterDirection::In, protocol::TCP, remote, local);
        self.net.hand_over(&flow);
    }

    /// Removes expired flows of rules with `limit` for which other stacks may wait.
    pub(crate) fn on_filter_timers(&mut self, now: Instant) {
        let filter = self.net.filter.as_ref();
        if filter
            .and_then(|filter| filter.next_sweep())
            .is_some_and(|at| at <= now)
        {
            self.sweep_filter(now);
        }
        self.net.note_sweep();
    }

    /// Removes expired flows of the filter; open connections of this stack stay known.
    #[cold]
    fn sweep_filter(&mut self, now: Instant) {
        let Some(filter) = &mut self.net.filter else {
            return;
        };
        let tcp = &self.tcp;
        let states = filter.states_mut();
        states.sweep(now, |one, other| {
            tcp.has_connection(one, other) || tcp.has_connection(other, one)
        });
    }

    /// Returns whether the filter keeps a frame from the stack; if a rule rejects it, its sender
    /// has been informed.
    #[inline]
    pub(crate) fn is_kept_out(
        &mut self,
        now: Instant,
        frame: &[u8],
        meta: RxMeta,
        fx: &mut impl Effects,
    ) -> bool {
        self.net.filter.is_some()
            && match meta.local {
                false => self.look_at_incoming(now, frame, meta, fx),
                true => self.look_at_passed_on(now, frame, meta),
            }
    }

    /// The engine that received a frame has let it in and passed it on to the one that serves its
    /// flow; there the flow becomes known. Returns whether a limit keeps it out.
    #[inline(never)]
    fn look_at_passed_on(&mut self, now: Instant, frame: &[u8], meta: RxMeta) -> bool {
        if self
            .net
            .filter
            .as_ref()
            .is_none_or(|filter| !filter.is_stateful())
        {
            return false;
        }
        let packet = EthernetHeader::parse(frame).and_then(|(header, bytes)| {
            let is_v6 = header.ethertype == EtherType::IPV6;
            Packet::parse(FilterDirection::In, meta.link, is_v6, bytes)
        });
        let packet = packet.filter(|packet| !self.net.is_own(packet.src_ip()));
        let (Some(packet), Some(filter)) = (packet, &mut self.net.filter) else {
            return false;
        };
        let is_refused = !filter.admits(now, &packet);
        if is_refused {
            self.counters.bump(Counter::DropFilterIn);
        }
        self.net.note_sweep();
        is_refused
    }

    /// Returns whether a frame passes whatever follows its beginning: there is no filter, or it
    /// knows the flow. [`Stack::count_large`] counts the frame once it is accepted.
    #[inline]
    pub(crate) fn lets_large_in(&self, now: Instant, beginning: &[u8], meta: RxMeta) -> bool {
        let Some(filter) = &self.net.filter else {
            return true;
        };
        let ip = beginning.get(ethernet::HEADER_LEN..);
        let way = (FilterDirection::In, meta.link);
        !filter.is_sweep_due(now) && ip.is_some_and(|ip| filter.knows(way, ip))
    }

    /// A large frame of this length was taken.
    #[inline]
    pub(crate) fn count_large(&mut self, now: Instant, beginning: &[u8], len: usize, meta: RxMeta) {
        if let Some(filter) = &mut self.net.filter
            && let Some(ip) = beginning.get(ethernet::HEADER_LEN..)
        {
            let len = len - ethernet::HEADER_LEN;
            filter.passes(now, (FilterDirection::In, meta.link), ip, len);
        }
    }

    #[inline(never)]
    fn look_at_incoming(
        &mut self,
        now: Instant,
        frame: &[u8],
        meta: RxMeta,
        fx: &mut impl Effects,
    ) -> bool {
        let Some((header, bytes)) = EthernetHeader::parse(frame) else {
            return false;
        };
        if header.ethertype == EtherType::IPV4
            && let Some(filter) = &mut self.net.filter
            && !filter.is_sweep_due(now)
            && filter.passes(now, (FilterDirection::In, meta.link), bytes, bytes.len())
        {
            return false;
        }
        let (ethertype, bytes) = match header.ethertype {
            EtherType::TAGGED => match ethernet::parse_priority_tag(bytes) {
                Some(inner) => inner,
                None => return false,
            },
            plain => (plain, bytes),
        };
        let is_v6 = match ethertype {
            EtherType::IPV4 => false,
            EtherType::IPV6 => true,
            _ => return false,
        };
        let packet = Packet::parse(FilterDirection::In, meta.link, is_v6, bytes);
        let (Some(packet), Some(filter)) = (packet, &mut self.net.filter) else {
            return false;
        };
        let is_sweep_due = filter.is_sweep_due(now);
        let verdict = filter.verdict(now, &packet);
        if is_sweep_due {
            self.sweep_filter(now);
        }
        self.net.note_sweep();
        if verdict == Verdict::Pass {
            return false;
        }
        self.counters.bump(Counter::DropFilterIn);
        let is_group = ethernet::is_group(header.dst) || !self.net.macs.has(header.dst);
        if !is_group {
            self.tell_refused(now, verdict, (frame, bytes), meta, fx);
        }
        true
    }

    fn tell_refused(
        &mut self,
        now: Instant,
        verdict: Verdict,
        (frame, bytes): (&[u8], &[u8]),
        meta: RxMeta,
        fx: &mut impl Effects,
    ) {
        let Some(ip) = meta_of(bytes, meta.link).filter(|ip| self.net.is_own(ip.dst)) else {
            return;
        };
        match verdict {
            Verdict::Reset => {
                let is_valid = |flow: &FrameFlow<'_>| {
                    flow.protocol == protocol::TCP
                        && (meta.checksum != RxChecksum::Unknown || flow.is_checksum_valid())
                };
                if let Some(flow) = FrameFlow::parse(frame).filter(is_valid) {
                    self.tcp
                        .refuse_segment(now, &ip, flow.transport, meta, &mut cx!(self), fx);
                }
            }
            Verdict::Unreach(how) => self.tell_unreach(now, how, bytes, &ip, fx),
            Verdict::Pass | Verdict::Drop => {}
        }
    }

    fn tell_unreach(
        &mut self,
        now: Instant,
        how: UnreachCode,
        bytes: &[u8],
        ip: &IpMeta,
        fx: &mut impl Effects,
    ) {
        // RFC 1122 3.2.2, RFC 4443 2.4 (e): never about an error, nor about a later fragment.
        let is_first = has_ports(bytes) || is_echo(bytes);
        if !is_first {
            return;
        }
        let mut cx = cx!(self);
        let limit = &mut self.icmp_errors;
        if ip.dst.is_ipv4() {
            let code = match how {
                UnreachCode::Net => code::NET_UNREACHABLE,
                UnreachCode::Host => code::HOST_UNREACHABLE,
                UnreachCode::Port => code::PORT_UNREACHABLE,
                UnreachCode::Prohibited => code::ADMIN_PROHIBITED,
            };
            let kind = IcmpKind::DestinationUnreachable { code, mtu: 0 };
            cx.send_icmp_error(now, limit, bytes, ip, kind, fx);
        } else {
            let code = match how {
                UnreachCode::Net => 0,
                UnreachCode::Prohibited => 1,
                UnreachCode::Host => 3,
                UnreachCode::Port => 4,
            };
            let kind = Icmpv6Kind::DestinationUnreachable { code };
            cx.send_icmpv6_error(now, limit, bytes, ip, kind, false, fx);
        }
    }
}

fn has_ports(bytes: &[u8]) -> bool {
    let is_v6 = bytes.first().is_some_and(|first| first >> 4 == 6);
    let packet = Packet::parse(FilterDirection::In, 0, is_v6, bytes);
    packet.is_some_and(|packet| packet.has_ports())
}

fn is_echo(bytes: &[u8]) -> bool {
    const ECHO: u8 = 8;
    const ECHO_V6: u8 = 128;
    let v4 = Ipv4Packet::parse_quoted(bytes).ok();
    let v6 = Ipv6Packet::parse_quoted(bytes);
    v4.is_some_and(|packet| {
        packet.header.protocol == protocol::ICMP
            && packet.fragment_offset == 0
            && packet.payload.first() == Some(&ECHO)
    }) || v6.is_some_and(|packet| {
        packet.header.next_header == protocol::ICMPV6 && packet.payload.first() == Some(&ECHO_V6)
    })
}

fn meta_of(bytes: &[u8], link: u16) -> Option<IpMeta> {
    let meta = RxMeta {
        link,
        ..RxMeta::VERIFIED
    };
    if let Some(packet) = Ipv6Packet::parse_quoted(bytes) {
        return Some(IpMeta::of_v6(&packet.header, meta));
    }
    let packet = Ipv4Packet::parse_quoted(bytes).ok()?;
    Some(IpMeta::of_v4(&packet.header, false, meta))
}

impl NetworkLayer {
    /// Requests a call of the timers when flows expire for which other stacks may wait.
    #[inline]
    fn note_sweep(&mut self) {
        let filter = self.filter.as_ref();
        self.look_at(filter.and_then(|filter| filter.next_sweep()));
    }

    /// Leaves the count of a packet's flow to another stack.
    #[inline]
    fn hand_over(&mut self, packet: &Packet) {
        if let Some(filter) = &mut self.filter {
            filter.states_mut().hand_over(packet);
        }
    }
}

impl Cx<'_> {
    /// A packet has gone to another stack, which decides whether it begins a flow.
    #[inline]
    pub(crate) fn note_stray(&mut self, protocol: u8, (src, dst): (SocketAddr, SocketAddr)) {
        if self.net.filter.is_some() {
            let packet = Packet::plain(FilterDirection::In, protocol, src, dst);
            self.net.hand_over(&packet);
        }
    }

    pub(crate) fn note_tcp_stray(&mut self, key: &FlowKey) {
        self.note_stray(protocol::TCP, (key.remote(), key.local()));
    }

    /// Returns whether the filter stops an outgoing packet. Packets to our own addresses are not
    /// filtered.
    #[inline]
    pub(crate) fn is_kept_in(&mut self, now: Instant, frame: &FrameOut<'_>) -> bool {
        self.net.filter.is_some() && !frame.local && self.look_at_outgoing(now, frame)
    }

    #[inline(never)]
    fn look_at_outgoing(&mut self, now: Instant, frame: &FrameOut<'_>) -> bool {
        let Some((header, bytes)) = EthernetHeader::parse(frame.header) else {
            return false;
        };
        let is_v6 = header.ethertype == EtherType::IPV6;
        let len = bytes.len() + frame.payload.len();
        let way = (FilterDirection::Out, frame.offload.link);
        if !is_v6
            && let Some(filter) = &mut self.net.filter
            && filter.passes(now, way, bytes, len)
        {
            return false;
        }
        // The payload is beside the headers: a packet without a transport's header of its own has
        // no ports.
        let packet = Packet::parse(FilterDirection::Out, frame.offload.link, is_v6, bytes);
        let (Some(mut packet), Some(filter)) = (packet, &mut self.net.filter) else {
            return false;
        };
        packet.len = len as u32;
        let is_stopped = filter.verdict(now, &packet) != Verdict::Pass;
        self.net.note_sweep();
        if is_stopped {
            self.counters.bump(Counter::DropFilterOut);
        }
        is_stopped
    }
}
