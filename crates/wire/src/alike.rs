//! Frames that differ from their predecessor only in fields that follow from its length:
//! consecutive segments of one flow, which a receiver may merge (generic receive offload).
//!
//! The fields that must be equal are Linux's: addresses, ports, type of service, hop limit,
//! fragment field, acknowledgment, window, flags and options with their timestamps. PSH may differ,
//! and ends the train.

use core::net::{Ipv4Addr, Ipv6Addr};

use crate::ethernet::EtherType;
use crate::tcp::{self, TcpFlags};
use crate::{checksum, ethernet, ipv4, ipv6, plain, protocol};

const IP: usize = ethernet::HEADER_LEN;
/// Bytes that are compared; the longest supported headers fit. Shorter frames are not worth
/// merging.
const SPAN: usize = 96;

/// The headers of a segment, for its successors to be compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alike {
    header: [u8; SPAN],
    /// Bits that must be equal.
    mask: [u8; SPAN],
    tcp_at: usize,
    payload_at: usize,
}

/// The fields in which a successor differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Follower<'a> {
    pub seq: u32,
    pub is_pushed: bool,
    pub payload: &'a [u8],
    /// Header and payload, covered by the transport checksum.
    segment: &'a [u8],
}

impl Alike {
    /// Returns the fields of a frame with a well-formed TCP segment; `None` if its headers are of
    /// an unusual length.
    #[inline]
    pub fn of(frame: &[u8]) -> Option<Alike> {
        let header = *frame.first_chunk::<SPAN>()?;
        let kind = EtherType(u16::from_be_bytes([header[IP - 2], header[IP - 1]]));
        let is_v4 =
            kind == EtherType::IPV4 && header[IP] == 0x45 && header[IP + 9] == protocol::TCP;
        let is_v6 =
            kind == EtherType::IPV6 && header[IP] >> 4 == 6 && header[IP + 6] == protocol::TCP;
        let tcp_at = match (is_v4, is_v6) {
            (true, _) => IP + ipv4::HEADER_LEN,
            (_, true) => IP + ipv6::HEADER_LEN,
            _ => return None,
        };
        let payload_at = tcp_at + usize::from(header[tcp_at + 12] >> 4) * 4;
        if payload_at < tcp_at + tcp::HEADER_LEN || payload_at > SPAN {
            return None;
        }
        let mut mask = [0; SPAN];
        mask[..payload_at].fill(0xff);
        let own = if is_v4 {
            // Total length and identification, checksum.
            [IP + 2..IP + 6, IP + 10..IP + 12]
        } else {
            // Payload length.
            [IP + 4..IP + 6, 0..0]
        };
        for range in own {
            mask[range].fill(0);
        }
        mask[tcp_at + 4..tcp_at + 8].fill(0);
        mask[tcp_at + 13] = !TcpFlags::PSH.0;
        mask[tcp_at + 16..tcp_at + 18].fill(0);
        Some(Alike {
            header,
            mask,
            tcp_at,
            payload_at,
        })
    }

    /// Returns the frame as a successor: `None` if it differs, or is not in order. The transport
    /// checksum is not verified.
    #[inline]
    pub fn follow<'a>(&self, frame: &'a [u8]) -> Option<Follower<'a>> {
        let h = frame.first_chunk::<SPAN>()?;
        let mut differs = 0;
        for ((theirs, ours), mask) in h.iter().zip(&self.header).zip(&self.mask) {
            differs |= (theirs ^ ours) & mask;
        }
        if differs != 0 {
            return None;
        }
        let half = |at: usize| usize::from(u16::from_be_bytes([h[at], h[at + 1]]));
        let end = if self.is_v4() {
            if !plain::is_header_valid(h.first_chunk()?) {
                return None;
            }
            IP + half(IP + 2)
        } else {
            IP + ipv6::HEADER_LEN + half(IP + 4)
        };
        let payload = frame.get(self.payload_at..end)?;
        let at = self.tcp_at + 4;
        Some(Follower {
            seq: u32::from_be_bytes([h[at], h[at + 1], h[at + 2], h[at + 3]]),
            is_pushed: h[self.tcp_at + 13] & TcpFlags::PSH.0 != 0,
            payload,
            segment: &frame[self.tcp_at..end],
        })
    }

    /// Does the transport checksum of a successor add up?
    pub fn is_valid(&self, follower: &Follower<'_>) -> bool {
        if self.is_v4() {
            let address = |at: usize| -> Option<Ipv4Addr> {
                Some((*self.header[at..].first_chunk::<4>()?).into())
            };
            let ends = address(IP + 12).zip(address(IP + 16));
            ends.is_some_and(|(src, dst)| {
                checksum::is_valid_l4_v4(src, dst, protocol::TCP, follower.segment)
            })
        } else {
            let address = |at: usize| -> Option<Ipv6Addr> {
                Some((*self.header[at..].first_chunk::<16>()?).into())
            };
            let ends = address(IP + 8).zip(address(IP + 24));
            ends.is_some_and(|(src, dst)| {
                checksum::is_valid_l4_v6(src, dst, protocol::TCP, follower.segment)
            })
        }
    }

    pub fn is_v4(&self) -> bool {
        self.tcp_at == IP + ipv4::HEADER_LEN
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PartialChecksum;
    use crate::ethernet::EthernetHeader;
    use crate::ipv4::{Ipv4Header, Ipv4Packet};
    use crate::ipv6::{Ipv6Header, Ipv6Packet};
    use crate::tcp::{TcpHeader, TcpSegment};
    use crate::tcp_options::{TcpOptions, Timestamps};
    use proptest::prelude::*;
    use std::vec::Vec;

    const A: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
    const B: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

    fn put_network(is_v4: bool, id: u16, len: usize, bytes: &mut [u8]) {
        let ethertype = if is_v4 {
            EtherType::IPV4
        } else {
            EtherType::IPV6
        };
        let (dst, src) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        EthernetHeader {
            dst,
            src,
            ethertype,
        }
        .emit(bytes);
        if is_v4 {
            Ipv4Header {
                tos: 2,
                total_len: (ipv4::HEADER_LEN + len) as u16,
                identification: id,
                dont_fragment: true,
                ttl: 64,
                protocol: protocol::TCP,
                src: A,
                dst: B,
            }
            .emit(&mut bytes[IP..]);
        } else {
            Ipv6Header {
                traffic_class: 2,
                flow_label: 7,
                payload_len: len as u16,
                next_header: protocol::TCP,
                hop_limit: 64,
                src: A.to_ipv6_mapped(),
                dst: B.to_ipv6_mapped(),
            }
            .emit(&mut bytes[IP..]);
        }
    }

    /// A segment with its checksums; `id` is the packet's own.
    fn frame(is_v4: bool, seq: u32, id: u16, flags: TcpFlags, payload: &[u8]) -> Vec<u8> {
        let mut options = [0; tcp::OPTIONS_MAX];
        let stamps = TcpOptions {
            timestamps: Some(Timestamps { value: 9, echo: 8 }),
            ..TcpOptions::default()
        };
        let options_len = stamps.emit(&mut options);
        let tcp_at = IP
            + if is_v4 {
                ipv4::HEADER_LEN
            } else {
                ipv6::HEADER_LEN
            };
        let len = tcp::HEADER_LEN + options_len + payload.len();
        let mut bytes = std::vec![0; tcp_at + len];
        put_network(is_v4, id, len, &mut bytes);
        TcpHeader {
            src_port: 4000,
            dst_port: 80,
            seq,
            ack: 2,
            flags,
            window: 3,
            urgent: 0,
        }
        .emit(options_len, &mut bytes[tcp_at..]);
        let options_at = tcp_at + tcp::HEADER_LEN;
        bytes[options_at..options_at + options_len].copy_from_slice(&options[..options_len]);
        bytes[options_at + options_len..].copy_from_slice(payload);
        let pseudo = if is_v4 {
            checksum::pseudo_v4(A, B, protocol::TCP, len as u32)
        } else {
            checksum::pseudo_v6(
                A.to_ipv6_mapped(),
                B.to_ipv6_mapped(),
                protocol::TCP,
                len as u32,
            )
        };
        let field = tcp_at + usize::from(tcp::CHECKSUM_AT);
        bytes[field..field + 2].copy_from_slice(&pseudo.fold().to_be_bytes());
        let partial = PartialChecksum {
            start: tcp_at as u16,
            offset: tcp::CHECKSUM_AT,
        };
        partial.complete(&mut bytes, []);
        bytes
    }

    fn segment(frame: &[u8], is_v4: bool) -> TcpSegment<'_> {
        let (_, packet) = EthernetHeader::parse(frame).unwrap();
        let bytes = if is_v4 {
            Ipv4Packet::parse(packet).unwrap().payload
        } else {
            Ipv6Packet::parse(packet).unwrap().payload
        };
        TcpSegment::parse(bytes).unwrap()
    }

    #[test]
    fn the_next_segment_of_a_flow_follows() {
        for is_v4 in [true, false] {
            let first = Alike::of(&frame(is_v4, 1, 7, TcpFlags::ACK, &[1; 100])).unwrap();
            assert_eq!(first.is_v4(), is_v4);
            for (flags, is_pushed) in [
                (TcpFlags::ACK, false),
                (TcpFlags::ACK | TcpFlags::PSH, true),
            ] {
                let next = frame(is_v4, 101, 8, flags, &[2; 60]);
                let follower = first.follow(&next).unwrap();
                assert_eq!((follower.seq, follower.is_pushed), (101, is_pushed));
                assert_eq!(follower.payload, [2; 60]);
                assert!(first.is_valid(&follower));
                // Padding is no payload.
                let padded = [&next[..], &[9; 9]].concat();
                assert_eq!(first.follow(&padded), Some(follower));
            }
            for flags in [TcpFlags::FIN, TcpFlags::RST, TcpFlags::URG, TcpFlags::CWR] {
                let next = frame(is_v4, 101, 8, flags | TcpFlags::ACK, &[2; 60]);
                assert_eq!(first.follow(&next), None);
            }
            let other = frame(!is_v4, 101, 8, TcpFlags::ACK, &[2; 60]);
            assert_eq!(first.follow(&other), None);
        }
    }

    proptest! {
        #[test]
        fn a_follower_differs_from_its_model_only_in_permitted_fields(
            hits in proptest::collection::vec((0usize..160, any::<u8>()), 0..4),
            cut in 60usize..200,
            is_v4: bool,
        ) {
            let model = frame(is_v4, 1, 7, TcpFlags::ACK, &[1; 100]);
            let first = Alike::of(&model).unwrap();
            let mut bytes = frame(is_v4, 101, 8, TcpFlags::ACK, &[2; 100]);
            for (at, byte) in hits {
                if let Some(place) = bytes.get_mut(at) {
                    *place = byte;
                }
            }
            bytes.truncate(cut);
            if let Some(follower) = first.follow(&bytes) {
                let read = segment(&bytes, is_v4);
                prop_assert_eq!((read.header.seq, read.payload), (follower.seq, follower.payload));
                let (mut ours, theirs) = (segment(&model, is_v4), read);
                ours.header.seq = theirs.header.seq;
                ours.header.flags = TcpFlags(theirs.header.flags.0 & !TcpFlags::PSH.0);
                prop_assert_eq!(ours.header.flags, TcpFlags::ACK);
                ours.header.flags = theirs.header.flags;
                prop_assert_eq!(ours.header, theirs.header);
                prop_assert_eq!(ours.options, theirs.options);
            }
        }
    }
}
