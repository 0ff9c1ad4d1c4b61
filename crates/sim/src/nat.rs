//! A NAT that keeps the address and changes ports (RFC 4787's mapping, one for all peers).

use slipstack_wire::checksum;
use slipstack_wire::ethernet::{EtherType, EthernetHeader, HEADER_LEN};
use slipstack_wire::ipv6;

const PROTOCOL_TCP: u8 = 6;
/// First port of the host's; those of older mappings are below the shifted ones.
const FIRST_PORT: u16 = 20_000;
/// Distance of a mapping's ports from those before the last rebinding.
const SHIFT: u16 = 10_000;

/// In front of one host.
#[derive(Clone, Copy, Debug)]
pub struct Nat {
    pub host: usize,
    /// Offset that is added to the host's ports, outside.
    shift: u16,
}

/// Which port of a segment.
#[derive(Clone, Copy)]
enum Port {
    Source = 0,
    Destination = 2,
}

impl Nat {
    pub fn new(host: usize) -> Self {
        Self { host, shift: 0 }
    }

    /// The mappings are forgotten: the host's next frame gets another port.
    pub fn rebind(&mut self) {
        self.shift = self.shift.wrapping_add(SHIFT);
    }

    /// A frame of the host leaves.
    pub fn outwards(&self, frame: &mut [u8]) {
        if let Some(port) = port_of(frame, Port::Source) {
            set_port(frame, Port::Source, port.wrapping_add(self.shift));
        }
    }

    /// A frame comes for the host; `false` = for a mapping that is forgotten.
    pub fn inwards(&self, frame: &mut [u8]) -> bool {
        let Some(port) = port_of(frame, Port::Destination) else {
            return true;
        };
        if port < FIRST_PORT.wrapping_add(self.shift) {
            return false;
        }
        set_port(frame, Port::Destination, port.wrapping_sub(self.shift));
        true
    }
}

/// Offset of the TCP header of a packet of either family.
fn tcp_at(frame: &[u8]) -> Option<usize> {
    let (header, packet) = EthernetHeader::parse(frame)?;
    let (protocol_at, len) = match header.ethertype {
        EtherType::IPV4 => (9, usize::from(packet.first()? & 0x0f) * 4),
        EtherType::IPV6 => (6, ipv6::HEADER_LEN),
        _ => return None,
    };
    let at = HEADER_LEN + len;
    (packet.get(protocol_at) == Some(&PROTOCOL_TCP) && frame.len() >= at + 20).then_some(at)
}

fn port_of(frame: &[u8], port: Port) -> Option<u16> {
    let at = tcp_at(frame)? + port as usize;
    Some(u16::from_be_bytes([frame[at], frame[at + 1]]))
}

fn set_port(frame: &mut [u8], port: Port, value: u16) {
    let (Some(tcp), Some(old)) = (tcp_at(frame), port_of(frame, port)) else {
        return;
    };
    let at = tcp + port as usize;
    frame[at..at + 2].copy_from_slice(&value.to_be_bytes());
    let sum = u16::from_be_bytes([frame[tcp + 16], frame[tcp + 17]]);
    let sum = checksum::updated(sum, old, value);
    frame[tcp + 16..tcp + 18].copy_from_slice(&sum.to_be_bytes());
}
