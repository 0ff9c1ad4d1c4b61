//! Programs of extended BPF that choose a socket of a SO_REUSEPORT group (run_bpf_select()).

use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use slipstack_terms::{Extended, Seen, Surroundings, Verdict};
use slipstack_wire::ethernet::EtherType;
use slipstack_wire::ipv4::{self, Ipv4Header};
use slipstack_wire::ipv6::{self, Ipv6Header};
use slipstack_wire::{protocol, udp};

use crate::chooser::Member;
use crate::effects::{DatagramIn, Effects};
use crate::rng::Rng;

/// Errors of bpf_sk_select_reuseport(): the map has no such element, or one of another group.
const ENOENT: i64 = -2;
const EBADFD: i64 = -77;

/// The answer of a program.
pub(super) enum Answer {
    Selected(Member),
    /// The choice is left to the hash.
    Any,
    Dropped,
}

/// A datagram at a group's program.
pub(super) struct Asked<'a> {
    pub(super) datagram: &'a DatagramIn<'a>,
    /// The payload of the first datagram, if several have been joined.
    pub(super) payload: &'a [u8],
    /// The address that the group is bound to.
    pub(super) bound: SocketAddr,
    pub(super) hash: u32,
}

/// Runs a group's program. One that fails leaves the choice to the hash.
pub(super) fn ask(
    program: &Extended,
    members: &[Member],
    asked: &Asked<'_>,
    rng: &mut Rng,
    fx: &mut impl Effects,
) -> Answer {
    let datagram = asked.datagram;
    let (network, len) = header(datagram, asked.payload.len());
    let seen = Seen {
        network: &network[..len],
        transport: udp::header(
            datagram.from.port(),
            datagram.to.port(),
            asked.payload.len(),
        ),
        payload: asked.payload,
        ether_type: match datagram.to {
            SocketAddr::V4(_) => EtherType::IPV4.0,
            SocketAddr::V6(_) => EtherType::IPV6.0,
        },
        protocol: protocol::UDP,
        is_any: asked.bound.ip().is_unspecified(),
        hash: asked.hash,
    };
    let mut around = Around {
        members,
        rng,
        fx,
        selected: None,
    };
    match (program.run(&seen, &mut around), around.selected) {
        (Some(Verdict::Pass), Some(member)) => Answer::Selected(member),
        (Some(Verdict::Drop), _) => Answer::Dropped,
        (Some(Verdict::Pass) | None, _) => Answer::Any,
    }
}

/// The header of IP as it was, but for what the stack does not keep of it; and its length.
fn header(datagram: &DatagramIn<'_>, payload_len: usize) -> ([u8; ipv6::HEADER_LEN], usize) {
    let mut bytes = [0; ipv6::HEADER_LEN];
    let len = (udp::HEADER_LEN + payload_len) as u16;
    match (datagram.from.ip(), datagram.to.ip()) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let header = Ipv4Header {
                tos: datagram.tos,
                total_len: len + ipv4::HEADER_LEN as u16,
                identification: 0,
                dont_fragment: true,
                ttl: datagram.ttl,
                protocol: protocol::UDP,
                src,
                dst,
            };
            header.emit(&mut bytes[..ipv4::HEADER_LEN]);
            (bytes, ipv4::HEADER_LEN)
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let header = Ipv6Header {
                traffic_class: datagram.tos,
                flow_label: 0,
                payload_len: len,
                next_header: protocol::UDP,
                hop_limit: datagram.ttl,
                src,
                dst,
            };
            header.emit(&mut bytes);
            (bytes, ipv6::HEADER_LEN)
        }
        _ => (bytes, 0),
    }
}

struct Around<'a, F> {
    members: &'a [Member],
    rng: &'a mut Rng,
    fx: &'a mut F,
    selected: Option<Member>,
}

impl<F: Effects> Surroundings for Around<'_, F> {
    fn key_len(&self, map: u32) -> Option<usize> {
        self.fx.key_len(map)
    }

    fn look_up(&mut self, map: u32, key: &[u8]) -> Option<Vec<u8>> {
        self.fx.look_up(map, key)
    }

    fn select(&mut self, map: u32, key: &[u8]) -> i64 {
        let value = self.fx.look_up(map, key);
        let cookie = value.and_then(|value| value.try_into().ok());
        let Some(cookie) = cookie.map(u64::from_ne_bytes) else {
            return ENOENT;
        };
        let Some(found) = self.members.iter().find(|it| it.cookie == cookie) else {
            return EBADFD;
        };
        self.selected = Some(*found);
        0
    }

    fn random(&mut self) -> u32 {
        self.rng.next_u32()
    }

    fn now_ns(&self) -> u64 {
        self.fx.monotonic_ns()
    }

    fn processor(&self) -> u32 {
        self.fx.processor()
    }
}
