//! ICMP: echo, received errors, and errors that we send (RFC 792, RFC 1122 3.2.2, RFC 1812 4.3).

use core::net::IpAddr;

use slipstack_wire::icmpv4::{IcmpError, IcmpKind, IcmpMessage, code};
use slipstack_wire::ipv4::{self, Ipv4Packet};
use slipstack_wire::protocol;

use crate::config::Role;
use crate::counters::Counter;
use crate::effects::{Effects, Payload};
use crate::fib::Choice;
use crate::icmp_limit::IcmpLimit;
use crate::ip::{Ends, IcmpDetails, IpMeta, PathCause, Report, parse_flow};
use crate::network_layer::{Cx, OutPacket, OutSegment};
use crate::options::{DEFAULT_TTL, MtuDiscovery};
use crate::time::Instant;

/// RFC 1812 4.3.2.3: an error is at most 576 bytes long.
const ERROR_LEN_MAX: usize = 576;
const HEADERS_LEN: usize = ipv4::HEADER_LEN + slipstack_wire::icmpv4::HEADER_LEN;
pub(crate) const QUOTE_MAX: usize = ERROR_LEN_MAX - HEADERS_LEN;

/// RFC 1812 4.3.2.5: an error has precedence 6 and the type of service of the packet it is about.
pub(crate) const fn error_tos(about: u8) -> u8 {
    0xc0 | about & 0x1e
}

impl Cx<'_> {
    /// Answers echos; an error about a packet of ours is returned with its protocol.
    #[inline(never)]
    pub(crate) fn on_icmp<'a>(
        &mut self,
        now: Instant,
        ip: &IpMeta,
        bytes: &'a [u8],
        fx: &mut impl Effects,
    ) -> Option<Report<'a>> {
        let message = match IcmpMessage::parse(bytes) {
            Ok(message) => message,
            Err(IcmpError::Malformed) => return self.drop_icmp(Counter::DropIcmpMalformed),
            Err(IcmpError::Checksum) => return self.drop_icmp(Counter::DropIcmpChecksum),
        };
        // RFC 1122 3.2.2.6: an echo to a group may be ignored, and smurfs say that it should be.
        if ip.group {
            return self.drop_icmp(Counter::DropIcmpGroup);
        }
        let cause = match message.kind {
            IcmpKind::EchoRequest(id) => {
                self.answer_echo(now, ip, id, message.body, fx);
                return None;
            }
            IcmpKind::DestinationUnreachable { code, mtu } => unreachable_cause(code, mtu),
            IcmpKind::TimeExceeded { code: 0 } => Some(PathCause::TimeExceeded),
            IcmpKind::ParameterProblem { .. } => Some(PathCause::ParameterProblem),
            IcmpKind::TimeExceeded { .. } | IcmpKind::EchoReply(_) | IcmpKind::Other { .. } => None,
        };
        let Some(cause) = cause else {
            return self.drop_icmp(Counter::DropIcmpType);
        };
        let report = Ipv4Packet::parse_quoted(message.body)
            .ok()
            .filter(|quoted| self.net.routes.is_own(quoted.header.src))
            .and_then(|quoted| {
                let quoted = parse_flow(&quoted, cause, false)?;
                Some(Report {
                    protocol: quoted.protocol,
                    error: quoted.error,
                    details: details_of(ip, bytes, quoted.rest),
                })
            });
        let Some(report) = report else {
            return self.drop_icmp(Counter::DropIcmpQuote);
        };
        self.counters.bump(Counter::RxIcmpErrors);
        Some(report)
    }

    fn drop_icmp(&mut self, why: Counter) -> Option<Report<'static>> {
        self.counters.bump(why);
        None
    }

    fn answer_echo(
        &mut self,
        now: Instant,
        ip: &IpMeta,
        id: [u8; 4],
        body: &[u8],
        fx: &mut impl Effects,
    ) {
        if self.config.role == Role::Engine {
            self.counters.bump(Counter::DropIcmpRole);
            return;
        }
        self.counters.bump(Counter::RxIcmpEchos);
        let reply = IcmpMessage {
            kind: IcmpKind::EchoReply(id),
            body,
        };
        self.counters.bump(Counter::TxIcmpEchos);
        // RFC 1122 3.2.2.6: the reply comes from the requested address.
        self.send_icmp(now, Ends::new(ip.dst, ip.src), ip.tos, &reply, fx);
    }

    /// Tells the sender of `packet` that its port is closed.
    pub(crate) fn send_port_unreachable(
        &mut self,
        now: Instant,
        limit: &mut IcmpLimit,
        packet: &[u8],
        ip: &IpMeta,
        fx: &mut impl Effects,
    ) {
        let kind = IcmpKind::DestinationUnreachable {
            code: code::PORT_UNREACHABLE,
            mtu: 0,
        };
        self.send_icmp_error(now, limit, packet, ip, kind, fx);
    }

    /// Sends a protocol-unreachable error to the sender of `packet` (RFC 1122 3.2.2.1).
    #[cold]
    pub(crate) fn send_protocol_unreachable(
        &mut self,
        now: Instant,
        limit: &mut IcmpLimit,
        packet: &[u8],
        ip: &IpMeta,
        fx: &mut impl Effects,
    ) {
        let kind = IcmpKind::DestinationUnreachable {
            code: code::PROTOCOL_UNREACHABLE,
            mtu: 0,
        };
        self.send_icmp_error(now, limit, packet, ip, kind, fx);
    }

    /// Tells the sender of a first fragment that the rest did not come.
    pub(crate) fn send_reassembly_exceeded(
        &mut self,
        now: Instant,
        limit: &mut IcmpLimit,
        packet: &[u8],
        ip: &IpMeta,
        fx: &mut impl Effects,
    ) {
        const REASSEMBLY: u8 = 1;
        // RFC 1122 3.2.2: never about an error.
        let quoted = Ipv4Packet::parse_quoted(packet);
        let is_icmp = quoted.is_ok_and(|quoted| quoted.header.protocol == protocol::ICMP);
        let is_echo = quoted.is_ok_and(|quoted| matches!(quoted.payload.first(), Some(8)));
        if !is_icmp || is_echo {
            let kind = IcmpKind::TimeExceeded { code: REASSEMBLY };
            self.send_icmp_error(now, limit, packet, ip, kind, fx);
        }
    }

    pub(crate) fn send_icmp_error(
        &mut self,
        now: Instant,
        limit: &mut IcmpLimit,
        packet: &[u8],
        ip: &IpMeta,
        kind: IcmpKind,
        fx: &mut impl Effects,
    ) {
        // RFC 1122 3.2.2: never about a broadcast; later fragments and ICMP errors do not get here.
        if ip.group {
            return;
        }
        if !ip.local && !limit.may_pass(now, ip.src, self.rng) {
            self.counters.bump(Counter::DropIcmpRate);
            return;
        }
        self.counters.bump(Counter::TxIcmpErrors);
        let path = self.net.find_path(now, Some(ip.dst), ip.src);
        let room = path.map_or(QUOTE_MAX, |path| {
            usize::from(path.mtu).saturating_sub(HEADERS_LEN)
        });
        let body = &packet[..packet.len().min(QUOTE_MAX).min(room)];
        self.send_icmp(
            now,
            Ends::new(ip.dst, ip.src),
            error_tos(ip.tos),
            &IcmpMessage { kind, body },
            fx,
        );
    }

    fn send_icmp(
        &mut self,
        now: Instant,
        Ends { src, dst }: Ends<IpAddr>,
        tos: u8,
        message: &IcmpMessage<'_>,
        fx: &mut impl Effects,
    ) {
        let packet = OutPacket {
            src,
            dst,
            protocol: protocol::ICMP,
            ports: (0, 0),
            tos,
            ttl: DEFAULT_TTL,
            dont_fragment: false,
            choice: Choice::NONE,
        };
        let segment = OutSegment {
            header: &message.header(),
            payload: Payload::Inline(message.body),
            checksum_at: None,
            gso_mss: None,
        };
        let way = (&packet, MtuDiscovery::Dont);
        self.output_datagram(now, way, &mut None, &segment, fx);
    }
}

/// Returns whether an ICMP message is about another packet.
pub(crate) fn is_error(message: &[u8]) -> bool {
    matches!(message.first(), Some(3 | 4 | 5 | 11 | 12))
}

/// Reads the first bytes of an error.
fn details_of<'a>(ip: &IpMeta, message: &[u8], payload: &'a [u8]) -> IcmpDetails<'a> {
    let (kind, code, rest) = match *message {
        [kind, code, _, _, a, b, c, d, ..] => (kind, code, [a, b, c, d]),
        _ => (0, 0, [0; 4]),
    };
    let info = match (kind, code) {
        (3, code::FRAGMENTATION_NEEDED) => u32::from(u16::from_be_bytes([rest[2], rest[3]])),
        (12, _) => u32::from(rest[0]),
        _ => 0,
    };
    IcmpDetails {
        offender: ip.src,
        local: ip.dst,
        tos: ip.tos,
        ttl: ip.ttl,
        kind,
        code,
        info,
        payload,
    }
}

/// RFC 1122 3.2.2.1, RFC 1812 5.2.7.1: the meaning of a code for a sender.
fn unreachable_cause(code: u8, mtu: u16) -> Option<PathCause> {
    Some(match code {
        code::NET_UNREACHABLE | 6 | 11 => PathCause::NetUnreachable,
        code::HOST_UNREACHABLE | 7 | 8 | 12 => PathCause::HostUnreachable,
        code::PROTOCOL_UNREACHABLE => PathCause::ProtocolUnreachable,
        code::PORT_UNREACHABLE => PathCause::PortUnreachable,
        code::FRAGMENTATION_NEEDED => PathCause::FragmentationNeeded { mtu },
        code::SOURCE_ROUTE_FAILED => PathCause::SourceRouteFailed,
        9 | 10 | 13..=15 => PathCause::AdminProhibited,
        _ => return None,
    })
}
