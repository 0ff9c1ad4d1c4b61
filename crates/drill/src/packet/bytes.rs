//! IP packets: made from a script's, and read back.

use std::net::Ipv4Addr;

use slipstack_wire::icmpv4::{self, IcmpKind, IcmpMessage};
use slipstack_wire::ipv4::{self, Ipv4Header, Ipv4Packet};
use slipstack_wire::tcp::{self, TcpFlags, TcpHeader, TcpSegment};
use slipstack_wire::udp::{self, UdpDatagram};
use slipstack_wire::{checksum, protocol};

use super::{
    Ecn, Flow, IcmpSpec, PacketBody, PacketSpec, REMOTE_OFFSET, TcpOption, TcpSpec, options,
};

/// What the peer's window field says when a script does not.
const WINDOW: u16 = 65_535;

/// The packet of a script as it arrives on the wire.
pub fn build(spec: &PacketSpec, flow: &Flow) -> Vec<u8> {
    let (payload, protocol) = match &spec.body {
        PacketBody::Tcp(spec) => (segment(spec, flow), protocol::TCP),
        PacketBody::Udp(len) => (datagram(*len, flow), protocol::UDP),
        PacketBody::Icmp(spec) => (unreachable(spec, flow), protocol::ICMP),
    };
    let tos = match spec.ecn {
        Some(Ecn::Capable0 | Ecn::Any) => 0b10,
        Some(Ecn::Capable1) => 0b01,
        Some(Ecn::Congested) => 0b11,
        Some(Ecn::NotCapable) | None => 0,
    };
    packet(tos, protocol, flow.remote.0, flow.local.0, &payload)
}

fn packet(tos: u8, protocol: u8, src: Ipv4Addr, dst: Ipv4Addr, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; ipv4::HEADER_LEN + payload.len()];
    let header = Ipv4Header {
        tos,
        total_len: bytes.len() as u16,
        identification: 0,
        dont_fragment: true,
        ttl: 64,
        protocol,
        src,
        dst,
    };
    header.emit(&mut bytes);
    bytes[ipv4::HEADER_LEN..].copy_from_slice(payload);
    bytes
}

fn segment(spec: &TcpSpec, flow: &Flow) -> Vec<u8> {
    let options: Vec<_> = spec
        .options
        .iter()
        .flatten()
        .map(|option| live(option, flow))
        .collect();
    let options = options::emit(&options);
    let header = TcpHeader {
        src_port: flow.remote.1,
        dst_port: flow.local.1,
        seq: spec.seq.wrapping_add(REMOTE_OFFSET),
        ack: spec
            .ack
            .map_or(0, |ack| ack.wrapping_add(flow.local_offset)),
        flags: spec.flags,
        window: spec.window.unwrap_or(WINDOW),
        urgent: spec.urgent.unwrap_or(0),
    };
    let head = tcp::HEADER_LEN + options.len();
    let mut bytes = vec![0; head + usize::from(spec.len)];
    header.emit(options.len(), &mut bytes);
    bytes[tcp::HEADER_LEN..head].copy_from_slice(&options);
    seal(
        &mut bytes,
        tcp::CHECKSUM_AT,
        protocol::TCP,
        flow.remote.0,
        flow.local.0,
    );
    bytes
}

/// The option with the numbers of our side as they are on the wire.
fn live(option: &TcpOption, flow: &Flow) -> TcpOption {
    let shift = |seq: u32| seq.wrapping_add(flow.local_offset);
    match option {
        TcpOption::Sack(blocks) => TcpOption::Sack(
            blocks
                .iter()
                .map(|(left, right)| (shift(*left), shift(*right)))
                .collect(),
        ),
        TcpOption::Timestamps { value, echo } => TcpOption::Timestamps {
            value: *value,
            echo: match flow.timestamp_offset {
                Some(offset) => echo.wrapping_add(offset),
                None => *echo,
            },
        },
        other => other.clone(),
    }
}

fn datagram(len: u16, flow: &Flow) -> Vec<u8> {
    let header = udp::header(flow.remote.1, flow.local.1, usize::from(len));
    let mut bytes = header.to_vec();
    bytes.resize(header.len() + usize::from(len), 0);
    seal(
        &mut bytes,
        udp::CHECKSUM_AT,
        protocol::UDP,
        flow.remote.0,
        flow.local.0,
    );
    bytes
}

/// A quoted segment of ours: IP header and the first 8 bytes, as RFC 792 asks.
fn unreachable(spec: &IcmpSpec, flow: &Flow) -> Vec<u8> {
    let header = TcpHeader {
        src_port: flow.local.1,
        dst_port: flow.remote.1,
        seq: spec.seq.wrapping_add(flow.local_offset),
        flags: TcpFlags::ACK,
        ..TcpHeader::default()
    };
    let mut segment = vec![0; tcp::HEADER_LEN + usize::from(spec.len)];
    header.emit(0, &mut segment);
    let mut quoted = packet(0, protocol::TCP, flow.local.0, flow.remote.0, &segment);
    quoted.truncate(ipv4::HEADER_LEN + 8);
    let message = IcmpMessage {
        kind: IcmpKind::DestinationUnreachable {
            code: spec.code,
            mtu: spec.mtu,
        },
        body: &quoted,
    };
    [&message.header()[..], message.body].concat()
}

fn seal(bytes: &mut [u8], at: u16, protocol: u8, src: Ipv4Addr, dst: Ipv4Addr) {
    let mut sum = checksum::pseudo_v4(src, dst, protocol, bytes.len() as u32);
    sum.add_bytes(bytes);
    let at = usize::from(at);
    bytes[at..at + 2].copy_from_slice(&sum.finish().to_be_bytes());
}

/// A packet that the stack sent.
#[derive(Clone, Debug)]
pub struct LivePacket {
    pub src: Ipv4Addr,
    pub dst: Ipv4Addr,
    pub ecn: u8,
    pub body: LiveBody,
}

#[derive(Clone, Debug)]
pub enum LiveBody {
    Tcp {
        header: TcpHeader,
        options: Vec<TcpOption>,
        len: usize,
    },
    Udp {
        src_port: u16,
        dst_port: u16,
        len: usize,
    },
    Icmp(IcmpKind),
}

/// Reads a packet that left, checksums included.
///
/// # Errors
/// What is wrong with it: nothing that a stack should send.
pub fn read(bytes: &[u8]) -> Result<LivePacket, String> {
    let packet = Ipv4Packet::parse(bytes).map_err(|error| format!("IPv4 header: {error:?}"))?;
    let header = packet.header;
    let has_sum =
        || checksum::is_valid_l4_v4(header.src, header.dst, header.protocol, packet.payload);
    let body = match header.protocol {
        protocol::TCP if !has_sum() => return Err("wrong TCP checksum".to_owned()),
        protocol::TCP => {
            let segment = TcpSegment::parse(packet.payload).ok_or("truncated TCP header")?;
            LiveBody::Tcp {
                header: segment.header,
                options: options::parse(segment.options).ok_or("TCP options do not add up")?,
                len: segment.payload.len(),
            }
        }
        protocol::UDP => {
            let datagram = UdpDatagram::parse(packet.payload).ok_or("truncated UDP header")?;
            if datagram.checksum != 0 && !has_sum() {
                return Err("wrong UDP checksum".to_owned());
            }
            LiveBody::Udp {
                src_port: datagram.src_port,
                dst_port: datagram.dst_port,
                len: datagram.payload.len(),
            }
        }
        protocol::ICMP => {
            let message = icmpv4::IcmpMessage::parse(packet.payload);
            LiveBody::Icmp(message.map_err(|error| format!("ICMP: {error:?}"))?.kind)
        }
        other => return Err(format!("protocol {other}")),
    };
    Ok(LivePacket {
        src: header.src,
        dst: header.dst,
        ecn: header.tos & 0b11,
        body,
    })
}
