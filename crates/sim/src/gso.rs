//! A device's checksum and segmentation offload.

use slipstack_stack::{Gso, TxOffload};
use slipstack_wire::checksum::{self, Sum};
use std::net::Ipv6Addr;

const IP_AT: usize = 14;
const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const CWR: u8 = 0x80;

/// Turns a frame of the stack into complete frames, in order.
pub fn finish(header: &[u8], payload: &[u8], offload: TxOffload) -> Vec<Vec<u8>> {
    match offload.gso {
        Some(gso) if payload.len() > usize::from(gso.mss) => segment(header, payload, gso),
        _ => vec![complete(header, payload, offload)],
    }
}

/// A frame as it passes between machines that share memory: whole, its checksum still partial.
pub fn leave(header: &[u8], payload: &[u8]) -> Vec<u8> {
    [header, payload].concat()
}

fn complete(header: &[u8], payload: &[u8], offload: TxOffload) -> Vec<u8> {
    let mut frame = header.to_vec();
    if let Some(partial) = offload.checksum {
        partial.complete(&mut frame, [payload]);
    }
    frame.extend_from_slice(payload);
    frame
}

/// Cuts a TCP super-frame into segments of the MSS.
fn segment(header: &[u8], payload: &[u8], gso: Gso) -> Vec<Vec<u8>> {
    let is_v6 = header[12..14] == [0x86, 0xdd];
    let tcp_at = IP_AT + if is_v6 { 40 } else { 20 };
    let pieces = payload.chunks(usize::from(gso.mss).max(1));
    let last = pieces.len() - 1;
    let first_seq = read_u32(header, tcp_at + 4);
    pieces
        .enumerate()
        .map(|(i, piece)| {
            let mut frame = header.to_vec();
            let l4_len = header.len() - tcp_at + piece.len();
            let mut sum = if is_v6 {
                rewrite_v6(&mut frame, l4_len)
            } else {
                rewrite_v4(&mut frame, l4_len, i as u16)
            };
            let seq = first_seq.wrapping_add(i as u32 * u32::from(gso.mss));
            frame[tcp_at + 4..tcp_at + 8].copy_from_slice(&seq.to_be_bytes());
            if i != last {
                frame[tcp_at + 13] &= !(FIN | PSH);
            }
            if i != 0 {
                frame[tcp_at + 13] &= !CWR;
            }
            write_u16(&mut frame, tcp_at + 16, 0);
            sum.add_bytes(&frame[tcp_at..]);
            sum.add_bytes(piece);
            write_u16(&mut frame, tcp_at + 16, sum.finish());
            frame.extend_from_slice(piece);
            frame
        })
        .collect()
}

/// Puts a segment's length into its IPv4 header; the sum of its pseudo header.
fn rewrite_v4(frame: &mut [u8], l4_len: usize, index: u16) -> Sum {
    let id = read_u16(frame, IP_AT + 4).wrapping_add(index);
    write_u16(frame, IP_AT + 2, (20 + l4_len) as u16);
    write_u16(frame, IP_AT + 4, id);
    write_u16(frame, IP_AT + 10, 0);
    let sum = checksum::of(&frame[IP_AT..IP_AT + 20]);
    write_u16(frame, IP_AT + 10, sum);
    let (src, dst) = (read_u32(frame, IP_AT + 12), read_u32(frame, IP_AT + 16));
    checksum::pseudo_v4(src.into(), dst.into(), 6, l4_len as u32)
}

/// Rewrites the header of an IPv6 segment.
fn rewrite_v6(frame: &mut [u8], l4_len: usize) -> Sum {
    write_u16(frame, IP_AT + 4, l4_len as u16);
    let address = |at: usize| {
        let octets: [u8; 16] = core::array::from_fn(|i| frame[IP_AT + at + i]);
        Ipv6Addr::from(octets)
    };
    checksum::pseudo_v6(address(8), address(24), 6, l4_len as u32)
}

fn read_u16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn read_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn write_u16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use slipstack_stack::PartialChecksum;
    use slipstack_wire::ipv4::{Ipv4Header, Ipv4Packet};
    use slipstack_wire::tcp::{TcpFlags, TcpHeader, TcpSegment};
    use std::net::Ipv4Addr;

    #[test]
    fn a_super_frame_becomes_valid_segments() {
        let (src, dst) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let payload: Vec<u8> = (0..2500).map(|i| i as u8).collect();
        let mut header = vec![0; 54];
        Ipv4Header {
            tos: 0,
            total_len: 40 + 2500,
            identification: 0,
            dont_fragment: true,
            ttl: 64,
            protocol: 6,
            src,
            dst,
        }
        .emit(&mut header[14..]);
        let flags = TcpFlags::ACK | TcpFlags::PSH | TcpFlags::FIN;
        TcpHeader {
            seq: u32::MAX - 100,
            flags,
            ..TcpHeader::default()
        }
        .emit(0, &mut header[34..]);
        let offload = TxOffload {
            checksum: Some(PartialChecksum {
                start: 34,
                offset: 16,
            }),
            gso: Some(Gso {
                mss: 1000,
                header_len: 54,
            }),
            ..TxOffload::NONE
        };
        let frames = finish(&header, &payload, offload);
        assert_eq!(frames.len(), 3);
        let mut joined = Vec::new();
        for (i, frame) in frames.iter().enumerate() {
            let packet = Ipv4Packet::parse(&frame[14..]).unwrap();
            assert!(checksum::is_valid_l4_v4(src, dst, 6, packet.payload));
            let segment = TcpSegment::parse(packet.payload).unwrap();
            let offset = segment.header.seq.wrapping_sub(u32::MAX - 100);
            assert_eq!(offset as usize, joined.len());
            assert_eq!(segment.header.flags.is_fin(), i == 2);
            joined.extend_from_slice(segment.payload);
        }
        assert_eq!(joined, payload);
    }
}
