//! IP forwarding (RFC 1812 5.2 and 5.3, RFC 8200, RFC 4291 2.5): off unless configured.
//!
//! A packet leaves by the link of its next hop, which may be the one by which it arrived. Redirects
//! are not sent. RFC 1812 5.3.1 and 4.3.3.4: time to live; RFC 1191 4: packets that are too large;
//! RFC 1812 5.3.4: packets that arrived by a link-layer broadcast or multicast are not forwarded.

mod apart;

use alloc::borrow::Cow;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use slipstack_wire::ethernet::{self, EtherType, EthernetHeader};
use slipstack_wire::icmpv4::{self, IcmpKind};
use slipstack_wire::icmpv6::{self, Icmpv6Kind};
use slipstack_wire::ipv4::{self, Ipv4Packet};
use slipstack_wire::ipv6::{self, Ipv6Packet};
use slipstack_wire::{Gso, PartialChecksum, TxOffload, protocol, tcp, udp};

use crate::counters::Counter;
use crate::effects::{Effects, FrameOut, Payload, RxChecksum, RxMeta};
use crate::error::SocketError;
use crate::fib::Choice;
use crate::icmp;
use crate::ip::IpMeta;
use crate::neighbour::Station;
use crate::network_layer::{Cx, HEADER_MAX, NextHop, OutPacket, Way};
use crate::route::Route;
use crate::stack::{Stack, cx};
use crate::time::Instant;
use apart::Pieces;

/// Bytes of a packet that travel as a frame's header: enough for an error to quote.
const HEAD_MAX: usize = HEADER_MAX - ethernet::HEADER_LEN;
/// RFC 792, RFC 4443 3.3: in transit.
const IN_TRANSIT: u8 = 0;

/// Reason why a packet goes no further.
enum Refused {
    Silently(Counter),
    Answered(Counter, Problem),
}

#[derive(Clone, Copy)]
enum Problem {
    Expired,
    NoRoute,
    /// By a route, not for the want of one.
    Unreachable,
    /// By a rule.
    Prohibited,
    TooBig(u16),
}

/// The next hop of a forwarded packet, with the MTU of the way to it.
#[derive(Clone, Copy)]
struct ForwardHop {
    ip: IpAddr,
    link: u16,
    mtu: u16,
}

/// The common fields of both families' packets.
struct Transit<'a> {
    packet: OutPacket,
    /// From the network header on.
    bytes: &'a [u8],
    meta: RxMeta,
}

impl Transit<'_> {
    /// Position of a checksum that the sender, on this machine, has left to the device.
    fn partial_checksum(&self) -> Option<PartialChecksum> {
        let header_len = match self.packet.dst {
            IpAddr::V4(_) => {
                let parsed = Ipv4Packet::parse_quoted(self.bytes).ok()?;
                ipv4::HEADER_LEN + parsed.options.len()
            }
            IpAddr::V6(_) => ipv6::HEADER_LEN,
        };
        let offset = match self.packet.protocol {
            protocol::TCP => tcp::CHECKSUM_AT,
            protocol::UDP => udp::CHECKSUM_AT,
            _ => return None,
        };
        let start = (ethernet::HEADER_LEN + header_len) as u16;
        Some(PartialChecksum { start, offset })
    }
}

impl Transit<'_> {
    /// Returns the pieces of a joined frame; `None` if it cannot be segmented.
    fn pieces(&self) -> Option<Gso> {
        const DATA_OFFSET_AT: usize = 12;
        let start = self.partial_checksum()?.start;
        let at = usize::from(start) - ethernet::HEADER_LEN;
        let transport_len = match self.packet.protocol {
            protocol::TCP => u16::from(self.bytes.get(at + DATA_OFFSET_AT)? >> 4) * 4,
            _ => udp::HEADER_LEN as u16,
        };
        let header_len = start + transport_len;
        let is_whole = usize::from(header_len) - ethernet::HEADER_LEN <= self.bytes.len();
        (self.meta.segment > 0 && is_whole).then_some(Gso {
            mss: self.meta.segment,
            header_len,
        })
    }

    /// The packet with the checksum that its sender has left to the device.
    fn completed(&self) -> Cow<'_, [u8]> {
        match self.partial_checksum() {
            Some(at) if self.meta.checksum == RxChecksum::Partial => {
                let l4_at = usize::from(at.start) - ethernet::HEADER_LEN;
                let mut bytes = self.bytes.to_vec();
                apart::complete_checksum(&mut bytes, l4_at, self.packet.protocol);
                Cow::Owned(bytes)
            }
            _ => Cow::Borrowed(self.bytes),
        }
    }
}

impl Stack {
    /// `bytes` have passed every check but that of the destination.
    #[cold]
    pub(crate) fn forward_v4(
        &mut self,
        now: Instant,
        bytes: &[u8],
        link_group: bool,
        meta: RxMeta,
        fx: &mut impl Effects,
    ) {
        let Ok(parsed) = Ipv4Packet::parse(bytes) else {
            return;
        };
        let header = &parsed.header;
        let packet = OutPacket {
            src: header.src.into(),
            dst: header.dst.into(),
            protocol: header.protocol,
            ports: match parsed.fragment_offset {
                0 => self.asked_ports(header.protocol, parsed.payload, false),
                _ => (0, 0),
            },
            tos: header.tos,
            ttl: header.ttl,
            dont_fragment: header.dont_fragment,
            choice: Choice::of_transit(meta.link),
        };
        let bytes = &bytes[..usize::from(header.total_len)];
        let is_foreign = link_group || !may_transit_v4(header.src) || !may_transit_v4(header.dst);
        let transit = Transit {
            packet,
            bytes,
            meta,
        };
        self.forward(now, &transit, is_foreign, fx);
    }

    #[cold]
    pub(crate) fn forward_v6(
        &mut self,
        now: Instant,
        bytes: &[u8],
        link_group: bool,
        meta: RxMeta,
        fx: &mut impl Effects,
    ) {
        let Some(parsed) = Ipv6Packet::parse(bytes) else {
            return;
        };
        let header = &parsed.header;
        let packet = OutPacket {
            src: header.src.into(),
            dst: header.dst.into(),
            protocol: header.next_header,
            ports: self.asked_ports(header.next_header, parsed.payload, true),
            tos: header.traffic_class,
            ttl: header.hop_limit,
            dont_fragment: true,
            choice: Choice::of_transit(meta.link),
        };
        let bytes = &bytes[..ipv6::HEADER_LEN + usize::from(header.payload_len)];
        let is_foreign = link_group || !may_transit_v6(header.src) || !may_transit_v6(header.dst);
        let transit = Transit {
            packet,
            bytes,
            meta,
        };
        self.forward(now, &transit, is_foreign, fx);
    }

    /// Returns the ports of a packet, if rules ask for them.
    fn asked_ports(&self, number: u8, payload: &[u8], is_v6: bool) -> (u16, u16) {
        match (number, payload) {
            (protocol::TCP | protocol::UDP, [a, b, c, d, ..])
                if self.net.fib(is_v6).asks_carried() =>
            {
                (u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d]))
            }
            _ => (0, 0),
        }
    }

    fn forward(
        &mut self,
        now: Instant,
        transit: &Transit<'_>,
        is_foreign: bool,
        fx: &mut impl Effects,
    ) {
        let result = if is_foreign {
            Err(Refused::Silently(Counter::DropForwardMartian))
        } else {
            cx!(self).pass_on(now, transit, fx)
        };
        match result {
            Ok(()) => self.counters.bump(Counter::Forwarded),
            Err(Refused::Silently(why)) => self.counters.bump(why),
            Err(Refused::Answered(why, problem)) => {
                self.counters.bump(why);
                self.tell(now, transit.bytes, problem, fx);
            }
        }
    }

    /// Sends an ICMP error to the sender of a forwarded packet.
    fn tell(&mut self, now: Instant, bytes: &[u8], problem: Problem, fx: &mut impl Effects) {
        let Ok(packet) = Ipv4Packet::parse_quoted(bytes) else {
            return self.tell_v6(now, bytes, problem, fx);
        };
        let kind = match problem {
            Problem::Expired => IcmpKind::TimeExceeded { code: IN_TRANSIT },
            Problem::NoRoute => unreachable_v4(icmpv4::code::NET_UNREACHABLE, 0),
            Problem::Unreachable => unreachable_v4(icmpv4::code::HOST_UNREACHABLE, 0),
            Problem::Prohibited => unreachable_v4(icmpv4::code::ADMIN_PROHIBITED, 0),
            Problem::TooBig(mtu) => unreachable_v4(icmpv4::code::FRAGMENTATION_NEEDED, mtu),
        };
        self.tell_v4(now, bytes, &packet, kind, fx);
    }

    fn tell_v4(
        &mut self,
        now: Instant,
        bytes: &[u8],
        packet: &Ipv4Packet<'_>,
        kind: IcmpKind,
        fx: &mut impl Effects,
    ) {
        // RFC 1812 4.3.2.7: never about an error or a later fragment.
        let is_error = packet.header.protocol == protocol::ICMP && icmp::is_error(packet.payload);
        let source = self.net.routes.find_source(packet.header.src);
        let Some(source) = source.filter(|_| packet.fragment_offset == 0 && !is_error) else {
            return;
        };
        let ip = IpMeta {
            tos: packet.header.tos,
            ..meta_of(source.into(), packet.header.src.into(), false)
        };
        let limit = &mut self.icmp_errors;
        cx!(self).send_icmp_error(now, limit, bytes, &ip, kind, fx);
    }

    fn tell_v6(&mut self, now: Instant, bytes: &[u8], problem: Problem, fx: &mut impl Effects) {
        let kind = match problem {
            Problem::Expired => Icmpv6Kind::TimeExceeded { code: IN_TRANSIT },
            // As Linux, whose IPv6 does not tell them apart.
            Problem::NoRoute | Problem::Unreachable => Icmpv6Kind::DestinationUnreachable {
                code: icmpv6::code::NO_ROUTE,
            },
            Problem::Prohibited => Icmpv6Kind::DestinationUnreachable {
                code: icmpv6::code::PROHIBITED,
            },
            Problem::TooBig(mtu) => Icmpv6Kind::PacketTooBig { mtu: mtu.into() },
        };
        self.tell_kind_v6(now, bytes, kind, fx);
    }

    fn tell_kind_v6(
        &mut self,
        now: Instant,
        bytes: &[u8],
        kind: Icmpv6Kind,
        fx: &mut impl Effects,
    ) {
        let Some(packet) = Ipv6Packet::parse_quoted(bytes) else {
            return;
        };
        // From the address of ours that fits, as about a packet to a group.
        let ip = meta_of(packet.header.dst.into(), packet.header.src.into(), true);
        let limit = &mut self.icmp_errors;
        cx!(self).send_icmpv6_error(now, limit, bytes, &ip, kind, true, fx);
    }

    /// Handles a frame whose neighbour did not answer; returns `true` if it was forwarded, and its
    /// sender has been informed.
    pub(crate) fn tell_unreachable(
        &mut self,
        now: Instant,
        bytes: &[u8],
        fx: &mut impl Effects,
    ) -> bool {
        if !self.config.network.is_forwarding {
            return false;
        }
        if let Ok(packet) = Ipv4Packet::parse_quoted(bytes) {
            let is_others = !self.net.routes.is_own(packet.header.src);
            if is_others {
                let kind = unreachable_v4(icmpv4::code::HOST_UNREACHABLE, 0);
                self.tell_v4(now, bytes, &packet, kind, fx);
            }
            return is_others;
        }
        let quoted = Ipv6Packet::parse_quoted(bytes);
        let is_others = quoted.is_some_and(|packet| !self.net.routes6.is_own(packet.header.src));
        if is_others {
            let code = icmpv6::code::ADDRESS_UNREACHABLE;
            let kind = Icmpv6Kind::DestinationUnreachable { code };
            self.tell_kind_v6(now, bytes, kind, fx);
        }
        is_others
    }
}

impl Cx<'_> {
    fn pass_on(
        &mut self,
        now: Instant,
        transit: &Transit<'_>,
        fx: &mut impl Effects,
    ) -> Result<(), Refused> {
        let packet = OutPacket {
            ttl: transit.packet.ttl.saturating_sub(1),
            ..transit.packet
        };
        // RFC 1812 4.2.2.9: none leaves with zero.
        if packet.ttl == 0 {
            return Err(Refused::Answered(Counter::DropForwardTtl, Problem::Expired));
        }
        let Some(found) = self.net.find_transit(now, &packet) else {
            let why = Counter::DropForwardRoute;
            return Err(match self.net.refusal(&packet.query()) {
                SocketError::NotPermitted => Refused::Answered(why, Problem::Prohibited),
                SocketError::InvalidArgument => Refused::Silently(why),
                SocketError::HostUnreachable => Refused::Answered(why, Problem::Unreachable),
                _ => Refused::Answered(why, Problem::NoRoute),
            });
        };
        // RFC 2644: directed broadcasts are not passed on.
        let Route::Neighbour(hop) = found.route else {
            return Err(Refused::Silently(Counter::DropForwardMartian));
        };
        let hop = ForwardHop {
            ip: hop,
            link: found.link,
            mtu: found.mtu.unwrap_or(u16::MAX),
        };
        if transit.meta.gso {
            return self.pass_joined(now, &packet, transit, hop, fx);
        }
        self.pass_one(now, &packet, transit, hop, fx)
    }

    /// One packet, in fragments where the way takes less and it may be cut.
    fn pass_one(
        &mut self,
        now: Instant,
        packet: &OutPacket,
        transit: &Transit<'_>,
        hop: ForwardHop,
        fx: &mut impl Effects,
    ) -> Result<(), Refused> {
        if transit.bytes.len() <= usize::from(hop.mtu) {
            return self.pass_whole(now, packet, transit, hop, fx);
        }
        // RFC 1191 4: its sender is informed of the link's MTU.
        if packet.dont_fragment {
            return Err(too_big(hop.mtu));
        }
        self.pass_parts(now, packet, &transit.completed(), hop, fx)
    }

    /// Forwards a joined packet: joined if the device segments it again and each piece fits, else
    /// piece by piece.
    fn pass_joined(
        &mut self,
        now: Instant,
        packet: &OutPacket,
        transit: &Transit<'_>,
        hop: ForwardHop,
        fx: &mut impl Effects,
    ) -> Result<(), Refused> {
        let Some(gso) = transit.pieces() else {
            return Err(Refused::Silently(Counter::DropForwardJoined));
        };
        let is_cut_by_device = transit.meta.checksum == RxChecksum::Partial
            && match packet.protocol {
                protocol::TCP => self.config.tso_max > 0,
                _ => self.config.has_udp_segmentation,
            };
        let header_len = usize::from(gso.header_len) - ethernet::HEADER_LEN;
        let fits = header_len + usize::from(gso.mss) <= usize::from(hop.mtu);
        match (fits, is_cut_by_device) {
            (true, true) => return self.pass_whole(now, packet, transit, hop, fx),
            (false, _) if packet.dont_fragment => return Err(too_big(hop.mtu)),
            _ => {}
        }
        self.counters.bump(Counter::ForwardApart);
        let l4_at = transit.partial_checksum().map_or(0, |at| at.start.into());
        let mut pieces = Pieces::new(
            transit.bytes,
            (l4_at - ethernet::HEADER_LEN, header_len),
            gso.mss,
        );
        while let Some(bytes) = pieces.next_piece() {
            let piece = Transit {
                packet: *packet,
                bytes,
                meta: RxMeta::VERIFIED,
            };
            self.pass_one(now, packet, &piece, hop, fx)?;
        }
        Ok(())
    }

    /// Resolves a next hop in our own name: receivers of the request take its source address for a
    /// neighbour, and answer it (RFC 826, RFC 4861 7.2.2 and 7.2.3).
    fn find_way_by(
        &mut self,
        now: Instant,
        packet: &OutPacket,
        hop: ForwardHop,
        fx: &mut impl Effects,
    ) -> Result<Way, Refused> {
        let own = self.net.find_source(hop.ip);
        let own = own.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let station = Station {
            mac: self.net.macs.on(hop.link),
            ip: own,
            link: hop.link,
        };
        let neighbours = &mut self.net.neighbours;
        neighbours.resolve(now, hop.ip, station, self.counters, fx);
        let way = self.find_way(now, packet, &mut None, fx);
        way.map_err(|_| Refused::Silently(Counter::DropForwardRoute))
    }

    fn pass_whole(
        &mut self,
        now: Instant,
        packet: &OutPacket,
        transit: &Transit<'_>,
        hop: ForwardHop,
        fx: &mut impl Effects,
    ) -> Result<(), Refused> {
        let way = self.find_way_by(now, packet, hop, fx)?;
        let mut room = [0; HEADER_MAX];
        let (head, rest) = transit.bytes.split_at(transit.bytes.len().min(HEAD_MAX));
        let len = ethernet::HEADER_LEN + head.len();
        let header = &mut room[..len];
        self.put_ethernet(packet, way.hop(), header);
        let ip = &mut header[ethernet::HEADER_LEN..];
        ip.copy_from_slice(head);
        set_ttl(ip, packet.ttl);
        let mut offload = TxOffload::on(way.hop().link());
        if transit.meta.checksum == RxChecksum::Partial {
            offload.checksum = transit.partial_checksum();
        }
        if transit.meta.gso {
            offload.gso = transit.pieces();
        }
        let frame = FrameOut {
            header: &room[..len],
            payload: Payload::Inline(rest),
            offload,
            local: false,
        };
        self.send_by(now, &way, frame, fx);
        Ok(())
    }

    /// RFC 1812 5.2.6, RFC 791 3.2: of a packet that may be a fragment itself.
    fn pass_parts(
        &mut self,
        now: Instant,
        packet: &OutPacket,
        bytes: &[u8],
        hop: ForwardHop,
        fx: &mut impl Effects,
    ) -> Result<(), Refused> {
        let too_big = Refused::Silently(Counter::DropForwardTooBig);
        let Ok(parsed) = Ipv4Packet::parse(bytes) else {
            return Err(too_big);
        };
        // RFC 791 3.1: the offsets of its parts would begin again at the front.
        let end = usize::from(parsed.fragment_offset) + parsed.payload.len();
        if end > usize::from(u16::MAX) - ipv4::HEADER_LEN {
            return Err(Refused::Silently(Counter::DropFragmentMalformed));
        }
        let way = self.find_way_by(now, packet, hop, fx)?;
        let header_len = ipv4::HEADER_LEN + parsed.options.len();
        let part_max = usize::from(hop.mtu).saturating_sub(header_len) / 8 * 8;
        if part_max == 0 {
            return Err(too_big);
        }
        let count = parsed.payload.len().div_ceil(part_max);
        for (at, part) in parsed.payload.chunks(part_max).enumerate() {
            let mut room = [0; ethernet::HEADER_LEN + ipv4::HEADER_LEN_MAX];
            self.put_ethernet(packet, way.hop(), &mut room);
            let header = ipv4::Ipv4Header {
                total_len: (header_len + part.len()) as u16,
                ttl: packet.ttl,
                ..parsed.header
            };
            let offset = usize::from(parsed.fragment_offset) + at * part_max;
            let has_more = parsed.has_more || at + 1 < count;
            let place = (offset as u16, has_more);
            header.emit_fragment_with(place, parsed.options, &mut room[ethernet::HEADER_LEN..]);
            let frame = FrameOut {
                header: &room[..ethernet::HEADER_LEN + header_len],
                payload: Payload::Inline(part),
                offload: TxOffload::on(way.hop().link()),
                local: false,
            };
            self.counters.bump(Counter::TxFragments);
            self.send_by(now, &way, frame, fx);
        }
        self.counters.bump(Counter::TxFragmented);
        Ok(())
    }

    fn put_ethernet(&self, packet: &OutPacket, hop: &NextHop, room: &mut [u8]) {
        EthernetHeader {
            dst: hop.mac(),
            src: self.net.macs.on(hop.link()),
            ethertype: match packet.dst {
                IpAddr::V4(_) => EtherType::IPV4,
                IpAddr::V6(_) => EtherType::IPV6,
            },
        }
        .emit(room);
    }
}

fn too_big(mtu: u16) -> Refused {
    Refused::Answered(Counter::DropForwardTooBig, Problem::TooBig(mtu))
}

/// Returns whether packets with this address may be forwarded (RFC 1812 5.3.7, RFC 3927 2.7).
fn may_transit_v4(ip: Ipv4Addr) -> bool {
    let first = ip.octets()[0];
    !(first == 0 || first == 127 || first >= 224 || ip.is_link_local())
}

/// RFC 4291 2.5.2, 2.5.3 and 2.5.6.
fn may_transit_v6(ip: Ipv6Addr) -> bool {
    let is_internal = ip.is_unspecified() || ip.is_loopback() || ip.to_ipv4_mapped().is_some();
    !(is_internal || ip.is_multicast() || ip.is_unicast_link_local())
}

/// In the network header at the front of `bytes`.
fn set_ttl(bytes: &mut [u8], ttl: u8) {
    const HOP_LIMIT_AT: usize = 7;
    match Ipv4Packet::parse_quoted(bytes) {
        Ok(packet) => {
            let len = ipv4::HEADER_LEN + packet.options.len();
            ipv4::set_ttl(&mut bytes[..len], ttl);
        }
        Err(_) => {
            if let Some(field) = bytes.get_mut(HOP_LIMIT_AT) {
                *field = ttl;
            }
        }
    }
}

fn unreachable_v4(code: u8, mtu: u16) -> IcmpKind {
    IcmpKind::DestinationUnreachable { code, mtu }
}

/// Metadata of a packet that came from `to`, to be answered from `from`.
fn meta_of(from: IpAddr, to: IpAddr, group: bool) -> IpMeta {
    IpMeta {
        src: to,
        dst: from,
        tos: 0,
        ttl: 0,
        group,
        local: false,
        link: 0,
    }
}
