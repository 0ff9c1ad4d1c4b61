//! ARP for IPv4 over Ethernet (RFC 826).

use core::net::Ipv4Addr;

use crate::ethernet::{self, EtherType, EthernetHeader};

pub const PACKET_LEN: usize = 28;
/// A packet behind the header of its frame.
pub const FRAME_LEN: usize = ethernet::HEADER_LEN + PACKET_LEN;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArpOperation {
    Request,
    Reply,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArpPacket {
    pub operation: ArpOperation,
    pub sender_mac: [u8; 6],
    pub sender_ip: Ipv4Addr,
    pub target_mac: [u8; 6],
    pub target_ip: Ipv4Addr,
}

/// Hardware type Ethernet, protocol type IPv4, address lengths 6 and 4.
const FIXED: [u8; 6] = [0, 1, 8, 0, 6, 4];

impl ArpPacket {
    /// `None`: truncated, another hardware or protocol type, or an unknown operation.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (packet, _) = bytes.split_first_chunk::<PACKET_LEN>()?;
        if packet[..6] != FIXED {
            return None;
        }
        let operation = match u16::from_be_bytes([packet[6], packet[7]]) {
            1 => ArpOperation::Request,
            2 => ArpOperation::Reply,
            _ => return None,
        };
        Some(Self {
            operation,
            sender_mac: mac_at(packet, 8),
            sender_ip: ip_at(packet, 14),
            target_mac: mac_at(packet, 18),
            target_ip: ip_at(packet, 24),
        })
    }

    /// A request of a station for the link-layer address of `target`.
    pub fn request(sender_mac: [u8; 6], sender_ip: Ipv4Addr, target_ip: Ipv4Addr) -> Self {
        Self {
            operation: ArpOperation::Request,
            sender_mac,
            sender_ip,
            target_mac: [0; 6],
            target_ip,
        }
    }

    /// Returns the frame that carries the packet from its sender to `dst`.
    pub fn frame_to(&self, dst: [u8; 6]) -> [u8; FRAME_LEN] {
        let mut frame = [0; FRAME_LEN];
        EthernetHeader {
            dst,
            src: self.sender_mac,
            ethertype: EtherType::ARP,
        }
        .emit(&mut frame);
        self.emit(&mut frame[ethernet::HEADER_LEN..]);
        frame
    }

    /// Writes the first [`PACKET_LEN`] bytes of `out`, which must be that long.
    pub fn emit(&self, out: &mut [u8]) {
        let out = &mut out[..PACKET_LEN];
        out[..6].copy_from_slice(&FIXED);
        let operation: u16 = match self.operation {
            ArpOperation::Request => 1,
            ArpOperation::Reply => 2,
        };
        out[6..8].copy_from_slice(&operation.to_be_bytes());
        out[8..14].copy_from_slice(&self.sender_mac);
        out[14..18].copy_from_slice(&self.sender_ip.octets());
        out[18..24].copy_from_slice(&self.target_mac);
        out[24..28].copy_from_slice(&self.target_ip.octets());
    }
}

fn mac_at(packet: &[u8; PACKET_LEN], at: usize) -> [u8; 6] {
    core::array::from_fn(|i| packet[at + i])
}

fn ip_at(packet: &[u8; PACKET_LEN], at: usize) -> Ipv4Addr {
    Ipv4Addr::new(packet[at], packet[at + 1], packet[at + 2], packet[at + 3])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn emit_and_parse_agree(
            sender_mac: [u8; 6],
            s: u32,
            target_mac: [u8; 6],
            t: u32,
            reply: bool,
        ) {
            let packet = ArpPacket {
                operation: if reply { ArpOperation::Reply } else { ArpOperation::Request },
                sender_mac,
                sender_ip: s.into(),
                target_mac,
                target_ip: t.into(),
            };
            let mut bytes = [0; PACKET_LEN];
            packet.emit(&mut bytes);
            prop_assert_eq!(ArpPacket::parse(&bytes), Some(packet));
            for len in 0..PACKET_LEN {
                prop_assert_eq!(ArpPacket::parse(&bytes[..len]), None);
            }
        }

        #[test]
        fn parsed_options_emit_to_the_same_bytes(bytes: [u8; PACKET_LEN]) {
            if let Some(packet) = ArpPacket::parse(&bytes) {
                let mut again = [0; PACKET_LEN];
                packet.emit(&mut again);
                prop_assert_eq!(again, bytes);
            }
        }
    }

    #[test]
    fn other_hardware_protocols_lengths_and_operations_do_not_parse() {
        let mut good = [0; PACKET_LEN];
        ArpPacket {
            operation: ArpOperation::Request,
            sender_mac: [2; 6],
            sender_ip: 1.into(),
            target_mac: [0; 6],
            target_ip: 2.into(),
        }
        .emit(&mut good);
        for at in 0..8 {
            let mut bad = good;
            bad[at] ^= 0x40;
            assert_eq!(ArpPacket::parse(&bad), None, "byte {at}");
        }
    }
}
