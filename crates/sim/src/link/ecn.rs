//! Explicit congestion notification in the IP header (RFC 3168).

use slipstack_wire::checksum;
use slipstack_wire::ethernet::{EtherType, EthernetHeader, HEADER_LEN};

/// The ECN field (RFC 3168 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codepoint {
    NotEct,
    Ect1,
    Ect0,
    Ce,
}

impl Codepoint {
    const fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::NotEct,
            1 => Self::Ect1,
            2 => Self::Ect0,
            _ => Self::Ce,
        }
    }

    /// Returns the codepoint of an IPv4 or IPv6 packet in an Ethernet frame; `None` for anything
    /// else.
    pub fn of(frame: &[u8]) -> Option<Self> {
        let (header, packet) = EthernetHeader::parse(frame)?;
        match header.ethertype {
            EtherType::IPV4 => packet.get(1).map(|tos| Self::from_bits(*tos)),
            // The traffic class spans the first two bytes (RFC 8200 3).
            EtherType::IPV6 => packet.get(1).map(|byte| Self::from_bits(byte >> 4)),
            _ => None,
        }
    }
}

/// Sets CE on an ECN-capable packet; `false` for any other, which stays as it is.
pub(super) fn mark(frame: &mut [u8]) -> bool {
    match Codepoint::of(frame) {
        Some(Codepoint::Ect0 | Codepoint::Ect1) => {}
        Some(Codepoint::Ce) | Some(Codepoint::NotEct) | None => return false,
    }
    let is_v4 = EthernetHeader::parse(frame).is_some_and(|(h, _)| h.ethertype == EtherType::IPV4);
    let packet = &mut frame[HEADER_LEN..];
    if !is_v4 {
        packet[1] |= 0x30;
        return true;
    }
    let Some(header) = packet.first_chunk_mut::<20>() else {
        return false;
    };
    let old = u16::from_be_bytes([header[0], header[1]]);
    header[1] |= 3;
    let new = u16::from_be_bytes([header[0], header[1]]);
    let sum = checksum::updated(u16::from_be_bytes([header[10], header[11]]), old, new);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    true
}
