//! Output of packets that may be larger than their path takes: the socket's [`MtuDiscovery`]
//! decides between fragments and an error.
//!
//! RFC 791 2.3 and 3.2, RFC 1122 3.3.3, RFC 8200 4.5 and 5.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use slipstack_wire::checksum;
use slipstack_wire::ethernet::{self, EtherType, EthernetHeader};
use slipstack_wire::ipv4::{self, Ipv4Header};
use slipstack_wire::ipv6::{self, Ipv6Header};
use slipstack_wire::ipv6_extensions::{self as extensions, FRAGMENT_LEN};

use super::{Cx, HEADER_MAX, L4_HEADER_MAX, NextHop, OutPacket, OutSegment, Output};
use crate::counters::Counter;
use crate::effects::{Effects, FrameOut, Payload};
use crate::error::Reason;
use crate::ip::Ends;
use crate::options::MtuDiscovery;
use crate::time::Instant;

/// Offsets count eight bytes.
const UNIT: usize = 8;

/// The common fields of all fragments of a packet.
struct Whole<'a> {
    packet: &'a OutPacket,
    /// With its checksum.
    header: &'a [u8],
    payload: &'a [u8],
    /// Identification; IPv4 uses its lower half.
    identification: u32,
    flow_label: u32,
}

/// One fragment's place in the transport header and payload together.
#[derive(Clone, Copy)]
struct Part {
    offset: usize,
    len: usize,
    has_more: bool,
}

impl Cx<'_> {
    /// Sends a segment whose payload is present, in fragments if necessary.
    pub fn output_datagram(
        &mut self,
        now: Instant,
        (packet, discovery): (&OutPacket, MtuDiscovery),
        hint: &mut Option<NextHop>,
        segment: &OutSegment<'_>,
        fx: &mut impl Effects,
    ) -> Output {
        let mtu = match hint {
            _ if !discovery.heeds_path() => self.net.mtu_of_way(&packet.query()),
            Some(hop) if self.net.is_current(hop, now) => hop.mtu,
            _ => {
                let path = self.net.find_path_by(now, &packet.query());
                path.map_or(self.net.mtu_max, |path| path.mtu)
            }
        };
        let len = packet.header_len() + segment.header.len() + segment.payload.len();
        // The device segments datagrams, not fragments.
        let is_whole = len <= usize::from(mtu) || segment.gso_mss.is_some();
        if is_whole || !discovery.may_fragment() {
            let is_left_to_routers =
                discovery == MtuDiscovery::Want && self.net.is_beneath_belief(now, packet.dst, mtu);
            let packet = OutPacket {
                dont_fragment: discovery.forbids_fragments() && !is_left_to_routers,
                ..*packet
            };
            return self.output_within(mtu, now, &packet, hint, segment, fx);
        }
        self.output_parts(now, packet, mtu, hint, segment, fx)
    }

    /// The copy of a datagram to a group that this host's own sockets get.
    #[cold]
    pub fn loop_back(
        &mut self,
        now: Instant,
        way: (&OutPacket, MtuDiscovery),
        segment: &OutSegment<'_>,
        fx: &mut impl Effects,
    ) {
        let (packet, _) = way;
        let found = self.net.find_route(&packet.query());
        let mac = match packet.dst {
            dst if dst.is_multicast() => super::group_mac(dst),
            _ => ethernet::BROADCAST,
        };
        let hop = NextHop {
            mac,
            local: true,
            mtu: self.net.mtu_max,
            // Looped back as if it arrived by the link by which it leaves.
            link: found.map_or(0, |found| found.link),
            class: 0,
            epoch: self.net.neighbours.epoch(),
            valid_until: Instant::FAR_FUTURE,
        };
        self.output_datagram(now, way, &mut Some(hop), segment, fx);
    }

    #[cold]
    fn output_parts(
        &mut self,
        now: Instant,
        packet: &OutPacket,
        mtu: u16,
        hint: &mut Option<NextHop>,
        segment: &OutSegment<'_>,
        fx: &mut impl Effects,
    ) -> Output {
        let payload = match segment.payload {
            Payload::Inline(payload) => payload,
            Payload::None | Payload::Stream { .. } => &[],
        };
        let (len_max, headers) = match packet.dst {
            // A total length includes the header, a payload length does not.
            IpAddr::V4(_) => (usize::from(u16::MAX) - ipv4::HEADER_LEN, ipv4::HEADER_LEN),
            IpAddr::V6(_) => (usize::from(u16::MAX), ipv6::HEADER_LEN + FRAGMENT_LEN),
        };
        let len = segment.header.len() + segment.payload.len();
        let part_max = usize::from(mtu).saturating_sub(headers) / UNIT * UNIT;
        // A link so small that the transport header itself would be cut carries nothing.
        let is_cuttable = part_max >= segment.header.len().max(UNIT)
            && segment.header.len() <= L4_HEADER_MAX
            && payload.len() == segment.payload.len();
        if len > len_max || !is_cuttable {
            return self.refuse(Counter::DropTooBig, Reason::MessageTooLong);
        }
        let way = match self.find_way(now, packet, hint, fx) {
            Ok(way) => way,
            Err(refused) => return refused,
        };
        let mut header = [0; L4_HEADER_MAX];
        let header = &mut header[..segment.header.len()];
        header.copy_from_slice(segment.header);
        if let Some(at) = segment.checksum_at {
            put_checksum(packet, header, usize::from(at), payload);
        }
        let whole = self.describe(packet, header, payload);
        let mut output = Output::Sent;
        for offset in (0..len).step_by(part_max) {
            let part = Part {
                offset,
                len: part_max.min(len - offset),
                has_more: offset + part_max < len,
            };
            let mut room = [0; HEADER_MAX + FRAGMENT_LEN];
            let frame = self.fragment(&mut room, &whole, part, way.hop());
            self.counters.bump(Counter::TxFragments);
            output = self.send_by(now, &way, frame, fx);
        }
        self.counters.bump(Counter::TxFragmented);
        output
    }

    fn describe<'a>(
        &mut self,
        packet: &'a OutPacket,
        header: &'a [u8],
        payload: &'a [u8],
    ) -> Whole<'a> {
        let (identification, flow_label) = match (packet.src, packet.dst) {
            (IpAddr::V6(src), IpAddr::V6(dst)) => (
                // RFC 7739 5.2: the next one is unpredictable.
                self.rng.next_u32(),
                self.net.flow_label(packet, Ends { src, dst }, header),
            ),
            _ => (u32::from(self.net.identifications.next(packet)), 0),
        };
        Whole {
            packet,
            header,
            payload,
            identification,
            flow_label,
        }
    }

    fn fragment<'a>(
        &self,
        room: &'a mut [u8; HEADER_MAX + FRAGMENT_LEN],
        whole: &Whole<'a>,
        part: Part,
        hop: &NextHop,
    ) -> FrameOut<'a> {
        let (ethernet_room, rest) = room.split_at_mut(ethernet::HEADER_LEN);
        let (ethertype, ip_len) = match (whole.packet.src, whole.packet.dst) {
            (IpAddr::V6(src), IpAddr::V6(dst)) => (
                EtherType::IPV6,
                put_v6(whole, part, Ends { src, dst }, rest),
            ),
            (IpAddr::V4(src), IpAddr::V4(dst)) => (
                EtherType::IPV4,
                put_v4(whole, part, Ends { src, dst }, rest),
            ),
            // No route was found for it.
            _ => (EtherType::IPV4, 0),
        };
        EthernetHeader {
            dst: hop.mac,
            src: self.net.macs.on(hop.link),
            ethertype,
        }
        .emit(ethernet_room);
        let l4 = whole.header.len();
        let mut header_len = ethernet::HEADER_LEN + ip_len;
        // The first one holds the transport header whole.
        let begin = part.offset.saturating_sub(l4);
        if part.offset == 0 {
            rest[ip_len..ip_len + l4].copy_from_slice(whole.header);
            header_len += l4;
        }
        FrameOut {
            header: &room[..header_len],
            payload: Payload::Inline(&whole.payload[begin..part.offset + part.len - l4]),
            offload: hop.offload(),
            local: hop.local,
        }
    }
}

fn put_v4(
    whole: &Whole<'_>,
    part: Part,
    Ends { src, dst }: Ends<Ipv4Addr>,
    room: &mut [u8],
) -> usize {
    Ipv4Header {
        tos: whole.packet.tos,
        total_len: (ipv4::HEADER_LEN + part.len) as u16,
        identification: whole.identification as u16,
        dont_fragment: false,
        ttl: whole.packet.ttl,
        protocol: whole.packet.protocol,
        src,
        dst,
    }
    .emit_fragment(part.offset as u16, part.has_more, room);
    ipv4::HEADER_LEN
}

fn put_v6(
    whole: &Whole<'_>,
    part: Part,
    Ends { src, dst }: Ends<Ipv6Addr>,
    room: &mut [u8],
) -> usize {
    Ipv6Header {
        traffic_class: whole.packet.tos,
        flow_label: whole.flow_label,
        payload_len: (FRAGMENT_LEN + part.len) as u16,
        next_header: extensions::FRAGMENT,
        hop_limit: whole.packet.ttl,
        src,
        dst,
    }
    .emit(room);
    let fragment = extensions::fragment_header(
        whole.packet.protocol,
        part.offset as u16,
        part.has_more,
        whole.identification,
    );
    room[ipv6::HEADER_LEN..ipv6::HEADER_LEN + FRAGMENT_LEN].copy_from_slice(&fragment);
    ipv6::HEADER_LEN + FRAGMENT_LEN
}

/// The checksum of the whole, which no device can complete in a part.
fn put_checksum(packet: &OutPacket, header: &mut [u8], at: usize, payload: &[u8]) {
    let len = (header.len() + payload.len()) as u32;
    let mut sum = match (packet.src, packet.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => checksum::pseudo_v4(src, dst, packet.protocol, len),
        (IpAddr::V6(src), IpAddr::V6(dst)) => checksum::pseudo_v6(src, dst, packet.protocol, len),
        _ => return,
    };
    sum.add_bytes(header);
    sum.add_bytes(payload);
    if let Some(field) = header.get_mut(at..at + 2) {
        // RFC 768: zero means none.
        let sum = match sum.finish() {
            0 => 0xffff,
            sum => sum,
        };
        field.copy_from_slice(&sum.to_be_bytes());
    }
}
