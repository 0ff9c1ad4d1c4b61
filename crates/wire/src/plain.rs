//! The most common frame: Ethernet, IPv4 without options, and a segment of an open connection with
//! timestamps or without options. It is parsed in one step, with the format checks that the full
//! path makes one by one.

use core::net::Ipv4Addr;

use crate::tcp::{self, TcpFlags};
use crate::tcp_options::{TIMESTAMPS_AHEAD, TIMESTAMPS_LEN, Timestamps};
use crate::{ethernet, ipv4, protocol};

const IP: usize = ethernet::HEADER_LEN;
const TCP: usize = IP + ipv4::HEADER_LEN;
const OPTIONS: usize = TCP + tcp::HEADER_LEN;
const WITH_TIMESTAMPS: usize = OPTIONS + TIMESTAMPS_LEN;
const DONT_FRAGMENT: u32 = 0x4000;
/// More fragments, and the fragment offset.
const FRAGMENT: u16 = 0x3fff;

/// A plain segment: ACK is set, FIN and PSH may be, SYN, RST and URG are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlainTcp<'a> {
    pub link_dst: [u8; 6],
    pub tos: u8,
    pub src: Ipv4Addr,
    pub dst: Ipv4Addr,
    pub src_port: u16,
    pub dst_port: u16,
    pub seq: u32,
    pub ack: u32,
    pub flags: TcpFlags,
    /// Window as in the header, unscaled.
    pub window: u16,
    pub timestamps: Option<Timestamps>,
    pub payload: &'a [u8],
    /// Header and payload, covered by the transport checksum.
    pub segment: &'a [u8],
}

impl<'a> PlainTcp<'a> {
    /// Returns `None` if the frame is not that simple, or has a defect, which the full path
    /// reports. The transport checksum is not verified.
    #[inline]
    pub fn parse(frame: &'a [u8]) -> Option<Self> {
        // Bytes beyond the total length are Ethernet's padding.
        Self::read(frame, |end| frame.get(TCP..end))
    }

    /// Parses the beginning of a frame of `len` bytes without padding: `segment` and `payload` have
    /// the present part of them. Also returns the offset of the payload in the frame.
    pub fn parse_beginning(beginning: &'a [u8], len: usize) -> Option<(Self, usize)> {
        let at_hand = |end| (end == len).then(|| beginning.get(TCP..)).flatten();
        let plain = Self::read(beginning, at_hand)?;
        Some((plain, beginning.len() - plain.payload.len()))
    }

    /// `segment_upto` gives the segment's bytes, which end where the IP packet does.
    #[inline(always)]
    fn read(frame: &'a [u8], segment_upto: impl FnOnce(usize) -> Option<&'a [u8]>) -> Option<Self> {
        let h = frame.first_chunk::<OPTIONS>()?;
        let word = |at: usize| u32::from_be_bytes([h[at], h[at + 1], h[at + 2], h[at + 3]]);
        let half = |at: usize| u16::from_be_bytes([h[at], h[at + 1]]);
        let is_plain = half(IP - 2) == ethernet::EtherType::IPV4.0
            && h[IP] == 0x45
            && half(IP + 6) & FRAGMENT == 0
            && h[IP + 9] == protocol::TCP
            && h[TCP + 13] & !(TcpFlags::PSH.0 | TcpFlags::FIN.0) == TcpFlags::ACK.0;
        if !is_plain || !is_header_valid(h) {
            return None;
        }
        let segment = segment_upto(IP + usize::from(half(IP + 2)))?;
        let (timestamps, payload) = match h[TCP + 12] >> 4 {
            5 => (None, segment.get(tcp::HEADER_LEN..)?),
            8 => {
                let payload = segment.get(WITH_TIMESTAMPS - TCP..)?;
                let o = frame.get(OPTIONS..)?.first_chunk::<TIMESTAMPS_LEN>()?;
                if u32::from_be_bytes([o[0], o[1], o[2], o[3]]) != TIMESTAMPS_AHEAD {
                    return None;
                }
                let timestamps = Timestamps {
                    value: u32::from_be_bytes([o[4], o[5], o[6], o[7]]),
                    echo: u32::from_be_bytes([o[8], o[9], o[10], o[11]]),
                };
                (Some(timestamps), payload)
            }
            _ => return None,
        };
        Some(Self {
            link_dst: [h[0], h[1], h[2], h[3], h[4], h[5]],
            tos: h[IP + 1],
            src: Ipv4Addr::from_bits(word(IP + 12)),
            dst: Ipv4Addr::from_bits(word(IP + 16)),
            src_port: half(TCP),
            dst_port: half(TCP + 2),
            seq: word(TCP + 4),
            ack: word(TCP + 8),
            flags: TcpFlags(h[TCP + 13]),
            window: half(TCP + 14),
            timestamps,
            payload,
            segment,
        })
    }
}

/// The headers of such a frame on its way out.
#[derive(Clone, Copy, Debug)]
pub struct PlainHeader {
    pub link_dst: [u8; 6],
    pub link_src: [u8; 6],
    pub tos: u8,
    pub ttl: u8,
    pub src: Ipv4Addr,
    pub dst: Ipv4Addr,
    pub src_port: u16,
    pub dst_port: u16,
    pub seq: u32,
    pub ack: u32,
    pub flags: TcpFlags,
    /// Window as in the header, unscaled.
    pub window: u16,
    pub payload_len: u32,
}

/// Bytes of the longest of these headers: that of a SYN with all options.
pub const HEADER_MAX: usize = OPTIONS + 20;

impl PlainHeader {
    /// Writes all headers, with options that are given in words, and gives their length. The packet
    /// may not be fragmented and so needs no identification (RFC 6864 4.1); the transport checksum
    /// is left partial.
    #[inline(always)]
    pub fn emit<const N: usize>(&self, options: [u32; N], out: &mut [u8; HEADER_MAX]) -> usize {
        let header_len = OPTIONS + 4 * N;
        let segment_len = (header_len - TCP) as u32 + self.payload_len;
        let total_len = segment_len + ipv4::HEADER_LEN as u32;
        let addresses = halves(self.src.to_bits()) + halves(self.dst.to_bits());
        let ttl_protocol = u32::from(self.ttl) << 8 | u32::from(protocol::TCP);
        let sum =
            0x4500 + u32::from(self.tos) + total_len + DONT_FRAGMENT + ttl_protocol + addresses;
        out[..6].copy_from_slice(&self.link_dst);
        out[6..12].copy_from_slice(&self.link_src);
        let mut put = |at: usize, word: u32| out[at..at + 4].copy_from_slice(&word.to_be_bytes());
        put(IP - 2, 0x0800_4500 | u32::from(self.tos));
        put(IP + 2, total_len << 16);
        put(IP + 6, DONT_FRAGMENT << 16 | ttl_protocol);
        put(IP + 12, self.src.to_bits());
        put(IP + 16, self.dst.to_bits());
        put(
            TCP,
            u32::from(self.src_port) << 16 | u32::from(self.dst_port),
        );
        put(TCP + 4, self.seq);
        put(TCP + 8, self.ack);
        let offset = ((header_len - TCP) as u32 / 4) << 28;
        put(
            TCP + 12,
            offset | u32::from(self.flags.0) << 16 | u32::from(self.window),
        );
        let partial = fold(addresses + u32::from(protocol::TCP) + segment_len);
        put(TCP + 16, u32::from(partial) << 16);
        out[IP + 10..IP + 12].copy_from_slice(&(!fold(sum)).to_be_bytes());
        for (place, word) in out[OPTIONS..].chunks_exact_mut(4).zip(options) {
            place.copy_from_slice(&word.to_be_bytes());
        }
        header_len
    }
}

/// Returns the sum of the two halves of an address's word.
#[inline]
fn halves(word: u32) -> u32 {
    (word >> 16) + (word & 0xffff)
}

/// Ones' complement sum in 16 bits.
#[inline]
fn fold(sum: u32) -> u16 {
    let sum = halves(sum);
    halves(sum) as u16
}

/// Does the network header add up? Five words in 64 bits, so that no carry is lost.
#[inline(always)]
pub(crate) fn is_header_valid(h: &[u8; OPTIONS]) -> bool {
    let word = |at: usize| {
        let at = IP + at;
        u64::from(u32::from_ne_bytes([h[at], h[at + 1], h[at + 2], h[at + 3]]))
    };
    let sum = word(0) + word(4) + word(8) + word(12) + word(16);
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    // Ones' complement zero in 32 bits: both halves carried into each other give all ones.
    let sum = (sum >> 16) + (sum & 0xffff);
    (sum >> 16) + (sum & 0xffff) == 0xffff
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ethernet::{EtherType, EthernetHeader};
    use crate::ipv4::{Ipv4Header, Ipv4Packet};
    use crate::tcp::{TcpHeader, TcpSegment};
    use crate::tcp_options::{TcpOptions, parse_timestamps_only};
    use proptest::prelude::*;
    use std::vec::Vec;

    fn frame(timestamps: Option<Timestamps>, flags: TcpFlags, payload: &[u8]) -> Vec<u8> {
        let mut bytes = [0; WITH_TIMESTAMPS];
        let options = TcpOptions {
            timestamps,
            ..TcpOptions::default()
        };
        let mut room = [0; tcp::OPTIONS_MAX];
        let len = options.emit(&mut room);
        EthernetHeader {
            dst: [2, 0, 0, 0, 0, 1],
            src: [2, 0, 0, 0, 0, 2],
            ethertype: EtherType::IPV4,
        }
        .emit(&mut bytes);
        Ipv4Header {
            tos: 4,
            total_len: (OPTIONS - IP + len + payload.len()) as u16,
            identification: 7,
            dont_fragment: true,
            ttl: 64,
            protocol: protocol::TCP,
            src: Ipv4Addr::new(10, 0, 0, 2),
            dst: Ipv4Addr::new(10, 0, 0, 1),
        }
        .emit(&mut bytes[IP..]);
        TcpHeader {
            src_port: 4000,
            dst_port: 80,
            seq: 1,
            ack: 2,
            flags,
            window: 3,
            urgent: 0,
        }
        .emit(len, &mut bytes[TCP..]);
        bytes[OPTIONS..OPTIONS + len].copy_from_slice(&room[..len]);
        let mut frame = bytes[..OPTIONS + len].to_vec();
        frame.extend_from_slice(payload);
        frame
    }

    const UNEXPECTED: TcpFlags = TcpFlags(!(0x10 | 0x08 | 0x01));
    const STAMPS: Timestamps = Timestamps { value: 9, echo: 8 };

    /// Every frame that is parsed as plain is parsed alike by the full path.
    fn agrees(bytes: &[u8]) -> bool {
        let Some(plain) = PlainTcp::parse(bytes) else {
            return false;
        };
        let (link, rest) = EthernetHeader::parse(bytes).unwrap();
        let packet = Ipv4Packet::parse(rest).unwrap();
        let segment = TcpSegment::parse(packet.payload).unwrap();
        assert_eq!(
            (link.dst, link.ethertype),
            (plain.link_dst, EtherType::IPV4)
        );
        assert!(!packet.is_fragment && packet.options.is_empty());
        assert_eq!(packet.header.protocol, protocol::TCP);
        assert_eq!(
            (packet.header.src, packet.header.dst),
            (plain.src, plain.dst)
        );
        assert_eq!(
            (packet.header.tos, packet.payload),
            (plain.tos, plain.segment)
        );
        let header = segment.header;
        assert_eq!(
            (header.src_port, header.dst_port),
            (plain.src_port, plain.dst_port)
        );
        assert_eq!((header.seq, header.ack), (plain.seq, plain.ack));
        assert_eq!(header.flags, plain.flags);
        assert!(plain.flags.contains(TcpFlags::ACK) && !plain.flags.intersects(UNEXPECTED));
        assert_eq!(
            (header.window, segment.payload),
            (plain.window, plain.payload)
        );
        assert_eq!(parse_timestamps_only(segment.options), plain.timestamps);
        assert!(plain.timestamps.is_some() || segment.options.is_empty());
        true
    }

    #[test]
    fn data_and_acks_with_and_without_timestamps_are_plain() {
        for payload in [&[][..], &[1, 2, 3]] {
            for timestamps in [None, Some(STAMPS)] {
                assert!(agrees(&frame(timestamps, TcpFlags::ACK, payload)));
                let padded = [&frame(timestamps, TcpFlags::ACK, payload)[..], &[0; 12]].concat();
                assert!(agrees(&padded));
            }
        }
        assert!(agrees(&frame(None, TcpFlags::ACK | TcpFlags::FIN, &[7])));
        for flags in [TcpFlags::SYN, TcpFlags::RST, TcpFlags::URG, TcpFlags::ECE] {
            assert!(!agrees(&frame(Some(STAMPS), flags | TcpFlags::ACK, &[])));
        }
    }

    #[test]
    fn a_truncated_frame_parses_like_the_whole_one() {
        let payload = [7; 300];
        for timestamps in [None, Some(STAMPS)] {
            let whole = frame(timestamps, TcpFlags::ACK, &payload);
            let header_len = whole.len() - payload.len();
            let parsed = PlainTcp::parse(&whole).unwrap();
            for cut in 0..=whole.len() {
                let beginning = PlainTcp::parse_beginning(&whole[..cut], whole.len());
                let Some((plain, from)) = beginning else {
                    assert!(cut < header_len);
                    continue;
                };
                assert_eq!((cut >= header_len, from), (true, header_len));
                assert_eq!(plain.payload, &whole[header_len..cut]);
                let whole_again = PlainTcp {
                    payload: parsed.payload,
                    segment: parsed.segment,
                    ..plain
                };
                assert_eq!(whole_again, parsed);
            }
            // Padding, or a wrong length.
            assert_eq!(PlainTcp::parse_beginning(&whole, whole.len() + 1), None);
            assert_eq!(PlainTcp::parse_beginning(&whole, whole.len() - 1), None);
        }
    }

    #[test]
    fn sent_frames_are_received_unchanged() {
        for timestamps in [None, Some(STAMPS)] {
            for dst in [[10, 0, 0, 1], [255, 255, 255, 255], [0, 0, 0, 0]] {
                let header = PlainHeader {
                    link_dst: [2, 0, 0, 0, 0, 1],
                    link_src: [2, 0, 0, 0, 0, 2],
                    tos: 4,
                    ttl: 64,
                    src: Ipv4Addr::new(10, 0, 0, 2),
                    dst: Ipv4Addr::from(dst),
                    src_port: 4000,
                    dst_port: 80,
                    seq: 0x0102_0304,
                    ack: 0xfefd_fcfb,
                    flags: TcpFlags::ACK | TcpFlags::PSH,
                    window: 0x1234,
                    payload_len: 3,
                };
                let mut room = [0xee; HEADER_MAX];
                let len = match timestamps {
                    Some(timestamps) => header.emit(timestamps.words(), &mut room),
                    None => header.emit([], &mut room),
                };
                let bytes = [&room[..len], &[1, 2, 3]].concat();
                assert!(agrees(&bytes));
                let plain = PlainTcp::parse(&bytes).unwrap();
                assert_eq!(
                    (plain.seq, plain.ack, plain.window),
                    (0x0102_0304, 0xfefd_fcfb, 0x1234)
                );
                assert_eq!((plain.dst, plain.timestamps), (header.dst, timestamps));
                let mut whole = bytes.clone();
                let partial = crate::PartialChecksum {
                    start: TCP as u16,
                    offset: tcp::CHECKSUM_AT,
                };
                partial.complete(&mut whole, []);
                let sum = crate::checksum::is_valid_l4_v4(
                    plain.src,
                    plain.dst,
                    protocol::TCP,
                    &whole[TCP..],
                );
                assert!(sum);
            }
        }
    }

    proptest! {
        #[test]
        fn the_fast_parse_equals_the_full_parse(
            hits in proptest::collection::vec((0usize..90, any::<u8>()), 0..4),
            cut in 0usize..120,
            stamped: bool,
        ) {
            let mut bytes = frame(stamped.then_some(STAMPS), TcpFlags::ACK, &[5; 30]);
            for (at, byte) in hits {
                if let Some(place) = bytes.get_mut(at) {
                    *place = byte;
                }
            }
            bytes.truncate(cut);
            agrees(&bytes);
        }
    }
}
