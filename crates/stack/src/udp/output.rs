//! Sending of datagrams.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::num::NonZeroU16;

use slipstack_wire::{protocol, udp};

use super::{Socket, Udp};
use crate::counters::Counter;
use crate::effects::{DatagramOut, Effects, Payload};
use crate::error::{Reason, SocketError};
use crate::fib::{Choice, Query};
use crate::ids::UdpId;
use crate::ip::IcmpDetails;
use crate::network_layer::{Cx, OutPacket, OutSegment, Output};
use crate::time::Instant;

/// Datagrams that one call sends at most (Linux's UDP_MAX_SEGMENTS).
pub const SEGMENTS_MAX: usize = 128;

impl Udp {
    pub fn send(
        &mut self,
        now: Instant,
        id: UdpId,
        datagram: &DatagramOut<'_>,
        cx: &mut Cx<'_>,
        fx: &mut impl Effects,
    ) -> Result<(), SocketError> {
        let socket = self.find_mut(id)?;
        let to = address(socket, datagram, cx)?;
        let packet = &to.packet;
        let piece = Piece {
            payload: datagram.payload,
            segment: datagram.segment,
        };
        if piece.payload.len() > usize::from(u16::MAX) - udp::HEADER_LEN {
            return Err(SocketError::MessageTooLong);
        }
        // Its way is that of this datagram alone.
        let is_by_itself = datagram.link.is_some()
            || datagram.mark.is_some()
            || cx.net.fib(packet.dst.is_ipv6()).asks_carried();
        if is_by_itself || socket.hop.0 != (packet.src, packet.dst) {
            socket.hop = ((packet.src, packet.dst), None);
        }
        let sent = match piece.payload.len() > piece.segment_len() {
            true => send_many(now, socket, &to, piece, cx, fx),
            false => send_one(now, socket, &to, Piece::whole(piece.payload), cx, fx),
        };
        if is_by_itself {
            socket.hop.1 = None;
        }
        if sent == Err(SocketError::MessageTooLong) && piece.segment.is_none() {
            let is_named = datagram.dst.is_some();
            if let Some((dst, details)) = too_long(now, socket, &to, is_named, cx) {
                fx.returned(id, dst, Reason::MessageTooLong, &details);
            }
        }
        sent
    }
}

/// Bytes that leave as one datagram, or cut into several.
#[derive(Clone, Copy)]
struct Piece<'a> {
    payload: &'a [u8],
    /// Length of the datagrams that they are cut into; `None`: they are one.
    segment: Option<NonZeroU16>,
}

impl<'a> Piece<'a> {
    fn whole(payload: &'a [u8]) -> Piece<'a> {
        Piece {
            payload,
            segment: None,
        }
    }

    fn segment_len(&self) -> usize {
        let len = |size: NonZeroU16| usize::from(size.get());
        self.segment.map_or(self.payload.len(), len)
    }
}

/// The network header of a datagram, and the port that it goes to.
struct Address {
    packet: OutPacket,
    port: u16,
}

fn address(
    socket: &Socket,
    datagram: &DatagramOut<'_>,
    cx: &Cx<'_>,
) -> Result<Address, SocketError> {
    let dst = datagram
        .dst
        .or(socket.remote)
        .ok_or(SocketError::DestinationRequired)?;
    // udp_sendmsg(): a socket connected to it may send there.
    let is_nowhere = datagram.dst.is_some_and(|dst| dst.port() == 0);
    if is_nowhere || dst.ip().is_unspecified() {
        return Err(SocketError::InvalidArgument);
    }
    let is_v6 = dst.is_ipv6();
    let multicast = socket.multicast.as_ref();
    let options = &socket.options.socket;
    let (tos, ttl) = match is_v6 {
        true => (options.tos_v6, options.ttl_v6),
        false => (options.tos, options.ttl),
    };
    let mut choice = match datagram.link {
        Some(link) => Choice {
            link: Choice::link_of(link),
            ..socket.choice
        },
        None => socket.choice_towards(dst.ip()),
    };
    if let Some(mark) = datagram.mark {
        choice.mark = mark;
    }
    if let Some(class) = datagram.class {
        choice.class = class;
    }
    let mut to = Address {
        packet: OutPacket {
            src: find_source(socket, datagram, (dst, choice), cx)?,
            dst: dst.ip(),
            protocol: protocol::UDP,
            ports: (socket.local.port(), dst.port()),
            tos: datagram.tos.unwrap_or(tos),
            ttl: 0,
            dont_fragment: true,
            choice,
        },
        port: dst.port(),
    };
    to.packet.ttl = match (datagram.ttl, multicast) {
        (Some(ttl), _) => ttl,
        _ if !dst.ip().is_multicast() => cx.net.ttl(is_v6, ttl, || to.packet.query()),
        (None, Some(multicast)) => multicast.ttl(is_v6),
        (None, None) => 1,
    };
    Ok(to)
}

/// RFC 1122 4.1.3.5: the program may name the address that a datagram comes from.
fn find_source(
    socket: &Socket,
    datagram: &DatagramOut<'_>,
    (dst, choice): (SocketAddr, Choice),
    cx: &Cx<'_>,
) -> Result<IpAddr, SocketError> {
    let ports = (socket.local.port(), dst.port());
    let query = || {
        Query::to(dst.ip())
            .by(choice)
            .carrying(protocol::UDP, ports)
    };
    match datagram.src {
        Some(src) if src.is_ipv4() == dst.is_ipv4() && cx.net.is_own(src) => Ok(src),
        Some(_) => Err(SocketError::InvalidArgument),
        None if dst.ip().is_multicast() && !is_station(socket.local.ip()) => {
            let chosen = socket.multicast.as_ref();
            let chosen = chosen.and_then(|multicast| multicast.source(dst.is_ipv6()));
            chosen
                .or_else(|| cx.net.find_source_by(&query()))
                .ok_or_else(|| cx.net.refusal(&query()))
        }
        // One that is connected over IPv6 may send over IPv4: its address there is nothing to that.
        None if !is_station(socket.local.ip()) || socket.local.is_ipv4() != dst.is_ipv4() => cx
            .net
            .find_source_by(&query())
            .ok_or_else(|| cx.net.refusal(&query())),
        None => Ok(socket.local.ip()),
    }
}

/// Returns whether something can come from this address: a socket may be bound to a group.
fn is_station(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => !v4.is_unspecified() && !v4.is_multicast() && !v4.is_broadcast(),
        IpAddr::V6(v6) => !v6.is_unspecified() && !v6.is_multicast(),
    }
}

/// Returns the destination and the details of an error of our own about a datagram that its path
/// does not take: ip_local_error() and ipv6_local_error(). `None`: the program does not want them
/// (IP_RECVERR). Over IPv4 the reported port is that of the connection.
#[cold]
fn too_long(
    now: Instant,
    socket: &Socket,
    to: &Address,
    is_named: bool,
    cx: &Cx<'_>,
) -> Option<(SocketAddr, IcmpDetails<'static>)> {
    let dst = to.packet.dst;
    let options = &socket.options.socket;
    let (is_wanted, nobody) = match dst {
        IpAddr::V4(_) => (options.returns_v4, IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
        IpAddr::V6(_) => (options.returns_v6, IpAddr::V6(Ipv6Addr::UNSPECIFIED)),
    };
    let port = match dst {
        IpAddr::V4(_) if is_named => socket.remote.map_or(0, |remote| remote.port()),
        _ => to.port,
    };
    let path = cx.net.find_path_by(now, &to.packet.query())?;
    let details = IcmpDetails {
        offender: nobody,
        local: to.packet.src,
        tos: 0,
        ttl: 0,
        kind: 0,
        code: 0,
        info: path.mtu.into(),
        payload: &[],
    };
    is_wanted.then_some((SocketAddr::new(dst, port), details))
}

/// Cut by the device if it does that, else here.
#[cold]
fn send_many(
    now: Instant,
    socket: &mut Socket,
    to: &Address,
    piece: Piece<'_>,
    cx: &mut Cx<'_>,
    fx: &mut impl Effects,
) -> Result<(), SocketError> {
    let packet = &to.packet;
    let path = cx
        .net
        .find_path_by(now, &packet.query())
        .ok_or_else(|| cx.net.refusal(&packet.query()))?;
    let mtu = if socket.mtu_discovery(packet.dst).heeds_path() {
        path.mtu
    } else {
        cx.net.mtu_of_way(&packet.query())
    };
    let header_len = packet.header_len() + udp::HEADER_LEN;
    let size = piece.segment_len();
    if header_len + size > usize::from(mtu) {
        return Err(SocketError::MessageTooLong);
    }
    // udp_send_skb(): what a device cuts it gives checksums.
    let is_bare = !has_checksum(socket, packet.dst);
    if is_bare || piece.payload.len().div_ceil(size) > SEGMENTS_MAX {
        return Err(SocketError::InvalidArgument);
    }
    if cx.config.has_udp_segmentation && !path.local {
        return send_one(now, socket, to, piece, cx, fx);
    }
    for part in piece.payload.chunks(size) {
        send_one(now, socket, to, Piece::whole(part), cx, fx)?;
    }
    Ok(())
}

fn send_one(
    now: Instant,
    socket: &mut Socket,
    to: &Address,
    piece: Piece<'_>,
    cx: &mut Cx<'_>,
    fx: &mut impl Effects,
) -> Result<(), SocketError> {
    let packet = &to.packet;
    let segment = OutSegment {
        header: &udp::header(socket.local.port(), to.port, piece.payload.len()),
        payload: Payload::Inline(piece.payload),
        checksum_at: has_checksum(socket, packet.dst).then_some(udp::CHECKSUM_AT),
        gso_mss: piece.segment.map(NonZeroU16::get),
    };
    let way = (packet, socket.mtu_discovery(packet.dst));
    if packet.dst.is_multicast() || cx.net.is_broadcast(packet.dst) {
        if loops(socket, packet.dst) {
            cx.loop_back(now, way, &segment, fx);
        }
        if stays_here(packet) {
            return Ok(());
        }
    }
    match cx.output_datagram(now, way, &mut socket.hop.1, &segment, fx) {
        Output::Sent | Output::Held => {
            cx.counters.bump(Counter::TxUdp);
            Ok(())
        }
        Output::Unreachable(Reason::MessageTooLong) => Err(SocketError::MessageTooLong),
        Output::Unreachable(Reason::NetUnreachable) => Err(SocketError::NetUnreachable),
        Output::Unreachable(_) => Err(SocketError::HostUnreachable),
    }
}

fn has_checksum(socket: &Socket, dst: IpAddr) -> bool {
    let options = &socket.options.socket;
    match dst {
        IpAddr::V4(_) => !options.no_checksum,
        IpAddr::V6(_) => !options.no_checksum_v6,
    }
}

/// RFC 1112 6.1, RFC 4291 2.7: returns whether a multicast packet stays within this host; scope 0
/// is reserved.
fn stays_here(packet: &OutPacket) -> bool {
    const INTERFACE_LOCAL: u8 = 1;
    let is_narrow = match packet.dst {
        IpAddr::V4(_) => false,
        IpAddr::V6(group) => group.octets()[1] & 0x0f <= INTERFACE_LOCAL,
    };
    packet.dst.is_multicast() && (packet.ttl == 0 || is_narrow)
}

/// Returns whether our own sockets receive this socket's packets to a group; broadcasts they always
/// receive, as on Linux.
fn loops(socket: &Socket, group: IpAddr) -> bool {
    let multicast = socket.multicast.as_ref();
    !group.is_multicast() || multicast.is_none_or(|multicast| multicast.loops(group.is_ipv6()))
}
