//! Segments that steering brought here although another engine has their flow.
//!
//! While the keeper changes who serves a port, frames are on their way and half-open connections are
//! in nobody's directory yet. A segment that meets nothing here goes to the keeper, which knows who
//! else listens, instead of being answered with a reset. It says which engine that was.

use std::net::IpAddr;

use slipstack_channel::stray_source;
use slipstack_mem::MpscInbox;
use slipstack_stack::IpMeta;
use slipstack_wire::ethernet::{self, EtherType, EthernetHeader};
use slipstack_wire::ipv4::{self, Ipv4Header};
use slipstack_wire::ipv6::{self, Ipv6Header};
use slipstack_wire::protocol;

use crate::world::World;

/// The keeper's slot.
pub(crate) const KEEPER: usize = 0;
/// Where a segment keeps its flags, and the one that a shortened segment must not have.
const FLAGS_AT: usize = 13;
const FIN: u8 = 1;
const RST: u8 = 4;

impl World {
    /// Hands a segment to the keeper. `false`: there is none, it is to be answered here.
    #[cold]
    pub(crate) fn send_stray(&mut self, ip: &IpMeta, segment: &[u8]) -> bool {
        let Some(fabric) = &self.local.fabric else {
            return false;
        };
        // A reset that comes late is common, and nothing is lost with it but while flows move.
        let is_rst = segment.get(FLAGS_AT).is_some_and(|flags| flags & RST != 0);
        if is_rst && !fabric.is_moving(self.now.0) {
            return false;
        }
        let source = stray_source(fabric.own_slot());
        let Some(frame) = stray_frame(ip, segment, source, self.mac) else {
            return false;
        };
        // A keeper without room loses it as a wire would; the owner was not asked.
        if !fabric.post(KEEPER, &frame) {
            self.counters.local_lost += 1;
        }
        true
    }
}

/// A frame that carries a segment on, shortened to what takes one place in an inbox: the peer sends the rest again,
/// to the right engine by then. `None`: addresses of two families.
pub fn stray_frame(ip: &IpMeta, segment: &[u8], src: [u8; 6], dst: [u8; 6]) -> Option<Vec<u8>> {
    let headers = match ip.src {
        IpAddr::V4(_) => ethernet::HEADER_LEN + ipv4::HEADER_LEN,
        IpAddr::V6(_) => ethernet::HEADER_LEN + ipv6::HEADER_LEN,
    };
    let len = segment.len().min(MpscInbox::CELL_BYTES - headers);
    let mut frame = vec![0; headers + len];
    put_headers(ip, len, (src, dst), &mut frame)?;
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
