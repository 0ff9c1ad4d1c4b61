//! Rebuilds a frame from a stray segment or datagram, for the engine that may know its flow.

use alloc::vec;
use alloc::vec::Vec;
use core::net::IpAddr;

use slipstack_wire::ethernet::{self, EtherType, EthernetHeader};
use slipstack_wire::ipv4::{self, Ipv4Header};
use slipstack_wire::ipv6::{self, Ipv6Header};
use slipstack_wire::{checksum, protocol, udp};

use crate::effects::DatagramIn;
use crate::ip::{Ends, IpMeta};

/// Offset of a segment's flags, and the flag that a shortened segment must not have.
const FLAGS_AT: usize = 13;
const FIN: u8 = 1;

/// A frame of at most `len_max` bytes that carries a segment on, shortened to fit: the peer sends
/// the rest again, to the right engine by then. `None`: addresses of two families.
pub fn stray_frame(
    ip: &IpMeta,
    segment: &[u8],
    macs: Ends<[u8; 6]>,
    len_max: usize,
) -> Option<Vec<u8>> {
    let headers = match ip.src {
        IpAddr::V4(_) => ethernet::HEADER_LEN + ipv4::HEADER_LEN,
        IpAddr::V6(_) => ethernet::HEADER_LEN + ipv6::HEADER_LEN,
    };
    let len = segment.len().min(len_max - headers);
    let mut frame = vec![0; headers + len];
    put_headers(ip, (protocol::TCP, len), macs, &mut frame)?;
    frame[headers..].copy_from_slice(&segment[..len]);
    if len < segment.len() {
        frame[headers + FLAGS_AT] &= !FIN;
    }
    Some(frame)
}

/// The frames that carry a datagram on, one for each of those that it joins. None: addresses of two
/// families.
pub fn datagram_frames<'a>(
    datagram: &'a DatagramIn<'_>,
    macs: Ends<[u8; 6]>,
) -> impl Iterator<Item = Vec<u8>> + 'a {
    let whole = datagram.payload.len().max(1);
    let size = datagram.segment.map_or(whole, |size| size.get().into());
    let is_empty = datagram.payload.is_empty();
    let pieces = datagram.payload.chunks(size);
    let empty = is_empty.then_some(&[][..]);
    empty
        .into_iter()
        .chain(pieces)
        .filter_map(move |payload| datagram_frame(datagram, payload, macs))
}

fn datagram_frame(
    datagram: &DatagramIn<'_>,
    payload: &[u8],
    macs: Ends<[u8; 6]>,
) -> Option<Vec<u8>> {
    let ip = IpMeta {
        src: datagram.from.ip(),
        dst: datagram.to.ip(),
        tos: datagram.tos,
        ttl: datagram.ttl,
        group: false,
        local: true,
        link: 0,
    };
    let headers = match ip.src {
        IpAddr::V4(_) => ethernet::HEADER_LEN + ipv4::HEADER_LEN,
        IpAddr::V6(_) => ethernet::HEADER_LEN + ipv6::HEADER_LEN,
    };
    let len = udp::HEADER_LEN + payload.len();
    let mut frame = vec![0; headers + len];
    put_headers(&ip, (protocol::UDP, len), macs, &mut frame)?;
    let (ports, bytes) = frame[headers..].split_at_mut(udp::HEADER_LEN);
    ports.copy_from_slice(&udp::header(
        datagram.from.port(),
        datagram.to.port(),
        payload.len(),
    ));
    bytes.copy_from_slice(payload);
    if let (IpAddr::V6(src), IpAddr::V6(dst)) = (ip.src, ip.dst) {
        // IPv4 may leave it out.
        let mut sum = checksum::pseudo_v6(src, dst, protocol::UDP, len as u32);
        sum.add_bytes(&frame[headers..]);
        let at = headers + usize::from(udp::CHECKSUM_AT);
        let sum = match sum.finish() {
            0 => u16::MAX,
            sum => sum,
        };
        frame[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    }
    Some(frame)
}

/// Ethernet and IP headers as the segment had them. `None`: addresses of two families.
fn put_headers(
    ip: &IpMeta,
    (protocol, len): (u8, usize),
    Ends { src, dst }: Ends<[u8; 6]>,
    frame: &mut [u8],
) -> Option<()> {
    let (below, rest) = frame.split_at_mut(ethernet::HEADER_LEN);
    let ethertype = match (ip.src, ip.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            Ipv4Header {
                tos: ip.tos,
                total_len: (ipv4::HEADER_LEN + len) as u16,
                identification: 0,
                dont_fragment: true,
                ttl: ip.ttl,
                protocol,
                src,
                dst,
            }
            .emit(rest);
            EtherType::IPV4
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            Ipv6Header {
                traffic_class: ip.tos,
                flow_label: 0,
                payload_len: len as u16,
                next_header: protocol,
                hop_limit: ip.ttl,
                src,
                dst,
            }
            .emit(rest);
            EtherType::IPV6
        }
        _ => return None,
    };
    EthernetHeader {
        dst,
        src,
        ethertype,
    }
    .emit(below);
    Some(())
}
