//! Input of fragments: reassembly, and errors to their senders.

mod waiting;

use alloc::vec::Vec;
use core::net::IpAddr;

use slipstack_wire::icmpv6::Icmpv6Kind;
use slipstack_wire::ipv4::{self, Ipv4Header, Ipv4Packet};
use slipstack_wire::ipv6::{self, Ipv6Header, Ipv6Packet};
use slipstack_wire::ipv6_extensions as extensions;
use slipstack_wire::{protocol, tcp};

use crate::counters::{Counter, Counters};
use crate::effects::{Effects, RxChecksum, RxMeta};
use crate::fragments::{Fragment, Key, Refusal};
use crate::ip::{Ends, IpMeta};
use crate::ipv6::is_discovery;
use crate::stack::{Stack, cx};
use crate::time::Instant;

pub(crate) use waiting::Reassembly;

/// ICMP and ICMPv6 time exceeded: in reassembly.
const REASSEMBLY: u8 = 1;

fn count(counters: &mut Counters, (why, fragments): Refusal) {
    counters.add(why, fragments);
}

impl Stack {
    /// A fragment that passed all checks of a packet; the last one that is missing makes a packet.
    #[cold]
    #[inline(never)]
    pub(crate) fn on_fragment_v4(
        &mut self,
        now: Instant,
        bytes: &[u8],
        packet: &Ipv4Packet<'_>,
        ip: &IpMeta,
        link_group: bool,
        fx: &mut impl Effects,
    ) {
        self.counters.bump(Counter::RxFragments);
        // RFC 791 3.2 counts in eights: the remainder is ignored (as on Linux).
        let len = packet.payload.len();
        let len = if packet.has_more { len & !7 } else { len };
        let payload = &packet.payload[..len];
        let end = usize::from(packet.fragment_offset) + len;
        // RFC 791 3.1: no packet is longer than its length field allows ("ping of death").
        if payload.is_empty() || end > usize::from(u16::MAX) - ipv4::HEADER_LEN {
            self.counters.bump(Counter::DropFragmentMalformed);
            return;
        }
        let fragment = Fragment {
            key: Key {
                src: ip.src,
                dst: ip.dst,
                protocol: packet.header.protocol,
                identification: packet.header.identification.into(),
            },
            offset: packet.fragment_offset,
            has_more: packet.has_more,
            tos: packet.header.tos,
            packet: bytes,
            next_header: packet.header.protocol,
            payload,
        };
        let Self {
            reassembly,
            config,
            rng,
            counters,
            ..
        } = self;
        let waiting = reassembly.get_or_insert_with(|| Reassembly::new(config, rng).into());
        let taken = waiting
            .v4
            .take(now, &fragment, |refusal| count(counters, refusal));
        self.note_fragments();
        let Some(whole) = taken else { return };
        let mut bytes = alloc::vec![0; ipv4::HEADER_LEN];
        Ipv4Header {
            tos: whole.tos,
            total_len: (ipv4::HEADER_LEN + whole.payload.len()) as u16,
            dont_fragment: false,
            ..packet.header
        }
        .emit(&mut bytes);
        bytes.extend_from_slice(&whole.payload);
        self.counters.bump(Counter::RxReassembled);
        self.on_ipv4(now, &bytes, link_group, judged_alone(ip), fx);
    }

    /// Takes an IPv6 fragment; `ip` is the fragment's.
    #[cold]
    pub(crate) fn on_fragment_v6(
        &mut self,
        now: Instant,
        (bytes, packet): (&[u8], &Ipv6Packet<'_>),
        found: &extensions::Fragment<'_>,
        (ip, link_group): (&IpMeta, bool),
        fx: &mut impl Effects,
    ) {
        self.counters.bump(Counter::RxFragments);
        if found.offset == 0 && !has_transport_header(found) {
            self.counters.bump(Counter::DropFragmentMalformed);
            let kind = Icmpv6Kind::ParameterProblem {
                code: extensions::problem::FIRST_FRAGMENT,
                pointer: 0,
            };
            let limit = &mut self.icmp_errors;
            cx!(self).send_icmpv6_error(now, limit, bytes, ip, kind, false, fx);
            return;
        }
        if found.payload.is_empty() {
            self.counters.bump(Counter::DropFragmentMalformed);
            return;
        }
        let fragment = Fragment {
            key: Key {
                src: ip.src,
                dst: ip.dst,
                protocol: 0,
                identification: found.identification,
            },
            offset: found.offset,
            has_more: found.has_more,
            tos: packet.header.traffic_class,
            packet: bytes,
            next_header: found.next_header,
            payload: found.payload,
        };
        let Self {
            reassembly,
            config,
            rng,
            counters,
            ..
        } = self;
        let waiting = reassembly.get_or_insert_with(|| Reassembly::new(config, rng).into());
        let taken = waiting
            .v6
            .take(now, &fragment, |refusal| count(counters, refusal));
        self.note_fragments();
        let Some(whole) = taken else { return };
        if let Some(why) = refused_inside(whole.next_header, &whole.payload) {
            self.counters.bump(why);
            return;
        }
        let mut bytes = alloc::vec![0; ipv6::HEADER_LEN];
        Ipv6Header {
            traffic_class: whole.tos,
            payload_len: whole.payload.len() as u16,
            next_header: whole.next_header,
            ..packet.header
        }
        .emit(&mut bytes);
        bytes.extend_from_slice(&whole.payload);
        self.counters.bump(Counter::RxReassembled);
        self.on_ipv6(now, &bytes, link_group, judged_alone(ip), fx);
    }

    /// Drops packets whose remaining fragments did not arrive.
    #[cold]
    pub(crate) fn on_fragment_timers(&mut self, now: Instant, fx: &mut impl Effects) {
        let mut told_v4: Vec<Vec<u8>> = Vec::new();
        let mut told_v6: Vec<Vec<u8>> = Vec::new();
        if let Some(waiting) = &mut self.reassembly {
            for (fragments, first_fragments) in [
                (&mut waiting.v4, &mut told_v4),
                (&mut waiting.v6, &mut told_v6),
            ] {
                while let Some(expired) = fragments.pop_expired(now) {
                    self.counters
                        .add(Counter::DropFragmentTimeout, expired.fragments);
                    if !expired.first.is_empty() {
                        first_fragments.push(expired.first);
                    }
                }
            }
        }
        // RFC 792, RFC 8200 4.5: only the sender of a first fragment is informed.
        for first in told_v4 {
            let Ok(packet) = Ipv4Packet::parse_quoted(&first) else {
                continue;
            };
            let ends = Ends::new(packet.header.src.into(), packet.header.dst.into());
            let ip = self.meta_of(ends, packet.header.tos);
            let limit = &mut self.icmp_errors;
            cx!(self).send_reassembly_exceeded(now, limit, &first, &ip, fx);
        }
        for first in told_v6 {
            let Some(packet) = Ipv6Packet::parse_quoted(&first) else {
                continue;
            };
            let ends = Ends::new(packet.header.src.into(), packet.header.dst.into());
            let ip = self.meta_of(ends, packet.header.traffic_class);
            let kind = Icmpv6Kind::TimeExceeded { code: REASSEMBLY };
            let limit = &mut self.icmp_errors;
            cx!(self).send_icmpv6_error(now, limit, &first, &ip, kind, false, fx);
        }
    }

    fn meta_of(&self, Ends { src, dst }: Ends<IpAddr>, tos: u8) -> IpMeta {
        IpMeta {
            src,
            dst,
            tos,
            ttl: 0,
            group: !self.net.is_own(dst),
            local: false,
            link: 0,
        }
    }
}

/// Returns metadata without the device's verdict on the transport checksum, which does not apply to
/// the whole packet.
fn judged_alone(ip: &IpMeta) -> RxMeta {
    RxMeta {
        checksum: RxChecksum::Unknown,
        gso: false,
        segment: 0,
        local: ip.local,
        link: ip.link,
    }
}

/// Returns the counter of a packet that must not come in fragments.
fn refused_inside(next_header: u8, payload: &[u8]) -> Option<Counter> {
    match extensions::walk(next_header, payload) {
        // Fragments inside fragments are of no use, and could nest without end.
        Ok(extensions::Walked::Fragment(_)) => Some(Counter::DropFragmentMalformed),
        Ok(extensions::Walked::Whole(upper)) if is_discovery(&upper) => {
            Some(Counter::DropNdpFragment)
        }
        _ => None,
    }
}

/// RFC 7112 5: a first fragment holds all headers.
fn has_transport_header(first: &extensions::Fragment<'_>) -> bool {
    let needed = |number| match number {
        protocol::TCP => tcp::HEADER_LEN,
        protocol::UDP | protocol::ICMPV6 => 8,
        _ => 0,
    };
    extensions::find_quoted(first.next_header, first.payload)
        .is_some_and(|(number, rest)| rest.len() >= needed(number))
}
