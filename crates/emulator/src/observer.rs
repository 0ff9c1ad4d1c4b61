//! Measurements of TCP senders taken from the wire, the same for every stack.

use std::collections::HashMap;
use std::net::Ipv4Addr;

use slipstack_wire::ethernet::{EtherType, EthernetHeader, parse_tags};
use slipstack_wire::ipv4::Ipv4Packet;
use slipstack_wire::tcp::TcpSegment;
use slipstack_wire::tcp_options::TcpOptions;

const PROTOCOL_TCP: u8 = 6;
/// Flows remembered; beyond it all are forgotten, which hides a few retransmissions.
const FLOWS_MAX: usize = 65_536;

/// Counters of the frames received at one side, before the link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpCounters {
    /// Segments with data.
    pub segments: u64,
    pub bytes: u64,
    /// Segments that begin before the end of data already sent.
    pub retransmitted_segments: u64,
    pub retransmitted_bytes: u64,
    /// Acknowledgements that report data as received twice (RFC 2883).
    pub duplicate_sacks: u64,
}

type FlowKey = (Ipv4Addr, Ipv4Addr, u16, u16);

/// Watches one direction.
#[derive(Debug, Default)]
pub struct Observer {
    /// The end of each flow's sent data.
    sent_upto: HashMap<FlowKey, u32>,
    pub counters: TcpCounters,
}

impl Observer {
    pub fn on_frame(&mut self, frame: &[u8]) {
        let tagged = EthernetHeader::parse(frame);
        let parsed = tagged.and_then(|(link, bytes)| parse_tags(link.ethertype, bytes));
        let Some((EtherType::IPV4, bytes)) = parsed else {
            return;
        };
        let Ok(packet) = Ipv4Packet::parse(bytes) else {
            return;
        };
        if packet.header.protocol != PROTOCOL_TCP || packet.is_fragment {
            return;
        }
        if let Some(segment) = TcpSegment::parse(packet.payload) {
            let ports = (segment.header.src_port, segment.header.dst_port);
            let key = (packet.header.src, packet.header.dst, ports.0, ports.1);
            self.on_segment(key, &segment);
        }
    }

    fn on_segment(&mut self, key: FlowKey, segment: &TcpSegment<'_>) {
        if reports_duplicate(segment) {
            self.counters.duplicate_sacks += 1;
        }
        if segment.header.flags.is_syn() {
            // The first byte is the one after the SYN.
            let first = segment.header.seq.wrapping_add(1);
            if self.sent_upto.len() >= FLOWS_MAX {
                self.sent_upto.clear();
            }
            self.sent_upto.insert(key, first);
            return;
        }
        let len = segment.payload.len() as u32;
        if len == 0 {
            return;
        }
        let seq = segment.header.seq;
        let upto = self.sent_upto.entry(key).or_insert(seq);
        self.counters.segments += 1;
        self.counters.bytes += u64::from(len);
        if is_before(seq, *upto) {
            self.counters.retransmitted_segments += 1;
            self.counters.retransmitted_bytes += u64::from(len.min(upto.wrapping_sub(seq)));
        }
        let end = seq.wrapping_add(len);
        if is_before(*upto, end) {
            *upto = end;
        }
    }
}

/// RFC 2883 4: the first block is below the acknowledgement, or within the second block.
fn reports_duplicate(segment: &TcpSegment<'_>) -> bool {
    if segment.options.len() < 10 {
        return false;
    }
    let options = TcpOptions::parse(segment.options);
    let blocks = options.sack.as_slice();
    let Some(&(left, right)) = blocks.first() else {
        return false;
    };
    let is_acked = !is_before(segment.header.ack, right);
    let is_within = blocks.get(1).is_some_and(|&(outer_left, outer_right)| {
        !is_before(left, outer_left) && !is_before(outer_right, right)
    });
    is_acked || is_within
}

/// RFC 9293 3.4: comparison modulo 2³².
fn is_before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use slipstack_wire::tcp::{TcpFlags, TcpHeader};

    const KEY: FlowKey = (Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST, 1, 2);

    fn segment(seq: u32, ack: u32, flags: TcpFlags, len: usize) -> TcpSegment<'static> {
        let header = TcpHeader {
            seq,
            ack,
            flags,
            ..TcpHeader::default()
        };
        TcpSegment {
            header,
            options: &[],
            payload: &[0; 100][..len],
        }
    }

    #[test]
    fn retransmissions_are_recognised_across_the_sequence_wrap() {
        let mut observer = Observer::default();
        let first = u32::MAX - 50;
        observer.on_segment(KEY, &segment(first.wrapping_sub(1), 0, TcpFlags::SYN, 0));
        for (seq, len) in [(0, 100), (100, 100), (0, 100), (150, 100), (250, 10)] {
            observer.on_segment(
                KEY,
                &segment(first.wrapping_add(seq), 0, TcpFlags::ACK, len),
            );
        }
        let counters = observer.counters;
        assert_eq!(counters.segments, 5);
        assert_eq!(counters.retransmitted_segments, 2);
        assert_eq!(counters.retransmitted_bytes, 150);
    }

    #[test]
    fn duplicate_reports_are_distinguished_from_holes() {
        let sack = |blocks: &[(u32, u32)]| {
            let mut options = vec![1, 1, 5, 2 + 8 * blocks.len() as u8];
            for (left, right) in blocks {
                options.extend(left.to_be_bytes());
                options.extend(right.to_be_bytes());
            }
            options
        };
        let rows: [(&[(u32, u32)], bool); 4] = [
            (&[(2000, 3000)], false),
            (&[(500, 600)], true),
            (&[(2000, 2100), (2000, 3000)], true),
            (&[(4000, 5000), (2000, 3000)], false),
        ];
        for (blocks, is_duplicate) in rows {
            let options = sack(blocks);
            let segment = TcpSegment {
                options: &options,
                ..segment(1, 1000, TcpFlags::ACK, 0)
            };
            assert_eq!(reports_duplicate(&segment), is_duplicate, "{blocks:?}");
        }
    }
}
