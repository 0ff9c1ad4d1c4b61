//! Steering of whole frames in user space, for devices without a steering program in the kernel.

use std::net::{IpAddr, SocketAddr};

use slipstack_wire::ethernet::{EtherType, EthernetHeader};
use slipstack_wire::flow::{FrameFlow, is_group_frame};
use slipstack_wire::ipv4::Ipv4Packet;
use slipstack_wire::ipv6::Ipv6Packet;
use slipstack_wire::protocol;

use slipstack_terms::Transport;

use super::Steering;

impl Steering {
    /// The slot of a frame, by the same rules as the steering's programs.
    pub fn owner_of(&self, frame: &[u8]) -> u16 {
        let Some(parsed) = FrameFlow::parse(frame) else {
            return self.portless_owner_of(frame);
        };
        let proto = match parsed.protocol {
            protocol::TCP => Transport::Tcp,
            _ => Transport::Udp,
        };
        if !self.is_own(parsed.dst.ip()) && !is_group_frame(frame) {
            // A connection may be from an address that is not ours.
            let excepted = self.find_exception(proto, parsed.dst, parsed.src);
            return excepted.unwrap_or_else(|| self.transit_slot((parsed.src, parsed.dst)));
        }
        if !self.is_own(parsed.dst.ip()) || parsed.is_to_group(frame) {
            return 0;
        }
        self.find_slot(proto, parsed.dst, parsed.src)
    }

    fn portless_owner_of(&self, frame: &[u8]) -> u16 {
        let ends = ends_of(frame).filter(|(_, dst)| !self.is_own(*dst) && !is_group_frame(frame));
        ends.map_or(0, |(src, dst)| {
            self.transit_slot((SocketAddr::new(src, 0), SocketAddr::new(dst, 0)))
        })
    }
}

/// The addresses of a packet of either family.
fn ends_of(frame: &[u8]) -> Option<(IpAddr, IpAddr)> {
    let (header, payload) = EthernetHeader::parse(frame)?;
    match header.ethertype {
        EtherType::IPV4 => {
            let packet = Ipv4Packet::parse_quoted(payload).ok()?;
            Some((packet.header.src.into(), packet.header.dst.into()))
        }
        EtherType::IPV6 => {
            let packet = Ipv6Packet::parse_quoted(payload)?;
            Some((packet.header.src.into(), packet.header.dst.into()))
        }
        _ => None,
    }
}
