//! IPv6 output.

use core::net::{IpAddr, Ipv6Addr};

use slipstack_wire::checksum;
use slipstack_wire::ethernet::{self, EtherType, EthernetHeader};
use slipstack_wire::ipv6::{self, Ipv6Header};

use super::{
    Cx, HEADER_MAX, L4_HEADER_MAX, NetworkLayer, NextHop, OutPacket, OutSegment, Output, output,
};
use crate::counters::Counter;
use crate::effects::{Effects, FrameOut};
use crate::error::Reason;
use crate::ip::Ends;
use crate::time::Instant;

const L4_OFFSET: usize = ethernet::HEADER_LEN + ipv6::HEADER_LEN;

impl Cx<'_> {
    /// [`Cx::output`] between IPv6 addresses.
    #[inline(never)]
    pub(super) fn output_v6(
        &mut self,
        mtu: u16,
        now: Instant,
        packet: &OutPacket,
        hint: &mut Option<NextHop>,
        segment: &OutSegment<'_>,
        fx: &mut impl Effects,
    ) -> Output {
        let (IpAddr::V6(src), IpAddr::V6(dst)) = (packet.src, packet.dst) else {
            return self.refuse(Counter::DropNoRoute, Reason::NetUnreachable);
        };
        let l4_len = segment.header.len() + segment.payload.len();
        // A payload length has 16 bits, whatever the device supports.
        let len_max = match segment.gso_mss {
            Some(_) => usize::from(u16::MAX),
            None => usize::from(mtu).saturating_sub(ipv6::HEADER_LEN),
        };
        if l4_len > len_max || segment.header.len() > L4_HEADER_MAX {
            return self.refuse(Counter::DropTooBig, Reason::MessageTooLong);
        }
        let way = match self.find_way(now, packet, hint, fx) {
            Ok(way) => way,
            Err(refused) => return refused,
        };
        let mut buffer = [0; HEADER_MAX];
        let frame = self.frame_v6(&mut buffer, packet, Ends { src, dst }, segment, way.hop());
        self.send_by(now, &way, frame, fx)
    }

    /// Writes all headers into `buffer`; lengths have been checked.
    fn frame_v6<'a>(
        &mut self,
        buffer: &'a mut [u8; HEADER_MAX],
        packet: &OutPacket,
        ends: Ends<Ipv6Addr>,
        segment: &OutSegment<'a>,
        hop: &NextHop,
    ) -> FrameOut<'a> {
        let Ends { src, dst } = ends;
        let l4_len = segment.header.len() + segment.payload.len();
        let (below, l4) = buffer.split_at_mut(L4_OFFSET);
        EthernetHeader {
            dst: hop.mac,
            src: self.net.macs.on(hop.link),
            ethertype: EtherType::IPV6,
        }
        .emit(below);
        Ipv6Header {
            traffic_class: packet.tos,
            flow_label: self.net.flow_label(packet, ends, segment.header),
            payload_len: l4_len as u16,
            next_header: packet.protocol,
            hop_limit: packet.ttl,
            src,
            dst,
        }
        .emit(&mut below[ethernet::HEADER_LEN..]);
        l4[..segment.header.len()].copy_from_slice(segment.header);
        let pseudo = || checksum::pseudo_v6(src, dst, packet.protocol, l4_len as u32);
        output::complete(buffer, L4_OFFSET, segment, pseudo, hop)
    }
}

impl NetworkLayer {
    /// RFC 6437 3: a keyed hash of the flow, the same for all its packets. Control messages have
    /// none.
    pub(super) fn flow_label(
        &self,
        packet: &OutPacket,
        Ends { src, dst }: Ends<Ipv6Addr>,
        l4_header: &[u8],
    ) -> u32 {
        if packet.protocol == slipstack_wire::protocol::ICMPV6 {
            return 0;
        }
        let Some(ports) = l4_header.first_chunk::<4>() else {
            return 0;
        };
        let (src, dst) = (src.to_bits(), dst.to_bits());
        let words = [
            src as u64,
            (src >> 64) as u64,
            dst as u64,
            (dst >> 64) as u64,
            u64::from(u32::from_be_bytes(*ports)) << 8 | u64::from(packet.protocol),
        ];
        self.label_key.hash_words(words) as u32 & ipv6::FLOW_LABEL_MASK
    }
}
