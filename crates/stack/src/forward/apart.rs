//! Segmentation in software of forwarded segments and datagrams that arrived joined, as the device
//! would do it: where the outgoing device does not segment, or where the pieces have to be smaller.
//!
//! Each piece has the headers of the whole; differing fields are written as the kernel's
//! `tcp_gso_segment()`, `inet_gso_segment()` and `__udp_gso_segment()` write them.

use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};

use slipstack_wire::checksum::{self, Sum};
use slipstack_wire::{ipv6, protocol, tcp, udp};

const SEQUENCE_AT: usize = 4;
const FLAGS_AT: usize = 13;
const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const CWR: u8 = 0x80;
/// Offset of the length in a UDP header, and of the payload length in an IPv6 header.
const LEN_AT: usize = 4;
/// Offsets in an IPv4 header.
const TOTAL_LEN_AT: usize = 2;
const IDENTIFICATION_AT: usize = 4;
const CHECKSUM_AT: usize = 10;
const SOURCE_AT: usize = 12;
const SOURCE_AT_V6: usize = 8;

/// The packets that one joined packet is made of, one after the other.
pub(super) struct Pieces<'a> {
    /// From the network header on.
    whole: &'a [u8],
    l4_at: usize,
    header_len: usize,
    mss: usize,
    /// Offset of the payload of the next piece.
    at: usize,
    count: u16,
    piece: Vec<u8>,
}

impl<'a> Pieces<'a> {
    /// `header_len` bytes of `whole` are its headers, of which the transport's begins at `l4_at`;
    /// the payload of each piece but the last has `mss` bytes.
    pub(super) fn new(
        whole: &'a [u8],
        (l4_at, header_len): (usize, usize),
        mss: u16,
    ) -> Pieces<'a> {
        debug_assert!(l4_at < header_len && header_len <= whole.len() && mss > 0);
        Pieces {
            whole,
            l4_at,
            header_len,
            mss: mss.into(),
            at: header_len,
            count: 0,
            piece: Vec::new(),
        }
    }

    /// Returns the next packet, complete with its checksums; `None` after the last.
    pub(super) fn next_piece(&mut self) -> Option<&[u8]> {
        let left = self.whole.get(self.at..).filter(|left| !left.is_empty())?;
        let payload = &left[..left.len().min(self.mss)];
        let is_last = payload.len() == left.len();
        self.piece.clear();
        self.piece.extend_from_slice(&self.whole[..self.header_len]);
        self.piece.extend_from_slice(payload);
        let number = match is_v4(self.whole) {
            true => self.write_v4(),
            false => self.write_v6(),
        };
        match number {
            protocol::TCP => self.write_tcp(is_last),
            _ => put_u16(&mut self.piece, self.l4_at + LEN_AT, |_| {
                (udp::HEADER_LEN + payload.len()) as u16
            }),
        }
        complete_checksum(&mut self.piece, self.l4_at, number);
        self.at += payload.len();
        self.count += 1;
        Some(&self.piece)
    }

    /// Returns the number of the transport.
    fn write_v4(&mut self) -> u8 {
        const PROTOCOL_AT: usize = 9;
        let (count, len) = (self.count, self.piece.len() as u16);
        let header = &mut self.piece[..self.l4_at];
        put_u16(header, TOTAL_LEN_AT, |_| len);
        put_u16(header, IDENTIFICATION_AT, |first| first.wrapping_add(count));
        put_u16(header, CHECKSUM_AT, |_| 0);
        let sum = checksum::of(header);
        put_u16(header, CHECKSUM_AT, |_| sum);
        header[PROTOCOL_AT]
    }

    fn write_v6(&mut self) -> u8 {
        const NEXT_HEADER_AT: usize = 6;
        let len = (self.piece.len() - ipv6::HEADER_LEN) as u16;
        put_u16(&mut self.piece, LEN_AT, |_| len);
        self.piece[NEXT_HEADER_AT]
    }

    fn write_tcp(&mut self, is_last: bool) {
        let passed = (self.at - self.header_len) as u32;
        let header = &mut self.piece[self.l4_at..];
        if let Some(field) = header[SEQUENCE_AT..].first_chunk_mut::<4>() {
            *field = u32::from_be_bytes(*field)
                .wrapping_add(passed)
                .to_be_bytes();
        }
        // RFC 3168 6.1.2: CWR goes with the first.
        let kept_back = match (self.count, is_last) {
            (0, true) => 0,
            (0, false) => FIN | PSH,
            (_, true) => CWR,
            (_, false) => FIN | PSH | CWR,
        };
        header[FLAGS_AT] &= !kept_back;
    }
}

/// Writes the checksum of the segment or datagram at `l4_at`, whatever its field contains.
pub(super) fn complete_checksum(packet: &mut [u8], l4_at: usize, number: u8) {
    let at = match number {
        protocol::TCP => tcp::CHECKSUM_AT,
        _ => udp::CHECKSUM_AT,
    };
    let at = l4_at + usize::from(at);
    if packet.len() < at + 2 {
        return;
    }
    put_u16(packet, at, |_| 0);
    let mut sum = pseudo(packet, l4_at, number);
    sum.add_bytes(&packet[l4_at..]);
    // RFC 768: zero means that there is none.
    let sum = match sum.finish() {
        0 if number == protocol::UDP => u16::MAX,
        sum => sum,
    };
    put_u16(packet, at, |_| sum);
}

fn pseudo(packet: &[u8], l4_at: usize, number: u8) -> Sum {
    let l4_len = (packet.len() - l4_at) as u32;
    if is_v4(packet) {
        let ends = packet
            .get(SOURCE_AT..)
            .and_then(|rest| rest.first_chunk::<8>());
        let &[a, b, c, d, e, f, g, h] = ends.unwrap_or(&[0; 8]);
        let (src, dst) = (Ipv4Addr::new(a, b, c, d), Ipv4Addr::new(e, f, g, h));
        return checksum::pseudo_v4(src, dst, number, l4_len);
    }
    let ends = packet
        .get(SOURCE_AT_V6..)
        .and_then(|rest| rest.first_chunk::<32>());
    let (src, dst) = ends.unwrap_or(&[0; 32]).split_at(16);
    let address = |octets: &[u8]| {
        let octets: [u8; 16] = octets.try_into().unwrap_or_default();
        Ipv6Addr::from(octets)
    };
    checksum::pseudo_v6(address(src), address(dst), number, l4_len)
}

fn is_v4(packet: &[u8]) -> bool {
    packet.first().is_some_and(|first| first >> 4 == 4)
}

/// Changes a number of two bytes; a position outside the bytes is ignored.
fn put_u16(bytes: &mut [u8], at: usize, value: impl FnOnce(u16) -> u16) {
    if let Some(field) = bytes
        .get_mut(at..)
        .and_then(|rest| rest.first_chunk_mut::<2>())
    {
        *field = value(u16::from_be_bytes(*field)).to_be_bytes();
    }
}
