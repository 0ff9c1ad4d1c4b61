//! A segment as a frame again, for whoever may know its flow.

use alloc::vec;
use alloc::vec::Vec;
use core::net::IpAddr;

use slipstack_wire::ethernet::{self, EtherType, EthernetHeader};
use slipstack_wire::ipv4::{self, Ipv4Header};
use slipstack_wire::ipv6::{self, Ipv6Header};
use slipstack_wire::protocol;

use crate::ip::IpMeta;

/// Where a segment keeps its flags, and the one that a shortened segment must not have.
const FLAGS_AT: usize = 13;
const FIN: u8 = 1;

/// A frame of at most `len_max` bytes that carries a segment on, shortened to fit: the peer sends the rest again, to the
/// right engine by then. `None`: addresses of two families.
pub fn stray_frame(
    ip: &IpMeta,
    segment: &[u8],
    link: ([u8; 6], [u8; 6]),
    len_max: usize,
) -> Option<Vec<u8>> {
    let headers = match ip.src {
        IpAddr::V4(_) => ethernet::HEADER_LEN + ipv4::HEADER_LEN,
        IpAddr::V6(_) => ethernet::HEADER_LEN + ipv6::HEADER_LEN,
    };
    let len = segment.len().min(len_max - headers);
    let mut frame = vec![0; headers + len];
    put_headers(ip, len, link, &mut frame)?;
    frame[headers..].copy_from_slice(&segment[..len]);
    if len < segment.len() {
        frame[headers + FLAGS_AT] &= !FIN;
    }
    Some(frame)
}

/// Ethernet and IP headers as the segment had them. `None`: addresses of two families.
fn put_headers(
    ip: &IpMeta,
    len: usize,
    (src, dst): ([u8; 6], [u8; 6]),
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
                protocol: protocol::TCP,
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
                next_header: protocol::TCP,
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
