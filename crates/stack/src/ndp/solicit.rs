//! Neighbour solicitations, and discovery messages whose link is given rather than looked up.

use core::net::Ipv6Addr;

use slipstack_wire::ethernet::{self, EtherType, EthernetHeader};
use slipstack_wire::icmpv6::{self, Icmpv6Kind, Icmpv6Message};
use slipstack_wire::ipv6::{self, Ipv6Header, solicited_node};
use slipstack_wire::ndp::{HOP_LIMIT, NEIGHBOUR_LEN, Neighbour};
use slipstack_wire::zone::plain;
use slipstack_wire::{TxOffload, protocol};

use crate::counters::{Counter, Counters};
use crate::effects::{Effects, FrameOut, Payload};
use crate::ip::Ends;
use crate::network_layer::transmit;

/// The sender of a solicitation, with its link; 0 = the device's own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sender {
    pub mac: [u8; 6],
    pub ip: Ipv6Addr,
    pub link: u16,
}

/// Asks for a neighbour: all that could be it, or, when `to` is known, that station itself
/// (RFC 4861 7.2.2).
pub(crate) fn send_solicitation(
    target: Ipv6Addr,
    to: Option<[u8; 6]>,
    sender: Sender,
    counters: &mut Counters,
    fx: &mut impl Effects,
) {
    counters.bump(Counter::TxNdpSolicitations);
    let asked = Neighbour {
        target,
        link: (!sender.ip.is_unspecified()).then_some(sender.mac),
        nonce: None,
    };
    solicit(&asked, to, sender, counters, fx);
}

/// Sends a probe for the owner of an address, from the unspecified address (RFC 4862 5.4.2).
pub(crate) fn send_probe(
    target: Ipv6Addr,
    nonce: Option<[u8; 6]>,
    sender: Sender,
    counters: &mut Counters,
    fx: &mut impl Effects,
) {
    counters.bump(Counter::TxNdpProbes);
    let asked = Neighbour {
        target,
        link: None,
        nonce,
    };
    debug_assert!(sender.ip.is_unspecified());
    solicit(&asked, None, sender, counters, fx);
}

fn solicit(
    asked: &Neighbour,
    to: Option<[u8; 6]>,
    sender: Sender,
    counters: &mut Counters,
    fx: &mut impl Effects,
) {
    let target = asked.target;
    let asked = Neighbour {
        target: plain(target),
        ..*asked
    };
    let (dst, dst_mac) = match to {
        Some(to) => (target, to),
        None => {
            let group = solicited_node(target);
            (group, ethernet::multicast_v6(group))
        }
    };
    let mut body = [0; NEIGHBOUR_LEN];
    let len = asked.emit_solicitation(&mut body);
    let message = Icmpv6Message {
        kind: Icmpv6Kind::NeighbourSolicitation,
        body: &body[..len],
    };
    let stations = Stations {
        from: sender.mac,
        to: dst_mac,
        link: sender.link,
    };
    send_over_link(stations, Ends::new(sender.ip, dst), &message, counters, fx);
}

/// The two ends of a frame, and the link that it goes to; 0 = the device's own.
#[derive(Clone, Copy)]
pub(super) struct Stations {
    pub from: [u8; 6],
    pub to: [u8; 6],
    pub link: u16,
}

/// Sends a message to a station or a group over the link, whatever the routes.
pub(super) fn send_over_link(
    stations: Stations,
    Ends { src, dst }: Ends<Ipv6Addr>,
    message: &Icmpv6Message<'_>,
    counters: &mut Counters,
    fx: &mut impl Effects,
) {
    const HEADERS: usize = ethernet::HEADER_LEN + ipv6::HEADER_LEN + icmpv6::HEADER_LEN;
    let mut header = [0; HEADERS];
    EthernetHeader {
        dst: stations.to,
        src: stations.from,
        ethertype: EtherType::IPV6,
    }
    .emit(&mut header);
    Ipv6Header {
        traffic_class: 0,
        flow_label: 0,
        payload_len: (icmpv6::HEADER_LEN + message.body.len()) as u16,
        next_header: protocol::ICMPV6,
        hop_limit: HOP_LIMIT,
        src,
        dst,
    }
    .emit(&mut header[ethernet::HEADER_LEN..]);
    header[HEADERS - icmpv6::HEADER_LEN..].copy_from_slice(&message.header(src, dst));
    let frame = FrameOut {
        header: &header,
        payload: Payload::Inline(message.body),
        offload: TxOffload::on(stations.link),
        local: false,
    };
    transmit(frame, counters, fx);
}
