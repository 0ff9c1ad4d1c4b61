//! IPv6 input (RFC 8200): from the packet through its extension headers to its transport.

use core::net::IpAddr;

use slipstack_wire::icmpv6::{self, Icmpv6Kind};
use slipstack_wire::ipv6::{self, Ipv6Packet};
use slipstack_wire::ipv6_extensions::{self as extensions, Refused, Upper, Walked, problem};
use slipstack_wire::{checksum, protocol};

use crate::counters::Counter;
use crate::effects::{Effects, RxChecksum, RxMeta};
use crate::ip::IpMeta;
use crate::ipv6::{accept, is_discovery};
use crate::stack::{Stack, cx};
use crate::time::Instant;
use crate::udp::UdpOutcome;

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
        let ip = match accept(&packet, link_group, meta, &self.net) {
            Ok(ip) => ip,
            Err(Counter::DropIpv6NotOurs) => {
                return self.on_foreign_ipv6(now, bytes, link_group, meta, fx);
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
            protocol::TCP => {
                self.on_tcp_v6(now, ip, upper.payload, meta, fx);
                if self.tcp.saves_syns() {
                    let headers = headers_before(bytes, upper.payload.len());
                    self.tcp.save_syn(ip, headers, upper.payload);
                }
            }
            protocol::UDP => {
                let mut cx = cx!(self);
                let outcome = self.udp.on_datagram(ip, upper.payload, meta, &mut cx, fx);
                if outcome == UdpOutcome::PortClosed && !cx.config.udp_blackhole {
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

    pub(crate) fn on_tcp_v6(
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

/// Returns the headers in front of the last `payload_len` bytes of a packet.
#[cold]
fn headers_before(packet: &[u8], payload_len: usize) -> &[u8] {
    let whole = Ipv6Packet::parse(packet).map_or(0, |it| ipv6::HEADER_LEN + it.payload.len());
    packet
        .get(..whole.saturating_sub(payload_len))
        .unwrap_or_default()
}
