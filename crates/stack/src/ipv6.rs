//! IPv6 input (RFC 8200): every check of form and address before a transport sees a packet.

use core::net::{IpAddr, Ipv6Addr, SocketAddr};

use slipstack_wire::icmpv6::{self, Icmpv6Kind};
use slipstack_wire::ipv6::Ipv6Packet;
use slipstack_wire::ipv6_extensions::{self as extensions, Refused, Upper, Walked, problem};
use slipstack_wire::{checksum, protocol, tcp};

use crate::counters::Counter;
use crate::effects::{Effects, RxChecksum, RxMeta};
use crate::ip::{IpMeta, PathCause, PathError, QUOTED_LEN};
use crate::link::Link;
use crate::stack::{Stack, cx};
use crate::time::Instant;
use crate::udp::UdpOutcome;

/// The addresses of a packet that arrived, judged; the error says why it is dropped. `link_group`:
/// it came in a link-layer multicast.
fn accept(
    packet: &Ipv6Packet<'_>,
    link_group: bool,
    is_looped: bool,
    link: &Link,
) -> Result<IpMeta, Counter> {
    let routes = &link.routes6;
    let (src, dst) = (packet.header.src, packet.header.dst);
    // RFC 4291 2.5.3, 2.7: none of these is ever a source on a wire; RFC 4038 8: nor are mapped
    // addresses. The unspecified address is one while its sender has none (RFC 4862 5.4).
    if src.is_multicast() || is_internal(src) || is_internal(dst) || dst.is_unspecified() {
        return Err(Counter::DropIpv6Martian);
    }
    // RFC 4291 2.7: scope 0 is of no packet, and what is of one interface stays in its host.
    if dst.is_multicast() && dst.octets()[1] & 0x0f <= u8::from(!is_looped) {
        return Err(Counter::DropIpv6Martian);
    }
    if !is_looped && routes.is_own(src) {
        return Err(Counter::DropIpv6Spoofed);
    }
    let group = if routes.is_own(dst) {
        if link_group {
            return Err(Counter::DropIpv6LinkGroup);
        }
        false
    } else if dst.is_multicast() && (routes.is_joined(dst) || link.hears(dst.into())) {
        true
    } else {
        return Err(Counter::DropIpv6NotOurs);
    };
    Ok(IpMeta {
        src: IpAddr::V6(src),
        dst: IpAddr::V6(dst),
        tos: packet.header.traffic_class,
        ttl: packet.header.hop_limit,
        group,
        local: is_looped,
        vlan: 0,
    })
}

fn is_internal(ip: Ipv6Addr) -> bool {
    ip.is_loopback() || ip.to_ipv4_mapped().is_some()
}

/// RFC 6980 5: it is ignored in fragments, which hide it from switches that guard a link.
pub(crate) fn is_discovery(upper: &Upper<'_>) -> bool {
    upper.protocol == protocol::ICMPV6 && icmpv6::is_discovery(upper.payload)
}

/// Reads the flow out of a packet of ours, possibly cut off after eight bytes of the transport
/// header; with what comes behind them.
pub(crate) fn parse_flow(
    bytes: &[u8],
    cause: PathCause,
    trusted: bool,
) -> Option<(u8, PathError, &[u8])> {
    let packet = Ipv6Packet::parse_quoted(bytes)?;
    let (protocol, transport) = extensions::find_quoted(packet.header.next_header, packet.payload)?;
    if !matches!(protocol, protocol::TCP | protocol::UDP) {
        return None;
    }
    let (src_port, dst_port, sequence) = tcp::parse_quoted(transport)?;
    let error = PathError {
        local: SocketAddr::new(IpAddr::V6(packet.header.src), src_port),
        remote: SocketAddr::new(IpAddr::V6(packet.header.dst), dst_port),
        cause,
        sequence: (protocol == protocol::TCP).then_some(sequence),
        trusted,
    };
    Some((protocol, error, transport.get(QUOTED_LEN..).unwrap_or(&[])))
}

impl Stack {
    #[inline(never)]
    pub(crate) fn on_ipv6(
        &mut self,
        now: Instant,
        bytes: &[u8],
        link_group: bool,
        meta: RxMeta,
        fx: &mut impl Effects,
    ) {
        let Some(packet) = Ipv6Packet::parse(bytes) else {
            self.counters.bump(Counter::DropIpv6Malformed);
            return;
        };
        let ip = match accept(&packet, link_group, meta.local, &self.link) {
            Ok(ip) => IpMeta {
                vlan: meta.vlan,
                ..ip
            },
            Err(Counter::DropIpv6NotOurs) if self.config.network.forwarding => {
                return self.forward_v6(now, bytes, link_group, meta, fx);
            }
            Err(why) => {
                self.counters.bump(why);
                return;
            }
        };
        let upper = if extensions::is_extension(packet.header.next_header) {
            match self.walk(now, bytes, &packet, (&ip, link_group), fx) {
                Some(upper) => upper,
                None => return,
            }
        } else {
            Upper {
                protocol: packet.header.next_header,
                payload: packet.payload,
                named_at: 6,
                is_atomic: false,
            }
        };
        self.on_ipv6_upper(now, bytes, &ip, &upper, meta, fx);
    }

    /// The extension headers; `None`: the packet ends here, and is counted.
    #[cold]
    fn walk<'a>(
        &mut self,
        now: Instant,
        bytes: &[u8],
        packet: &Ipv6Packet<'a>,
        (ip, link_group): (&IpMeta, bool),
        fx: &mut impl Effects,
    ) -> Option<Upper<'a>> {
        match extensions::walk(packet.header.next_header, packet.payload) {
            Ok(Walked::Whole(upper)) if upper.is_atomic && is_discovery(&upper) => {
                self.counters.bump(Counter::DropNdpFragment);
            }
            Ok(Walked::Whole(upper)) => return Some(upper),
            Ok(Walked::Fragment(found)) => {
                self.on_fragment_v6(now, (bytes, packet), &found, (ip, link_group), fx);
            }
            Err(Refused::Malformed | Refused::Silently) => {
                self.counters.bump(Counter::DropIpv6Extension);
            }
            Err(Refused::Problem {
                code,
                pointer,
                to_groups,
            }) => {
                self.counters.bump(Counter::DropIpv6Extension);
                let kind = Icmpv6Kind::ParameterProblem { code, pointer };
                let limit = &mut self.icmp_errors;
                cx!(self).send_icmpv6_error(now, limit, bytes, ip, kind, to_groups, fx);
            }
        }
        None
    }

    fn on_ipv6_upper(
        &mut self,
        now: Instant,
        bytes: &[u8],
        ip: &IpMeta,
        upper: &Upper<'_>,
        meta: RxMeta,
        fx: &mut impl Effects,
    ) {
        // Only neighbour discovery has a use for a sender without an address (RFC 4291 2.5.2).
        if ip.src.is_unspecified() && upper.protocol != protocol::ICMPV6 {
            self.counters.bump(Counter::DropIpv6Martian);
            return;
        }
        self.counters.bump(Counter::RxIpv6);
        match upper.protocol {
            protocol::TCP => self.on_tcp_v6(now, ip, upper.payload, meta, fx),
            protocol::UDP => {
                let mut cx = cx!(self);
                let outcome = self.udp.on_datagram(ip, upper.payload, meta, &mut cx, fx);
                if outcome == UdpOutcome::PortClosed {
                    let kind = Icmpv6Kind::DestinationUnreachable {
                        code: icmpv6::code::PORT_UNREACHABLE,
                    };
                    let limit = &mut self.icmp_errors;
                    cx.send_icmpv6_error(now, limit, bytes, ip, kind, false, fx);
                }
            }
            protocol::ICMPV6 => {
                if let Some(report) = cx!(self).on_icmpv6(now, ip, upper.payload, fx) {
                    self.on_report(now, &report, fx);
                }
            }
            extensions::NO_NEXT_HEADER => self.counters.bump(Counter::DropIpv6Protocol),
            _ => {
                // RFC 8200 4: an unrecognized next header is a parameter problem.
                self.counters.bump(Counter::DropIpv6Protocol);
                let kind = Icmpv6Kind::ParameterProblem {
                    code: problem::NEXT_HEADER,
                    pointer: upper.named_at,
                };
                let limit = &mut self.icmp_errors;
                cx!(self).send_icmpv6_error(now, limit, bytes, ip, kind, false, fx);
            }
        }
    }

    fn on_tcp_v6(
        &mut self,
        now: Instant,
        ip: &IpMeta,
        segment: &[u8],
        meta: RxMeta,
        fx: &mut impl Effects,
    ) {
        if ip.group {
            self.counters.bump(Counter::DropTcpGroup);
            return;
        }
        let (IpAddr::V6(src), IpAddr::V6(dst)) = (ip.src, ip.dst) else {
            return;
        };
        if meta.checksum == RxChecksum::Unknown
            && !checksum::is_valid_l4_v6(src, dst, protocol::TCP, segment)
        {
            self.counters.bump(Counter::DropTcpChecksum);
            return;
        }
        self.tcp
            .on_segment(now, ip, segment, meta, &mut cx!(self), fx);
    }
}
