//! Descriptions of received packets for the transports, and of packets that ICMP errors quote.

use core::net::{IpAddr, SocketAddr};

use slipstack_wire::ipv4::Ipv4Packet;
use slipstack_wire::zone::zoned_ip;
use slipstack_wire::{LinkId, protocol, tcp};

/// Source and destination of a packet, or of its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends<A> {
    pub src: A,
    pub dst: A,
}

impl<A> Ends<A> {
    #[inline]
    pub const fn new(src: A, dst: A) -> Self {
        Self { src, dst }
    }
}

/// The network header of a received packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpMeta {
    pub src: IpAddr,
    pub dst: IpAddr,
    pub tos: u8,
    pub ttl: u8,
    /// Sent to a link-layer or IP broadcast or multicast address.
    pub group: bool,
    /// Looped back by our own side, not from the wire.
    pub local: bool,
    /// The link by which it arrived; 0 = the device's own.
    pub link: u16,
}

/// A multicast group on one link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkedGroup {
    pub group: IpAddr,
    pub link: u16,
}

/// A packet of ours did not arrive: an ICMP error, or a neighbour that does not answer.
/// Unauthenticated; RFC 5927 limits its effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathError {
    /// Our side of the quoted packet.
    pub local: SocketAddr,
    pub remote: SocketAddr,
    pub cause: PathCause,
    /// TCP: the quoted sequence number, which must be of data in flight.
    pub sequence: Option<u32>,
    /// From our own neighbour cache, so known to be true.
    pub trusted: bool,
}

impl PathError {
    /// Returns the error about a packet of this link.
    pub(crate) fn on_link(self, link: LinkId) -> PathError {
        let there = |addr: SocketAddr| match addr.is_ipv6() {
            true => SocketAddr::new(zoned_ip(addr.ip(), link), addr.port()),
            false => addr,
        };
        PathError {
            local: there(self.local),
            remote: there(self.remote),
            ..self
        }
    }
}

/// The message that reported a [`PathError`], or its equivalent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcmpDetails<'a> {
    /// Sender of the error; our own address for a neighbour that does not answer, unspecified if
    /// the path does not take a datagram and nobody was asked.
    pub offender: IpAddr,
    /// To which address of ours, with which type of service and time to live.
    pub local: IpAddr,
    pub tos: u8,
    pub ttl: u8,
    /// Type and code of ICMP, of its sender's version.
    pub kind: u8,
    pub code: u8,
    /// The MTU, or the position of the error.
    pub info: u32,
    /// The quotation behind the first eight bytes of the transport's header.
    pub payload: &'a [u8],
}

/// An ICMP error about TCP or UDP.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Report<'a> {
    pub protocol: u8,
    pub error: PathError,
    pub details: IcmpDetails<'a>,
}

/// Bytes of a transport's header that every error quotes (RFC 792).
pub(crate) const QUOTED_LEN: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathCause {
    NetUnreachable,
    HostUnreachable,
    ProtocolUnreachable,
    PortUnreachable,
    /// Next-hop MTU of RFC 1191; 0 from routers that do not know it.
    FragmentationNeeded {
        mtu: u16,
    },
    SourceRouteFailed,
    AdminProhibited,
    TimeExceeded,
    ParameterProblem,
}

/// A packet of ours that an ICMP error quotes.
pub(crate) struct QuotedPacket<'a> {
    pub protocol: u8,
    pub error: PathError,
    /// The bytes behind the first eight of the transport header.
    pub rest: &'a [u8],
}

/// Reads the flow out of a packet of ours: headers as we sent them, possibly cut off after eight
/// bytes of the transport header.
pub(crate) fn parse_flow<'a>(
    packet: &Ipv4Packet<'a>,
    cause: PathCause,
    trusted: bool,
) -> Option<QuotedPacket<'a>> {
    let protocol = packet.header.protocol;
    if packet.fragment_offset != 0 || !matches!(protocol, protocol::TCP | protocol::UDP) {
        return None;
    }
    let quoted = tcp::Quoted::parse(packet.payload)?;
    let error = PathError {
        local: SocketAddr::new(IpAddr::V4(packet.header.src), quoted.src_port),
        remote: SocketAddr::new(IpAddr::V4(packet.header.dst), quoted.dst_port),
        cause,
        sequence: (protocol == protocol::TCP).then_some(quoted.sequence),
        trusted,
    };
    Some(QuotedPacket {
        protocol,
        error,
        rest: packet.payload.get(QUOTED_LEN..).unwrap_or(&[]),
    })
}
