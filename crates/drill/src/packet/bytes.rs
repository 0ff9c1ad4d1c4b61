//! IP packets: built from a script's packets, and parsed.

use std::net::IpAddr;

use slipstack_wire::icmpv4::{self, IcmpKind, IcmpMessage};
use slipstack_wire::icmpv6::{self, Icmpv6Kind, Icmpv6Message};
use slipstack_wire::protocol;
use slipstack_wire::tcp::{self, TcpFlags, TcpHeader, TcpSegment};
use slipstack_wire::udp::{self, UdpDatagram};

use super::ip::{self, Inside, Pair};
use super::{
    Ecn, Flow, IcmpSpec, PacketBody, PacketSpec, REMOTE_OFFSET, TcpOption, TcpSpec, options,
};

/// The codes of IPv4's destination unreachable for which IPv6 has its own.
const HOST_UNREACHABLE: u8 = 1;
const PORT_UNREACHABLE: u8 = 3;
const FRAG_NEEDED: u8 = 4;

/// The peer's window field where a script gives none.
const WINDOW: u16 = 65_535;

/// The packet of a script as it arrives on the wire.
pub fn build(spec: &PacketSpec, flow: &Flow) -> Vec<u8> {
    let (payload, protocol) = match &spec.body {
        PacketBody::Tcp(spec) => (segment(spec, flow), protocol::TCP),
        PacketBody::Udp(len) => (datagram(*len, flow), protocol::UDP),
        PacketBody::Icmp(spec) => unreachable(spec, flow),
    };
    let tos = match spec.ecn {
        Some(Ecn::Capable0 | Ecn::Any) => 0b10,
        Some(Ecn::Capable1) => 0b01,
        Some(Ecn::Congested) => 0b11,
        Some(Ecn::NotCapable) | None => 0,
    };
    arriving(flow).packet(tos, protocol, &payload)
}

/// The addresses of a packet that arrives.
fn arriving(flow: &Flow) -> Pair {
    Pair::new(flow.remote.0, flow.local.0)
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
        // A SYN's number is the origin of the others.
        seq: spec.seq.wrapping_add(match spec.flags.is_syn() {
            true => REMOTE_OFFSET,
            false => flow.remote_offset(),
        }),
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
    arriving(flow).seal(&mut bytes, tcp::CHECKSUM_AT, protocol::TCP);
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
        TcpOption::OurCookie => TcpOption::FastOpen(flow.cookie.clone()),
        other => other.clone(),
    }
}

fn datagram(len: u16, flow: &Flow) -> Vec<u8> {
    let header = udp::header(flow.remote.1, flow.local.1, usize::from(len));
    let mut bytes = header.to_vec();
    bytes.resize(header.len() + usize::from(len), 0);
    arriving(flow).seal(&mut bytes, udp::CHECKSUM_AT, protocol::UDP);
    bytes
}

/// Returns the quotation of an ICMP error: IP header and the first 8 bytes (RFC 792).
fn quoted(spec: &IcmpSpec, flow: &Flow) -> Vec<u8> {
    let pair = Pair::new(flow.local.0, flow.remote.0);
    let len = usize::from(spec.len);
    let mut quoted = if spec.is_udp {
        let mut datagram = udp::header(flow.local.1, flow.remote.1, len).to_vec();
        datagram.resize(datagram.len() + len, 0);
        pair.packet(0, protocol::UDP, &datagram)
    } else {
        let header = TcpHeader {
            src_port: flow.local.1,
            dst_port: flow.remote.1,
            seq: spec.seq.wrapping_add(flow.local_offset),
            flags: TcpFlags::ACK,
            ..TcpHeader::default()
        };
        let mut segment = vec![0; tcp::HEADER_LEN + len];
        header.emit(0, &mut segment);
        pair.packet(0, protocol::TCP, &segment)
    };
    quoted.truncate(pair.header_len() + 8);
    quoted
}

/// The message, and the number of its protocol.
fn unreachable(spec: &IcmpSpec, flow: &Flow) -> (Vec<u8>, u8) {
    let quoted = quoted(spec, flow);
    match arriving(flow) {
        Pair::V4(..) => {
            let (code, mtu) = (spec.code, spec.mtu);
            let message = IcmpMessage {
                kind: IcmpKind::DestinationUnreachable { code, mtu },
                body: &quoted,
            };
            (
                [&message.header()[..], message.body].concat(),
                protocol::ICMP,
            )
        }
        Pair::V6(src, dst) => {
            let message = Icmpv6Message {
                kind: in_v6(spec),
                body: &quoted,
            };
            let header = message.header(src, dst);
            ([&header[..], message.body].concat(), protocol::ICMPV6)
        }
    }
}

/// Returns the ICMPv6 counterpart of a message.
fn in_v6(spec: &IcmpSpec) -> Icmpv6Kind {
    let code = match spec.code {
        FRAG_NEEDED => {
            return Icmpv6Kind::PacketTooBig {
                mtu: u32::from(spec.mtu),
            };
        }
        HOST_UNREACHABLE => icmpv6::code::ADDRESS_UNREACHABLE,
        PORT_UNREACHABLE => icmpv6::code::PORT_UNREACHABLE,
        _ => icmpv6::code::NO_ROUTE,
    };
    Icmpv6Kind::DestinationUnreachable { code }
}

/// Returns the ICMP counterpart of an ICMPv6 message; `None` if a script cannot write it.
fn in_v4(kind: Icmpv6Kind) -> Option<IcmpKind> {
    let (code, mtu) = match kind {
        Icmpv6Kind::PacketTooBig { mtu } => (FRAG_NEEDED, u16::try_from(mtu).unwrap_or(u16::MAX)),
        Icmpv6Kind::DestinationUnreachable { code } => match code {
            icmpv6::code::ADDRESS_UNREACHABLE => (HOST_UNREACHABLE, 0),
            icmpv6::code::PORT_UNREACHABLE => (PORT_UNREACHABLE, 0),
            _ => (0, 0),
        },
        _ => return None,
    };
    Some(IcmpKind::DestinationUnreachable { code, mtu })
}

/// A packet that the stack sent.
#[derive(Clone, Debug)]
pub struct LivePacket {
    pub src: IpAddr,
    pub dst: IpAddr,
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
/// The defect of a packet that a stack should not send.
pub fn read(bytes: &[u8]) -> Result<LivePacket, String> {
    let inside = ip::open(bytes)?;
    Ok(LivePacket {
        src: inside.pair.src(),
        dst: inside.pair.dst(),
        ecn: inside.tos & 0b11,
        body: body(&inside)?,
    })
}

/// Returns whether a sent packet is of a kind that scripts do not have: of the host or its link.
pub fn is_of_the_link(bytes: &[u8]) -> bool {
    ip::open(bytes).is_ok_and(|inside| inside.is_of_the_link())
}

fn body(inside: &Inside<'_>) -> Result<LiveBody, String> {
    let payload = inside.payload;
    Ok(match (inside.protocol, inside.pair) {
        (protocol::TCP, _) if !inside.has_sum() => return Err("wrong TCP checksum".to_owned()),
        (protocol::TCP, _) => {
            let segment = TcpSegment::parse(payload).ok_or("truncated TCP header")?;
            LiveBody::Tcp {
                header: segment.header,
                options: options::parse(segment.options).ok_or("TCP options do not add up")?,
                len: segment.payload.len(),
            }
        }
        (protocol::UDP, pair) => {
            let datagram = UdpDatagram::parse(payload).ok_or("truncated UDP header")?;
            let may_lack = matches!(pair, Pair::V4(..)) && datagram.checksum == 0;
            if !may_lack && !inside.has_sum() {
                return Err("wrong UDP checksum".to_owned());
            }
            LiveBody::Udp {
                src_port: datagram.src_port,
                dst_port: datagram.dst_port,
                len: datagram.payload.len(),
            }
        }
        (protocol::ICMP, Pair::V4(..)) => {
            let message = icmpv4::IcmpMessage::parse(payload);
            LiveBody::Icmp(message.map_err(|error| format!("ICMP: {error:?}"))?.kind)
        }
        (protocol::ICMPV6, Pair::V6(src, dst)) => {
            let message = Icmpv6Message::parse(src, dst, payload);
            let kind = message.map_err(|error| format!("ICMPv6: {error:?}"))?.kind;
            LiveBody::Icmp(in_v4(kind).ok_or_else(|| format!("ICMPv6 {kind:?}"))?)
        }
        (other, _) => return Err(format!("protocol {other}")),
    })
}
