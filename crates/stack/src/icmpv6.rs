//! ICMPv6: echo, received errors, and errors that we send (RFC 4443).
//!
//! RFC 4443 2.2, 3.1, 3.2, 3.3 and 4.1.

use core::net::{IpAddr, Ipv6Addr};

use slipstack_wire::icmpv6::{self, Icmpv6Error, Icmpv6Kind, Icmpv6Message, code};
use slipstack_wire::zone::zoned;
use slipstack_wire::{LinkId, ipv6, ipv6_extensions as extensions, mld, protocol};

use crate::config::Role;
use crate::counters::Counter;
use crate::effects::{Effects, Payload};
use crate::fib::{Choice, Query};
use crate::icmp_limit::IcmpLimit;
use crate::ip::{Ends, IcmpDetails, IpMeta, PathCause, Report};
use crate::ipv6::parse_flow;
use crate::network_layer::{Cx, OutPacket, OutSegment};
use crate::options::MtuDiscovery;
use crate::time::Instant;

/// RFC 4443 2.4 (c): an error fits the smallest MTU.
pub(crate) const QUOTE_MAX: usize = ipv6::MTU_MIN as usize - ipv6::HEADER_LEN - icmpv6::HEADER_LEN;

impl Cx<'_> {
    /// Answers echos and neighbours; an error about a packet of ours is returned with its protocol.
    pub(crate) fn on_icmpv6<'a>(
        &mut self,
        now: Instant,
        ip: &IpMeta,
        bytes: &'a [u8],
        fx: &mut impl Effects,
    ) -> Option<Report<'a>> {
        let (IpAddr::V6(src), IpAddr::V6(dst)) = (ip.src, ip.dst) else {
            return None;
        };
        let message = match Icmpv6Message::parse(src, dst, bytes) {
            Ok(message) => message,
            Err(Icmpv6Error::Malformed) => return self.drop_icmpv6(Counter::DropIcmpMalformed),
            Err(Icmpv6Error::Checksum) => return self.drop_icmpv6(Counter::DropIcmpChecksum),
        };
        let cause = match message.kind {
            Icmpv6Kind::EchoRequest(id) => {
                self.answer_echo_v6(now, ip, Ends { src, dst }, id, message.body, fx);
                return None;
            }
            Icmpv6Kind::NeighbourSolicitation
            | Icmpv6Kind::NeighbourAdvertisement(_)
            | Icmpv6Kind::RouterSolicitation
            | Icmpv6Kind::RouterAdvertisement(_)
            | Icmpv6Kind::Redirect => {
                let verdict = self.on_ndp(now, ip, Ends { src, dst }, &message, fx);
                self.counters.bump(verdict);
                return None;
            }
            Icmpv6Kind::MldQuery(rest) => {
                self.on_mld_query(now, ip, rest, message.body);
                return None;
            }
            Icmpv6Kind::Other {
                kind: mld::V1_REPORT,
                ..
            } => {
                self.on_mld_report(ip, message.body);
                return None;
            }
            kind => cause_of(kind),
        };
        let Some(cause) = cause else {
            return self.drop_icmpv6(Counter::DropIcmpType);
        };
        if let PathCause::FragmentationNeeded { mtu } = cause
            && let Some(peer) = self.find_answered(message.body)
        {
            self.counters.bump(Counter::RxIcmpErrors);
            let peer = zoned(peer, LinkId(ip.link));
            self.learn_path_mtu(now, peer.into(), mtu);
            return None;
        }
        let Some(quoted) = parse_flow(message.body, cause, false) else {
            return self.drop_icmpv6(Counter::DropIcmpQuote);
        };
        let error = quoted.error.on_link(LinkId(ip.link));
        if !self.net.is_own(error.local.ip()) {
            return self.drop_icmpv6(Counter::DropIcmpQuote);
        }
        self.counters.bump(Counter::RxIcmpErrors);
        Some(Report {
            protocol: quoted.protocol,
            error,
            details: details_of(ip, bytes, quoted.rest),
        })
    }

    /// Returns the destination of our quoted packet if that was an echo reply.
    fn find_answered(&self, quoted: &[u8]) -> Option<Ipv6Addr> {
        const ECHO_REPLY: u8 = 129;
        let packet = ipv6::Ipv6Packet::parse_quoted(quoted)?;
        let found = extensions::find_quoted(packet.header.next_header, packet.payload);
        let is_reply = matches!(found, Some((protocol::ICMPV6, [ECHO_REPLY, ..])));
        let is_ours = self.net.routes6.zone_of_own(packet.header.src).is_some();
        (is_reply && is_ours).then_some(packet.header.dst)
    }

    fn drop_icmpv6(&mut self, why: Counter) -> Option<Report<'static>> {
        self.counters.bump(why);
        None
    }

    fn answer_echo_v6(
        &mut self,
        now: Instant,
        ip: &IpMeta,
        Ends { src, dst }: Ends<Ipv6Addr>,
        id: [u8; 4],
        body: &[u8],
        fx: &mut impl Effects,
    ) {
        if self.config.role == Role::Engine {
            self.counters.bump(Counter::DropIcmpRole);
            return;
        }
        // RFC 4443 4.2: an echo to a group is answered from an address of ours.
        let from = match ip.group {
            true => self.net.routes6.find_source(src),
            false => Some(dst),
        };
        let Some(from) = from.filter(|_| !src.is_unspecified()) else {
            self.counters.bump(Counter::DropIcmpGroup);
            return;
        };
        self.counters.bump(Counter::RxIcmpEchos);
        self.counters.bump(Counter::TxIcmpEchos);
        let reply = Icmpv6Message {
            kind: Icmpv6Kind::EchoReply(id),
            body,
        };
        // As on Linux: with the traffic class of the request.
        let query = Query::between(Some(from.into()), src.into());
        let fields = (ip.tos, self.net.ttl(true, 0, || query));
        self.send_icmpv6(now, Ends::new(from, src), fields, &reply, fx);
    }

    /// Sends an error to the sender of `packet`. `to_groups`: even if it went to a multicast group
    /// (RFC 4443 2.4 (e.3)).
    #[expect(
        clippy::too_many_arguments,
        reason = "one error is told by all of them"
    )]
    pub(crate) fn send_icmpv6_error(
        &mut self,
        now: Instant,
        limit: &mut IcmpLimit,
        packet: &[u8],
        ip: &IpMeta,
        kind: Icmpv6Kind,
        to_groups: bool,
        fx: &mut impl Effects,
    ) {
        let (IpAddr::V6(src), IpAddr::V6(dst)) = (ip.src, ip.dst) else {
            return;
        };
        // RFC 4443 2.4 (e): never about an error, a group, or a sender that is not one host.
        let is_about_error = ipv6::Ipv6Packet::parse_quoted(packet).is_some_and(|quoted| {
            let found = extensions::find_quoted(quoted.header.next_header, quoted.payload);
            matches!(found, Some((protocol::ICMPV6, [..=127, ..] | [137, ..])))
        });
        if src.is_unspecified() || is_about_error || (ip.group && !to_groups) {
            return;
        }
        if !ip.local && !limit.may_pass(now, ip.src, self.rng) {
            self.counters.bump(Counter::DropIcmpRate);
            return;
        }
        let from = if ip.group {
            self.net.routes6.find_source(src)
        } else {
            Some(dst)
        };
        let Some(from) = from else { return };
        self.counters.bump(Counter::TxIcmpErrors);
        let body = &packet[..packet.len().min(QUOTE_MAX)];
        let query = Query::between(Some(from.into()), src.into());
        let fields = (0, self.net.ttl(true, 0, || query));
        let message = Icmpv6Message { kind, body };
        self.send_icmpv6(now, Ends::new(from, src), fields, &message, fx);
    }

    pub(crate) fn send_icmpv6(
        &mut self,
        now: Instant,
        Ends { src, dst }: Ends<Ipv6Addr>,
        (traffic_class, hop_limit): (u8, u8),
        message: &Icmpv6Message<'_>,
        fx: &mut impl Effects,
    ) {
        let packet = OutPacket {
            src: src.into(),
            dst: dst.into(),
            protocol: protocol::ICMPV6,
            ports: (0, 0),
            tos: traffic_class,
            ttl: hop_limit,
            dont_fragment: true,
            choice: Choice::NONE,
        };
        let segment = OutSegment {
            header: &message.header(src, dst),
            payload: Payload::Inline(message.body),
            checksum_at: None,
            gso_mss: None,
        };
        let way = (&packet, MtuDiscovery::Want);
        self.output_datagram(now, way, &mut None, &segment, fx);
    }
}

/// Reads the first bytes of an error.
fn details_of<'a>(ip: &IpMeta, message: &[u8], payload: &'a [u8]) -> IcmpDetails<'a> {
    let (kind, code, rest) = match *message {
        [kind, code, _, _, a, b, c, d, ..] => (kind, code, [a, b, c, d]),
        _ => (0, 0, [0; 4]),
    };
    IcmpDetails {
        offender: ip.src,
        local: ip.dst,
        tos: ip.tos,
        ttl: ip.ttl,
        kind,
        code,
        info: u32::from_be_bytes(rest),
        payload,
    }
}

/// RFC 4443 3 and 3.3, RFC 8201 4: the meaning of an error for a sender.
fn cause_of(kind: Icmpv6Kind) -> Option<PathCause> {
    Some(match kind {
        Icmpv6Kind::DestinationUnreachable { code } => match code {
            code::NO_ROUTE => PathCause::NetUnreachable,
            code::PORT_UNREACHABLE => PathCause::PortUnreachable,
            code::BEYOND_SCOPE | code::ADDRESS_UNREACHABLE => PathCause::HostUnreachable,
            // RFC 4443 2.4 (a): an unknown error is passed to the upper layer as well.
            _ => PathCause::AdminProhibited,
        },
        Icmpv6Kind::PacketTooBig { mtu } => PathCause::FragmentationNeeded {
            mtu: u16::try_from(mtu).unwrap_or(u16::MAX),
        },
        Icmpv6Kind::TimeExceeded { .. } => PathCause::TimeExceeded,
        Icmpv6Kind::ParameterProblem { .. } => PathCause::ParameterProblem,
        _ => return None,
    })
}
