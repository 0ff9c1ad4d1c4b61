//! Selection of the frames that a capture keeps.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use slipstack_wire::ethernet::{self, EtherType, EthernetHeader};
use slipstack_wire::protocol;

const ARP_SENDER_AT: usize = 14;
const ARP_TARGET_AT: usize = 24;
const IPV4_LEN: usize = 20;
const IPV6_LEN: usize = 40;

/// The frames of a stack's addresses; of one peer, of one port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// The stack's own addresses; empty: all frames.
    pub own: Vec<IpAddr>,
    pub host: Option<IpAddr>,
    /// Either end's TCP or UDP port.
    pub port: Option<u16>,
}

/// The ends that a frame names.
#[derive(Debug, Default, PartialEq, Eq)]
struct Ends {
    addresses: Vec<IpAddr>,
    ports: Option<[u16; 2]>,
}

impl Selection {
    pub fn keeps(&self, frame: &[u8]) -> bool {
        let Some((header, packet)) = EthernetHeader::parse(frame) else {
            return self.is_everything();
        };
        let behind_tags = ethernet::parse_tags(header.ethertype, packet);
        let Some(ends) = behind_tags.and_then(|(kind, packet)| ends(kind, packet)) else {
            // A frame that is neither IP nor ARP has no addresses.
            return self.host.is_none() && self.port.is_none();
        };
        let is_own = ethernet::is_group(header.dst)
            || self.own.is_empty()
            || ends
                .addresses
                .iter()
                .any(|address| self.own.contains(address));
        let is_host = self.host.is_none_or(|host| ends.addresses.contains(&host));
        let is_port = self
            .port
            .is_none_or(|port| ends.ports.is_some_and(|ports| ports.contains(&port)));
        is_own && is_host && is_port
    }

    fn is_everything(&self) -> bool {
        *self == Selection::default()
    }
}

fn ends(ethertype: EtherType, packet: &[u8]) -> Option<Ends> {
    match ethertype {
        EtherType::ARP => Some(Ends {
            addresses: vec![v4(packet, ARP_SENDER_AT)?, v4(packet, ARP_TARGET_AT)?],
            ports: None,
        }),
        EtherType::IPV4 => {
            let header_len = usize::from(packet.first()? & 0x0f) * 4;
            let is_first = u16::from_be_bytes([*packet.get(6)?, *packet.get(7)?]) & 0x1fff == 0;
            let transport = packet.get(header_len.max(IPV4_LEN)..).filter(|_| is_first);
            Some(Ends {
                addresses: vec![v4(packet, 12)?, v4(packet, 16)?],
                ports: transport.and_then(|bytes| ports(*packet.get(9)?, bytes)),
            })
        }
        EtherType::IPV6 => {
            let transport = packet.get(IPV6_LEN..)?;
            Some(Ends {
                addresses: vec![v6(packet, 8)?, v6(packet, 24)?],
                ports: ports(*packet.get(6)?, transport),
            })
        }
        _ => None,
    }
}

fn ports(next: u8, transport: &[u8]) -> Option<[u16; 2]> {
    let is_known = matches!(next, protocol::TCP | protocol::UDP);
    let &[a, b, c, d] = transport.first_chunk()?;
    is_known.then_some([u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])])
}

fn v4(packet: &[u8], at: usize) -> Option<IpAddr> {
    let octets: [u8; 4] = *packet.get(at..)?.first_chunk()?;
    Some(IpAddr::V4(Ipv4Addr::from(octets)))
}

fn v6(packet: &[u8], at: usize) -> Option<IpAddr> {
    let octets: [u8; 16] = *packet.get(at..)?.first_chunk()?;
    Some(IpAddr::V6(Ipv6Addr::from(octets)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: [u8; 4] = [10, 0, 0, 5];
    const PEER: [u8; 4] = [10, 0, 0, 1];
    const OTHER: [u8; 4] = [10, 0, 0, 9];

    fn frame(ethertype: u16, packet: &[u8]) -> Vec<u8> {
        let mut frame = vec![2; 12];
        frame.extend(ethertype.to_be_bytes());
        frame.extend(packet);
        frame
    }

    fn tcp(src: [u8; 4], dst: [u8; 4], port: u16) -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0];
        packet.extend(src);
        packet.extend(dst);
        packet.extend(port.to_be_bytes());
        packet.extend(40_000u16.to_be_bytes());
        packet.resize(40, 0);
        frame(0x0800, &packet)
    }

    fn of_own() -> Selection {
        Selection {
            own: vec![IpAddr::from(OWN)],
            ..Selection::default()
        }
    }

    #[test]
    fn frames_of_others_on_the_same_interface_are_left_out() {
        assert!(of_own().keeps(&tcp(OWN, PEER, 80)));
        assert!(of_own().keeps(&tcp(PEER, OWN, 80)));
        assert!(!of_own().keeps(&tcp(PEER, OTHER, 80)));
        assert!(Selection::default().keeps(&tcp(PEER, OTHER, 80)));
    }

    #[test]
    fn a_port_and_a_host_narrow_the_choice() {
        let port = Selection {
            port: Some(80),
            ..of_own()
        };
        assert!(port.keeps(&tcp(OWN, PEER, 80)));
        assert!(!port.keeps(&tcp(OWN, PEER, 81)));
        let host = Selection {
            host: Some(IpAddr::from(PEER)),
            ..of_own()
        };
        assert!(host.keeps(&tcp(OWN, PEER, 80)));
        assert!(!host.keeps(&tcp(OWN, OTHER, 80)));
    }

    #[test]
    fn frames_of_a_vlan_are_chosen_by_what_is_behind_their_tag() {
        let mut tagged = tcp(OWN, PEER, 80);
        tagged.splice(12..12, [0x81, 0, 0, 7]);
        let port = |port| Selection {
            port: Some(port),
            ..of_own()
        };
        assert!(port(80).keeps(&tagged));
        assert!(!port(81).keeps(&tagged));
        assert!(!port(80).keeps(&tagged[..16]));
    }

    #[test]
    fn arp_is_steered_by_its_addresses_and_broken_frames_are_not_steered() {
        let mut arp = vec![0, 1, 8, 0, 6, 4, 0, 1, 2, 2, 2, 2, 2, 2];
        arp.extend(PEER);
        arp.extend([0; 6]);
        arp.extend(OWN);
        assert!(of_own().keeps(&frame(0x0806, &arp)));
        arp[24..28].copy_from_slice(&OTHER);
        assert!(!of_own().keeps(&frame(0x0806, &arp)));
        assert!(!of_own().keeps(&[1, 2, 3]));
        assert!(of_own().keeps(&frame(0x0800, &[0x45])));
    }
}
